"""Mapped pages that have been read do not stay in the process's memory beyond their bound."""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tarry.wheel.page_budget import PageBudget

FILE_BYTES = 16 << 20
BLOCK_BYTES = 512 << 10
AROUND_BYTES = 2 << 20  # mapped around a page touched, at most: where the page cache has large ones
PAGE = mmap.PAGESIZE


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[tuple[mmap.mmap, Path]]:
    path = tmp_path / "pages"
    path.write_bytes(bytes(range(256)) * (FILE_BYTES // 256))
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as pages:
        yield pages, path


def resident_bytes(path: Path) -> int:
    """Return how much of a file's mapping is in this process's memory."""
    _, _, rest = Path("/proc/self/smaps").read_text().partition(f"{path}\n")
    return int(rest.partition("\nRss:")[2].split()[0]) << 10


def scan(budget: PageBudget, pages: mmap.mmap, begin: int, end: int) -> Iterator[int]:
    """Read blocks as a wheel does, each counted before it is read; they begin within a page."""
    for start in range(begin + 100, end - BLOCK_BYTES, BLOCK_BYTES):
        budget.consecutive(pages, start, BLOCK_BYTES)
        yield sum(pages[start : start + BLOCK_BYTES : PAGE])


def test_a_scan_leaves_no_more_than_its_last_stretch(mapped: tuple[mmap.mmap, Path]) -> None:
    pages, path = mapped
    budget = PageBudget(4 * FILE_BYTES)
    for _ in range(3):
        for _ in scan(budget, pages, 0, FILE_BYTES):
            assert resident_bytes(path) <= BLOCK_BYTES + AROUND_BYTES


def test_a_scan_does_not_use_up_what_others_may_keep(mapped: tuple[mmap.mmap, Path]) -> None:
    pages, path = mapped
    budget = PageBudget(FILE_BYTES)
    kept = 6 << 20  # more than a scan leaves
    sum(pages[:kept:PAGE])
    budget.scattered(pages, np.arange(0, kept, PAGE, dtype=np.uint32), 1)
    for _ in range(8):
        for _ in scan(budget, pages, 8 << 20, FILE_BYTES):
            pass
    assert resident_bytes(path) >= kept


def test_a_scan_of_a_file_that_grows_does_not_use_up_the_bound(mapped: tuple[mmap.mmap, Path]) -> None:
    pages, path = mapped
    budget = PageBudget(FILE_BYTES)
    sum(pages[::PAGE])
    budget.scattered(pages, np.arange(0, 6 << 20, PAGE, dtype=np.uint32), 1)
    with path.open("rb") as file:
        for _ in range(100):
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as other:
                budget.consecutive(other, 0, BLOCK_BYTES)
                budget.forget(other)  # it has grown, and is mapped anew
    assert resident_bytes(path) >= 6 << 20


def test_a_stretch_during_which_the_bound_is_reached_is_let_go_with_the_next(
    mapped: tuple[mmap.mmap, Path],
) -> None:
    pages, path = mapped
    budget = PageBudget(2 << 20)
    budget.scattered(pages, np.arange(0, (2 << 20) - BLOCK_BYTES, PAGE, dtype=np.uint32), 1)
    for _ in scan(budget, pages, 4 << 20, 4 * BLOCK_BYTES + (4 << 20)):
        assert resident_bytes(path) <= BLOCK_BYTES + AROUND_BYTES


def test_beyond_the_bound_all_is_let_go(mapped: tuple[mmap.mmap, Path]) -> None:
    pages, path = mapped
    budget = PageBudget(2 << 20)
    sum(pages[::PAGE])
    assert resident_bytes(path) == FILE_BYTES
    budget.scattered(pages, np.arange(0, FILE_BYTES, PAGE, dtype=np.uint32), 1)
    assert resident_bytes(path) == 0
