"""What came of a run: every check on its history, and the figures."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from tarry.chaos import checks
from tarry.chaos.checking import leaders, registers, repeats, waiting
from tarry.chaos.consumers import BRISK, PULLING, ROUGH
from tarry.chaos.run import BEHIND_MS, RECOVER_MS, TOPICS, Run
from tarry.chaos.scenario import Scenario

STARVED_MS = 700
"""Without a fault of ours, a leader is lost on a machine too busy to run it: then its heartbeats had stopped
before its deliveries did, by the election timeout at most."""
BUSY = 3.0
"""Processes that want each core (load average): from there on, what took too long is told and not judged, and
before, patience grows with it. A run alone on two cores has 1 to 2."""
MOVES = frozenset({"transfer", "restart", "stop", "clock", "remove"})
PLANNED_MS = 6_000  # in which they may move leadership


@dataclass(slots=True)
class Verdict:
    """One run; `broken` says what was, in words."""

    scenario: str
    seed: int
    seconds: float = 0.0
    skipped: str = ""
    acknowledged: int = 0
    delivered: int = 0
    lost: int = 0
    early: int = 0
    undead: int = 0
    duplicates: int = 0
    duplicates_beyond_bound: int = 0
    stuck: int = 0
    diverged: int = 0
    failovers_ms: list[int] = field(default_factory=list)
    unavailable_ms: int = 0
    lateness_p50_ms: int = 0
    lateness_p99_ms: int = 0
    unprovoked: int = 0
    """Leaders lost without a fault of ours: the machine was too busy to run them in time."""
    load: float = 0.0
    broken: list[str] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    """What took too long, on a machine that was too busy to tell."""

    @property
    def passed(self) -> bool:
        """Whether it was played, and nothing was broken."""
        return not self.skipped and not self.broken


def judge(run: Run, seconds: float) -> Verdict:
    """Return what the history of a run shows."""
    scenario, history = run.scenario, run.history
    slowness = max(1.0, run.load)
    patience_ms, travel_ms = round(scenario.patience_ms * slowness), round(scenario.travel_ms * slowness)
    groups = [(topic, group) for topic in TOPICS for group in _groups(scenario)]
    # followers learn of deliveries by heartbeats, which a busy machine sends late
    behind_ms = round(BEHIND_MS * (slowness - 1))
    windows = [(start - behind_ms, end + travel_ms) for start, end in run.windows]
    windows = [*windows, *leaders.last_moments(history, STARVED_MS, run.windows)]
    planned = [(one.at_mono_ms, one.at_mono_ms + PLANNED_MS) for one in history.events if one.name in MOVES]
    spans = sorted([*run.spans, *leaders.changes(history, RECOVER_MS)])
    again = repeats.repeats(history, BRISK, windows, travel_ms)
    late = checks.lateness(history)
    found: dict[str, Iterable[object]] = {
        "lost": checks.lost(history, groups),
        "early": checks.early(history, scenario.tolerance_ms),
        "undead": checks.delivered_after_cancel(history),
        "duplicates beyond the bound": again.beyond,
        "stuck": waiting.stuck(history, {BRISK}, patience_ms, spans),
        "diverged at index": tuple(leaders.diverged(history).items()),
        "released twice": repeats.released_twice(history),
        "ids given twice": checks.ids_given_twice(history),
        "scheduled twice by a repeated request": repeats.answered_differently(history),
        "delivered though never sent": checks.unexpected(history),
        "not linearizable": registers.not_linearizable(history),
        "handed over beside a successor": leaders.overlapping(history, travel_ms, {PULLING}),
        "two leaders in term": leaders.two_in_one_term(history),
        "out of the order of its key": waiting.out_of_order(history),
    }
    counts = {name: len(tuple(each)) for name, each in found.items()}
    verdict = Verdict(
        scenario.name,
        run.seed,
        round(seconds, 1),
        acknowledged=sum(1 for _ in history.acknowledged()),
        delivered=len(history.first_deliveries()),
        lost=counts["lost"],
        early=counts["early"],
        undead=counts["undead"],
        duplicates=len(again.duplicates),
        duplicates_beyond_bound=counts["duplicates beyond the bound"],
        stuck=counts["stuck"],
        diverged=counts["diverged at index"],
        failovers_ms=leaders.failovers_ms(history),
        unavailable_ms=leaders.unavailable_ms(history),
        lateness_p50_ms=late.p50_ms,
        lateness_p99_ms=late.p99_ms,
        load=round(run.load, 1),
        unprovoked=len(leaders.last_moments(history, 0, [*run.spans, *planned])),
        broken=[f"{len(tuple(each))} {name}: {_some(each)}" for name, each in found.items() if counts[name]],
    )
    verdict.broken += run.complaints
    slow = [*run.slow, *_too_slow(verdict, scenario)]
    verdict.unjudged, verdict.broken = (
        (slow, verdict.broken) if run.load > BUSY else ([], verdict.broken + slow)
    )
    most = scenario.duplicates_max
    if most is not None and verdict.duplicates > most:
        # a leader that is lost for want of time is a crash, and may repeat what a crash may
        told = verdict.unjudged if verdict.unprovoked or run.load > BUSY else verdict.broken
        told.append(f"{verdict.duplicates} duplicates, more than {most}")
    if not verdict.delivered or not leaders.compared(history):
        verdict.broken.append("nothing was delivered, or no states were compared: the run shows nothing")
    return verdict


def _groups(scenario: Scenario) -> tuple[str, ...]:
    return (BRISK, ROUGH) if scenario.rough else (BRISK,)


def _too_slow(verdict: Verdict, scenario: Scenario) -> list[str]:
    most = scenario.unavailable_ms_max
    if most is None or verdict.unavailable_ms <= most:
        return []
    return [f"no schedule was taken for {verdict.unavailable_ms} ms, more than {most}"]


def _some(found: Iterable[object], most: int = 3) -> str:
    shown = list(map(str, found))
    return "; ".join(shown[:most]) + (" …" if len(shown) > most else "")
