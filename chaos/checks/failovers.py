"""Time from a kill of the leader to the next delivery."""

from __future__ import annotations

from typing import NamedTuple

from tarry.chaos.history import Event, History

_HEARD = "heard"
_UP = frozenset({"resume", _HEARD})
_STATES = frozenset({"start", "resume", "kill", "stop", "pause"})
TOGETHER_MS = 100  # kills within this time count as one


class Failovers(NamedTuple):
    """Times to the first delivery of a killed leader's successor, ms.

    `from_kill`: where a majority was up; `from_majority`: where it was not, from when it was again, that is
    when the node that completed it first answered (nodes are asked twice a second).
    """

    from_kill: list[int]
    from_majority: list[int]


def failovers_ms(history: History) -> Failovers:
    """Return them for each SIGKILL of the node that had delivered last."""
    found = Failovers([], [])
    for event in history.events:
        before = [one for one in history.delivered if one.received_mono_ms <= event.at_mono_ms]
        if event.name != "kill" or not before:
            continue
        last = max(before, key=lambda one: (one.term, one.received_mono_ms))
        after = [one.received_mono_ms for one in history.delivered if one.term > last.term]
        if last.node != event.node or not after:
            continue
        since_ms = _majority_ms(history, event)
        if since_ms == event.at_mono_ms:
            found.from_kill.append(min(after) - since_ms)
        elif since_ms is not None:
            found.from_majority.append(max(0, min(after) - since_ms))
    return found


def _majority_ms(history: History, kill: Event) -> int | None:
    """Return when a majority was up, at the kill or after it; None: never seen.

    A node is up once it has answered since it was started, or goes on after a pause.
    """
    first_ms = min(one.received_mono_ms for one in history.delivered)
    members = {one.node for one in history.events if one.name == "start" and one.at_mono_ms <= first_ms}
    moments = [(one.at_mono_ms, one.node, one.name) for one in history.events if one.name in _STATES]
    moments += [(one.at_mono_ms, one.node, _HEARD) for one in history.nodes]
    moments += [(kill.at_mono_ms + TOGETHER_MS, "", "")]  # from here on a majority counts
    state: dict[str, str] = {}
    for at_ms, node, name in sorted(moments):
        if name != _HEARD or state.get(node) == "start":
            state[node] = name
        majority = sum(each in _UP for each in state.values()) > len(members) // 2
        if majority and at_ms >= kill.at_mono_ms + TOGETHER_MS:
            return kill.at_mono_ms if at_ms == kill.at_mono_ms + TOGETHER_MS else at_ms
    return None
