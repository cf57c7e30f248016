"""Thinning, the power lost at each of its writes: what a checkpoint names is there, and reads as before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tarry.wheel.state import HOUR_MS, WheelState
from tarry.wheel.wheel import Wheel
from tests.power import Power, losses
from tests.wheel.test_thinning import HOUR, SETTINGS, files, ids, made, put, read, record, thin, written

KEPT, LATER = [0, 8, 800], [8]


@pytest.mark.parametrize("count", [900, 1_500], ids=["held", "mapped"])
def test_power_lost_at_any_write_of_thinning_takes_nothing_that_is_kept(tmp_path: Path, count: int) -> None:
    durable: dict[Path, WheelState] = {}
    digests = set()

    def begin(data: Path) -> None:
        wheel = made(data / "hours", count)
        durable[data] = written(wheel)
        digests.add(wheel.digest())
        wheel.close()

    def checkpoint(data: Path, wheel: Wheel, power: Power) -> None:
        state = wheel.capture()
        wheel.sync(state)
        power.use()
        durable[data] = state  # as a transaction does, at once
        power.use()
        wheel.committed(state)

    def play(data: Path, power: Power) -> None:
        wheel = Wheel.recover(data / "hours", SETTINGS, durable[data])
        try:
            for kept in (KEPT, LATER):
                assert thin(wheel, kept)
                checkpoint(data, wheel, power)
                wheel.punch_tails()
        finally:
            wheel.close()

    lost = 0
    for data, was_lost in losses(tmp_path, begin, play):
        lost += was_lost
        again = Wheel.recover(data / "hours", SETTINGS, durable[data])
        assert files(data / "hours") <= {"delay.log", "delay.index", "slots"}
        there = again.readable(*ids(KEPT)).tolist()
        assert there in ([True] * 3, [False, True, False])
        assert read(again, LATER) == [record(8)]
        kept = KEPT if all(there) else LATER
        assert read(again, kept) == [record(number) for number in kept]
        assert {again.digest()} == digests
        state = again.capture().hours[0]
        assert not sum(len(damaged) for _, damaged in again.upkeep.walk(state))
        put(again, [HOUR * HOUR_MS])  # what comes now lies behind it
        assert read(again, [count]) == [record(0)]
        after = written(again)
        again.close()
        once_more = Wheel.recover(data / "hours", SETTINGS, after)
        assert read(once_more, [*LATER, count]) == [record(8), record(0)]
        assert np.flatnonzero(once_more.readable(*ids(KEPT))).tolist() in ([0, 1, 2], [1])
        once_more.close()
    assert lost > 30
