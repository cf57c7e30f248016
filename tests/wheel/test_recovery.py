"""The wheel after a crash is the wheel at the checkpoint, and every replay leads from there to the same."""

from __future__ import annotations

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tarry.wheel import durability, hour_partition, hour_wheel
from tarry.wheel.delay_log import DelayLog
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.index_checksum import prove_index
from tarry.wheel.second_wheel import SLOTS_BYTES, SecondWheel
from tarry.wheel.state import HOUR_MS, MessageState, WheelDamaged, WheelSettings, WheelState
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, append, ids, rows

SETTINGS = WheelSettings()
HOUR = START_MS // HOUR_MS
FOLDER = folder_name(HOUR)


def spread(count: int, seed: int = 1) -> list[int]:
    due: list[int] = np.random.default_rng(seed).integers(START_MS, START_MS + HOUR_MS, count).tolist()
    return due


def checkpoint(wheel: Wheel) -> WheelState:
    state = wheel.capture()
    wheel.sync(state)
    return state


def test_what_came_after_the_checkpoint_is_cut_off(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    names = append(wheel, spread(100))
    state = checkpoint(wheel)
    digest = wheel.digest()
    files = [tmp_path / FOLDER / name for name in ("delay.log", "delay.index")]
    sizes = [path.stat().st_size for path in files]
    append(wheel, spread(50, seed=2))
    append(wheel, [START_MS + 5 * HOUR_MS])
    wheel.cancel(*ids(names[:10]))
    wheel.take(START_MS + 60_000, 10)
    again = Wheel.recover(tmp_path, SETTINGS, state)
    assert again.digest() == digest
    assert [path.stat().st_size for path in files] == sizes
    assert again.hours() == (HOUR,)
    assert [path.name for path in tmp_path.iterdir()] == [FOLDER]
    assert len(rows(again.take(START_MS + HOUR_MS, 1_000))) == 100


@pytest.mark.parametrize("count", [50, 10_000], ids=["too few for a file", "many"])
def test_slots_that_ran_ahead_of_the_index_are_rebuilt(tmp_path: Path, count: int) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    names = append(wheel, spread(count))
    wheel.cancel(*ids(names[:20]))
    state = checkpoint(wheel)
    counts = wheel.pending_per_second(HOUR).tolist()
    more = spread(2_000, seed=3)
    append(wheel, more)
    wheel.cancel(*ids(names[20:40]))
    digest, ahead = wheel.digest(), (tmp_path / FOLDER / "slots").read_bytes()
    again = Wheel.recover(tmp_path, SETTINGS, state)
    assert again.pending_per_second(HOUR).tolist() == counts
    append(again, more)
    again.cancel(*ids(names[20:40]))
    assert again.digest() == digest
    assert (tmp_path / FOLDER / "slots").read_bytes() == ahead


@pytest.mark.parametrize("damage", ["missing", "zeroed", "garbage", "short"])
def test_slots_are_never_trusted_because_they_follow_from_the_index(tmp_path: Path, damage: str) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, spread(10_000))
    state = checkpoint(wheel)
    expected = wheel.pending_per_second(HOUR).tolist()
    slots = tmp_path / FOLDER / "slots"
    sound = slots.read_bytes()
    match damage:
        case "missing":
            slots.unlink()
        case "zeroed":
            slots.write_bytes(bytes(SLOTS_BYTES))
        case "garbage":
            slots.write_bytes(os.urandom(SLOTS_BYTES))
        case "short":
            slots.write_bytes(sound[:1_000])
    again = Wheel.recover(tmp_path, SETTINGS, state)
    assert again.pending_per_second(HOUR).tolist() == expected
    assert slots.read_bytes() == sound


def test_recovering_again_before_an_hour_was_used_finds_the_same(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, spread(10_000))
    state = checkpoint(wheel)
    append(wheel, spread(10, seed=4))
    untouched = Wheel.recover(tmp_path, SETTINGS, state)
    state_again = checkpoint(untouched)
    assert state_again == state
    again = Wheel.recover(tmp_path, SETTINGS, state_again)
    assert again.pending_per_second(HOUR).sum() == 10_000
    assert len(rows(again.take(START_MS + HOUR_MS, 20_000))) == 10_000


