"""The figures of what programs of RocketMQ's clients tell, and their comparison."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from tarry.bench.rocketmq_clients import __main__ as bench
from tarry.bench.rocketmq_clients import runs
from tarry.bench.rocketmq_clients.__main__ import chosen, measure, result, table
from tarry.bench.rocketmq_clients.figures import UNITS, figures
from tarry.bench.rocketmq_clients.runs import Plan, ProgramFailed, parts, told_by
from tarry.bench.rocketmq_clients.systems import System
from tarry.client.local.rocketmq_programs import Command

PRINTED = """what the client logs
["rate", 1, 2, 3]
["rate", 1000, 2, 500]
["single", 5, [1.0, 3.0, 2.0]]
[INFO] more of it
["late", 1, 2, [4.0, 5.0, 6.0]]
["crowd", 3, 4, [10.0, 30.0, 20.0]]
"""


def told(rate: int = 1_000, late_ms: float = 5.0) -> Mapping[str, list[Any]]:
    return {
        "rate": [rate, 0, 1_000],
        "single": [0, [1.0]],
        "late": [0, 0, [late_ms]],
        "crowd": [0, 0, [50.0]],
    }


def test_what_a_program_prints_becomes_its_figures() -> None:
    assert figures(parts(PRINTED)) == {
        "rate_per_s": 2_000,
        "single_p50_ms": 2.0,
        "late_p50_ms": 5.0,
        "late_p99_ms": pytest.approx(5.98),
        "crowd_p50_ms": 20.0,
        "crowd_last_ms": 30.0,
        "early": 0,
        "failed": 2 + 5 + 1 + 2 + 3 + 4,
    }


def test_what_came_early_is_counted_and_makes_no_lateness_better() -> None:
    found = figures({**told(), "late": [0, 0, [-400.0, -300.0, 4.0]], "crowd": [0, 0, [-1.0, 20.0]]})
    assert found["early"] == 3
    assert (found["late_p50_ms"], found["crowd_p50_ms"], found["crowd_last_ms"]) == (0, 10, 20)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys; sys.exit(f'no route to {sys.argv[1]}')", "go ended with 1:\nno route to here:1"),
        ("""print('["single", 0, [1]]')""", "go has not told: rate, late, crowd"),
        (f"print({PRINTED.replace('1000, 2', '0, 2')!r})", "go has sent nothing"),
    ],
)
async def test_a_program_that_fails_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, why: str
) -> None:
    async def failing(*_: object) -> Command:
        return Command((sys.executable, "-c", program))

    monkeypatch.setattr(runs, "command_of", failing)
    with pytest.raises(ProgramFailed, match=why):
        await told_by("go", "here:1", "topic", Plan(), tmp_path)


def test_a_part_that_a_program_has_not_told_is_missed() -> None:
    with pytest.raises(KeyError, match="crowd"):
        figures(parts(PRINTED[: PRINTED.index('["crowd"')]))


def test_a_part_of_which_nothing_came_has_no_figure() -> None:
    found = figures({**told(), "crowd": [5, 0, []]})
    assert found["crowd_last_ms"] is None and found["failed"] == 5
    both = result({"go": {"tarry": [found], "rocketmq": [figures(told())]}})["go"]
    assert both["tarry"]["crowd_last_ms"] is None and both["ratio"]["crowd_last_ms"] is None
    assert both["ratio"]["late_p50_ms"] == 1.0


def test_ratios_are_within_a_pair_and_medians_over_them() -> None:
    ours = [figures(told(2_000)), figures(told(900)), figures(told(3_000))]
    theirs = [figures(told(1_000)), figures(told(100)), figures(told(3_000, 50.0))]
    found = result({"go": {"tarry": ours, "rocketmq": theirs}})
    assert found["go"]["tarry"]["rate_per_s"] == 2_000 and found["go"]["rocketmq"]["rate_per_s"] == 1_000
    assert found["go"]["ratio"]["rate_per_s"] == 2.0 and found["go"]["ratio"]["late_p99_ms"] == 1.0
    assert not {"failed", "early"} & found["go"]["ratio"].keys()


@pytest.fixture
def fourth_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have systems and programs that do nothing, of which the fourth program fails."""

    @asynccontextmanager
    async def running(*_: object) -> AsyncIterator[str]:
        yield "here:1"

    async def tells(language: str, *_: object) -> Mapping[str, list[Any]]:
        asked.append(language)
        if len(asked) == 4:
            raise ProgramFailed(f"{language} ended with 1")
        return {**told(), "crowd": [9, 0, []]}

    asked: list[str] = []
    monkeypatch.setattr(bench, "SYSTEMS", dict.fromkeys(["tarry", "rocketmq"], System(str, running)))
    monkeypatch.setattr(bench, "LANGUAGES", dict.fromkeys(["go", "java"], str))
    monkeypatch.setattr(bench, "told_by", tells)


@pytest.mark.usefixtures("fourth_fails")
async def test_what_was_found_before_a_program_fails_is_kept() -> None:
    found, ended_by = await measure(["tarry", "rocketmq"], ["go", "java"], Plan(), 3)
    assert ended_by == "java ended with 1"
    both = result(found)
    assert both["go"]["ratio"]["rate_per_s"] == 1.0 and both["java"]["tarry"]["rate_per_s"] == 1_000
    assert set(both["java"]["rocketmq"].values()) | set(both["java"]["ratio"].values()) == {None}
    assert table(both).row_count == 2 * len(UNITS)


@pytest.mark.usefixtures("fourth_fails")
def test_the_last_line_is_json_and_says_what_failed(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        bench.main(None, ["tarry"], pairs=3, crowd=1)
    printed = json.loads(capsys.readouterr().out.splitlines()[-1], parse_constant=pytest.fail)
    assert ended.value.exit_code == 1 and printed["ended_by"] == "java ended with 1"
    assert printed["clients"]["go"]["tarry"]["late_p50_ms"] == 5.0
    assert printed["clients"]["go"]["tarry"]["crowd_p50_ms"] is None


def test_the_table_has_each_figure_of_each_client() -> None:
    one = [figures(told())]
    found = result({name: {"tarry": one, "rocketmq": one} for name in ("go", "java")})
    console = Console(width=200)
    with console.capture() as shown:
        console.print(table(found))
    lines = shown.get().splitlines()
    assert [sum(what in line for line in lines) for what in UNITS.values()] == [2] * len(UNITS)


def test_what_is_not_there_is_left_out_and_what_does_not_exist_is_refused() -> None:
    missing = {"go": "", "java": "no java"}
    assert chosen([], missing, "client") == ["go"]
    for asked in (["java"], ["perl"]):
        with pytest.raises(typer.Exit) as ended:
            chosen(asked, missing, "client")
        assert ended.value.exit_code == 2
