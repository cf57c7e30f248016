"""Leaders, as consumers and nodes saw them: none delivers beside its successor; replicas stay the same."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence

from tarry.chaos.checks.frozen import moment_of
from tarry.chaos.history import Delivered, History, Span

ROUNDED_MS = 2  # what readings of two clocks, to whole milliseconds, may make of a moment


def overlapping(
    history: History, travel_ms: int, pulling: Collection[str] = (), tolerance_ms: int = 0
) -> tuple[Delivered, ...]:
    """Return deliveries of a leader from after its successor's first, by more than their way takes.

    Of what became due only then, none is excused by its way; `tolerance_ms`: how exact due times are.
    `pulling`: consumers whose calls any node may pass on; an answer is on its way for as long as a call may.
    """
    moment = moment_of(history, travel_ms)
    begun = {term: start_ms for term, (start_ms, _) in _terms(history).items()}
    return tuple(
        delivery
        for delivery in history.delivered
        if any(
            term > delivery.term
            and (
                delivery.due_mono_ms > start_ms + tolerance_ms + ROUNDED_MS
                or (delivery.consumer not in pulling and moment(delivery) > start_ms + travel_ms)
            )
            for term, start_ms in begun.items()
        )
    )


def two_in_one_term(history: History) -> tuple[int, ...]:
    """Return the terms in which more than one node led, by what nodes and deliveries say."""
    leading: defaultdict[int, set[str]] = defaultdict(set)
    for seen in history.nodes:
        if seen.leads:
            leading[seen.term].add(seen.node)
    for delivery in history.delivered:
        leading[delivery.term].add(delivery.node)
    return tuple(sorted(term for term, nodes in leading.items() if len(nodes) > 1))


def diverged(history: History) -> dict[int, dict[str, str]]:
    """Return the applied indices at which states differed: a node with each, by digest."""
    states: defaultdict[int, dict[str, str]] = defaultdict(dict)
    for seen in history.nodes:
        if seen.digest:
            states[seen.applied_index].setdefault(seen.digest, seen.node)
    return {index: digests for index, digests in sorted(states.items()) if len(digests) > 1}


def compared(history: History) -> int:
    """Return at how many applied indices the states of two or more nodes were seen."""
    nodes: defaultdict[int, set[str]] = defaultdict(set)
    for seen in history.nodes:
        if seen.digest:
            nodes[seen.applied_index].add(seen.node)
    return sum(len(of_one) > 1 for of_one in nodes.values())


def changes(history: History, recover_ms: int) -> list[Span]:
    """Return, for each leader that another followed, the time from its last delivery to the next one's first.

    `recover_ms`: until clients have found it.
    """
    return [
        (min(old_end, new_start), new_start + recover_ms)
        for (_, old_end), (new_start, _) in itertools.pairwise(_terms(history).values())
    ]


def last_moments(history: History, within_ms: int, known: Sequence[Span] = ()) -> list[Span]:
    """Return for each leader that another followed the time before its last delivery.

    `known`: the windows of faults that were injected; the end of a leader within a second of one is its.
    """
    return [
        (last_ms - within_ms, last_ms)
        for _, last_ms in [*_terms(history).values()][:-1]
        if not any(start - 1_000 <= last_ms <= end + 1_000 for start, end in known)
    ]


def _terms(history: History) -> dict[int, Span]:
    """Return the times of each term's first and last delivery, by term, ascending."""
    times: defaultdict[int, list[int]] = defaultdict(list)
    for one in history.delivered:
        times[one.term].append(one.received_mono_ms)
    return {term: (min(times[term]), max(times[term])) for term in sorted(times)}


def unavailable_ms(history: History) -> int:
    """Return the longest time without an answer of success while a schedule was waiting for one."""
    starts = sorted(sent.sent_mono_ms for sent in history.sent)
    longest, last_ms = 0, min(starts, default=0)
    for at_ms in sorted(sent.answered_mono_ms for sent in history.acknowledged()):
        # what was sent before the last success may be answered already: begin with the next one sent
        place = bisect_right(starts, last_ms)
        if place < len(starts):
            longest = max(longest, at_ms - starts[place])
        last_ms = max(last_ms, at_ms)
    return longest
