"""Specifications of schedules: what is sent of them, and what is refused before."""

from __future__ import annotations

from typing import Any

import pytest

from tarry.client.aio import Cron, Interval, Missed, Overlap, Specification
from tarry.client.errors import InvalidSchedule
from tarry.client.recurring.specification import ScheduleOptions, Timing, packed
from tarry.proto import tarry_recurring_pb2 as pb

WHOLE: ScheduleOptions = {
    "start_ms": 1,
    "end_ms": 9,
    "jitter_ms": 5,
    "overlap": Overlap.QUEUE,
    "missed": Missed.NONE,
    "missed_after_ms": 7,
    "tags": ["a"],
    "keys": ["k"],
    "properties": {"p": "v"},
    "ordering_key": "o",
}


@pytest.mark.parametrize("timing", [Interval(1), Interval(2**63 - 1), Cron("0 2 * * *", "Europe/Berlin")])
def test_a_specification_comes_back_as_it_was_given(timing: Timing) -> None:
    spec = Specification.of(packed("reports", b"body", timing, WHOLE))
    given: dict[str, Any] = {**WHOLE, "tags": ("a",), "keys": ("k",)}
    assert spec == Specification("reports", timing, b"body", **given)


def test_what_is_not_given_is_the_default_of_the_cluster() -> None:
    sent = packed("reports", b"", Cron("* * * * *"), {})
    assert (sent.zone, sent.overlap, sent.missed) == (
        "UTC",
        pb.OVERLAP_POLICY_ALLOW,
        pb.MISSED_POLICY_LAST,
    )
    unspecified = Specification.of(pb.RecurringSpec(topic="reports", cron="* * * * *"))
    assert (unspecified.timing, unspecified.overlap, unspecified.missed) == (
        Cron("* * * * *", "UTC"),
        Overlap.ALLOW,
        Missed.LAST,
    )


@pytest.mark.parametrize("policy", list(Overlap))
def test_each_policy_of_overlaps_has_a_number(policy: Overlap) -> None:
    assert Specification.of(packed("t", b"", Interval(1), {"overlap": policy})).overlap is policy


@pytest.mark.parametrize("policy", list(Missed))
def test_each_policy_of_missed_fires_has_a_number(policy: Missed) -> None:
    assert Specification.of(packed("t", b"", Interval(1), {"missed": policy})).missed is policy


def test_a_policy_that_this_client_does_not_know_counts_as_the_default() -> None:
    told = pb.RecurringSpec(topic="t", interval_ms=1, overlap=77, missed=77)  # type: ignore[arg-type]
    assert Specification.of(told).overlap is Overlap.ALLOW
    assert Specification.of(told).missed is Missed.LAST


@pytest.mark.parametrize(
    ("timing", "options"),
    [
        (Interval(0), {}),
        (Interval(-1), {}),
        (Interval(1.5), {}),  # type: ignore[arg-type]
        (Interval(2**63), {}),
        ("0 2 * * *", {}),
        (None, {}),
        (Interval(1), {"start_ms": -1}),
        (Interval(1), {"end_ms": 2**63}),
        (Interval(1), {"jitter_ms": 2**32}),
        (Interval(1), {"overlap": "sometimes"}),
        (Interval(1), {"missed": "sometimes"}),
        (Interval(1), {"missed_after_ms": "1m"}),
    ],
)
def test_what_no_schedule_can_have_is_refused_before_it_is_sent(timing: Any, options: Any) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        packed("t", b"", timing, options)
    assert refused.value.reason == "RECURRING_INVALID"


def test_a_text_is_not_taken_for_the_list_of_its_characters() -> None:
    with pytest.raises(TypeError, match="tags is a sequence"):
        packed("t", b"", Interval(1), {"tags": "abc"})
    with pytest.raises(TypeError, match="no option 'due_ms'"):
        packed("t", b"", Interval(1), {"due_ms": 7})  # type: ignore[typeddict-unknown-key]
