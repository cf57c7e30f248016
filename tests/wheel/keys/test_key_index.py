"""The key index against a dict: what was added is found, whatever was merged, dropped, torn or damaged."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.wheel.keys import key_index
from tarry.wheel.keys.key_index import MANIFEST_NAME, MERGED_RUNS, KeyIndex, find
from tarry.wheel.keys.run import (
    BLOCK_BYTES,
    BLOCK_ROWS,
    PLACES_END,
    ROW,
    KeysDamaged,
    hours_of,
    in_order,
    indices_of,
    words_of,
)
from tests.power import Power, losses

HOUR = 498_000


def rows(pairs: Iterable[tuple[int, int]]) -> Any:
    return np.array(list(pairs), ROW)


def ids(
    index: KeyIndex, key_hash: int, first: int = 0, end: int = PLACES_END, most: int = 1 << 30
) -> list[int]:
    found: list[int] = find(index.runs, key_hash, first, end, most).tolist()
    return found


def rows_of_any(index: KeyIndex, hashes: list[int], first: int) -> list[tuple[int, int]]:
    found = [run.find_any(np.array(hashes, np.uint64), first).tolist() for run in index.runs]
    return sorted({row for some in found for row in some})


def nothing_dropped(hours: Any) -> Any:
    return np.zeros(len(hours), np.bool_)


def merge(index: KeyIndex, is_dropped: Any = nothing_dropped) -> int:
    """Merge all that is due, and return how often."""
    for count in range(1_000):
        chosen = index.choose(is_dropped)
        if not chosen:
            return count
        made = index.merge(chosen, is_dropped)
        index.replace(chosen, made)
        index.commit(index.generation)
        index.forget(chosen)
    raise AssertionError("it never ends")


def test_an_id_is_an_hour_and_a_global_index() -> None:
    hour, number = np.array([0, 7, 2**32 - 1], np.uint32), np.array([2**32 - 1, 1, 0], np.uint32)
    both = words_of(hour, number)
    assert (hours_of(both) == hour).all()
    assert (indices_of(both) == number).all()
    assert (np.sort(both) == both).all()


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_it_finds_what_a_dict_has_after_any_adds_merges_drops_and_starts(data: st.DataObject) -> None:
    hashes = [0, 1, 5, 2**63, 2**64 - 1]
    hour_numbers = st.integers(HOUR, HOUR + 5)
    pair = st.tuples(st.sampled_from(hashes), hour_numbers.map(lambda h: h << 32), st.integers(0, 40))
    known: dict[int, set[int]] = {one: set() for one in hashes}
    dropped: set[int] = set()

    def is_dropped(hours: Any) -> Any:
        return np.isin(hours, sorted(dropped))

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_index, "SMALL_ROWS", data.draw(st.integers(1, 50)))
        patched.setattr(key_index, "MERGED_RUNS", data.draw(st.integers(2, 4)))
        index = KeyIndex(Path(folder) / "keys")
        for step in data.draw(
            st.lists(st.sampled_from(["add", "add", "merge", "drop", "start"]), max_size=12)
        ):
            if step == "add":
                some = [(h, at | i) for h, at, i in data.draw(st.lists(pair, min_size=1, max_size=60))]
                some = [(h, i) for h, i in some if i >> 32 not in dropped]
                index.add([rows(some)])
                index.commit(index.generation + 1)
                for h, i in some:
                    known[h].add(i)
            elif step == "merge":
                merge(index, is_dropped)
            elif step == "drop":
                dropped.add(data.draw(hour_numbers))
            else:
                index = KeyIndex.open(index.folder)
            for h, expected in known.items():
                alive = {i for i in expected if i >> 32 not in dropped}
                assert alive <= set(ids(index, h)) <= expected
                first, end = sorted(data.draw(st.tuples(*[hour_numbers] * 2)))
                most = data.draw(st.integers(1, 10))
                page = ids(index, h, first << 32, end << 32, most)
                assert page == [i for i in ids(index, h) if first << 32 <= i < end << 32][:most]
            some = sorted(data.draw(st.sets(st.sampled_from([*hashes, 2, 2**62]), min_size=1)))
            any_of = rows_of_any(index, some, first << 32)
            assert any_of == sorted((h, i) for h in some for i in ids(index, h, first << 32))


def test_a_key_of_many_messages_is_found_page_by_page_across_blocks_and_runs(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path / "keys")
    count = 5 * BLOCK_ROWS + 7
    every = [HOUR << 32 | number for number in range(count)]
    for part in range(3):
        index.add([rows((9, i) for i in every[part::3]), rows((8, i) for i in every[:3]), rows([(10, 1)])])
    index.commit(1)
    for _ in range(2):
        found: list[int] = []
        while page := ids(index, 9, found[-1] + 1 if found else 0, most=1_000):
            found += page
        assert found == every
        assert ids(index, 8) == every[:3]
        assert rows_of_any(index, [7, 8, 10], 0) == [*((8, i) for i in every[:3]), (10, 1)]
        assert rows_of_any(index, [9], every[-2]) == [(9, i) for i in every[-2:]]
        assert rows_of_any(index, [3, 8, 9], 0) == [*((8, i) for i in every[:3]), *((9, i) for i in every)]
        made = index.merge(index.runs, nothing_dropped)
        index.replace(index.runs, made)
    assert [run.rows for run in index.runs] == [count + 3 + 1]  # each row once


def test_merging_keeps_the_number_of_runs_to_what_the_logarithm_of_the_rows_is(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    index = KeyIndex(tmp_path / "keys")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(key_index, "SMALL_ROWS", 100)
        for number in range(200):
            some = np.empty(100, ROW)
            some["hash"], some["place"] = rng.integers(0, 2**63, 100), np.arange(100) + 100 * number
            index.add([some])
            merge(index)
    assert index.rows == 20_000
    assert len(index.runs) <= 3 * (MERGED_RUNS - 1)
    assert {path.name for path in index.folder.iterdir()} == {
        MANIFEST_NAME,
        *(run.path.name for run in index.runs),
    }


def test_a_run_that_is_mostly_of_dropped_hours_is_written_again_without_them(tmp_path: Path) -> None:
    rng = random.Random(1)
    index = KeyIndex(tmp_path / "keys")
    hours = [HOUR] * 60 + [HOUR + 1] * 40
    some = [(rng.getrandbits(64), rng.choice(hours) << 32 | number) for number in range(64 * BLOCK_ROWS)]
    index.add([rows(some)])
    index.commit(1)
    before = sum(path.stat().st_size for path in index.folder.iterdir())
    assert merge(index) == 0
    assert merge(index, lambda hours: hours == HOUR) == 1
    assert index.rows == sum(i >> 32 != HOUR for _, i in some)
    assert sum(path.stat().st_size for path in index.folder.iterdir()) < before / 2
    assert merge(index, lambda hours: hours <= HOUR + 1) == 1
    assert index.runs == ()


def test_what_is_not_committed_is_not_there_after_a_start_and_its_files_are_deleted(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path / "keys")
    index.add([rows([(1, 1)])])
    index.commit(1)
    index.add([rows([(2, 2)])])
    again = KeyIndex.open(index.folder)
    assert (again.generation, ids(again, 1), ids(again, 2)) == (1, [1], [])
    assert len(list(index.folder.iterdir())) == 2


@pytest.mark.parametrize("at", [0, BLOCK_BYTES - 1, BLOCK_BYTES, -1])
def test_a_damaged_run_is_found_by_its_checksums_and_never_answers(tmp_path: Path, at: int) -> None:
    index = KeyIndex(tmp_path / "keys")
    index.add([rows((number, number) for number in range(BLOCK_ROWS + 9))])
    index.commit(1)
    (run,) = index.runs
    data = bytearray(run.path.read_bytes())
    data[at] ^= 4
    run.path.write_bytes(data)
    with pytest.raises(KeysDamaged):
        again = KeyIndex.open(index.folder)
        for number in range(BLOCK_ROWS + 9):
            assert ids(again, number) == [number]
    with pytest.raises(KeysDamaged):
        again = KeyIndex.open(index.folder)
        again.merge(again.runs, nothing_dropped)


def test_a_missing_run_or_a_damaged_manifest_is_damage(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path / "keys")
    index.add([rows([(1, 1)])])
    index.commit(1)
    manifest = (index.folder / MANIFEST_NAME).read_bytes()
    for wrong in (b"", manifest[:-1], manifest + b"x", bytes(len(manifest))):
        (index.folder / MANIFEST_NAME).write_bytes(wrong)
        with pytest.raises(KeysDamaged):
            KeyIndex.open(index.folder)
    (index.folder / MANIFEST_NAME).write_bytes(manifest)
    index.runs[0].path.unlink()
    with pytest.raises(KeysDamaged, match="not there"):
        KeyIndex.open(index.folder)
    assert KeyIndex.open(index.folder.parent / "none").generation == 0


def test_who_reads_a_run_goes_on_while_it_is_merged_and_deleted(tmp_path: Path) -> None:
    index = KeyIndex(tmp_path / "keys")
    for number in range(MERGED_RUNS):
        index.add([rows([(1, number)])])
    reading = index.runs
    assert merge(index) == 1
    assert find(reading, 1, 0, PLACES_END, 99).tolist() == ids(index, 1) == list(range(MERGED_RUNS))


def test_what_is_written_late_fails_where_the_folder_was_removed(tmp_path: Path) -> None:
    state = tmp_path / "state-1"
    state.mkdir()
    used, unused = KeyIndex(state / "keys"), KeyIndex(state / "keys")
    used.add([rows([(1, 1)])])
    shutil.rmtree(state)
    for index in (used, unused):
        with pytest.raises(FileNotFoundError):
            index.add([rows([(1, 2)])])
        with pytest.raises(FileNotFoundError):
            index.commit(1)
    assert not state.exists()
    assert used.renewed().runs == ()


def test_equal_rows_are_one() -> None:
    assert in_order(rows([(2, 1), (1, 5), (2, 1), (1, 3), (2, 0)])).tolist() == [
        (1, 3),
        (1, 5),
        (2, 0),
        (2, 1),
    ]


def test_power_lost_at_any_call_leaves_all_that_was_committed(tmp_path: Path) -> None:
    """Committed is what the call came back for; merges and their deletions lose nothing."""
    committed: dict[Path, int] = {}

    def begin(data: Path) -> None:
        data.mkdir(parents=True)
        committed[data] = 0

    def play(data: Path, power: Power) -> None:
        index = KeyIndex(data / "keys")
        for number in range(1, 5):
            index.add([rows([(7, number), (number, number)])])
            index.commit(number)
            committed[data] = number
            if len(index.runs) > 1:
                chosen = index.runs
                made = index.merge(chosen, nothing_dropped)
                index.replace(chosen, made)
                index.commit(number)
                index.forget(chosen)

    lost = 0
    for data, is_lost in losses(tmp_path, begin, play):
        lost += is_lost
        index = KeyIndex.open(data / "keys")
        there = ids(index, 7)
        assert there == list(range(1, index.generation + 1))
        assert committed[data] <= index.generation <= committed[data] + 1
    assert lost > 40