def test_a_partly_released_second_goes_on_where_it_stopped(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, [START_MS + 5] * 10)
    wheel.take(START_MS + 5, 4)
    state = checkpoint(wheel)
    assert (state.cut, state.local_index, state.pending) == ((START_MS + 5, 3), 4, 6)
    again = Wheel.recover(tmp_path, SETTINGS, state)
    assert [index for _, _, index in rows(again.take(START_MS + 5, 100))] == [4, 5, 6, 7, 8, 9]
    assert again.local_index == 10


def test_a_wheel_is_not_started_afresh_over_the_messages_of_another(tmp_path: Path) -> None:
    append(Wheel(tmp_path, SETTINGS), [START_MS])
    with pytest.raises(WheelDamaged, match=FOLDER):
        Wheel(tmp_path, SETTINGS)
    assert Wheel.recover(tmp_path, SETTINGS, WheelState()).hours() == ()
    assert list(tmp_path.iterdir()) == []


def test_a_dropped_hour_stays_on_disk_while_a_checkpoint_may_name_it(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, [START_MS, START_MS + 2 * HOUR_MS])
    wheel.take(START_MS + HOUR_MS, 10)
    named = checkpoint(wheel)
    wheel.drop_hour(HOUR)
    assert wheel.hours() == (HOUR + 2,)
    crashed = shutil.copytree(tmp_path, tmp_path.parent / "crashed")
    assert Wheel.recover(crashed, SETTINGS, named).hours() == (HOUR, HOUR + 2)
    checkpoint(wheel)
    assert (tmp_path / FOLDER).exists()
    checkpoint(wheel)
    assert not (tmp_path / FOLDER).exists()
    assert wheel.state(HOUR, 0) is MessageState.NOT_FOUND


