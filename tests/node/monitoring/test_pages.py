"""The pages of the metrics port: probes, and renderings that scrapes share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from tarry.node.monitoring.exposition import CONTENT_TYPE
from tarry.node.monitoring.pages import KEPT_S, Renderings, pages
from tarry.node.monitoring.port import Page

FAMILIES = 100
"""So many take several turns."""


class Counted:
    """Families that tell how often they were asked for, and a clock; ``error`` is raised at the end."""

    def __init__(self) -> None:
        self.asked = 0
        self.begun = asyncio.Event()
        self.now_s = 1_000.0
        self.error: Exception | None = None
        self.renderings = Renderings(self.read, lambda: self.now_s)

    async def read(self) -> Iterator[Metric]:
        return self.families()

    def families(self) -> Iterator[Metric]:
        self.asked += 1
        self.begun.set()
        asked = self.asked
        for number in range(FAMILIES):
            yield GaugeMetricFamily(f"asked_{number}", "How often.", value=asked)
        if self.error is not None:
            raise self.error

    async def shown(self) -> int:
        """Return which time of asking a page shows."""
        page = await self.renderings.newest()
        assert page[:2] == (200, CONTENT_TYPE)
        values = {float(line.split()[1]) for line in page.body.splitlines() if not line.startswith(b"#")}
        [value] = values  # of one rendering, all of them
        return int(value)


async def test_the_pages_are_those_of_metrics_and_of_two_probes() -> None:
    why = "nobody leads"

    async def one() -> list[Metric]:
        return [GaugeMetricFamily("one", "1.", value=1)]

    made = pages(one, lambda: why)
    assert [*made] == ["/metrics", "/healthz", "/readyz"]
    text = "text/plain; charset=utf-8"
    assert await made["/healthz"]() == (200, text, b"alive\n")
    assert await made["/readyz"]() == (503, text, b"nobody leads\n")
    why = ""
    assert await made["/readyz"]() == (200, text, b"ready\n")
    metrics = await made["/metrics"]()
    assert metrics == (200, CONTENT_TYPE, b"# HELP one 1.\n# TYPE one gauge\none 1.0\n")
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4;")


async def test_a_rendering_is_kept_for_a_second_from_when_it_was_made() -> None:
    counted = Counted()
    assert await counted.shown() == 1
    counted.now_s += KEPT_S - 0.25
    assert await counted.shown() == 1
    counted.now_s += 0.25
    assert await counted.shown() == 2


async def test_scrapes_that_come_while_one_is_made_get_the_same() -> None:
    counted = Counted()
    assert await asyncio.gather(*(counted.shown() for _ in range(16))) == [1] * 16
    assert counted.asked == 1


async def test_a_scrape_that_is_given_up_leaves_the_others_theirs() -> None:
    counted = Counted()
    first, others = (
        asyncio.create_task(counted.shown()),
        [asyncio.create_task(counted.shown()) for _ in range(3)],
    )
    await counted.begun.wait()
    first.cancel()
    assert await asyncio.gather(*others) == [2] * 3
    assert first.cancelled()


async def test_a_rendering_that_fails_is_not_kept() -> None:
    counted = Counted()
    counted.error = ValueError("wrong")
    for _ in range(2):
        with pytest.raises(ValueError, match="wrong"):
            await counted.renderings.newest()
    counted.error = None
    assert await counted.shown() == 3


async def test_a_page_that_was_given_does_not_change() -> None:
    counted = Counted()
    page: Page = await counted.renderings.newest()
    before = bytes(page.body)
    counted.now_s += KEPT_S
    await counted.renderings.newest()
    assert page.body == before
