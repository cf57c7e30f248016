"""A unit of the far log is on disk twice: where one is damaged the other serves, in calls and at a start."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tarry.wheel.far_segment import FAR_UNIT, FAR_UNIT_BYTES, Segment, are_sound, proofs, segment_name
from tarry.wheel.state import HOUR_MS, CancelOutcome, Rows, WheelDamaged, WheelSettings
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, append, ids, rows

SETTINGS = WheelSettings()
HOURS = 100
DUE_MS = [START_MS + (24 + row % HOURS) * HOUR_MS + row for row in range(5 * HOURS)]
RECORDS = [b"record %d" % row * (row % 5) for row in range(5 * HOURS)]
FIELDS = FAR_UNIT.names or ()


def build(folder: Path) -> tuple[Wheel, list[tuple[int, int]]]:
    wheel = Wheel(folder, SETTINGS)
    names = [
        name
        for first in range(0, len(DUE_MS), HOURS)
        for name in append(wheel, DUE_MS[first : first + HOURS], RECORDS[first : first + HOURS])
    ]
    wheel.cancel(*ids(names[::7]))
    assert wheel.partitions() == ()
    return wheel, names


def index_of(folder: Path) -> Path:
    return folder / segment_name(0) / "delay.index"


def flip(path: Path, place: int) -> None:
    """Turn a bit, in the middle of a byte."""
    damaged = bytearray(path.read_bytes())
    damaged[place] ^= 0x10
    path.write_bytes(damaged)


def overwrite(path: Path, start: int, size: int) -> None:
    """What a lost sector reads as."""
    with path.open("r+b") as file:
        file.seek(start)
        file.write(bytes(size))


def in_unit(row: int, field: str) -> int:
    assert FAR_UNIT.fields is not None
    return row * FAR_UNIT_BYTES + FAR_UNIT.fields[field][1]


def first_unit(folder: Path, row: int) -> int:
    """Where a unit begins in the log."""
    units = np.frombuffer(index_of(folder).read_bytes(), FAR_UNIT)
    return int(units["offset"][row]) - FAR_UNIT_BYTES


DAMAGE: dict[str, Callable[[Path], Any]] = {
    **{
        f"{field} of row {row}": partial(flip, place=in_unit(row, field))
        for field in FIELDS
        for row in (0, 257, 5 * HOURS - 1)
    },
    "a sector": lambda path: overwrite(path, 8_192, 4_096),
    "the first sector": lambda path: overwrite(path, 0, 4_096),
    "all of it": lambda path: overwrite(path, 0, 5 * HOURS * FAR_UNIT_BYTES),
    "its end": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    "the file": Path.unlink,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_index_is_written_again_at_a_start(tmp_path: Path, damage: Callable[[Path], Any]) -> None:
    wheel, names = build(tmp_path)
    state, digest, whole = wheel.capture(), wheel.digest(), index_of(tmp_path).read_bytes()
    wheel.sync(state)
    wheel.close()
    damage(index_of(tmp_path))
    again = Wheel.recover(tmp_path, SETTINGS, state)
    assert again.digest() == digest
    assert again.read(*ids(names)) == RECORDS
    assert index_of(tmp_path).read_bytes() == whole
    assert again.upkeep.take_far_mended() == [0]
    assert again.upkeep.take_far_mended() == []


def settle_all(wheel: Wheel, _: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    return rows(wheel.take(max(DUE_MS), 10_000))


CALLS: dict[str, Callable[[Wheel, list[tuple[int, int]]], Any]] = {
    "cancel": lambda wheel, names: wheel.cancel(*ids(names)).outcomes.tolist(),
    "state": lambda wheel, names: [wheel.state(*name) for name in names],
    "units": lambda wheel, names: wheel.units(*ids(names)).tolist(),
    "read": lambda wheel, names: wheel.read(*ids(names)),
    "take": settle_all,
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_answer_under_damage_as_without(
    tmp_path: Path, call: Callable[[Wheel, list[tuple[int, int]]], Any], field: str
) -> None:
    (whole, names), (wheel, _) = build(tmp_path / "whole"), build(tmp_path / "damaged")
    for row in (0, 257, 5 * HOURS - 1):
        flip(index_of(tmp_path / "damaged"), in_unit(row, field))
    assert call(wheel, names) == call(whole, names)
    assert wheel.digest() == whole.digest()
    again = Wheel.recover(tmp_path / "damaged", SETTINGS, wheel.capture())
    assert again.digest() == whole.digest()


@pytest.mark.parametrize(
    ("field", "value"), [("global_index", 1), ("before", 302), ("before", 401), ("before", 0)]
)
@pytest.mark.parametrize("call", ["read", "cancel", "take"])
@pytest.mark.parametrize("singly", [0, 1_024], ids=["side by side", "one by one"])
def test_no_damage_makes_one_message_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, singly: int, call: str, field: str, value: int
) -> None:
    monkeypatch.setattr("tarry.wheel.far_log._SINGLE_WALKS", singly)
    (whole, names), (wheel, _) = build(tmp_path / "whole"), build(tmp_path / "damaged")
    path, place = index_of(tmp_path / "damaged"), in_unit(400, field)  # the newest unit of its hour
    rotten = path.read_bytes()
    path.write_bytes(rotten[:place] + value.to_bytes(4, "little") + rotten[place + 4 :])
    older = names[100:101]  # of the same hour
    assert CALLS[call](wheel, older) == CALLS[call](whole, older)
    assert wheel.digest() == whole.digest()


@pytest.mark.parametrize("field", FIELDS)
def test_cleaning_moves_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str) -> None:
    monkeypatch.setattr("tarry.wheel.far_log.SEGMENT_UNITS", 64)
    wheels = [Wheel(tmp_path / name, SETTINGS) for name in ("whole", "damaged")]
    staying = [START_MS + (1_000 + hour) * HOUR_MS + hour for hour in range(40)]
    soon = [START_MS + (24 + hour) * HOUR_MS for hour in range(300)]
    for wheel in wheels:
        names = append(wheel, [*staying, *soon])[:40]
    for row in (0, 39):
        flip(index_of(tmp_path / "damaged"), in_unit(row, field))
    monkeypatch.delattr(Segment, "_stored_index")  # which all of an index is read by
    for wheel in wheels:
        for due in soon:
            wheel.take(due + HOUR_MS, 100)
            wheel.drop_hour(due // HOUR_MS)
        assert wheel.upkeep.far_segments()[0].number > 2
        assert wheel.read(*ids(names)) == [b"due %d" % due for due in staying]
    assert wheels[0].digest() == wheels[1].digest()
    assert rows(wheels[0].take(max(staying), 100)) == rows(wheels[1].take(max(staying), 100))


def test_units_damaged_in_the_log_are_found_and_written_again(tmp_path: Path) -> None:
    wheel, names = build(tmp_path)
    (state,) = wheel.upkeep.far_segments()
    log = tmp_path / segment_name(0) / "delay.log"
    whole = log.read_bytes()
    assert not [found for _, damaged in wheel.upkeep.walk_far(state) for found in damaged]
    for row in (0, 257, 499):
        for byte in (0, 20, FAR_UNIT_BYTES - 1):
            flip(log, first_unit(tmp_path, row) + byte)
    with pytest.raises(WheelDamaged, match=r"delay\.log"):
        list(wheel.upkeep.walk_far(state))
    assert wheel.read(*ids(names)) == RECORDS  # which lie where the index says
    assert wheel.upkeep.mend_far(state)
    assert log.read_bytes() == whole
    flip(index_of(tmp_path), in_unit(257, "hour"))
    assert wheel.upkeep.mend_far(state)
    list(wheel.upkeep.walk_far(state))


def test_a_unit_damaged_twice_is_told_and_what_was_appended_since_changes_nothing(tmp_path: Path) -> None:
    wheel, names = build(tmp_path)
    (state,) = wheel.upkeep.far_segments()
    captured = wheel.capture()
    log, index = tmp_path / segment_name(0) / "delay.log", index_of(tmp_path)
    begin = first_unit(tmp_path, 257)
    append(wheel, DUE_MS[:HOURS])
    flip(log, begin + 20)
    flip(index, in_unit(257, "hour"))
    rotten = index.read_bytes()
    assert not wheel.upkeep.mend_far(state)
    with pytest.raises(WheelDamaged, match=r"delay\.index"):
        wheel.cancel(*ids(names[257:258]))
    assert index.read_bytes() == rotten
    wheel.close()
    with pytest.raises(WheelDamaged, match=r"delay\.index"):
        Wheel.recover(tmp_path, SETTINGS, captured)
    flip(log, begin + 20)
    assert Wheel.recover(tmp_path, SETTINGS, captured).read(*ids(names)) == RECORDS


def test_a_unit_in_another_ones_place_mends_nothing_and_moves_nowhere(tmp_path: Path) -> None:
    wheel, names = build(tmp_path)
    index = index_of(tmp_path)
    units = np.frombuffer(index.read_bytes(), FAR_UNIT).copy()
    units[256], units[400] = units[300], units[401]
    index.write_bytes(units.tobytes())
    flip(index, in_unit(257, "hour"))
    rotten = index.read_bytes()
    for name in (names[257], names[400]):
        with pytest.raises(WheelDamaged, match=r"delay\.index"):
            wheel.upkeep.whole_state(name[0])
    assert index.read_bytes() == rotten


@pytest.fixture
def proven(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many units each proof was of."""
    counts: list[int] = []

    def counted(units: Rows) -> NDArray[np.uint64]:
        counts.append(len(units))
        return proofs(units)

    monkeypatch.setattr("tarry.wheel.far_segment.proofs", counted)
    return counts


