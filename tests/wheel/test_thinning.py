"""Hours that are thinned: what is kept reads as before, the rest gives its space back, whatever crashes."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType

import numpy as np
import pytest

from tarry.proto import files as files_on_disk
from tarry.wheel.delay_log import INDEX_NAME, THIN_NAME
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.state import (
    HOUR_MS,
    CancelOutcome,
    HourState,
    MessageState,
    UnknownMessage,
    WheelDamaged,
    WheelSettings,
    WheelState,
)
from tarry.wheel.wheel import Wheel
from tests.step import Step

HOUR = 500_000
COUNT = 4_801
SETTINGS = WheelSettings()


def record(number: int) -> bytes:
    return b"%06d" % number + bytes(range(1, 256)) * 4


def made(folder: Path, count: int = COUNT) -> Wheel:
    """A wheel whose hour is released: its 7th message cancelled before."""
    wheel = Wheel(folder, SETTINGS)
    put(wheel, [HOUR * HOUR_MS + 700 * at for at in range(count)])
    wheel.cancel(ids([7])[0], ids([7])[1])
    while len(wheel.take((HOUR + 3) * HOUR_MS, 10_000)):
        pass
    return wheel


def put(wheel: Wheel, due_ms: list[int]) -> None:
    n = len(due_ms)
    columns = np.array(due_ms, np.int64), np.ones(n, np.uint32), np.zeros(n, np.uint64)
    wheel.append(*columns, [record(number) for number in range(n)])


def ids(numbers: list[int]) -> tuple[np.ndarray, np.ndarray]:
    return np.full(len(numbers), HOUR, np.uint32), np.array(numbers, np.uint32)


def written(wheel: Wheel) -> WheelState:
    """A checkpoint, durable."""
    state = wheel.capture()
    wheel.sync(state)
    wheel.committed(state)
    return state


def thin(wheel: Wheel, kept: list[int]) -> bool:
    state = wheel.upkeep.hour_state(HOUR)
    assert state is not None
    return wheel.upkeep.thin(wheel.upkeep.write_thin(state, np.array(kept, np.uint32)))


def read(wheel: Wheel, numbers: list[int]) -> list[bytes | None]:
    return wheel.read(*ids(numbers))


def files(wheel_folder: Path) -> set[str]:
    return {path.name for path in (wheel_folder / folder_name(HOUR)).iterdir()}


@pytest.fixture
def wheel(tmp_path: Path) -> Iterator[Wheel]:
    opened = made(tmp_path / "hours")
    yield opened
    opened.close()


KEPT = [0, 1, 2_000, 4_800]


def space(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in (folder / folder_name(HOUR)).iterdir())


def test_one_message_beside_thousands_keeps_less_than_a_hundredth_of_their_space(
    wheel: Wheel, tmp_path: Path
) -> None:
    written(wheel)
    before, digest = space(tmp_path / "hours"), wheel.digest()
    assert before > COUNT * 1_000
    assert thin(wheel, [2_000])
    written(wheel)
    assert space(tmp_path / "hours") < before / 100
    assert wheel.upkeep.allocated_bytes(HOUR) < before / 100
    assert read(wheel, [2_000]) == [record(2_000)]
    assert wheel.digest() == digest


def test_what_is_kept_reads_as_before_and_the_rest_is_known_and_not_readable(wheel: Wheel) -> None:
    numbers = [*KEPT, 3, 7]
    before = wheel.units(*ids(KEPT))
    outcomes = wheel.cancel(*ids(numbers)).outcomes.tolist()
    states = [wheel.state(HOUR, number) for number in numbers]
    for _ in range(2):
        assert thin(wheel, KEPT)
        written(wheel)
        assert read(wheel, KEPT) == [record(number) for number in KEPT]
        assert wheel.units(*ids(KEPT)).tolist() == before.tolist()
        assert read(wheel, [3]) == [None]
        assert read(wheel, [2, 1, 3]) == [None, record(1), None]
        assert wheel.readable(*ids(numbers)).tolist() == [True] * len(KEPT) + [False] * 2
        assert wheel.known(*ids([3, COUNT])).tolist() == [True, False]
        with pytest.raises(UnknownMessage):
            wheel.units(*ids([0, 3]))
        assert wheel.cancel(*ids(numbers)).outcomes.tolist() == outcomes
        assert [wheel.state(HOUR, number) for number in numbers] == states
    assert (states[-1], outcomes[-1]) == (MessageState.CANCELLED, CancelOutcome.ALREADY_CANCELLED)


def test_what_comes_to_a_thinned_hour_is_stored_and_overdue(wheel: Wheel) -> None:
    other_folder = wheel._folder.parent / "other"
    other = made(other_folder)
    assert thin(wheel, KEPT)
    for one in (wheel, other):
        put(one, [HOUR * HOUR_MS + 5, HOUR * HOUR_MS + 1_000_000])
    assert wheel.digest() == other.digest()
    assert read(wheel, [COUNT, COUNT + 1]) == [record(0), record(1)]
    state = written(wheel)
    wheel.close()
    again = Wheel.recover(wheel._folder, SETTINGS, state)
    again.prepare()
    assert read(again, [*KEPT, COUNT + 1]) == [*(record(number) for number in KEPT), record(1)]
    assert again.digest() == other.digest()
    assert thin_again(again)
    again.close()
    other.close()


def thin_again(wheel: Wheel) -> bool:
    done = thin(wheel, [0, COUNT + 1])
    written(wheel)
    return done and read(wheel, [0, 1, COUNT + 1]) == [record(0), None, record(1)]


@pytest.mark.parametrize("count", [COUNT, 900], ids=["mapped", "held"])
@pytest.mark.parametrize("at", ["written", "adopted", "synced", "committed", "settled", "punched"])
def test_a_crash_between_any_two_steps_loses_nothing_that_a_checkpoint_names(
    tmp_path: Path, at: str, count: int
) -> None:
    wheel, kept = made(tmp_path / "hours", count), [0, 8, 800]
    durable, digest = written(wheel), wheel.digest()
    state = wheel.upkeep.hour_state(HOUR)
    assert state is not None
    thinned = wheel.upkeep.write_thin(state, np.array(kept, np.uint32))
    if at != "written":
        assert wheel.upkeep.thin(thinned)
        assert read(wheel, kept) == [record(number) for number in kept]
    if at in ("synced", "committed", "settled", "punched"):
        later = wheel.capture()
        wheel.sync(later)
        durable = durable if at == "synced" else later
    if at == "settled":
        folder = tmp_path / "hours" / folder_name(HOUR)
        (folder / THIN_NAME).replace(folder / INDEX_NAME)
    if at == "punched":
        wheel.committed(later)
    shutil.copytree(tmp_path / "hours", tmp_path / "crashed")
    wheel.close()
    again = Wheel.recover(tmp_path / "crashed", SETTINGS, durable)
    assert not files(tmp_path / "crashed") & {THIN_NAME, f"{INDEX_NAME}.new"}
    assert read(again, kept) == [record(number) for number in kept]
    assert read(again, [9])[0] == (None if durable.thinned else record(9))
    assert again.digest() == digest
    assert [damaged.tolist() for _, damaged in again.upkeep.walk(again.capture().hours[0])] == [[]] * len(
        list(again.upkeep.walk(again.capture().hours[0]))
    )
    again.close()


def test_an_hour_that_changes_meanwhile_is_not_thinned(wheel: Wheel, tmp_path: Path) -> None:
    state = wheel.upkeep.hour_state(HOUR)
    assert state is not None
    thinned = wheel.upkeep.write_thin(state, np.array(KEPT, np.uint32))
    put(wheel, [HOUR * HOUR_MS])
    assert not wheel.upkeep.thin(thinned)
    assert read(wheel, [3, COUNT]) == [record(3), record(0)]
    assert files(tmp_path / "hours") == {"delay.log", "delay.index", "slots"}
    assert thin(wheel, KEPT)
    assert not thin(wheel, [0])  # no checkpoint has come between
    wheel.drop_hour(HOUR)
    written(wheel)


def test_an_index_that_has_rotted_is_not_written_anew(wheel: Wheel, tmp_path: Path) -> None:
    state = written(wheel).hours[0]
    with (tmp_path / "hours" / folder_name(HOUR) / INDEX_NAME).open("r+b") as index:
        index.seek(81)
        index.write(b"\x77")
    with pytest.raises(WheelDamaged):
        wheel.upkeep.write_thin(state, np.array(KEPT, np.uint32))


def test_a_kept_record_that_rots_is_found_and_mended(wheel: Wheel, tmp_path: Path) -> None:
    assert thin(wheel, KEPT)
    state = written(wheel).hours[0]
    place = int(wheel.units(*ids([2_000]))["offset"][0])
    with (tmp_path / "hours" / folder_name(HOUR) / "delay.log").open("r+b") as log:
        log.seek(place)
        log.write(b"rotten")
    assert np.concatenate([damaged for _, damaged in wheel.upkeep.walk(state)]).tolist() == [2_000]
    assert not wheel.repair(HOUR, 2_000, record(1))
    assert wheel.repair(HOUR, 2_000, record(2_000))
    assert read(wheel, [2_000]) == [record(2_000)]


def test_a_mended_index_keeps_the_sum_of_what_was_thinned_out(wheel: Wheel, tmp_path: Path) -> None:
    digest = wheel.digest()
    assert thin(wheel, KEPT)
    state = written(wheel).hours[0]
    path = tmp_path / "hours" / folder_name(HOUR) / INDEX_NAME
    assert wheel.upkeep.mend_index(state, path.read_bytes())
    wheel.reread(HOUR)
    assert wheel.digest() == digest
    assert read(wheel, KEPT) == [record(number) for number in KEPT]


def test_the_last_page_of_a_log_goes_where_nothing_is_kept_in_it_and_nothing_has_come(
    wheel: Wheel, tmp_path: Path
) -> None:
    written(wheel)
    log = tmp_path / "hours" / folder_name(HOUR) / "delay.log"
    size = log.stat().st_size
    assert size % 4_096
    for kept in ([2_000, COUNT - 1], [2_000]):
        assert thin(wheel, kept)
        wheel.punch_tails()  # no checkpoint has come between
        assert read(wheel, kept) == [record(number) for number in kept]
        written(wheel)
        before = space(tmp_path / "hours")
        wheel.punch_tails()
        assert before - space(tmp_path / "hours") == (4_096 if kept == [2_000] else 0)
        assert (read(wheel, kept), log.stat().st_size) == ([record(number) for number in kept], size)
    put(wheel, [HOUR * HOUR_MS])
    assert read(wheel, [2_000, COUNT]) == [record(2_000), record(0)]
    assert thin(wheel, [COUNT])
    written(wheel)
    put(wheel, [HOUR * HOUR_MS])
    wheel.punch_tails()
    assert read(wheel, [COUNT, COUNT + 1]) == [record(0), record(0)]


def test_what_comes_before_the_last_page_goes_keeps_it(wheel: Wheel) -> None:
    assert thin(wheel, [2_000])
    written(wheel)
    put(wheel, [HOUR * HOUR_MS])
    wheel.punch_tails()
    assert read(wheel, [2_000, COUNT]) == [record(2_000), record(0)]


def hour_state(wheel: Wheel) -> HourState:
    state = wheel.upkeep.hour_state(HOUR)
    assert state is not None
    return state


USES: dict[str, Callable[[Wheel], object]] = {
    "its space is asked for": lambda wheel: wheel.upkeep.allocated_bytes(HOUR),
    "it is read": lambda wheel: read(wheel, [1]),
    "it is proven": lambda wheel: wheel.cancel(*ids([1])),
    "it is looked at": lambda wheel: list(wheel.upkeep.walk(hour_state(wheel))),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_an_index_is_found_whenever_the_thread_gives_it_its_name(
    tmp_path: Path, use: Callable[[Wheel], object]
) -> None:
    """The thread's step comes after each line of what goes on meanwhile, one after the other."""
    lines, reached = 0, True
    while reached:
        wheel = made(tmp_path / str(lines), 20)
        assert thin(wheel, [1, 2])
        state = wheel.capture()
        wheel.sync(state)
        step = Step(lines, partial(wheel.committed, state), is_of_the_wheel)
        with step.meanwhile():
            use(wheel)
        assert read(wheel, [1]) == [record(1)]
        reached, lines = step.done, lines + 1
        wheel.close()
    assert lines > 3


def is_of_the_wheel(frame: FrameType) -> bool:
    return "wheel" in Path(frame.f_code.co_filename).parts


def test_an_index_of_which_a_full_disk_takes_only_a_part_is_not_used(
    wheel: Wheel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[: len(data) // 2], at))
    with pytest.raises(OSError, match="No space"):
        thin(wheel, KEPT)
    monkeypatch.undo()
    assert files(tmp_path / "hours") == {"delay.log", "delay.index", "slots"}
    assert read(wheel, [3, *KEPT]) == [record(number) for number in [3, *KEPT]]
    assert thin(wheel, KEPT)
    written(wheel)
    assert read(wheel, KEPT) == [record(number) for number in KEPT]


def test_a_file_system_that_gives_no_space_back_keeps_it(
    wheel: Wheel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> int:
        ctypes.set_errno(errno.EOPNOTSUPP)
        return -1

    monkeypatch.setattr(files_on_disk, "_fallocate", refuses)
    assert thin(wheel, KEPT)
    written(wheel)
    assert read(wheel, KEPT) == [record(number) for number in KEPT]
