"""How much is under way to one peer, on ways of any speed."""

from __future__ import annotations

from collections import deque

import pytest

from tarry.replication.raft.guard.flow_control import Flow

APPEND_BYTES = 64 << 10
WINDOW_MAX, WINDOW_MIN = 4 << 20, 128 << 10


class Way:
    """Carries appends one after another at a rate, then takes a while to answer; on a clock of its own."""

    def __init__(self, bytes_per_s: float, answer_s: float) -> None:
        self.flow = Flow(WINDOW_MAX, WINDOW_MIN, delay_s=0.05, patience_s=0.25)
        self.bytes_per_s = bytes_per_s
        self.answer_s = answer_s
        self.now = 0.0
        self.answered_bytes = 0
        self.queued_s: deque[float] = deque(maxlen=50)
        """How long the latest appends stood in the link's queue."""
        self._free_at = 0.0
        self._answers: deque[tuple[float, int]] = deque()

    def run(self, seconds: float) -> None:
        """There is always more to send."""
        end = self.now + seconds
        while self.now < end:
            while self.flow.open(self.now):
                self.queued_s.append(max(0.0, self._free_at - self.now))
                self._free_at = max(self._free_at, self.now) + APPEND_BYTES / self.bytes_per_s
                number = self.flow.sent(APPEND_BYTES, self.now)
                self._answers.append((self._free_at + self.answer_s, number))
            self.now, number = self._answers.popleft()
            self.answered_bytes += APPEND_BYTES
            self.flow.answered(number, self.now)


@pytest.mark.parametrize("bytes_per_s", [1e6, 6e6])
@pytest.mark.parametrize("answer_s", [0.001, 0.03])
def test_a_slow_link_is_used_and_its_queue_stays_short(bytes_per_s: float, answer_s: float) -> None:
    way = Way(bytes_per_s, answer_s)
    way.run(60)
    assert way.answered_bytes > 0.9 * 60 * bytes_per_s
    assert max(way.queued_s) < 0.1 + 2 * WINDOW_MIN / bytes_per_s  # the whole window: 4 s, 0.7 s


def test_a_long_and_wide_link_gets_the_whole_window() -> None:
    way = Way(1e9, 0.2)
    way.run(9)
    assert way.flow.window_bytes == WINDOW_MAX


def test_a_way_that_has_become_longer_is_measured_anew() -> None:
    way = Way(1e9, 0.001)
    way.run(5)
    way.answer_s = 0.5
    way.run(30)
    before = way.answered_bytes
    way.run(5)
    assert way.answered_bytes - before > 5 * WINDOW_MAX


def test_the_window_follows_a_link_that_becomes_slower() -> None:
    way = Way(6e6, 0.001)
    way.run(25)
    before = way.flow.window_bytes
    way.bytes_per_s = 1e6
    way.run(3)
    assert way.flow.window_bytes < before / 2


def test_what_could_still_come_on_a_slow_way_is_not_lost() -> None:
    flow = Flow(WINDOW_MAX, WINDOW_MIN, delay_s=0.05, patience_s=0.25)
    flow.sent(256 << 10, 0.0)
    assert not flow.lost(2.2)
    assert flow.lost(2.3)
    flow.answered(1, 3.0)
    flow.sent(100, 3.0)
    assert flow.lost(3.3)
