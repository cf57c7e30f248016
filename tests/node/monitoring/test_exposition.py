"""The page of metrics, made in pieces, is what prometheus_client would make of it at once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import (
    METRIC_TYPES,
    CounterMetricFamily,
    GaugeHistogramMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample, Timestamp

from tarry.node.monitoring.exposition import PIECE_SAMPLES, render
from tarry.replication.loop_holds import Holds
from tests import turns

NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,8}", fullmatch=True) | st.text(min_size=1, max_size=8)
SUFFIXES = st.sampled_from(
    ["", "_total", "_info", "_bucket", "_created", "_gsum", "_gcount", "_created_gsum"]
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
TIMES = (
    st.none()
    | st.floats(0, 1e12)
    | st.builds(Timestamp, st.integers(0, 1 << 40), st.integers(0, 999_999_999))
)


@st.composite
def families(draw: st.DrawFn) -> Metric:
    family = Metric(draw(NAMES), draw(TEXTS), draw(st.sampled_from(METRIC_TYPES)))
    names = SUFFIXES.map(lambda suffix: family.name + suffix) | NAMES
    values = st.floats() | st.integers(-(1 << 60), 1 << 60)
    labels = st.dictionaries(NAMES, TEXTS, max_size=3)
    samples = st.tuples(names, labels, values, TIMES).map(lambda fields: Sample(*fields))
    family.samples = draw(st.lists(samples, max_size=8))
    return family


@dataclass
class Collected:
    families: list[Metric]

    def collect(self) -> list[Metric]:
        return self.families


def histogram(name: str, topics: int) -> Metric:
    """Return a family whose samples are made one by one, 14 of each topic."""
    family: Any = Metric(name, "Lateness.", "histogram")
    family.samples = (
        Sample(f"{name}_bucket", {"topic": f"topic-{topic}", "le": str(bound)}, float(topic * bound))
        for topic in range(topics)
        for bound in range(14)
    )
    return family  # type: ignore[no-any-return]


@given(st.lists(families(), max_size=4), st.integers(1, 8))
def test_pieces_of_any_size_make_the_page_that_prometheus_client_makes(
    found: list[Metric], size: int
) -> None:
    assert asyncio.run(render(found, size)) == generate_latest(Collected(found))


def every_type() -> list[Metric]:
    counter = CounterMetricFamily("c", "Counted\nin \\ lines.", labels=["topic"])
    counter.add_metric(['a"\n\\'], 3, created=12.5)
    counter.add_metric(["é"], 4, created=13.5)
    summary = SummaryMetricFamily("s", "S.", count_value=3, sum_value=1.5)
    buckets = HistogramMetricFamily("h", "H.", labels=["topic"])
    buckets.add_metric(["a"], [("0.1", 1), ("+Inf", 2)], 0.3)
    gauges = GaugeHistogramMetricFamily("g", "G.", buckets=[("1", 1), ("+Inf", 2)], gsum_value=0.3)
    return [counter, summary, buckets, gauges, InfoMetricFamily("i", "I.", {"version": "1"})]


@pytest.mark.parametrize("size", range(1, 10))
def test_every_type_of_a_family_has_its_head_once(size: int) -> None:
    page = asyncio.run(render(every_type(), size))
    assert page == generate_latest(Collected(every_type()))
    heads = [line for line in page.splitlines() if line.startswith(b"# TYPE")]
    assert len(heads) == len(set(heads)) == 8  # with those of c_created, g_gcount and g_gsum


def test_a_page_can_be_read_again() -> None:
    page = asyncio.run(render([histogram("lateness_seconds", 3)], 5))
    [read] = text_string_to_metric_families(page.decode())
    assert (read.type, len(read.samples)) == ("histogram", 3 * 14)


def test_no_family_makes_an_empty_page() -> None:
    assert asyncio.run(render([])) == b""


async def test_the_samples_of_a_family_are_made_a_piece_a_turn() -> None:
    made = 0

    def counting() -> Iterator[Sample]:
        nonlocal made
        for number in range(1_000):
            made += 1
            yield Sample("n", {"number": str(number)}, 1.0)

    family: Any = Metric("n", "", "gauge")
    family.samples = counting()
    task, seen = asyncio.create_task(render([family], 100)), [0]
    while not task.done():
        await asyncio.sleep(0)
        seen.append(made)
    assert made == 1_000
    assert max(after - before for before, after in pairwise(seen)) <= 200


async def test_many_families_of_few_samples_are_spread_over_turns_too() -> None:
    made = 0

    def counting() -> Iterator[Metric]:
        nonlocal made
        for number in range(500):
            made += 1
            yield Metric(f"n{number}", "", "gauge")

    task, seen = asyncio.create_task(render(counting())), [0]
    while not task.done():
        await asyncio.sleep(0)
        seen.append(made)
    assert made == 500
    assert max(after - before for before, after in pairwise(seen)) <= PIECE_SAMPLES / 10 + 1


def test_no_turn_takes_long_for_40_000_samples() -> None:
    """The bound of a turn is for all that comes together in one; a page is to take a fraction of it."""

    async def play(steps: turns.Steps, _: Holds) -> None:
        async with steps.step("page"):
            await render(histogram(f"lateness{number}_seconds", 1_000) for number in range(3))

    held = (turns.busiest(play)["page"].cpu_s for _ in range(turns.TRIES))
    assert any(held_s <= turns.bound_s(0.003) for held_s in held)
