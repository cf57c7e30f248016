"""Rows of one chunk of generated messages, planted faults included. Pure: columns to columns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from tarry.proto.ledger.schema import Kind

Column: TypeAlias = np.ndarray[Any, np.dtype[Any]]

KINDS: Final = tuple(Kind)
DETAILS: Final = ("NACKED", "LEASE_EXPIRED", "leader", "CREATED")
OUTAGE_MS: Final = 500
SLOT_MS: Final = 10  # what is committed within one makes one entry

FAULTS: Final = (
    "failover", "lease_expiry", "nack", "client_retry", "beyond_bound",
    "never_scheduled", "never_released", "never_delivered", "released_twice", "early",
    "cancelled", "delivered_after_cancel", "replicas_disagree", "out_of_order",
)  # fmt: skip
"""What is planted: the duplicates by cause, then the checks by name. `cancelled` breaks nothing."""


@dataclass(slots=True)
class Rows:
    """Rows being gathered: columns of equal length, one part for each `add`; -1 where one does not apply."""

    parts: list[dict[str, Column]] = field(default_factory=list)

    def add(self, kind: Kind, messages: dict[str, Column], at_ms: Column, **more: Column | int) -> None:
        """Add one row for each of the messages."""
        columns = {**messages, **more, "kind": KINDS.index(kind), "at_ms": at_ms}
        n = len(at_ms)
        self.parts.append({name: np.broadcast_to(np.asarray(value), n) for name, value in columns.items()})

    def columns(self) -> dict[str, Column]:
        """Return them in order of time."""
        names = {name for part in self.parts for name in part}
        whole = {
            name: np.concatenate([part.get(name, np.full(len(part["at_ms"]), -1)) for part in self.parts])
            for name in names
        }
        order = np.argsort(whole["at_ms"], kind="stable")
        return {name: column[order] for name, column in whole.items()}


@dataclass(frozen=True, slots=True)
class Life:
    """A chunk's messages, as columns of shape (n,), and what becomes of them.

    `messages` holds what every row of a message has; `chosen` the places of each fault's messages. The leader
    of `term` dies at `crash_ms`, that of the next term serves `OUTAGE_MS` later.
    """

    messages: dict[str, Column]
    delivered_ms: Column
    term: int
    crash_ms: int
    chosen: dict[str, Column]

    def _of(self, places: Column) -> dict[str, Column]:
        return {name: column[places] for name, column in self.messages.items()}

    def _but(self, *faults: str) -> Column:
        keep = np.ones(len(self.delivered_ms), np.bool_)
        for fault in faults:
            keep[self.chosen[fault]] = False
        return np.flatnonzero(keep)

    def _stalled(self, at_ms: Column) -> Column:
        """Return the times moved past the outage, as nothing is committed between crash and election."""
        elected_ms = self.crash_ms + OUTAGE_MS - SLOT_MS
        return np.where((at_ms > self.crash_ms) & (at_ms < elected_ms), elected_ms, at_ms)

    def _terms(self, at_ms: Column) -> Column:
        return np.where(at_ms < self.crash_ms + OUTAGE_MS - SLOT_MS, self.term, self.term + 1)

    def replicated(self) -> dict[str, Column]:
        """Return what every node writes; terms set, index and position not."""
        due_ms, rows = self.messages["due_ms"], Rows()
        known = self._but("never_scheduled")
        rows.add(Kind.SCHEDULED, self._of(known), due_ms[known] - 900, offset=-1)
        out = self._but("never_scheduled", "never_released", "cancelled", "delivered_after_cancel")
        ahead_ms = np.full(len(due_ms), 50)
        ahead_ms[self.chosen["early"]] = 150
        rows.add(Kind.RELEASED, self._of(out), (due_ms - ahead_ms)[out])
        for fault in ("cancelled", "delivered_after_cancel"):
            places = self.chosen[fault]
            rows.add(Kind.CANCELLED, self._of(places), due_ms[places] - 500, offset=-1)
        twice = self.chosen["released_twice"]
        again = self._of(twice)
        again["offset"] = again["offset"] + 1_000_000_000
        rows.add(Kind.RELEASED, again, due_ms[twice] - 20)
        for fault, wait_ms in (("nack", 16), ("lease_expiry", 100)):
            places = self.chosen[fault]
            at_ms, detail = self.delivered_ms[places] + wait_ms, DETAILS.index(_REASON[fault])
            rows.add(Kind.RETRIED, self._of(places), at_ms, group=0, attempt=1, detail=detail)
            rows.add(Kind.RELEASED, self._of(places), at_ms + 20, group=0)
        acked = self._but("never_scheduled", "never_released", "never_delivered", "cancelled")
        attempt, last_ms = np.ones(len(due_ms), np.int64), self.delivered_ms.copy()
        for fault, (again_ms, _, number) in self._again().items():
            last_ms[self.chosen[fault]] += again_ms
            attempt[self.chosen[fault]] = number
        rows.add(Kind.ACKED, self._of(acked), last_ms[acked] + 15, group=0, attempt=attempt[acked])
        return self._with_terms(rows)

    def _again(self) -> dict[str, tuple[Column | int, int, int]]:
        """Return for each duplicate: ms after the first delivery, whether it is marked, its attempt."""
        back_ms = self.crash_ms + OUTAGE_MS + 20 - self.delivered_ms
        return {
            "failover": (back_ms[self.chosen["failover"]], 1, 1),
            "beyond_bound": (back_ms[self.chosen["beyond_bound"]], 0, 1),
            "lease_expiry": (150, 0, 2),
            "nack": (50, 0, 2),
            "client_retry": (10, 1, 1),
        }

    def _deliveries(self, kind: Kind, rows: Rows) -> None:
        first = self._but("never_scheduled", "never_released", "never_delivered", "cancelled")
        more: dict[str, Column | int] = {"group": 0, "attempt": 1, "consumer": 0, "maybe_duplicate": 0}
        rows.add(kind, self._of(first), self.delivered_ms[first], **more)
        for fault, (again_ms, marked, attempt) in self._again().items():
            places = self.chosen[fault]
            more = {**more, "attempt": attempt, "maybe_duplicate": marked}
            rows.add(kind, self._of(places), self.delivered_ms[places] + again_ms, **more)

    def made(self) -> dict[str, Column]:
        """Return what the leaders write: deliveries, nacks, and that they lead."""
        rows = Rows()
        self._deliveries(Kind.DELIVERED, rows)
        nacked = self.chosen["nack"]
        rows.add(Kind.NACKED, self._of(nacked), self.delivered_ms[nacked] + 8, group=0, attempt=1)
        led_ms = np.array([self.messages["due_ms"][0] - 1_500, self.crash_ms + OUTAGE_MS - SLOT_MS])
        none = {name: np.full(2, -1) for name in self.messages}
        rows.add(Kind.LEADERSHIP, none, led_ms, detail=DETAILS.index("leader"))
        return self._with_terms(rows)

    def produced(self) -> dict[str, Column]:
        """Return the producer's receipts."""
        rows = Rows()
        rows.add(Kind.PRODUCED, self.messages, self.messages["due_ms"] - 890, offset=-1)
        return {**rows.columns(), "term": np.full(len(self.delivered_ms), -1)}

    def received(self) -> dict[str, Column]:
        """Return the consumer's receipts."""
        rows = Rows()
        self._deliveries(Kind.RECEIVED, rows)
        return self._with_terms(rows)

    def _with_terms(self, rows: Rows) -> dict[str, Column]:
        columns = rows.columns()
        columns["at_ms"] = self._stalled(columns["at_ms"])
        columns["term"] = self._terms(columns["at_ms"])
        return {name: column[np.argsort(columns["at_ms"], kind="stable")] for name, column in columns.items()}


_REASON: Final = {"nack": "NACKED", "lease_expiry": "LEASE_EXPIRED"}
