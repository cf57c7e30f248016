"""What a busy machine excuses, and what it never does; what is excused is told and counted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from tarry.chaos.history import (
    Answer,
    Asked,
    Cancelled,
    Delivered,
    GatewayClients,
    History,
    NodeSeen,
    Operation,
    Outage,
    Repeated,
    Sent,
    Span,
)
from tarry.chaos.scenario import Scenario
from tarry.chaos.traffic.load import LIGHT, Load
from tarry.chaos.verdict import BUSY, Verdict, judge

QUIET, LOADED = 1.0, BUSY + 7


async def _nothing(run: object) -> None:
    """Is done."""


@dataclass
class Played:
    """A run that was: the leader n1 killed at 6,000, n2 after it."""

    load: float
    history: History
    scenario: Scenario = field(default_factory=lambda: Scenario(name="killed", play=_nothing, what=""))
    seed: int = 1
    traffic: Load = LIGHT
    spans: list[Span] = field(default_factory=lambda: [(6_000, 9_000)])
    windows: list[Span] = field(default_factory=lambda: [(5_900, 6_050)])
    complaints: list[str] = field(default_factory=list)
    slow: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)


def sent(token: int, due_ms: int) -> Sent:
    """The wall clock is a million ahead of the monotonic one."""
    due_ms += 1_000_000
    return Sent(
        token, "orders", due_ms, 1_000_000, 0, Answer.ACKNOWLEDGED, 1_000_010, 10, f"i{token}", due_ms
    )


def given(token: int, at_ms: int, group: str = "brisk", term: int = 1, **other: int) -> Delivered:
    return Delivered(
        token, "orders", group, f"i{token}", 1_000_000 + at_ms - 2, other.get("attempt", 1),
        bool(other.get("marked")), at_ms + 1_000_000, at_ms,
        consumer="c", queue=1, offset=token, node=f"n{term}", term=term,
    )  # fmt: skip


def sound() -> History:
    """Message 1 is due at 1,000, and so on; the last comes from the successor."""
    history = History(sent=[sent(token, token * 1_000) for token in range(1, 11)])
    for group in ("brisk", "rough"):
        history.delivered += [
            given(token, token * 1_000 + 2, group, term=1 if token < 6 else 2) for token in range(1, 11)
        ]
    history.delivered.append(given(11, 5_995))
    history.delivered.append(given(11, 5_995, "rough"))
    history.sent.append(sent(11, 5_993))
    history.nodes = [NodeSeen(node, 0, 1, False, 7, "aa") for node in ("n1", "n2")]
    return history


def judged(load: float, *more: Delivered, **other: object) -> Verdict:
    history = sound()
    history.delivered += more
    return judge(replace(Played(load, history), **other), 1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("load", [QUIET, LOADED])
def test_a_sound_run_is_kept_and_nothing_is_excused(load: float) -> None:
    verdict = judged(load, given(11, 6_900, term=2, marked=True))
    assert verdict.passed
    assert (verdict.duplicates, verdict.not_judged, verdict.unjudged) == (1, 0, [])


def test_no_load_excuses_what_is_wrong_whenever_it_happens() -> None:
    history = sound()
    history.delivered += [
        given(11, 6_900, term=2),  # no mark
        replace(given(7, 7_300, term=2, marked=1), offset=99),  # released twice
        given(3, 7_400, term=2, marked=1),  # seconds before the kill
        replace(given(12, 7_500), due_ms=1_007_490),  # n1 after n2's first
        replace(given(13, 400), due_ms=1_000_500),
    ]
    history.sent += [sent(12, 7_490), sent(13, 500), sent(14, 100)]
    history.cancelled.append(Cancelled(4, 1_000_100))
    history.repeated.append(Repeated(5, "i5", "another"))
    history.nodes.append(NodeSeen("n3", 0, 1, False, 7, "bb"))
    verdict = judge(Played(1_000.0, history), 1.0)
    named = " ".join(verdict.broken)
    assert (verdict.unmarked, verdict.after_cancel, verdict.early, verdict.diverged) == (1, 2, 1, 1)
    for name in (
        "lost", "early", "delivered after a cancel", "repeated without a mark", "diverged", "released twice",
        "scheduled twice", "beyond the bound", "beside a successor",
    ):  # fmt: skip
        assert f" {name}" in named, name


def test_what_came_late_on_a_busy_machine_is_counted_as_not_judged() -> None:
    late = replace(given(15, 16_000, term=2), due_ms=1_009_500)
    history = sound()
    history.sent.append(sent(15, 9_500))
    history.delivered += [late, replace(late, group="rough")]
    quiet, busy = judge(Played(QUIET, history), 1.0), judge(Played(LOADED, history), 1.0)
    assert (quiet.stuck, quiet.passed, quiet.not_judged) == (1, False, 0)
    assert (busy.stuck, busy.passed, busy.not_judged) == (0, True, 1)
    assert busy.unjudged[0].startswith("1 stuck: ")


def test_a_repetition_from_within_a_lease_before_the_loss_is_not_judged_on_a_busy_machine_only() -> None:
    history = sound()
    history.sent.append(sent(16, 5_600))
    history.delivered += [given(16, 5_602), given(16, 5_602, "rough"), given(16, 6_900, term=2, marked=1)]
    quiet, busy = judge(Played(QUIET, history), 1.0), judge(Played(LOADED, history), 1.0)
    assert (quiet.duplicates_beyond_bound, quiet.passed, quiet.not_judged) == (1, False, 0)
    assert (busy.duplicates_beyond_bound, busy.passed, busy.not_judged) == (0, True, 1)


@pytest.mark.parametrize(("load", "broken", "not_judged"), [(QUIET, 1, 0), (LOADED, 0, 1)])
def test_a_time_without_service_is_judged_where_the_machine_can_tell(
    load: float, broken: int, not_judged: int
) -> None:
    verdict = judged(load, slow=["300 ms without proposals"])
    assert (len(verdict.broken), verdict.not_judged) == (broken, not_judged)


@pytest.mark.parametrize(("set_back_ms", "broken"), [(0, 1), (5_000, 0)])
def test_what_is_due_before_where_the_set_back_wheel_stands_may_be_released_at_once(
    set_back_ms: int, broken: int
) -> None:
    history = sound()
    history.operations.append(Operation(10, Asked.GET, "released", 4_000, 4_010))
    scenario = Scenario(name="set-back", play=_nothing, what="", set_back_ms=set_back_ms)
    assert len(judge(Played(QUIET, history, scenario), 1.0).broken) == broken


@pytest.mark.parametrize(("answered_ms", "lost"), [(4_999, 2), (5_000, 0)])
def test_a_majority_without_power_loses_what_it_had_just_acknowledged_at_most(
    answered_ms: int, lost: int
) -> None:
    history = sound()
    history.outages.append(Outage(5_000, 6_000, 1_000_000))
    history.sent.append(replace(sent(17, 8_000), answered_mono_ms=answered_ms))
    verdict = judge(Played(QUIET, history), 1.0)
    assert (verdict.lost, verdict.passed) == (lost, not lost)


def test_where_nothing_may_repeat_a_load_is_no_excuse() -> None:
    strict = Scenario(name="moved", play=_nothing, what="", duplicates_max=0)
    verdict = judged(LOADED, given(11, 6_900, term=2, marked=1), scenario=strict)
    assert verdict.broken == ["1 duplicates, more than 0"]


@pytest.mark.parametrize("load", [QUIET, LOADED])
def test_what_is_wrong_at_gateways_is_broken_at_any_load(load: float) -> None:
    history = sound()
    history.gateway = GatewayClients(sent=[sent(1_000, 2_000)], groups=[("orders", "push")])
    verdict = judge(Played(load, history), 1)
    assert [each.split(":")[0] for each in verdict.broken] == ["1 at gateways"]
    assert (verdict.lost, verdict.acknowledged) == (1, 12)


def test_a_repetition_at_gateways_is_judged_by_when_the_leader_was_lost() -> None:
    history = sound()
    history.gateway = GatewayClients(sent=[sent(1_000, 2_000), sent(1_001, 5_950)], groups=[])
    history.gateway.delivered += [given(1_001, 5_960, "push"), given(1_001, 6_900, "push", marked=1)]
    assert judge(Played(QUIET, history), 1.0).passed
    history.gateway.delivered += [given(1_000, 2_010, "push"), given(1_000, 6_900, "push", marked=1)]
    (broken,) = judge(Played(LOADED, history), 1.0).broken
    assert broken.startswith("1 at gateways: repeated beyond the bound: ")


def test_what_a_run_had_to_leave_out_stays_with_its_verdict() -> None:
    verdict = judge(Played(QUIET, sound(), left_out=["go"]), 1.0)
    assert (verdict.passed, verdict.left_out) == (True, ["go"])
