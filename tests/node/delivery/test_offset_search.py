"""Messages are found in a queue by their ids, wherever they lie in it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.node.delivery import offset_search
from tarry.node.delivery.offset_search import NOT_THERE, OffsetSearch
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue, UnitsDamaged


def queue_of(folder: Path, due_ms: list[int]) -> ReadyQueue:
    """A queue with messages that are due then; message n has the global index 7 n."""
    queue = ReadyQueue(folder, 0, "t")
    units = np.zeros(len(due_ms), UNIT)
    units["due_ms"], units["hour"] = due_ms, 5
    units["global_index"] = 7 * np.arange(len(due_ms))
    queue.append(units)
    return queue


def searched(
    queue: ReadyQueue, wanted: list[int], due_ms: list[int], floor: int = 0
) -> tuple[list[int], int]:
    """Return where messages are found, by their numbers, and in how many turns."""
    turns = 0

    async def part(of_a_turn: float, work: Callable[[], None]) -> None:
        nonlocal turns
        assert 0 < of_a_turn <= 1
        turns += 1
        work()

    index = np.array([7 * n for n in wanted], np.uint32)
    hour = np.full(len(wanted), 5, np.uint32)
    search = OffsetSearch(queue, floor, hour, index, np.array(due_ms, np.int64))
    asyncio.run(search.run(part))
    return search.found.tolist(), turns


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 50), min_size=1, max_size=200),
    st.lists(st.integers(0, 220), min_size=1, max_size=20, unique=True),
    st.integers(0, 220),
    st.integers(0, 100),
)
def test_whatever_the_order_all_that_is_there_from_the_floor_on_is_found(
    due_ms: list[int], wanted: list[int], floor: int, trimmed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_search, "NEAR_UNITS", 2)
        patch.setattr(offset_search, "STEP_UNITS", 7)
        queue = queue_of(Path(folder), due_ms)
        queue.trim(trimmed)
        due = [due_ms[n] if n < len(due_ms) else 25 for n in wanted]
        found, _ = searched(queue, wanted, due, floor)
        for number, offset in zip(wanted, found, strict=True):
            assert offset in (number, NOT_THERE)
            if max(floor, queue.first) <= number < queue.units:
                assert offset == number
            if number >= queue.units:
                assert offset == NOT_THERE
        queue.close()


def test_in_a_sorted_queue_few_turns_find_it(tmp_path: Path) -> None:
    count = 200_000
    queue = queue_of(tmp_path, list(range(count)))
    assert searched(queue, [150_000, 150_001, 20], [150_000, 150_001, 20]) == ([150_000, 150_001, 20], 1)
    assert searched(queue, [100], [100], floor=180_000) == ([100], 1)  # done, but there
    found, turns = searched(queue, [3], [190_000])  # it has overtaken
    assert (found, turns > 3) == ([3], True)
    queue.close()


def test_a_damaged_block_that_has_to_be_read_is_told(tmp_path: Path) -> None:
    queue = queue_of(tmp_path, list(range(5_000)))
    queue.flush()
    (path,) = queue.folder.glob("*.ready")
    content = bytearray(path.read_bytes())
    content[32 * 2_000] ^= 1
    path.write_bytes(content)
    with pytest.raises(UnitsDamaged):
        searched(queue, [2_001], [2_001])
    queue.close()
