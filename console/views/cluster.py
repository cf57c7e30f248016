"""Rows about nodes."""

from __future__ import annotations

from typing import Final, NamedTuple

from tarry.client.errors import TarryError
from tarry.client.operators.cluster_status import ClusterStatus, Member
from tarry.console.views import cells
from tarry.console.views.table import Column, Row
from tarry.console.watch import Look


def _clock(row: Row) -> str:
    offset_ms: int | None = row["clock_ms"]
    return "" if offset_ms is None else f"{offset_ms:+,} ms" if offset_ms else "0 ms"


def _turn(row: Row) -> str:
    return "" if row["turn_ms"] is None else f"{row['turn_ms']:.0f} ms by {row['turn'].cause}"


COLUMNS = (
    Column("node", "Node"),
    Column("address", "Address"),
    Column("role", "Role", show=lambda row: cells.badge(row["role"], row["kind"])),
    Column("term", "Term", number=True),
    Column("applied", "Applied", number=True),
    Column("lag", "Behind", number=True),
    Column("clock_ms", "Clock", number=True, show=_clock),
    Column("turn_ms", "Longest turn", number=True, show=_turn),
    Column("version", "Version"),
)
LED_COLUMNS = (
    Column("at_ms", "Seen from", show=lambda row: cells.time(row["at_ms"])),
    Column("leader", "Leader", show=lambda row: row["leader"] or "none"),
    Column("term", "Term", number=True),
)


TIMELINE: Final = 1_000
"""Units of the picture of leaders, from the first that was seen until now."""
COLORS: Final = 6


class LedSpan(NamedTuple):
    """A part of that picture: who led from when until when."""

    leader: str
    """Empty: none was known."""
    term: int
    from_ms: int
    until_ms: int
    x: float
    width: float
    color: int
    """One of ``COLORS``, the same for one node; -1: nobody led."""


def led_spans(look: Look) -> list[LedSpan]:
    """Return who led while pages were open, as parts of a picture; a part is one unit wide at least."""
    if not look.leaders:
        return []
    begins = [led.at_ms for led in look.leaders]
    now_ms = max(look.best.now_ms if look.best is not None else 0, begins[-1])
    first, whole_ms = begins[0], max(1, now_ms - begins[0])
    names = sorted({led.leader for led in look.leaders} - {""})
    return [
        LedSpan(
            led.leader,
            led.term,
            led.at_ms,
            until_ms,
            TIMELINE * max(0, led.at_ms - first) / whole_ms,
            max(1.0, TIMELINE * max(0, until_ms - led.at_ms) / whole_ms),
            names.index(led.leader) % COLORS if led.leader else -1,
        )
        for led, until_ms in zip(look.leaders, [*begins[1:], now_ms], strict=True)
    ]


def node_rows(look: Look) -> list[Row]:
    """Return a row for each node that answers, and for each member that does not."""
    best = look.best
    members = {member.address: member for member in best.members} if best is not None else {}
    return [
        _row(address, look.answers.get(address), members.get(address), best)
        for address in sorted({*look.answers, *members})
    ]


def _row(
    address: str, answer: ClusterStatus | TarryError | None, member: Member | None, best: ClusterStatus | None
) -> Row:
    row: dict[str, object] = {
        "node": member.node if member is not None else "",
        "address": address,
        **_role(answer),
        **dict.fromkeys(("term", "applied", "lag", "turn_ms", "turn")),
        "clock_ms": member.clock_offset_ms if member is not None and member.connected else None,
        "version": "",
    }
    if best is not None and best.lease and member is not None and member.connected and member.match_index:
        row["lag"] = max(0, best.commit_index - member.match_index)
    if isinstance(answer, ClusterStatus):
        row |= {
            "node": answer.node,
            "term": answer.term,
            "applied": answer.applied_index,
            "turn_ms": answer.turns.longest.held_ms if answer.turns.over_20_ms else None,
            "turn": answer.turns.longest,
            "version": answer.version,
        }
    return row


def _role(answer: ClusterStatus | TarryError | None) -> dict[str, str]:
    if not isinstance(answer, ClusterStatus):
        return {"role": f"no answer: {answer.reason}" if answer else "no answer", "kind": "bad"}
    if answer.lease:
        return {"role": "leader", "kind": "good"}
    if answer.leader == answer.node:
        return {"role": "leader, not serving yet", "kind": "warn"}
    return (
        {"role": "follower", "kind": "plain"} if answer.leader else {"role": "no leader known", "kind": "bad"}
    )
