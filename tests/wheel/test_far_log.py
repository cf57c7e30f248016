"""Cleaning of the far log: the oldest rows that are alive go to its end, and nothing of them changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.wheel.state import HOUR_MS, CancelOutcome, MessageState, WheelSettings
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, append, ids, rows

SETTINGS = WheelSettings()


@pytest.mark.parametrize("cleaned_bytes", [100, 1 << 20], ids=["some bytes at a time", "all at once"])
def test_cleaning_moves_what_is_alive_and_changes_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cleaned_bytes: int
) -> None:
    monkeypatch.setattr("tarry.wheel.far_log.SEGMENT_UNITS", 64)
    monkeypatch.setattr("tarry.wheel.far_log._CLEANED_BYTES", cleaned_bytes)
    wheel = Wheel(tmp_path, SETTINGS)
    late = [START_MS + (1_000 + hour) * HOUR_MS + hour for hour in range(40)]
    soon = [START_MS + (24 + hour) * HOUR_MS for hour in range(300)]
    names = append(wheel, [*late, *late, *soon])
    staying, names = names[:80], names[80:]
    cancelled = staying[::3]
    wheel.cancel(*ids(cancelled))
    for due in soon:  # moves the hours to partitions: their rows are dead
        wheel.take(due + HOUR_MS, 100)
        wheel.drop_hour(due // HOUR_MS)
    first = wheel.upkeep.far_segments()[0]
    assert first.number > 2  # those that had the messages that stay are gone
    pending = [name for name in staying if name not in cancelled]

    def check(wheel: Wheel) -> None:
        assert wheel.pending == len(pending)
        assert wheel.read(*ids(staying)) == [b"due %d" % due for due in [*late, *late]]
        assert [wheel.state(*name) for name in cancelled] == [MessageState.CANCELLED] * len(cancelled)
        assert [wheel.state(*name) for name in pending] == [MessageState.PENDING] * len(pending)

    check(wheel)
    state, digest = wheel.capture(), wheel.digest()
    wheel.sync(state)
    again = Wheel.recover(tmp_path, SETTINGS, state)
    assert again.digest() == digest
    check(again)
    assert again.cancel(*ids(pending[:1])).outcomes.tolist() == [CancelOutcome.CANCELLED]
    taken = rows(again.take(late[-1], 1_000))
    assert [(hour, index) for _, hour, index in taken] == sorted(pending[1:])
