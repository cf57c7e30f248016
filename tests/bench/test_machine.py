"""What the host took of the machine's time while something was measured."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable

import psutil
import pytest

from tarry.bench.machine import Stolen

Times = namedtuple("Times", "user system idle steal")
Elsewhere = namedtuple("Elsewhere", "user system idle")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that replaces what the system says of its processors' time."""

    def replace(times: tuple[float, ...]) -> None:
        monkeypatch.setattr(psutil, "cpu_times", lambda: times)

    return replace


def test_the_share_is_of_the_time_since_the_start(counted: Callable[..., None]) -> None:
    counted(Times(10.0, 10.0, 10.0, 10.0))
    stolen = Stolen()
    counted(Times(11.0, 11.0, 11.5, 10.5))
    assert stolen.percent() == 12.5


def test_nothing_is_said_where_not_one_tick_was_counted(counted: Callable[..., None]) -> None:
    counted(Times(10.0, 10.0, 10.0, 10.0))
    assert Stolen().percent() is None


def test_nothing_is_said_where_the_system_does_not_say(counted: Callable[..., None]) -> None:
    counted(Elsewhere(10.0, 10.0, 10.0))
    stolen = Stolen()
    counted(Elsewhere(11.0, 10.0, 10.0))
    assert stolen.percent() is None
