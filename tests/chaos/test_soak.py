"""What grows is found and named, and what is lost is counted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tarry.chaos.cluster.footprint import Footprint, disk_bytes
from tarry.chaos.cluster.heap import grown
from tarry.chaos.soak import MIB, Plan, Record, broken, highest

HOUR = Plan(seconds=3_600, rate=2_000)
STEADY = Footprint(
    rss=100 * MIB, anonymous=80 * MIB, mapped_files=20 * MIB, open_files=50, journal=64 * MIB, hours=MIB,
    ready=MIB, ledger=10 * MIB, checkpoint=MIB,
)  # fmt: skip


def found(after: Footprint) -> list[str]:
    return broken(HOUR, {"n1": STEADY, "n2": STEADY}, {"n1": STEADY, "n2": after})


def test_a_node_that_does_not_grow_keeps_its_promises() -> None:
    assert found(replace(STEADY, rss=110 * MIB, ledger=19 * MIB, open_files=500)) == []


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"rss": 111 * MIB, "anonymous": 91 * MIB}, "n2: rss grew"),
        ({"ledger": 20 * MIB}, "n2: ledger grew"),
        ({"journal": 129 * MIB}, "n2: journal takes"),
        ({"ready": 100 * MIB}, "n2: ready takes"),
        ({"hours": 2_100 * MIB}, "n2: hours takes"),
        ({"checkpoint": 6 * MIB}, "n2: checkpoint grew"),
    ],
)
def test_what_grows_is_found_with_the_node(more: Mapping[str, int], told: str) -> None:
    (text,) = found(replace(STEADY, **more))
    assert text.startswith(told)


def test_memory_that_grew_is_told_with_its_parts() -> None:
    (text,) = found(replace(STEADY, rss=120 * MIB, anonymous=100 * MIB, open_files=60))
    assert f"anonymous {80 * MIB:,} to {100 * MIB:,}" in text
    assert "open_files 50 to 60" in text
    assert "mapped_files" not in text


def test_the_windows_of_an_hour_are_its_second_and_its_last_ten_minutes() -> None:
    minutes = {name: [m for m in range(60) if HOUR.window(m * 60) == name] for name in ("first", "last")}
    assert minutes == {"first": [*range(10, 20)], "last": [*range(50, 60)]}


def test_all_that_retention_deletes_is_deleted_from_the_first_window_on() -> None:
    for plan in (HOUR, Plan(60, 10)):
        assert plan.delay_ms_max + plan.kept_ms <= plan.seconds / 6 * 1_000
    assert HOUR.delay_ms_max == 60_000


def test_an_hour_is_overdue_once_it_has_been_kept_for_long_enough(tmp_path: Path) -> None:
    for hour in ("2026112121", "2026112122", "2026112200"):
        (tmp_path / "state-1" / "hours" / hour).mkdir(parents=True)
    end_s = 1_795_298_400.0  # 2026-11-21T22:00:00Z
    assert HOUR.hours_overdue(tmp_path, end_s + 300) == []
    assert HOUR.hours_overdue(tmp_path, end_s + 3_000) == ["2026112121"]


def test_what_was_acknowledged_and_did_not_come_is_missing() -> None:
    record = Record()
    record.take(range(200_000))
    record.acknowledged[[1, 150_000, 199_999]] = True
    record.receive(np.array([1, 199_999, 199_999], dtype=np.uint64))
    assert record.missing == 1
    assert int((record.received > 1).sum()) == 1


def test_the_highest_of_each_figure_counts() -> None:
    one, other = replace(STEADY, rss=1, ready=9), replace(STEADY, rss=5, ready=2)
    assert (highest([one, other]).rss, highest([one, other]).ready) == (5, 9)


def test_the_lines_that_grew_most_come_first() -> None:
    assert grown({"a": 5, "b": 9}, {"a": 6, "b": 2, "c": 70}) == {"c": 70, "a": 1}


def test_files_that_are_removed_take_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / "folder" / "file"
    file.write_bytes(b"x" * 100_000)
    assert disk_bytes(tmp_path) >= 100_000
    file.unlink()
    assert disk_bytes(tmp_path / "nowhere") == 0