MANY_HOURS = 4_096


def build_many(folder: Path) -> tuple[Wheel, list[tuple[int, int]]]:
    """Append 24,576 units: row r is one of hour r % 4,096."""
    wheel = Wheel(folder, SETTINGS)
    due = [START_MS + (24 + hour) * HOUR_MS for hour in range(MANY_HOURS)]
    return wheel, [name for _ in range(6) for name in append(wheel, due)]


@pytest.mark.parametrize("sector", [False, True])
@pytest.mark.parametrize("call", ["cancel", "read", "units", "settle"])
@pytest.mark.parametrize("singly", [0, 1_024], ids=["side by side", "one by one"])
def test_a_call_mends_the_units_that_it_meets_and_not_the_whole_segment(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    proven: list[int],
    singly: int,
    call: str,
    sector: bool,
) -> None:
    monkeypatch.setattr("tarry.wheel.far_log._SINGLE_WALKS", singly)
    (wheel, names), index, row = build_many(tmp_path), index_of(tmp_path), 5_000
    whole = index.read_bytes()
    if sector:
        overwrite(index, in_unit(row, "offset") // 4_096 * 4_096, 4_096)
    else:
        flip(index, in_unit(row, "before"))
    proven.clear()
    monkeypatch.delattr(Segment, "_stored_index")  # which all of the index is read by
    older = names[row % MANY_HOURS - 5 : row % MANY_HOURS + 5]  # of hours that the damage is in
    if call == "settle":
        assert sum(state.units for hour, _ in older if (state := wheel.upkeep.whole_state(hour))) == 60
    else:
        CALLS[call](wheel, older)
    assert sum(proven) < 4_000
    assert index.read_bytes() == whole
    assert wheel.upkeep.take_far_mended() == [0]


@pytest.mark.parametrize("hours", [100, 200])
@pytest.mark.parametrize("call", ["cancel", "read", "units", "settle"])
@pytest.mark.parametrize("singly", [0, 1_024], ids=["side by side", "one by one"])
def test_a_call_mends_the_whole_index_where_more_is_lost_than_is_mended_around_a_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, singly: int, call: str, hours: int
) -> None:
    monkeypatch.setattr("tarry.wheel.far_log._SINGLE_WALKS", singly)
    (intact, names), (wheel, _) = build_many(tmp_path / "whole"), build_many(tmp_path / "damaged")
    index = index_of(tmp_path / "damaged")
    whole = index.read_bytes()
    overwrite(index, in_unit(4_000, "offset"), 1_200 * FAR_UNIT_BYTES)
    lost = names[4_500 : 4_500 + hours]
    if call == "settle":
        assert sum(state.units for hour, _ in lost if (state := wheel.upkeep.whole_state(hour))) == 6 * hours
    else:
        assert CALLS[call](wheel, lost) == CALLS[call](intact, lost)
        assert wheel.digest() == intact.digest()
    assert index.read_bytes() == whole
    assert wheel.upkeep.take_far_mended() == [0]


