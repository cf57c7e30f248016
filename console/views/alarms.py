"""Alarms: what is wrong with the cluster, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tarry.client.cli.times import duration_text
from tarry.client.errors import Refused, TarryError
from tarry.client.operators.cluster_status import Answers, ClusterStatus

OVERDUE_MS: Final = 10_000
LATE_P99_MS: Final = 1_000
CLOCK_OFF_MS: Final = 100
LAG_ENTRIES: Final = 1_000


class Alarm(NamedTuple):
    """Something that is wrong."""

    kind: str
    """``bad``: messages are late or none are accepted, or one more fault may do that; ``warn``: to be
    looked at today."""
    text: str
    advice: str


def alarms(answers: Answers, best: ClusterStatus | None) -> list[Alarm]:
    """Return what is wrong, the worst first."""
    if best is None:
        advice = "See that the nodes run, that --server names them, and that no firewall is between."
        return [Alarm("bad", "no node answers", advice)]
    found = [*_of_cluster(best), *_of_members(answers, best), *_of_nodes(answers)]
    return sorted(found, key=lambda alarm: alarm.kind)  # "bad" before "warn"; else as found


def _of_cluster(best: ClusterStatus) -> Iterator[Alarm]:
    if not best.lease and best.leader:
        advice = "It does within seconds; if not, see the log of that node."
        yield Alarm("warn", f"{best.leader} leads, and does not serve yet", advice)
    elif not best.lease:
        advice = "Start what is down: a majority of the members must run and reach each other."
        yield Alarm("bad", "no node leads: nothing is accepted or delivered", advice)
    if best.oldest_overdue_ms > OVERDUE_MS:
        text = f"{best.overdue:,} messages are overdue, the oldest by {duration_text(best.oldest_overdue_ms)}"
        yield Alarm(
            "bad", text, "See which topics are on the page Topics; the leader's log says what it does."
        )
    elif best.lateness.released and best.lateness.p99_ms > LATE_P99_MS:
        text = f"one message in a hundred was released {duration_text(best.lateness.p99_ms)} late"
        yield Alarm("warn", text, "See the leader's longest turn below, its disk, and what else runs there.")
    for one in best.differing:
        text = f"{one.key} is {one.value} at {one.node} and {one.other_value} at {one.other}"
        yield Alarm("warn", text, "Make the setting equal in all configurations, and start the nodes again.")


def _of_members(answers: Answers, best: ClusterStatus) -> Iterator[Alarm]:
    for member in best.members:
        answer = answers.get(member.address)
        if isinstance(answer, Refused):
            text = f"{member.node} refuses to answer: {answer.text}"
            yield Alarm("warn", text, "See that its tokens are those of the others.")
        elif not isinstance(answer, ClusterStatus):
            advice = "See that it runs; while it is down, another fault may leave no majority."
            yield Alarm("bad", f"{member.node} does not answer at {member.address}", advice)
        elif not member.connected:
            text = f"{member.node} is not connected to {best.node}"
            yield Alarm("bad", text, "See that the nodes reach each other's peer ports.")
        elif best.lease and best.applied_index - member.match_index > LAG_ENTRIES:
            lag = best.applied_index - member.match_index
            text = f"{member.node} is {lag:,} entries behind"
            yield Alarm("warn", text, "It catches up by itself, unless its disk or its link is too slow.")
        if member.connected and abs(member.clock_offset_ms) > CLOCK_OFF_MS:
            off = duration_text(abs(member.clock_offset_ms))
            side = "ahead of" if member.clock_offset_ms > 0 else "behind"
            text = f"the clock of {member.node} is {off} {side} that of {best.node}"
            yield Alarm("warn", text, "Mend the time synchronization (NTP, PTP) of the one that is wrong.")
        if member.blocked:
            yield Alarm(
                "warn", f"{best.node} cannot reach {member.node} at {member.blocked}", "Open the port."
            )


def _of_nodes(answers: Answers) -> Iterator[Alarm]:
    for answer in answers.values():
        if isinstance(answer, TarryError):
            continue
        node = answer.node
        if answer.damaged_left:
            text = f"{node} has {answer.damaged_left:,} damaged records that no peer in reach has whole"
            yield Alarm(
                "bad", text, "Start all nodes; if it stays, see TarryDamageLeft in node/OPERATING.md."
            )
        if answer.ledger.failure:
            text = f"{node} writes no ledger: {answer.ledger.failure}"
            yield Alarm("warn", text, "Mend what the text names, such as a full disk.")
        if answer.ledger.dropped:
            text = f"the ledger of {node} lacks {answer.ledger.dropped:,} rows"
            yield Alarm("warn", text, "A reconciliation of this time finds a gap; see the node's log.")
        if answer.audit.failure or answer.audit.lost:
            text = f"{node} lost {answer.audit.lost:,} lines of its audit log: {answer.audit.failure}"
            yield Alarm("warn", text, "Mend what the text names, such as a full disk.")
        if answer.reload.failure:
            text = f"{node} goes on with its old certificates and tokens: {answer.reload.failure}"
            yield Alarm("warn", text, "Mend the file that the text names; it is read again by itself.")
