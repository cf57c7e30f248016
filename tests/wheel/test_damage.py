"""A damaged record stops nothing but itself; a damaged index stops the replica, and says which file it is."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tarry.wheel import hour_partition
from tarry.wheel.delay_log import UNIT, UNIT_BYTES
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.state import HOUR_MS, CancelOutcome, HourState, UnknownMessage, WheelDamaged, WheelSettings
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, append, ids, u4

SETTINGS = WheelSettings()
HOUR = START_MS // HOUR_MS
FOLDER = folder_name(HOUR)


def patch(path: Path, offset: int, change: Callable[[int], int]) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        (byte,) = file.read(1)
        file.seek(offset)
        file.write(bytes([change(byte)]))


def in_unit(index: int, field: str, byte: int = 0) -> int:
    return index * UNIT_BYTES + UNIT.fields[field][1] + byte  # type: ignore[index]


pytestmark = pytest.mark.usefixtures("index_read_from_its_file")


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    wheel = Wheel(tmp_path, SETTINGS)
    append(
        wheel, [START_MS + 1_000 * index for index in range(5)], [b"record %d" % index for index in range(5)]
    )
    return wheel


def damaged(wheel: Wheel, state: HourState) -> list[int]:
    return [index for _, found in wheel.upkeep.walk(state) for index in found.tolist()]


def read(wheel: Wheel, *indices: int) -> list[bytes | None]:
    return wheel.read(u4(*[HOUR] * len(indices)), u4(*indices))


def test_records_come_back_in_the_order_asked_as_often_as_asked(wheel: Wheel) -> None:
    assert read(wheel, 3, 0, 3, 4) == [b"record 3", b"record 0", b"record 3", b"record 4"]
    assert read(wheel) == []


def test_records_of_several_hours_are_read_in_the_order_asked(wheel: Wheel) -> None:
    later = append(wheel, [START_MS + HOUR_MS * at for at in (2, 1)], [b"two", b"one"])
    names = [later[0], (HOUR, 1), later[1], (HOUR, 0)]
    assert wheel.read(*ids(names)) == [b"two", b"record 1", b"one", b"record 0"]
    assert wheel.read(*ids(sorted(names))) == [b"record 0", b"record 1", b"one", b"two"]
    assert wheel.units(*ids(names))["size"].tolist() == [3, 8, 3, 8]


def test_parts_of_records_come_in_the_order_asked_from_partitions_and_from_the_far_log(wheel: Wheel) -> None:
    far = append(
        wheel, [START_MS + HOUR_MS * at for at in range(30, 40)], [b"far %d\0\0" % at for at in range(10)]
    )
    assert len(wheel.partitions()) == 1
    names = [far[3], (HOUR, 1), far[0], (HOUR, 4), (HOUR, 0), (HOUR, 4)]
    start = np.array([4, 7, 0, 2, 99, 0])
    assert wheel.parts(*ids(names), start, 4) == [b"3\0\0", b"1", b"far ", b"cord", b"", b"reco"]
    with pytest.raises(UnknownMessage):
        wheel.parts(u4(HOUR), u4(9), np.zeros(1, np.int64), 4)


def test_an_empty_record_and_one_of_64_mib_are_records(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    large = os.urandom(1 << 20) * 64
    append(wheel, [START_MS] * 3, [b"", large, b""])
    assert read(wheel, 2, 1, 0) == [b"", large, b""]


def test_a_record_with_a_flipped_bit_is_none_and_the_others_are_read(wheel: Wheel, tmp_path: Path) -> None:
    patch(tmp_path / FOLDER / "delay.log", 2 * 12 + 4 + 3, lambda byte: byte ^ 1)
    assert read(wheel, 0, 1, 2, 3, 4) == [b"record 0", b"record 1", None, b"record 3", b"record 4"]


def test_a_log_cut_short_while_in_use_loses_only_what_was_cut(wheel: Wheel, tmp_path: Path) -> None:
    os.truncate(tmp_path / FOLDER / "delay.log", 2 * 12 + 6)
    assert read(wheel, 4, 0, 1, 2) == [None, b"record 0", b"record 1", None]


@pytest.mark.parametrize("field", ["offset", "size"])
def test_a_unit_that_points_outside_the_log_gives_none(wheel: Wheel, tmp_path: Path, field: str) -> None:
    patch(tmp_path / FOLDER / "delay.index", in_unit(2, field, byte=3), lambda _: 0xFF)
    assert read(wheel, 1, 2, 3) == [b"record 1", None, b"record 3"]


def test_a_sector_that_cannot_be_read_costs_only_its_records(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = os.pread

    def bad_at_30(fd: int, size: int, offset: int) -> bytes:
        if offset <= 30 < offset + size and Path(f"/proc/self/fd/{fd}").readlink().suffix == ".log":
            raise OSError(errno.EIO, "bad sector")
        return whole(fd, size, offset)

    monkeypatch.setattr(os, "pread", bad_at_30)
    assert read(wheel, 0, 1, 2, 3) == [b"record 0", b"record 1", None, b"record 3"]


def test_a_message_that_never_was_is_unknown(wheel: Wheel) -> None:
    with pytest.raises(UnknownMessage, match="has no message 5"):
        read(wheel, 0, 5)
    with pytest.raises(UnknownMessage):
        wheel.units(u4(HOUR + 1), u4(0))


@pytest.mark.parametrize("name", ["delay.log", "delay.index"])
@pytest.mark.parametrize("how", ["short", "missing"])
def test_a_file_shorter_than_the_checkpoint_says_is_named(
    wheel: Wheel, tmp_path: Path, name: str, how: str
) -> None:
    state = wheel.capture()
    path = tmp_path / FOLDER / name
    if how == "short":
        os.truncate(path, path.stat().st_size - 1)
    else:
        path.unlink()
    with pytest.raises(WheelDamaged, match=name) as caught:
        Wheel.recover(tmp_path, SETTINGS, state)
    assert caught.value.path == path


@pytest.mark.parametrize("field", ["due_in_hour_ms", "local_index", "pre_global_index"])
def test_a_chain_that_does_not_hold_what_its_slot_says_is_damage(tmp_path: Path, field: str) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, [START_MS] * 10 + [START_MS + 1_000 * index for index in range(1, 400)])
    patch(tmp_path / FOLDER / "delay.index", in_unit(5, field, byte=2), lambda byte: byte ^ 0x10)
    with pytest.raises(WheelDamaged, match=r"delay\.index"):
        wheel.next_due_ms()


def test_a_pass_that_does_not_find_what_the_slots_say_is_damage(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, [START_MS + 1_000 * (index // 10) for index in range(400)])
    patch(tmp_path / FOLDER / "delay.index", in_unit(5, "due_in_hour_ms", byte=1), lambda byte: byte ^ 0x10)
    with pytest.raises(WheelDamaged, match=r"delay\.index"):
        wheel.take(START_MS + 500_000, 1_000)


def test_verifying_an_hour_finds_every_kind_of_damage(wheel: Wheel, tmp_path: Path) -> None:
    (state,) = wheel.capture().hours
    assert damaged(wheel, state) == []
    patch(tmp_path / FOLDER / "delay.log", 2 * 12 + 4 + 3, lambda byte: byte ^ 1)
    assert damaged(wheel, state) == [2]
    patch(tmp_path / FOLDER / "delay.index", in_unit(4, "tag_mask"), lambda byte: byte ^ 1)
    with pytest.raises(WheelDamaged, match=r"delay\.index"):
        damaged(wheel, state)


def test_a_damaged_record_is_repaired_by_the_bytes_of_a_peer_and_by_no_others(
    wheel: Wheel, tmp_path: Path
) -> None:
    patch(tmp_path / FOLDER / "delay.log", 2 * 12 + 4 + 3, lambda byte: byte ^ 1)
    assert not wheel.repair(HOUR, 2, b"record 3")
    assert not wheel.repair(HOUR, 2, b"record 2 and more")
    assert read(wheel, 2) == [None]
    assert wheel.repair(HOUR, 2, b"record 2")
    assert read(wheel, 1, 2, 3) == [b"record 1", b"record 2", b"record 3"]


@pytest.mark.parametrize("byte", [0, 1, 7])
@pytest.mark.parametrize("rotten", [1, 2])
def test_a_record_is_not_repaired_at_a_place_that_rotted_in_the_index(
    wheel: Wheel, tmp_path: Path, rotten: int, byte: int
) -> None:
    state = wheel.capture()
    wheel.close()
    wheel = Wheel.recover(tmp_path, SETTINGS, state)  # a closed hour, whose index has not been proven again
    stored = (tmp_path / FOLDER / "delay.log").read_bytes()
    patch(tmp_path / FOLDER / "delay.index", in_unit(rotten, "offset", byte), lambda place: place ^ 0x80)
    assert not wheel.repair(HOUR, 2, b"record 2")
    assert (tmp_path / FOLDER / "delay.log").read_bytes() == stored


def test_an_hour_is_looked_at_in_portions_of_a_mebibyte_and_each_names_its_damage(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    sizes = [400_000, 400_000, 400_000, 2_000_000, 1, 0, 1]
    append(wheel, [START_MS] * len(sizes), [bytes(size) for size in sizes])
    patch(tmp_path / FOLDER / "delay.log", 4 + 400_000 + 4, lambda byte: byte ^ 1)
    patch(tmp_path / FOLDER / "delay.log", 3 * 400_004 + 4, lambda byte: byte ^ 1)
    state = wheel.upkeep.hour_state(HOUR)
    assert state is not None
    looked = [(size, found.tolist()) for size, found in wheel.upkeep.walk(state)]
    assert looked == [(800_000, [1]), (400_000, []), (2_000_000, [3]), (2, [])]
    assert wheel.upkeep.hour_state(HOUR + 1) is None


def test_looking_at_an_hour_that_was_deleted_meanwhile_does_not_make_its_files(
    wheel: Wheel, tmp_path: Path
) -> None:
    state = wheel.upkeep.hour_state(HOUR)
    assert state is not None
    (tmp_path / FOLDER / "delay.log").unlink()
    with pytest.raises(FileNotFoundError):
        damaged(wheel, state)
    assert not (tmp_path / FOLDER / "delay.log").exists()


def test_an_index_is_mended_before_what_is_far_moves_behind_it(tmp_path: Path) -> None:
    far = HOUR + 50
    due = [START_MS + 50 * HOUR_MS + 5] * 50, [START_MS + (50 + hour) * HOUR_MS + 5 for hour in range(10)]
    wheels = [Wheel(tmp_path / name, SETTINGS) for name in "ab"]
    for wheel in wheels:
        append(wheel, due[0])
        append(wheel, due[1])
        assert wheel.units_in_hour(far) == 51
    state = wheels[0].capture()
    wheels[0].sync(state)
    wheels[0].close()
    path = tmp_path / "a" / folder_name(far) / "delay.index"
    patch(path, in_unit(49, "due_in_hour_ms", 2), lambda byte: byte ^ 1)  # due in another second, it seems
    ours, peer = Wheel.recover(tmp_path / "a", SETTINGS, state), wheels[1]
    damaged, whole = ours.upkeep.hour_state(far), peer.upkeep.whole_state(far)
    assert damaged is not None and whole is not None
    assert (damaged.units, whole.units) == (50, 51)
    numbers = np.arange(50, dtype=np.uint32)
    assert ours.upkeep.mend_index(damaged, peer.units(np.full(50, far, np.uint32), numbers).tobytes())
    ours.reread(far)
    assert ours.upkeep.whole_state(far) == whole
    assert ours.digest() == peer.digest()


@pytest.mark.parametrize(
    "decide",
    [
        lambda wheel: wheel.take(START_MS + 4_999, 10),
        lambda wheel: wheel.cancel(*ids([(HOUR, 1)])),
        lambda wheel: wheel.overtake(*ids([(HOUR, 1)])),
        lambda wheel: append(wheel, [START_MS + 5_000]),
    ],
    ids=["take", "cancel", "overtake", "append"],
)
def test_an_index_that_has_rotted_since_it_was_written_decides_nothing_after_a_start(
    wheel: Wheel, tmp_path: Path, decide: Callable[[Wheel], object]
) -> None:
    state = wheel.capture()
    wheel.sync(state)
    wheel.close()
    patch(tmp_path / FOLDER / "delay.index", in_unit(3, "topic"), lambda byte: byte ^ 1)
    again = Wheel.recover(tmp_path, SETTINGS, state)
    with pytest.raises(WheelDamaged, match=r"delay\.index: crc32c"):
        decide(again)
    assert again.read(*ids([(HOUR, 1)])) == [b"record 1"]  # a record is proven by itself


@pytest.mark.parametrize(("unmapped_units_max", "times"), [(0, 1), (1_024, 3)])
def test_an_index_is_proven_once_or_whenever_slots_are_made_of_it(
    wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unmapped_units_max: int, times: int
) -> None:
    monkeypatch.setattr(hour_partition, "_UNMAPPED_UNITS_MAX", unmapped_units_max)
    state, proven = wheel.capture(), []
    wheel.close()
    monkeypatch.setattr(hour_partition, "prove_index", proven.append)
    again = Wheel.recover(tmp_path, SETTINGS, state)
    for at in range(3):
        append(again, [START_MS + at])
        again.take(START_MS + at, 1)
        again.close()
    assert len(proven) == times


def test_a_message_whose_unit_has_rotted_is_not_taken_for_released_after_a_start(
    wheel: Wheel, tmp_path: Path
) -> None:
    wheel.take(START_MS + 1_500, 10)
    state = wheel.capture()
    wheel.sync(state)
    wheel.close()
    for byte in range(2):
        patch(tmp_path / FOLDER / "delay.index", in_unit(3, "due_in_hour_ms", byte), lambda _: 0)
    with pytest.raises(WheelDamaged, match=r"delay\.index: crc32c"):
        Wheel.recover(tmp_path, SETTINGS, state).cancel(*ids([(HOUR, 3)]))


@pytest.mark.parametrize("reopened", [False, True])
def test_a_small_index_that_rots_while_its_hour_is_open_decides_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reopened: bool
) -> None:
    monkeypatch.undo()
    ours, peer = (Wheel(tmp_path / name, SETTINGS) for name in "ab")
    for wheel in (ours, peer):
        append(wheel, [START_MS + 1_000 + at for at in range(5)], [b"x"] * 5)
        if reopened:
            wheel.close()
        assert wheel.cancel(*ids([(HOUR, 0)])).outcomes == [CancelOutcome.CANCELLED]
    patch(tmp_path / "a" / FOLDER / "delay.index", in_unit(3, "due_in_hour_ms", 2), lambda byte: byte ^ 1)
    for wheel in (ours, peer):
        append(wheel, [START_MS + 1_010], [b"y"])
    assert ours.units(*ids([(HOUR, 3)])) == peer.units(*ids([(HOUR, 3)]))
    ours_due_ms, due_ms = (wheel.overtake(*ids([(HOUR, 3)])).due_ms.tolist() for wheel in (ours, peer))
    assert ours_due_ms == due_ms == [START_MS + 1_003]
    assert ours.digest() == peer.digest()
    ours.close()
    with pytest.raises(WheelDamaged, match=r"delay\.index: crc32c"):
        ours.take(START_MS + 2_000, 10)


@pytest.mark.parametrize("recovered", [False, True])
def test_a_small_index_that_grows_is_as_it_was_written_and_is_not_proven_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recovered: bool
) -> None:
    monkeypatch.undo()
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, [START_MS + 1_000 + at for at in range(1_000)])
    if recovered:
        state = wheel.capture()
        wheel.sync(state)
        wheel.close()
        wheel = Wheel.recover(tmp_path, SETTINGS, state)
        assert wheel.cancel(*ids([(HOUR, 0)])).outcomes == [CancelOutcome.CANCELLED]
    index = tmp_path / FOLDER / "delay.index"
    written = index.read_bytes()
    patch(index, in_unit(3, "due_in_hour_ms", 2), lambda byte: byte ^ 1)
    append(wheel, [START_MS + 5_000] * 100)
    assert index.read_bytes()[: len(written)] == written
    monkeypatch.setattr(hour_partition, "prove_index", None)
    assert wheel.cancel(*ids([(HOUR, 3)])).outcomes == [CancelOutcome.CANCELLED]


def test_nothing_is_chained_behind_an_index_that_decays_while_its_hour_is_closed(tmp_path: Path) -> None:
    few = WheelSettings(hours_open_max=1)
    ours, peer = (Wheel(tmp_path / name, few) for name in "ab")
    for wheel in (ours, peer):
        append(wheel, [START_MS + 1_000] * 5, [b"x"] * 5)
        append(wheel, [START_MS + HOUR_MS])  # which closes the other hour
    index = tmp_path / "a" / FOLDER / "delay.index"
    patch(index, in_unit(4, "due_in_hour_ms", 2), lambda byte: byte ^ 1)  # due in another second, it seems
    decayed = index.read_bytes()
    with pytest.raises(WheelDamaged, match=r"delay\.index"):
        append(ours, [START_MS + 1_000], [b"x"])
    assert index.read_bytes() == decayed
    state = ours.upkeep.hour_state(HOUR)
    assert state is not None and state.units == 5
    assert ours.upkeep.mend_index(state, (tmp_path / "b" / FOLDER / "delay.index").read_bytes())
    ours.reread(HOUR)
    for wheel in (ours, peer):
        append(wheel, [START_MS + 1_000], [b"x"])
    assert ours.upkeep.hour_state(HOUR) == peer.upkeep.hour_state(HOUR)
    assert ours.digest() == peer.digest()
    assert index.read_bytes() == (tmp_path / "b" / FOLDER / "delay.index").read_bytes()


def test_damage_that_reading_a_far_crowded_second_meets_is_mended_and_the_second_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = {"release._AT_ONCE_COST": 40, "hour_wheel._LARGE_UNITS": 0, "release._AHEAD_COST": 64}
    for name, value in {**costs, "index_scan.CHAIN_STEP_UNITS": 0, "index_scan.CHAIN_START_UNITS": 0}.items():
        monkeypatch.setattr(f"tarry.wheel.{name}", value)
    ours, peer = (Wheel(tmp_path / name, SETTINGS) for name in "ab")
    for wheel in (ours, peer):
        append(wheel, [START_MS, *[START_MS + 600_000] * 5])
        wheel.load_ahead(START_MS)
        wheel.load_ahead(START_MS)
    path = tmp_path / "a" / FOLDER / "delay.index"
    patch(path, in_unit(3, "due_in_hour_ms", 2), lambda byte: byte ^ 1)  # due in another second, it seems
    met = 0
    for _ in range(20):
        try:
            ours.load_ahead(START_MS)
        except WheelDamaged:
            met += 1
    assert met > 1
    with pytest.raises(WheelDamaged, match=r"delay\.index"):
        ours.take(START_MS + 600_000, 10)
    state = ours.upkeep.hour_state(HOUR)
    assert state is not None
    assert ours.upkeep.mend_index(state, (tmp_path / "b" / FOLDER / "delay.index").read_bytes())
    ours.reread(HOUR)
    for wheel in (ours, peer):
        for _ in range(20):
            wheel.load_ahead(START_MS)
        assert len(wheel.take(START_MS + 600_000, 10)) == 6
    assert ours.digest() == peer.digest()
