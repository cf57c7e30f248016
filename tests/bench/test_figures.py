import asyncio
import json
from dataclasses import asdict
from typing import Any

import pytest

from tarry.bench.machine import machine
from tarry.bench.side_by_side import turns
from tarry.bench.side_by_side.figures import KEYS, RATIOS, lines, markdown, outcome
from tarry.bench.side_by_side.messages import Verdict
from tarry.bench.side_by_side.pace import Pace
from tarry.bench.side_by_side.peers import SYSTEMS, chosen
from tarry.bench.side_by_side.peers.tarry import Tarry
from tarry.bench.side_by_side.report import COLOUR_OURS, COLOUR_PEER, page, plot
from tarry.bench.side_by_side.rows import COSTS, ROWS, Row, row_of
from tarry.bench.side_by_side.system import Durability, System
from tarry.bench.side_by_side.turns import Cell, Results, Spread
from tarry.bench.side_by_side.workloads import Turn


class Unsynced(Tarry):
    name = "unsynced"
    durability = Durability(1, False, "none")


def rates(*values: float) -> Cell:
    return Cell([Turn({"per_s": value}) for value in values])


def found() -> dict[str, Any]:
    cells = {
        ("schedule_1000x100", "tarry"): rates(10_000.0, 30_000.0, 20_000.0),
        ("schedule_1000x100", "etcd3"): rates(10_000.0, 10_000.0, 40_000.0),
        ("schedule_tasks32", "tarry"): Cell([Turn({"per_s": 1.0}, Verdict(lost=2))]),
        ("schedule_tasks32", "unsynced"): Cell(failed="OSError: <gone>"),
    }
    return outcome(Results(cells), [Tarry(), Unsynced()], {"redis_always": "not there"}, machine())


def test_a_spread_is_the_least_the_median_and_the_most() -> None:
    assert Spread.of([3.0, 1.0, 8.0]) == Spread(1.0, 3.0, 8.0)


def test_a_ratio_compares_the_same_turns() -> None:
    """The medians alone would say 2.0; turn by turn it was 1, 3 and 0.5."""
    assert found()["schedule_1000x100_vs_etcd3"] == 1.0


def test_a_ratio_without_a_common_turn_is_left_out() -> None:
    assert "schedule_tasks32_vs_etcd3" not in found()


def test_the_flat_keys_are_those_of_tarry_and_its_verdicts() -> None:
    assert (found()["schedule_1000x100_per_s"], found()["lost"], found()["duplicates"]) == (20_000.0, 2, 0)
    json.dumps(found())


def test_a_figure_that_not_every_turn_has_is_left_out() -> None:
    assert list(Cell([Turn({"a": 1.0, "b": 2.0}), Turn({"a": 3.0})]).figures()) == ["a"]


def test_lines_name_min_median_max_or_why_there_is_none() -> None:
    texts = {row.name: text for row, text in lines(found())}
    assert texts["schedule_1000x100"]["tarry"] == "10,000 / 20,000 / 30,000 /s"
    assert texts["schedule_tasks32"]["unsynced"] == "failed: OSError: <gone>"


def test_the_readme_table_marks_what_does_not_sync_or_copy() -> None:
    head, _, _, marks, first, *_, last, _, measured_on, left_out = markdown(found()).splitlines()
    assert head == "| work | tarry | unsynced |"
    assert marks == "| missing against fsync on a majority of three |  | one copy, no fsync |"
    assert first == "| schedule, 1,000 × 100 B, 32 in flight | 20,000 /s |  |"
    assert last == "| lost, early, repeated, changed | 2, 0, 0, 0 | 0, 0, 0, 0 |"
    assert " cores (" in measured_on
    assert left_out == "Left out: redis_always, for not there"


SPENT = {"per_s": 1.0, "cpu_s": 3.0, "cpu_leader_s": 2.0, "cpu_followers_s": 0.01, "cpu_client_s": 0.99}


def costs() -> dict[str, Any]:
    cells = {
        ("schedule_100x100", "tarry"): Cell([Turn(SPENT)] * 3),
        ("schedule_100x100", "unsynced"): Cell([Turn({"per_s": 1.0, "cpu_s": 7.0, "cpu_servers_s": 7.0})]),
    }
    return outcome(Results(cells), [Tarry(), Unsynced()], {}, machine())


def test_cpu_time_is_a_row_of_its_own_of_the_same_turns() -> None:
    figures = costs()
    assert figures["cpu_schedule_100_s"] == 3.0
    assert list(figures["rows"]["schedule_100x100"]["tarry"]["figures"]) == ["per_s"]
    assert figures["rows"]["cpu_schedule_100"]["tarry"]["figures"]["cpu_leader_s"]["median"] == 2.0
    assert figures["rows"]["cpu_schedule_100"]["tarry"]["turns"] == 3


def test_cpu_time_is_shown_with_its_parts_but_for_those_of_less_than_a_hundredth() -> None:
    texts = {row.name: text for row, text in lines(costs())}["cpu_schedule_100"]
    assert texts == {"tarry": "3 / 3 / 3 s (leader 2, client 0.99)", "unsynced": "7 s (servers 7)"}
    assert "| 3 s (leader 2, client 0.99) | 7 s (servers 7) |" in markdown(costs())
    assert "| 3 s | 7 s |" in markdown(costs(), only=["cpu_schedule_100"])
    assert page(costs()).count("CPU of 100,000 scheduled in batches of 100 (less is better)") == 1


