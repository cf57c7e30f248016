"""Output of ``tarry forecast``: everything that is told is drawn, however wide the terminal is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from tarry.client.cli.forecast import joined, view
from tarry.client.cli.main import app
from tarry.client.errors import InvalidQuery
from tarry.client.queries.forecast import Forecast, ForecastOptions, request_of

NOW_MS = 1_792_281_600_400
LOOK = Forecast(
    first_ms=NOW_MS - 400,
    bucket_ms=1_000,
    counts=(3, 0, 10, *[0] * 57),
    pending=1_234,
    overdue=2,
    oldest_overdue_ms=1_500,
    now_ms=NOW_MS,
    applied_index=7,
    released_per_s=12_345.6,
    released_measured=True,
    lateness_ms=(1_700, *[0] * 59),
    upper_bound=False,
    node="n2",
    heard_ms_ago=31,
    leads=False,
)


def drawn(look: Forecast, width: int = 120) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(view(look, width))
    return capture.get().splitlines()


def test_it_says_what_is_overdue_what_comes_how_late_and_who_says_so() -> None:
    lines = drawn(LOOK, 98)
    assert lines[0] == (
        "1,234 pending; overdue 2, oldest 1.500s; backlogs go at 12,346/s (measured); by n2, which heard th"
    )
    assert lines[1] == "due from 2026-10-18T00:00:00.000Z on: 13; in 1s 10 at most"
    assert (lines[2].rstrip(), lines[9].rstrip()) == ("  █", "█ █")
    assert lines[10].startswith("now") and lines[10].rstrip().endswith("+1m")
    assert "predicted lateness: 1.700s at most" in lines


def test_what_will_be_in_time_has_no_bars_of_lateness_and_an_assumed_rate_says_so() -> None:
    calm = replace(LOOK, lateness_ms=(0,) * 60, released_measured=False, leads=True, upper_bound=True)
    text = "\n".join(drawn(calm, 240))
    assert "predicted" not in text
    assert "(assumed); by n2, the leader; at most: not all records were read" in text


@given(values=st.lists(st.integers(0, 9), max_size=300), width=st.integers(1, 120))
def test_however_narrow_it_is_nothing_is_left_out(values: list[int], width: int) -> None:
    columns = joined(values, width, sum)
    assert sum(columns) == sum(values)
    assert len(columns) <= width


def test_nothing_ahead_is_drawn_as_well() -> None:
    assert drawn(replace(LOOK, counts=(), lateness_ms=()))[1].endswith("on: 0; in 0ms 0 at most")


@pytest.mark.parametrize(
    "options",
    [
        ForecastOptions(by="day"),  # type: ignore[typeddict-item]
        ForecastOptions(buckets=-1),
        ForecastOptions(buckets=1 << 32),
        ForecastOptions(from_ms=-1),
    ],
)
def test_what_no_request_can_hold_is_refused_with_what_may_be_given(options: ForecastOptions) -> None:
    with pytest.raises(InvalidQuery):
        request_of(options)


@pytest.mark.parametrize(
    "arguments", [["--by", "day"], ["--for", "0s"], ["--every", "100ms"], ["--looks", "0"], ["--for", "soon"]]
)
def test_wrong_usage_ends_with_2(arguments: list[str]) -> None:
    assert CliRunner().invoke(app, ["forecast", *arguments]).exit_code == 2
