"""Verdict on a run: every check on its history, and the figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from tarry.chaos.checks import (
    changes,
    deliveries,
    failovers,
    fires,
    gateway,
    leaders,
    linearizability,
    outages,
    transactions,
)
from tarry.chaos.checks import duplicates as repeats
from tarry.chaos.checks import stuck as waiting
from tarry.chaos.history import Delivered, History, Span
from tarry.chaos.run import BEHIND_MS, RECOVER_MS, groups_of
from tarry.chaos.scenario import Scenario
from tarry.chaos.traffic.changes import GROUP as CHANGED
from tarry.chaos.traffic.consumers import BRISK, PULLING
from tarry.chaos.traffic.load import Load

LOST_MS = 700
"""Time before its last delivery in which a leader may have made deliveries unknown to all other nodes, at any
load: a lease, for without an answer of a majority it delivers no more, and the time between receipts."""
BUSY = 3.0
"""Processes that want each core (load average): from there on, what took too long is told and not judged, and
before, patience grows with it. A run alone on two cores has 1 to 2. Nothing else is excused by it."""
MOVES = frozenset({"transfer", "restart", "stop", "clock", "remove"})
AT_GATEWAYS = "at gateways: "
"""Before the name of what RocketMQ's own clients found."""
PLANNED_MS = 6_000  # in which they may move leadership


@dataclass(slots=True)
class Verdict:
    """The verdict on one run; `broken` names the broken promises, in words."""

    scenario: str
    seed: int
    seconds: float = 0.0
    skipped: str = ""
    traffic: str = ""
    """The name of the load under which it was played."""
    left_out: list[str] = field(default_factory=list)
    """Parts of what is done that this machine cannot do."""
    acknowledged: int = 0
    delivered: int = 0
    lost: int = 0
    early: int = 0
    after_cancel: int = 0
    duplicates: int = 0
    duplicates_beyond_bound: int = 0
    unmarked: int = 0
    stuck: int = 0
    diverged: int = 0
    failovers_ms: list[int] = field(default_factory=list)
    failovers_from_majority_ms: list[int] = field(default_factory=list)
    """Failovers after which there was no majority: see `Failovers`."""
    unavailable_ms: int = 0
    lateness_p50_ms: int = 0
    lateness_p99_ms: int = 0
    unprovoked: int = 0
    """Leaders lost without a fault of ours: the machine was too busy to run them in time."""
    load: float = 0.0
    broken: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    """Findings of time that are excused, for the machine was too busy; `not_judged` counts them."""
    not_judged: int = 0

    @property
    def passed(self) -> bool:
        """True if it was played and nothing was broken."""
        return not self.skipped and not self.broken


class Played(Protocol):
    """The record of a run that is judged."""

    scenario: Scenario
    seed: int
    traffic: Load
    history: History
    spans: list[Span]
    windows: list[Span]
    complaints: list[str]
    slow: list[str]
    left_out: list[str]

    @property
    def load(self) -> float: ...


class Timed(NamedTuple):
    """Deliveries later than promised, and those of them that are judged however busy the machine was."""

    beyond: Sequence[Delivered]
    judged: Sequence[Delivered]

    @property
    def excused(self) -> list[Delivered]:
        judged = set(self.judged)
        return [each for each in self.beyond if each not in judged]


def judge(run: Played, seconds: float) -> Verdict:
    """Run every check on the history of a run."""
    scenario, history = run.scenario, outages.doubted(run.history)
    known = outages.remembered(history)
    timed = _timed(run, history, known)
    late, at_gateways = deliveries.lateness(history), history.gateway.history()
    changes = failovers.failovers_ms(history)
    again = len(repeats.repeats(known, BRISK))
    found = {**_found(scenario, history, known), **{name: each.judged for name, each in timed.items()}}
    counts = {name: len(each) for name, each in found.items()}
    planned = [(one.at_mono_ms, one.at_mono_ms + PLANNED_MS) for one in history.events if one.name in MOVES]
    verdict = Verdict(
        scenario.name,
        run.seed,
        round(seconds, 1),
        traffic=run.traffic.name,
        left_out=run.left_out,
        acknowledged=sum(1 for one in (history, at_gateways) for _ in one.acknowledged()),
        delivered=len(history.first_deliveries()) + len(at_gateways.first_deliveries()),
        lost=_total(counts, "lost"),
        early=_total(counts, "early"),
        after_cancel=_total(counts, "delivered after a cancel"),
        duplicates=again,
        duplicates_beyond_bound=counts["duplicates beyond the bound"],
        unmarked=_total(counts, "repeated without a mark"),
        stuck=counts["stuck"],
        diverged=counts["diverged at index"],
        failovers_ms=changes.from_kill,
        failovers_from_majority_ms=changes.from_majority,
        unavailable_ms=leaders.unavailable_ms(history),
        lateness_p50_ms=late.p50_ms,
        lateness_p99_ms=late.p99_ms,
        load=round(run.load, 1),
        unprovoked=len(leaders.last_moments(history, 0, [*run.spans, *planned])),
        broken=[f"{len(each)} {name}: {_some(each)}" for name, each in found.items() if each],
    )
    verdict.broken += run.complaints
    for name, each in timed.items():
        if excused := each.excused:
            _report(verdict, f"{len(excused)} {name}: {_some(excused)}", excused=True, count=len(excused))
    for slow in [*run.slow, *_too_slow(verdict, scenario)]:
        _report(verdict, slow, excused=run.load > BUSY)
    most = scenario.duplicates_max
    if most is not None and again > most:
        # a leader that is lost for want of time is a crash, and may repeat what a crash may
        told = f"{again} duplicates, more than {most}"
        _report(verdict, told, excused=verdict.unprovoked > 0, count=again - most)
    if not verdict.delivered or not leaders.compared(history):
        verdict.broken.append("nothing was delivered, or no states were compared: the run shows nothing")
    return verdict