def test_a_row_of_something_else_is_shown_without_the_parts_of_its_cpu_time() -> None:
    cells = {("schedule_1000x1k", "tarry"): Cell([Turn(SPENT)])}  # no row of CPU time is of these turns
    shown = outcome(Results(cells), [Tarry()], {}, machine())
    assert "schedule, 1,000 × 1 KiB, 32 in flight | 1 /s |" in markdown(shown)
    assert [texts for row, texts in lines(shown) if row.name == "schedule_1000x1k"] == [{"tarry": "1 /s"}]


def test_every_row_of_cpu_time_belongs_to_a_row_of_a_whole_run() -> None:
    assert {cost.row for cost in COSTS} <= {row.name for row in ROWS if row.in_full}
    assert not {cost.name for cost in COSTS} & {row.name for row in ROWS}


def test_a_system_can_be_left_out_of_a_table() -> None:
    assert markdown(costs(), only=["schedule_100x100"], without=["unsynced"]).startswith("| work | tarry |\n")


def test_the_report_draws_tarry_in_a_colour_of_its_own() -> None:
    bars = plot(row_of("schedule_100x100"), costs()["rows"]["schedule_100x100"]).data[0]
    assert dict(zip(bars.x, bars.marker.color, strict=True)) == {
        "tarry": COLOUR_OURS,
        "unsynced": COLOUR_PEER,
    }


def test_the_report_needs_nothing_else_and_escapes_what_peers_said() -> None:
    report = page(found())
    assert "not there" in report
    assert "<gone>" not in report
    assert "src=" not in report.replace("\n", "")[:200]


def test_the_report_lays_what_every_answer_is_worth_side_by_side_with_versions_and_the_machine() -> None:
    report = page(found())
    for system in (Tarry(), Unsynced()):
        promised = system.durability
        cells = (
            system.name,
            system.version(),
            *map(str, (promised.copies, promised.synced, promised.setting)),
        )
        assert "".join(f"<td>{cell}</td>" for cell in cells) in report
    assert f"<td>cpu</td><td>{machine()['cpu']}</td>" in report


def test_a_turn_that_fails_is_tried_again_once_and_the_second_failure_ends_the_row_for_that_system() -> None:
    asked: list[str] = []

    async def work(system: System, share: float) -> Turn:
        asked.append(system.name)
        if system.name == "unsynced" or len(asked) == 1:
            raise RuntimeError("gone")
        return Turn({"per_s": 1.0})

    row, results = Row("r", "r", "per_s", "/s", work), Results()
    plan = [(row, [Tarry(), Unsynced()])]
    asyncio.run(turns.run(plan, Pace(plan, 3, 1.0, float("inf")), results, lambda *_: None))
    assert asked == ["tarry", "tarry", "unsynced", "unsynced", "tarry", "tarry"]
    assert (results.cell("r", "unsynced").failures, results.cell("r", "unsynced").turns) == (2, [])
    found = outcome(results, [Tarry(), Unsynced()], {}, machine())["rows"]["r"]
    assert [found["tarry"][key] for key in ("turns", "failures", "failed")] == [3, 1, "RuntimeError: gone"]


def test_a_system_can_say_what_it_lacks_where_no_fsync_is_not_all() -> None:
    assert Durability(3, False, "", lacks="fsync on the master only").mark == "fsync on the master only"
    assert Durability(1, False, "").mark == "one copy, no fsync"


def test_seconds_that_were_scaled_up_from_fewer_messages_are_marked_as_such() -> None:
    scaled = Turn({"s": 25.0, "messages": 20_000.0, "scaled": 5.0})
    cells = {("mass_100k", "tarry"): Cell([Turn({"s": 0.5, "messages": 1e5, "scaled": 1.0})] * 3),
             ("mass_100k", "unsynced"): Cell([scaled] * 3)}  # fmt: skip
    found = outcome(Results(cells), [Tarry(), Unsynced()], {}, machine())
    ((_, texts),) = lines(found)
    assert texts == {"tarry": "0.5 / 0.5 / 0.5 s", "unsynced": "25 / 25 / 25 s (fewer messages, scaled up)"}
    assert "| 0.5 s | ≈ 25 s |" in markdown(found)


def test_the_keys_that_are_promised_are_all_there() -> None:
    promised = (
        "schedule_1000x100_per_s schedule_1000x100_vs_etcd3 schedule_1000x100_vs_rabbit_quorum "
        "schedule_1000x1k_vs_etcd3 schedule_tasks32_vs_etcd3 schedule_100x100_per_s schedule_tasks32_per_s "
        "schedule_one_p50_ms lateness_1k_p50_ms lateness_1k_p99_ms lateness_5k_p99_ms mass_100k_s "
        "ram_bytes_per_pending disk_bytes_per_pending lost early duplicates"
    )
    assert set(promised.split()) <= KEYS.keys() | RATIOS.keys() | asdict(Verdict()).keys()


def test_a_quick_run_gives_every_key_of_a_whole_one_but_for_rows_of_its_own() -> None:
    """Each key's row is measured on tarry, and each ratio's on both."""
    by_name = {row.name: row for row in ROWS}
    wanted = {row for row, _ in KEYS.values()} - {"cancel", "failover", "mass_1m"}
    assert all("tarry" in by_name[row].quick for row in wanted)
    assert all(peer in by_name[row].quick for row, peer in RATIOS.values())


def test_rows_and_systems_have_names_of_their_own_and_unknown_ones_are_refused() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(row_of(row.name) is row for row in ROWS)
    with pytest.raises(KeyError, match="schedule_one"):
        row_of("nothing")
    with pytest.raises(KeyError, match="etcd3"):
        chosen("nothing", quick=False)
    assert "etcd3" in SYSTEMS
