"""The figures of what programs of RocketMQ's clients tell, and their comparison."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.console import Console

from tarry.bench.rocketmq_clients import runs
from tarry.bench.rocketmq_clients.__main__ import chosen, result, table
from tarry.bench.rocketmq_clients.figures import UNITS, figures
from tarry.bench.rocketmq_clients.runs import Plan, ProgramFailed, parts, told_by
from tarry.client.local.rocketmq_programs import Command

PRINTED = """what the client logs
["rate", 1, 2, 3]
["rate", 1000, 2, 500]
["single", [1.0, 3.0, 2.0]]
[INFO] more of it
["late", 1, 2, [4.0, 5.0, 6.0]]
["crowd", 3, 4, [10.0, 30.0, 20.0]]
"""


def told(rate: int = 1_000, late_ms: float = 5.0) -> Mapping[str, list[Any]]:
    return {
        "rate": [rate, 0, 1_000],
        "single": [[1.0]],
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
        "failed": 2 + 1 + 2 + 3 + 4,
    }


async def test_a_program_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*_: object) -> Command:
        return Command((sys.executable, "-c", "import sys; sys.exit(f'no route to {sys.argv[1]}')"))

    monkeypatch.setattr(runs, "command_of", failing)
    with pytest.raises(ProgramFailed, match="go ended with 1:\nno route to here:1"):
        await told_by("go", "here:1", "topic", Plan(), tmp_path)


def test_a_part_that_a_program_has_not_told_is_missed() -> None:
    with pytest.raises(KeyError, match="crowd"):
        figures(parts(PRINTED[: PRINTED.index('["crowd"')]))


def test_a_part_of_which_nothing_came_has_no_figure() -> None:
    found = figures({**told(), "crowd": [5, 0, []]})
    assert str(found["crowd_last_ms"]) == "nan" and found["failed"] == 5


def test_ratios_are_within_a_pair_and_medians_over_them() -> None:
    ours = [figures(told(2_000)), figures(told(900)), figures(told(3_000))]
    theirs = [figures(told(1_000)), figures(told(100)), figures(told(3_000, 50.0))]
    found = result({"go": {"tarry": ours, "rocketmq": theirs}})
    assert found["go"]["tarry"]["rate_per_s"] == 2_000 and found["go"]["rocketmq"]["rate_per_s"] == 1_000
    assert found["go"]["ratio"]["rate_per_s"] == 2.0 and found["go"]["ratio"]["late_p99_ms"] == 1.0
    assert "failed" not in found["go"]["ratio"]


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