def _found(scenario: Scenario, history: History, known: History) -> dict[str, Sequence[object]]:
    """Return what breaks a promise however busy the machine was.

    `known`: what the cluster has to know of the history.
    """
    return {
        "lost": deliveries.lost(history, groups_of(scenario)),
        "early": deliveries.early(history, scenario.tolerance_ms),
        "delivered after a cancel": deliveries.delivered_after_cancel(known),
        "repeated without a mark": repeats.unmarked(known),
        "diverged at index": tuple(leaders.diverged(known).items()),
        "released twice": repeats.released_twice(known),
        "ids given twice": deliveries.ids_given_twice(history),
        "scheduled twice by a repeated request": repeats.answered_differently(history),
        "delivered though never sent": deliveries.unexpected(history),
        "not linearizable": linearizability.not_linearizable(
            known, linearizability.AHEAD_MS + scenario.set_back_ms
        ),
        "changed, and not explained by any order": changes.not_explained(
            known, linearizability.AHEAD_MS + scenario.set_back_ms
        ),
        "changed and forgotten": changes.overdue(history),
        "cancels of many with wrong counts": changes.miscounted(history),
        "fires with several messages": fires.doubled(history.fires),
        "fires left out": fires.left_out(history.fires),
        "fires missed in other numbers than counted": fires.miscounted(history.fires),
        "fires beside the one before": fires.overlapping(history.fires),
        "messages of no fire": fires.of_no_fire(history.fires),
        "fires whose message was lost": fires.lost(history.fires),
        "fires before their time": fires.early(history.fires, scenario.tolerance_ms),
        "transactions with answers that differ": transactions.contradicted(history.transactions),
        "transactions that were open again": transactions.open_again(history.transactions),
        "transactions that ended otherwise than the database": transactions.against_the_database(
            history.transactions
        ),
        "transactions without an end": transactions.without_end(history.transactions),
        "transactions with several messages": transactions.doubled(history.transactions),
        "transactions whose message was lost": transactions.lost(history.transactions),
        "messages of no committed transaction": transactions.of_none_committed(history.transactions),
        "transactions' messages before their time": transactions.early(
            history.transactions, scenario.tolerance_ms
        ),
        "transactions with the wrong dead letters": transactions.letters_wrong(history.transactions),
        **{AT_GATEWAYS + name: each for name, each in gateway.found(history.gateway).items()},
        "two leaders in term": leaders.two_in_one_term(history),
        "out of the order of its key": waiting.out_of_order(history, waiting.AHEAD_MS + scenario.set_back_ms),
    }


def _timed(run: Played, history: History, known: History) -> dict[str, Timed]:
    """Return what rests on nodes, links and consumers being run in time.

    No load explains the repetition of what was delivered more than a lease before its leader was lost, nor
    the delivery of what became due under a successor.
    """
    scenario, slowness = run.scenario, max(1.0, run.load)
    spans = sorted([*run.spans, *leaders.changes(history, RECOVER_MS)])
    travel_ms = scenario.travel_ms
    grown_ms = round(travel_ms * slowness)
    starved = leaders.last_moments(history, LOST_MS, run.windows)
    in_time = [(start, end + travel_ms) for start, end in run.windows]
    if run.load > BUSY:
        bound = [(start - LOST_MS, end) for start, end in in_time]
        starved_too = leaders.last_moments(history, LOST_MS)
    else:  # followers learn of deliveries by heartbeats, which a machine sends late that is a little busy
        behind_ms = round(BEHIND_MS * (slowness - 1))
        bound = [(start - behind_ms, end + grown_ms) for start, end in run.windows]
        starved_too = starved
    patience_ms, exact_ms = scenario.patience_ms, scenario.tolerance_ms
    return {
        "duplicates beyond the bound": Timed(
            repeats.repeats(known, BRISK, [*in_time, *starved], travel_ms),
            repeats.repeats(known, BRISK, [*bound, *starved_too], grown_ms),
        ),
        AT_GATEWAYS + "repeated beyond the bound": Timed(
            gateway.repeated(history.gateway, [*in_time, *starved]),
            gateway.repeated(history.gateway, [*bound, *starved_too]),
        ),
        "stuck": Timed(
            waiting.stuck(history, {BRISK, CHANGED}, patience_ms, spans),
            waiting.stuck(history, {BRISK, CHANGED}, round(patience_ms * slowness), spans),
        ),
        "delivered beside a successor": Timed(
            leaders.overlapping(history, travel_ms, {PULLING}, exact_ms),
            leaders.overlapping(history, grown_ms, {PULLING}, exact_ms),
        ),
    }


def _total(counts: Mapping[str, int], name: str) -> int:
    return counts[name] + counts[AT_GATEWAYS + name]


def _report(verdict: Verdict, what: str, *, excused: bool, count: int = 1) -> None:
    (verdict.unjudged if excused else verdict.broken).append(what)
    verdict.not_judged += count if excused else 0


def _too_slow(verdict: Verdict, scenario: Scenario) -> list[str]:
    most = scenario.unavailable_ms_max
    if most is None or verdict.unavailable_ms <= most:
        return []
    return [f"no schedule was taken for {verdict.unavailable_ms} ms, more than {most}"]


def _some(found: Iterable[object], most: int = 3) -> str:
    shown = list(map(str, found))
    return "; ".join(shown[:most]) + (" …" if len(shown) > most else "")
