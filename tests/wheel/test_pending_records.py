"""What is read of a captured state is what was pending then, whatever the wheel has done since."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from tarry.wheel.pending_records import PendingPart, PendingRecords
from tarry.wheel.state import HOUR_MS, WheelDamaged, WheelSettings, WheelState
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, append, ids
from tests.wheel.test_moves import Id, Moves, move
from tests.wheel.test_order import FAR, collect_by

Row = tuple[Id, int, int, bytes]
ALL_BYTES = 1 << 20


class Kept(NamedTuple):
    state: WheelState
    rows: list[Row]


def read(path: Path, state: WheelState, bytes_max: int = ALL_BYTES, topic: int | None = None) -> list[Row]:
    """Return (id, due_ms, topic, record) of each message, and see that the columns belong together."""
    found: list[Row] = []
    for part in PendingRecords(path, state).parts(
        lambda of, due_ms: (of == topic) if topic is not None else due_ms >= 0, bytes_max
    ):
        assert bool(part.sound.all())
        assert sum(map(len, part.records)) <= bytes_max or len(part.records) == 1
        found += rows_of(part)
    return sorted(found)


def rows_of(part: PendingPart) -> list[Row]:
    names = zip(part.hour.tolist(), part.global_index.tolist(), strict=True)
    return list(zip(names, part.due_ms.tolist(), part.topic.tolist(), part.records, strict=True))


class WheelAndExports(Moves):
    """States of the wheel beside the plain list: read at once, or after other calls."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Kept] = []

    def expected(self) -> list[Row]:
        first = {place: name for name, place in self.place.items()}
        rows = []
        for due, index in self.list.pending:
            place = (due // HOUR_MS, index)
            rows.append((first.get(place, self.first[place]), due, due % 7, b"due %d" % due))
        return sorted(rows)

    def captured(self) -> Kept:
        self.synced = self.wheel.capture()
        self.wheel.sync(self.synced, keep=True)
        self.commands.clear()
        return Kept(self.synced, self.expected())

    @rule(bytes_max=st.sampled_from([1, 40, ALL_BYTES]), topic=st.sampled_from([None, 0, 3]))
    def read_at_once(self, bytes_max: int, topic: int | None) -> None:
        kept = self.captured()
        wanted = [row for row in kept.rows if topic is None or row[2] == topic]
        assert read(self.path, kept.state, bytes_max, topic) == wanted

    @rule()
    def keep(self) -> None:
        self.kept.append(self.captured())

    @precondition(lambda self: self.kept)
    @rule()
    def read_what_was_kept(self) -> None:
        kept = self.kept.pop()
        assert read(self.path, kept.state) == kept.rows

    def checkpoint(self) -> None:  # of the other machine: it deletes files that a kept state may name
        self.captured()

    def crash_and_recover(self, *args: object, **more: object) -> None:
        self.kept.clear()  # files were cut back beneath them
        super().crash_and_recover(*args, **more)


TestWhatIsReadIsWhatWasPending = WheelAndExports.TestCase
TestWhatIsReadIsWhatWasPending.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


@pytest.fixture
def wheel(tmp_path: Path) -> Wheel:
    return Wheel(tmp_path / "hours", WheelSettings())


def synced(wheel: Wheel) -> WheelState:
    state = wheel.capture()
    wheel.sync(state)
    return state


def test_what_was_cancelled_released_or_overtaken_is_not_read(wheel: Wheel, tmp_path: Path) -> None:
    names = append(wheel, [START_MS + at for at in (1, 2, 3, 4, 5, 2)])
    wheel.take(START_MS + 2, 2)  # of the two that are due at 2, the first
    wheel.cancel(*ids([names[2]]))
    wheel.overtake(*ids([names[3]]))
    assert [row[0] for row in read(tmp_path / "hours", synced(wheel))] == [names[4], names[5]]


def test_a_moved_message_is_read_once_with_its_first_id_and_its_newest_record(
    wheel: Wheel, tmp_path: Path
) -> None:
    name, other = append(wheel, [START_MS + 1, START_MS + 2])
    move(wheel, [name], [START_MS + HOUR_MS + 5])
    move(wheel, [name], [START_MS + 9])
    later, at = START_MS + 9, START_MS + 2
    assert read(tmp_path / "hours", synced(wheel)) == [
        (name, later, later % 7, b"due %d" % later),
        (other, at, at % 7, b"due %d" % at),
    ]


def test_far_messages_that_have_moved_to_their_hour_are_not_read_twice(tmp_path: Path) -> None:
    way = collect_by(FAR)
    try:
        wheel = Wheel(tmp_path / "hours", WheelSettings())
        due_ms = [START_MS + hour * HOUR_MS for hour in (30, 31, 30)]
        append(wheel, due_ms)
        far = synced(wheel)
        assert len(far.far.segments) == 1 and not far.hours
        wheel.open_seconds(START_MS // HOUR_MS + 30)
        wheel.take(START_MS + 29 * HOUR_MS + 1, 1)
        wheel.load_ahead(START_MS + 30 * HOUR_MS - 1)
        moved = synced(wheel)
        assert [hour.hour for hour in moved.hours] == [START_MS // HOUR_MS + 30]
        for state in (far, moved):
            assert sorted(row[1] for row in read(tmp_path / "hours", state)) == sorted(due_ms)
    finally:
        way.undo()


def test_a_record_that_is_not_what_was_written_is_flagged_and_the_others_are_sound(
    wheel: Wheel, tmp_path: Path
) -> None:
    append(wheel, [START_MS + 1, START_MS + 2, START_MS + 3])
    state = synced(wheel)
    (log,) = (tmp_path / "hours").glob("*/delay.log")
    octets = bytearray(log.read_bytes())
    octets[-1] ^= 1
    log.write_bytes(octets)
    (part,) = PendingRecords(tmp_path / "hours", state).parts(lambda topic, _: topic >= 0, ALL_BYTES)
    assert part.sound.tolist() == [True, True, False]


def test_an_index_that_is_not_what_was_written_is_not_read(wheel: Wheel, tmp_path: Path) -> None:
    append(wheel, [START_MS + 1, START_MS + 2])
    state = synced(wheel)
    (path,) = (tmp_path / "hours").glob("*/delay.index")
    index = bytearray(path.read_bytes())
    index[12] ^= 1
    path.write_bytes(index)
    with pytest.raises(WheelDamaged, match=r"delay\.index"):
        read(tmp_path / "hours", state)


def test_reading_runs_no_statement_per_message_and_takes_what_is_wanted(wheel: Wheel, tmp_path: Path) -> None:
    due_ms = START_MS + np.arange(40_000) % 5_000
    wheel.append(due_ms, np.full(40_000, 2, np.uint32), np.zeros(40_000, np.uint64), [b"x" * 100] * 40_000)
    reader = PendingRecords(tmp_path / "hours", synced(wheel))
    looked_at: list[int] = []

    def soon(topic: np.ndarray, due_ms: np.ndarray) -> np.ndarray:
        looked_at.append(len(topic))
        return due_ms < START_MS + 2_500

    parts = list(reader.parts(soon, ALL_BYTES))
    assert sum(len(part.records) for part in parts) == 20_000
    assert len(looked_at) <= 3 and len(parts) <= 4