def test_a_message_for_a_dropped_hour_is_stored_overdue_in_the_first_hour_kept(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    wheel.take(START_MS + 2 * HOUR_MS, 10)
    wheel.drop_hour(HOUR)
    where = wheel.append(
        np.array([START_MS]), np.zeros(1, np.uint32), np.zeros(1, np.uint64), [b"as late as that"]
    )
    assert (where.hour.tolist(), where.overdue.tolist()) == ([HOUR + 1], [True])
    assert wheel.floor_hour == HOUR + 1
    assert wheel.read(where.hour, where.global_index) == [b"as late as that"]


def test_a_full_disk_is_an_error_of_the_call_and_recovery_finds_all_that_was_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, spread(100))
    state = checkpoint(wheel)
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: whole(fd, data[: len(data) // 2], at))
    with pytest.raises(OSError, match=r"delay\.log"):
        append(wheel, spread(10, seed=2))
    monkeypatch.undo()
    again = Wheel.recover(tmp_path, SETTINGS, state)
    assert len(rows(again.take(START_MS + HOUR_MS, 1_000))) == 100


def test_a_checkpoint_is_synced_by_another_thread_while_appends_go_on(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, WheelSettings(hours_open_max=2))
    with ThreadPoolExecutor(1) as thread:
        for round_ in range(10):
            append(wheel, [due + hour * HOUR_MS for hour in range(5) for due in spread(20, seed=round_)])
            state, digest = wheel.capture(), wheel.digest()
            syncing = thread.submit(wheel.sync, state)
            append(wheel, [due + hour * HOUR_MS for hour in range(9) for due in spread(50, seed=round_)])
            wheel.take(START_MS + round_ * 60_000, 5)
            syncing.result()
    assert Wheel.recover(tmp_path, SETTINGS, state).digest() == digest


def test_many_hours_are_forced_to_disk_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[int] = []
    whole = durability._syncfs
    assert whole is not None

    def note(fd: int) -> int:
        forced.append(fd)
        return whole(fd)

    monkeypatch.setattr(durability, "_syncfs", note)
    monkeypatch.setattr(os, "fsync", lambda fd: pytest.fail("one by one"))
    wheel = Wheel(tmp_path, SETTINGS)
    for hour in range(100):
        append(wheel, [START_MS + HOUR_MS * hour])
    state = checkpoint(wheel)
    assert len(forced) == 1
    assert Wheel.recover(tmp_path, SETTINGS, state).pending == 100


def test_one_descriptor_that_was_there_before_the_first_write_hears_of_all_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[int, str]] = []
    forced: list[int] = []
    whole = os.open

    def note(path: str | Path, *rest: int, **more: int) -> int:
        fd = whole(path, *rest, **more)
        opened.append((fd, Path(path).name))
        return fd

    monkeypatch.setattr(os, "open", note)
    monkeypatch.setattr(durability, "_syncfs", lambda fd: forced.append(fd) or 0)
    wheel = Wheel(tmp_path, SETTINGS)
    for _ in range(2):
        for hour in range(100):
            append(wheel, [START_MS + HOUR_MS * hour])
        checkpoint(wheel)
    names = [name for _, name in opened]
    assert forced == [opened[names.index(tmp_path.name)][0]] * 2
    assert names.index(tmp_path.name) < min(place for place, name in enumerate(names) if "delay" in name)
    wheel.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(forced[0])


@pytest.mark.parametrize(
    ("release", "tells"),
    [
        ("5.7.19", False),
        ("5.8.0-rc1", True),
        ("4.19.0", False),
        ("6.18.44-fc", True),
        ("22.6.0x", True),
        ("", False),
    ],
)
def test_the_whole_file_system_is_synced_only_where_that_tells_errors(release: str, tells: bool) -> None:
    assert durability._tells_errors(release) is tells


def test_a_disk_that_fails_to_sync_fails_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    for hour in range(100):
        append(wheel, [START_MS + HOUR_MS * hour])
    monkeypatch.setattr(durability, "_syncfs", lambda fd: -1)
    with pytest.raises(OSError, match=tmp_path.name):
        wheel.sync(wheel.capture())


def test_where_all_cannot_be_forced_at_once_each_file_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forced: list[int] = []
    monkeypatch.setattr(durability, "_syncfs", None)
    monkeypatch.setattr(os, "fsync", forced.append)
    wheel = Wheel(tmp_path, SETTINGS)
    for hour in range(100):
        append(wheel, [START_MS + HOUR_MS * hour])
    wheel.sync(wheel.capture())
    assert len(forced) == 301


def test_syncing_forces_only_what_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forced: list[str] = []
    sync = os.fsync

    def note(fd: int) -> None:
        forced.append(os.path.relpath(Path(f"/proc/self/fd/{fd}").readlink(), tmp_path.resolve()))
        sync(fd)

    monkeypatch.setattr(os, "fsync", note)
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, [START_MS, START_MS + HOUR_MS])
    checkpoint(wheel)
    later = folder_name(HOUR + 1)
    assert sorted(forced) == sorted(
        [".", FOLDER, later, *(f"{hour}/delay.{of}" for hour in (FOLDER, later) for of in ("log", "index"))]
    )
    forced.clear()
    append(wheel, [START_MS + HOUR_MS])
    checkpoint(wheel)
    assert forced == [f"{later}/delay.log", f"{later}/delay.index"]
    forced.clear()
    checkpoint(wheel)
    assert forced == []


def test_messages_of_a_checkpoint_that_has_no_sum_are_summed_up_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    names = append(wheel, [due + hour * HOUR_MS for hour in range(3) for due in spread(100)])
    wheel.cancel(*ids(names[::3]))
    wheel.overtake(*ids(names[1::3]))
    state = checkpoint(wheel)
    older = replace(state, hours=tuple(replace(hour, message_sum=None) for hour in state.hours))
    again = Wheel.recover(tmp_path, SETTINGS, older)
    assert again.digest() == wheel.digest()
    written = checkpoint(again)
    assert written == state
    monkeypatch.delattr(DelayLog, "block")
    assert Wheel.recover(tmp_path, SETTINGS, written).digest() == wheel.digest()


@pytest.mark.parametrize(
    "change", ["due time", "topic", "mask", "record", "one more", "cancelled", "overtaken"]
)
def test_wheels_that_differ_in_one_message_have_different_digests(tmp_path: Path, change: str) -> None:
    digests = []
    for changed in (False, True):
        wheel = Wheel(tmp_path / str(changed), SETTINGS)
        due, topic, mask = (
            np.arange(START_MS, START_MS + 100),
            np.zeros(100, np.uint32),
            np.zeros(100, np.uint64),
        )
        records = [b"record"] * 100
        if changed:
            due[50] += change == "due time"
            topic[50] = change == "topic"
            mask[50] = change == "mask"
            records[50] = b"recorx" if change == "record" else b"record"
        wheel.append(due, topic, mask, records)
        chosen = np.array([HOUR]), np.array([7 + changed], np.uint32)
        if change == "one more" and changed:
            wheel.append(due[:1], topic[:1], mask[:1], records[:1])
        if change == "cancelled":
            wheel.cancel(*chosen)
        if change == "overtaken":
            wheel.overtake(*chosen)
        digests.append(wheel.digest())
    assert digests[0] != digests[1]


