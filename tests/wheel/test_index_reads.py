"""Units of a large index: those that lie scattered are read one by one, and leave nothing mapped."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from tarry.wheel.delay_log import UNIT, UNIT_BYTES, DelayLog, checksums, lengths
from tarry.wheel.page_budget import AROUND_BYTES, PageBudget
from tarry.wheel.state import Rows, WheelDamaged

UNITS = 40_000
AROUND = AROUND_BYTES // UNIT_BYTES


def written(folder: Path) -> tuple[DelayLog, Rows]:
    """Return a log of so many units, opened anew, and its units."""
    records = [str(number).encode() for number in range(UNITS)]
    rows = np.zeros(UNITS, UNIT)
    rows["size"], rows["crc32c"] = lengths(records), checksums(records)
    rows["topic"] = np.arange(UNITS)
    log = DelayLog(folder, PageBudget(32 << 20))
    log.extend(rows, records)
    log.close()
    return log, rows


def is_mapped(log: DelayLog) -> bool:
    return str(log.index_path) in Path("/proc/self/smaps").read_text()


@pytest.mark.parametrize("apart", [1, 7, AROUND // 7, AROUND // 3, AROUND, 10 * AROUND])
@pytest.mark.parametrize("backwards", [False, True])
def test_units_are_the_same_however_far_apart_they_lie(tmp_path: Path, apart: int, backwards: bool) -> None:
    log, rows = written(tmp_path)
    index = np.arange(0, UNITS, apart, dtype=np.uint32)[:: -1 if backwards else 1]
    for _ in range(2):  # the second time some may be mapped
        assert log.units_at(index).tolist() == rows[index].tolist()
    assert is_mapped(log) == (apart <= AROUND // 3)
    assert log.read(index, 4_096) == [str(number).encode() for number in index.tolist()]


def test_one_unit_needs_no_mapping(tmp_path: Path) -> None:
    log, rows = written(tmp_path)
    assert log.units_at(np.array([UNITS - 1], np.uint32)).tolist() == rows[-1:].tolist()
    assert log.read_one(UNITS - 1) == str(UNITS - 1).encode()
    assert not is_mapped(log)
    assert log.units_at(np.empty(0, np.uint32)).tolist() == []


def test_an_index_that_is_too_short_is_damaged(tmp_path: Path) -> None:
    log, _ = written(tmp_path)
    os.truncate(log.index_path, UNITS * UNIT_BYTES - 1)
    assert len(log.units_at(np.array([UNITS - 2], np.uint32))) == 1
    with pytest.raises(WheelDamaged):
        log.units_at(np.array([UNITS - 1], np.uint32))
    with pytest.raises(WheelDamaged):
        log.read_one(UNITS - 1)