@pytest.mark.parametrize("call", ["cancel", "read", "units"])
def test_units_that_lie_scattered_are_mended_one_by_one_up_to_32_and_then_together(
    tmp_path: Path, proven: list[int], call: str
) -> None:
    wheel, names = build_many(tmp_path)
    index = index_of(tmp_path)
    whole = index.read_bytes()
    units = np.frombuffer(whole, FAR_UNIT).copy()
    hours = np.arange(1_000, 1_200, 2)
    for row in range(0, len(units), MANY_HOURS):
        units[row + hours] = np.zeros(1, FAR_UNIT)
    index.write_bytes(units.tobytes())
    proven.clear()
    CALLS[call](wheel, [names[hour] for hour in hours.tolist()])
    assert sum(proven) < 2 * len(units) + 32 * 1_024
    assert index.read_bytes() == whole
    flip(index, in_unit(5 * MANY_HOURS, "before"))
    proven.clear()
    CALLS[call](wheel, names[:1])
    assert sum(proven) < 4_000
    assert index.read_bytes() == whole


def test_a_message_that_is_not_there_needs_no_unit(tmp_path: Path) -> None:
    wheel, names = build(tmp_path)
    overwrite(index_of(tmp_path), 0, 5 * HOURS * FAR_UNIT_BYTES)
    hour = names[0][0]
    assert (
        wheel.cancel(*ids([(hour, 5), (hour + 5_000, 0)])).outcomes.tolist() == [CancelOutcome.NOT_FOUND] * 2
    )
    assert wheel.upkeep.take_far_mended() == []


def test_every_single_bit_of_a_unit_is_proven(tmp_path: Path) -> None:
    build(tmp_path)
    unit = index_of(tmp_path).read_bytes()[:FAR_UNIT_BYTES]
    for bit in range(8 * FAR_UNIT_BYTES):
        flipped = (int.from_bytes(unit, "little") ^ 1 << bit).to_bytes(FAR_UNIT_BYTES, "little")
        assert not are_sound(np.frombuffer(flipped, FAR_UNIT)).any()
    assert are_sound(np.frombuffer(unit, FAR_UNIT)).all()
    assert not are_sound(np.frombuffer(bytes(FAR_UNIT_BYTES), FAR_UNIT)).any()