def test_slots_rebuilt_after_a_restart_are_in_the_next_checkpoint(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, spread(2_000))
    state = checkpoint(wheel)
    wheel.close()
    (hour,) = state.hours
    assert hour.slots_crc is not None
    sent = replace(state, hours=(replace(hour, slots_crc=None),))  # as a peer's snapshot has it
    again = Wheel.recover(tmp_path, SETTINGS, sent)
    assert again.capture() == sent
    again.pending_per_second(HOUR)
    assert again.capture() == state


def test_no_call_after_the_preparation_proves_or_rebuilds_a_large_hour(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hour_wheel, "_LARGE_UNITS", 1_500)
    settings = WheelSettings(hours_open_max=2)
    wheel = Wheel(tmp_path, settings)
    for hour in range(4):
        append(wheel, [due + hour * HOUR_MS for due in spread(2_000, seed=hour)])
    wheel.take(START_MS + HOUR_MS + 20_000, 10**6)
    state = checkpoint(wheel)
    append(wheel, [START_MS + 2 * HOUR_MS, START_MS + 3 * HOUR_MS])  # the slots run ahead of the checkpoint
    wheel.close()
    done: list[str] = []
    rebuild, entries = SecondWheel.rebuild, hour_partition.HourPartition.entries
    for name, of, whole in (
        ("prove_index", hour_partition, prove_index),
        ("rebuild", SecondWheel, rebuild),
        ("entries", hour_partition.HourPartition, entries),
    ):
        monkeypatch.setattr(of, name, lambda *given, n=name, w=whole: done.append(n) or w(*given))
    again = Wheel.recover(tmp_path, settings, state)
    again.prepare()
    assert (done.count("prove_index"), done.count("rebuild")) == (4, 2)
    assert done.count("entries") > 0
    done.clear()
    again.take(again.cut.due_ms + 2_000, 3)
    assert done == []
    for hour in range(4):
        again.cancel(*ids([(START_MS // HOUR_MS + hour, 7)]))
        append(again, [START_MS + hour * HOUR_MS])
        again.pending_per_second(START_MS // HOUR_MS + hour)
    assert not {"prove_index", "rebuild"} & set(done)


def test_a_large_hour_that_is_damaged_is_left_by_the_preparation_to_its_first_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hour_wheel, "_LARGE_UNITS", 50)
    wheel = Wheel(tmp_path, SETTINGS)
    append(wheel, spread(100))
    state, digest = checkpoint(wheel), wheel.digest()
    wheel.close()
    index = tmp_path / FOLDER / "delay.index"
    whole = index.read_bytes()
    index.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    again = Wheel.recover(tmp_path, SETTINGS, state)
    again.prepare()
    with pytest.raises(WheelDamaged, match=r"delay\.index: crc32c"):
        again.take(START_MS + HOUR_MS, 1)
    mended = Wheel.recover(tmp_path, SETTINGS, state)
    mended.prepare()
    assert mended.upkeep.mend_index(state.hours[0], whole)
    mended.reread(HOUR)
    assert len(mended.take(START_MS + HOUR_MS, 1_000)) == 100
    assert mended.pending == 0
    assert Wheel.recover(tmp_path, SETTINGS, state).digest() == digest


def test_a_message_that_is_cancelled_after_its_release_is_so_also_in_an_hour_that_is_closed(
    tmp_path: Path,
) -> None:
    wheel = Wheel(tmp_path, replace(SETTINGS, hours_open_max=1))
    due_ms = [START_MS + hour * HOUR_MS for hour in range(3)]
    names = append(wheel, due_ms)
    wheel.take(due_ms[-1] + 1, 10)
    checkpoint(wheel)  # and nothing touches the first hour any more
    wheel.withdraw(*ids(names[:1]))
    digest = wheel.digest()
    again = Wheel.recover(tmp_path, SETTINGS, checkpoint(wheel))
    assert again.state(*names[0]) == MessageState.CANCELLED
    assert again.digest() == digest
