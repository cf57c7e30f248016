"""What clients were told and what they were given, and what must hold of it."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from tests.simulation.checker import Violation

Id = tuple[int, int]
"""Hour and global index."""
UNKNOWN: Id = (-1, 0)
"""What a ledger's row of a copy names whose record has rotted."""


def is_red(label: bytes) -> bool:
    """Whether it is tagged: the group "red" of a topic is given no others."""
    return label[-1] % 2 == 1


def selection(group: str, by_properties: bool) -> dict[str, Any]:
    """Return the fields by which a group's calls say what it is given."""
    if group != "red":
        return {}
    return {"filter": "colour = 'red'"} if by_properties else {"tags": ["red"]}


def is_for(group: str, label: bytes) -> bool:
    return is_red(label) or not group.endswith("/red")


@dataclass(frozen=True, slots=True)
class Told:
    """The answer to a schedule request, for one message."""

    topic: str
    message: Id
    due_ms: int


@dataclass(frozen=True, slots=True)
class Given:
    """One delivery."""

    at_s: float
    term: int
    attempt: int
    maybe_duplicate: bool
    consumer: str


class Ledger:
    """Messages by label, which is their body. Times are true ones."""

    def __init__(self, early_ms: int, groups: dict[str, list[str]]) -> None:
        """`early_ms`: how far a majority of the clocks may be ahead; `groups` of each topic."""
        self.early_ms = early_ms
        self.told: dict[bytes, Told] = {}
        self.cancelled: set[bytes] = set()
        self.perhaps_cancelled: set[bytes] = set()
        self.retry_cancelled: set[tuple[str, bytes]] = set()
        """Groups that had been given the message before, and were to be given it again."""
        self.given: defaultdict[tuple[str, bytes], list[Given]] = defaultdict(list)
        self.settled: set[tuple[str, bytes]] = set()
        """Whose acknowledgement was answered with OK."""
        self.counts: Counter[str] = Counter()
        self.sought: set[str] = set()
        """Groups that were moved: they are given again what they had, as if for the first time."""
        self.redriven: set[tuple[str, Id]] = set()
        """Groups, and the dead letters that were given back to them: as if for the first time."""
        self.expired: defaultdict[str, set[Id]] = defaultdict(set)
        """By topic: what came due too late for its topic's settings."""
        self.forgotten: defaultdict[str, set[Id]] = defaultdict(set)
        """By group: what retention took before the group was made."""
        self.perhaps_due: dict[bytes, set[int]] = {}
        """Earliest due times that reschedules ask for whose outcome is not known."""
        self.free_ms: dict[bytes, int] = {}
        """From when on the idempotency keys may be free of labels that were asked for again: each may then be
        the body of several messages, as the window promises no more."""
        self.gone: dict[bytes, Told] = {}
        """What was acknowledged, and went with a lost majority."""
        self._rescheduled: set[bytes] = set()
        self._first_due: defaultdict[bytes, set[int]] = defaultdict(set)
        """Of messages as they were delivered for the first time."""
        self._ids: dict[bytes, Id] = {}
        self._groups = groups

    def acknowledged(self, label: bytes, told: Told) -> None:
        before = self.told.setdefault(label, told)
        demand(before.message == told.message, f"L1: {label!r} is scheduled as {before} and {told}")
        self._is(label, told.message)

    def rescheduled(self, label: bytes, due_ms: int) -> None:
        """It is due then, and nobody may have it or get it as it was due before."""
        self.told[label] = replace(self.told[label], due_ms=due_ms)
        self.perhaps_due.pop(label, None)
        self._rescheduled.add(label)
        self._check_due(label)

    def _check_due(self, label: bytes) -> None:
        wrong = self._first_due[label] - {self.told[label].due_ms}
        known = label in self._rescheduled and label not in self.perhaps_due
        demand(
            not (known and wrong), f"L12: {label!r} is due at {self.told[label].due_ms}, and given as {wrong}"
        )

    def cancel_answered(self, label: bytes, retried: Collection[str] = ()) -> None:
        """``retried``: the groups for which it has been put back for a retry."""
        self.cancelled.add(label)
        groups = self._groups[self.told[label].topic]
        self.retry_cancelled |= {(group, label) for group in retried}
        given = [
            group
            for group in groups
            if (group, label) in self.given and group not in self.sought and group not in retried
        ]
        demand(not given, f"L2: {label!r} is cancelled though delivered to {given}")

    def delivered(
        self,
        group: str,
        label: bytes,
        message: Id,
        due_ms: int,
        true_ms: int,
        given: Given,
        delay_ms: int = 0,
    ) -> bytes:
        """Return the label that it counts as. ``due_ms``: of the message; ``delay_ms``: of the group."""
        label = self._counts_as(label, message, true_ms)
        self._is(label, message)
        demand(is_for(group, label), f"L5: {label!r} is delivered to {group}")
        had = max((one.attempt for one in self.given[group, label]), default=1)  # that one may come late
        late = (group, label) in self.retry_cancelled and given.attempt <= had
        demand(label not in self.cancelled or late, f"L2: {label!r} is delivered though cancelled")
        early = due_ms + delay_ms - true_ms
        demand(early <= self.early_ms, f"L3: {label!r} is delivered {early} ms early in term {given.term}")
        told = self.told.get(label)
        if told is not None:
            first_ms = min(told.due_ms, *self.perhaps_due.get(label, ()), told.due_ms)
            demand(due_ms >= first_ms, f"L3: {label!r} was due at {first_ms}, not {due_ms}")
            if given.attempt == 1 and (group, message) not in self.redriven:
                self._first_due[label].add(due_ms)
                self._check_due(label)
        forgotten = (group, label) in self.settled and group not in self.sought
        demand(not forgotten, f"L6: {label!r} comes again to {group}, which has acknowledged it")
        self.counts["deliveries"] += 1
        earlier = self.given[group, label]
        if earlier:
            self._check_repeated(group, label, earlier, given)
        earlier.append(given)
        return label

    def _counts_as(self, label: bytes, message: Id, true_ms: int) -> bytes:
        """Return the label, or another where this may be a second message with it, of a key that was free."""
        told = self.told.get(label)
        if true_ms < self.free_ms.get(label, math.inf) or (told is not None and told.message == message):
            return label
        self.counts["of keys perhaps free"] += 1
        return b"%d/%d of %s" % (*message, label)

    def ahead(self, until_ms: float) -> int:
        """Return how many messages were acknowledged, not cancelled, and are due later than that."""
        gone = self.cancelled | self.perhaps_cancelled
        return sum(told.due_ms > until_ms for label, told in self.told.items() if label not in gone)

    def _latest_ms(self, label: bytes) -> int:
        return max(self.told[label].due_ms, *self.perhaps_due.get(label, ()), self.told[label].due_ms)

    def missing(self, until_ms: float = math.inf) -> list[tuple[str, bytes]]:
        """Return the (group, label) that were acknowledged, not cancelled, and never delivered.

        `until_ms`: of those that are due until then.
        """
        gone = self.cancelled | self.perhaps_cancelled
        return [
            (group, label)
            for label, told in self.told.items()
            if label not in gone
            and self._latest_ms(label) <= until_ms
            and told.message not in self.expired[told.topic]
            for group in self._groups[told.topic]
            if (group, label) not in self.given and is_for(group, label)
            if told.message not in self.forgotten[group]
        ]

    def groups_of(self, topic: str) -> set[str]:
        """Return the groups, as `topic/group`, that are to be given what a topic gets."""
        return set(self._groups.get(topic, ()))

    def lost(self, messages: Collection[Id]) -> None:
        """The cluster has lost these for good: nothing is awaited of them."""
        self.gone = {label: told for label, told in self.told.items() if told.message in messages}
        self.told = {label: told for label, told in self.told.items() if label not in self.gone}

    def id_of(self, label: bytes) -> Id:
        return self._ids[label]

    def _is(self, label: bytes, message: Id) -> None:
        known = self._ids.setdefault(label, message)
        demand(known == message, f"L1: {label!r} is both {known} and {message}")

    def _check_repeated(self, group: str, label: bytes, earlier: list[Given], given: Given) -> None:
        if given.attempt > max(before.attempt for before in earlier):
            self.counts["retried"] += 1
            return
        if group in self.sought or (group, self._ids[label]) in self.redriven:
            self.counts["sought or redriven"] += 1
            return
        if given.maybe_duplicate:
            self.counts["marked"] += 1
            return
        raise Violation(f"L4: {label!r} comes again, unmarked, to {group}: {earlier} and {given}")


def demand(holds: bool, text: str) -> None:
    if not holds:
        raise Violation(text)
