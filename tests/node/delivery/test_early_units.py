"""What is released behind a crowd and is due before it: a crowd is released seconds before it is due."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tarry.node.delivery.feed import Feed
from tarry.node.delivery.marks import Marks
from tarry.node.delivery.ordering import Lanes
from tarry.node.delivery.places import Place
from tarry.node.delivery.waiting_messages import WINDOW
from tarry.proto.tags import TagFilter, tag_mask
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tests.node.delivery.feeds import column, feed_of, fill


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[ReadyQueue]:
    opened = ReadyQueue(tmp_path, 0, "t")
    yield opened
    opened.close()


def test_what_is_due_before_a_crowd_is_not_behind_it(queue: ReadyQueue) -> None:
    fill(queue, [5_000] * 3 * WINDOW)
    feed = feed_of(queue, Acknowledgements())
    feed.load(now_ms=50)
    for due_ms in (100, 90, 300):
        fill(queue, [due_ms])
        feed.load(now_ms=50)
    assert feed.next_due_ms() == 90
    assert feed.needs(100) == 3 * WINDOW + 2
    early = feed.take(100, 10)
    assert (early["offset"] - 3 * WINDOW).tolist() == [1, 0]
    feed.lease(early["offset"], "a", 10_000)
    assert feed.next_due_ms() == 300
    assert feed.take(4_999, 10)["due_ms"].tolist() == [300]
    taken = []
    while feed.due(5_000):
        taken += feed.take(5_000, 1_000)["offset"].tolist()
        feed.load(now_ms=5_000)
    assert taken == list(range(3 * WINDOW))  # and what was early does not come again
    assert feed.next == queue.units


def test_each_unit_behind_a_window_is_looked_at_once_and_those_far_behind_later(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, looked = ReadyQueue.read, []

    def counted(self: ReadyQueue, offset: int, count: int) -> object:
        looked.append((offset, count))
        return read(self, offset, count)

    monkeypatch.setattr("tarry.node.delivery.early_units.LOOK_ON_UNITS_MAX", WINDOW)
    fill(queue, [5_000] * 3 * WINDOW)
    feed = feed_of(queue, Acknowledgements())
    monkeypatch.setattr(ReadyQueue, "read", counted)
    for _ in range(9):
        feed.load(now_ms=50)
        assert not feed.to_look()
    assert looked == [(0, WINDOW), (WINDOW, WINDOW)]
    monkeypatch.setattr("tarry.node.delivery.early_units.LOOK_ON_UNITS_MAX", 4 * WINDOW)
    assert feed.to_look()
    feed.load(end=feed.next + 5, now_ms=50)
    assert looked[2:] == [(2 * WINDOW, 5)]
    feed.load(now_ms=50)
    fill(queue, [70] * 3)
    feed.load(now_ms=50)
    assert looked[3:] == [(2 * WINDOW + 5, WINDOW - 5), (3 * WINDOW, 3)]
    assert feed.take_spent() > 0


def test_as_many_are_early_as_there_is_room_for_and_the_others_follow(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("WINDOW", "EARLY_MAX"):
        monkeypatch.setattr(f"tarry.node.delivery.feed.{name}", 4)
    fill(queue, [5_000] * 6 + [100 + number for number in range(9)] + [6_000] * 3)
    acknowledged = Acknowledgements()
    acknowledged.add(column([8]))
    feed = feed_of(queue, acknowledged)
    feed.load(now_ms=50)
    assert not feed.to_look()
    seen = []
    for now_ms in range(100, 120):
        seen += feed.take(now_ms, 10)["offset"].tolist()
        feed.load(now_ms=now_ms)
    assert seen == [6, 7, *range(9, 15)]
    while feed.due(6_000):
        seen += feed.take(6_000, 10)["offset"].tolist()
        feed.load(now_ms=6_000)
    assert sorted(seen) == [*range(8), *range(9, 18)]


def test_what_is_early_and_due_behind_the_window_waits_for_what_the_window_has_no_room_for(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.node.delivery.feed.WINDOW", 4)
    fill(queue, [100, 200, 300, 400, 500, 900, 600, 600])
    feed = feed_of(queue, Acknowledgements())
    feed.load(now_ms=50)
    seen = []
    while feed.due(1_000):
        seen += feed.take(1_000, 10)["due_ms"].tolist()
        feed.load(now_ms=1_000)
    assert seen == [100, 200, 300, 400, 500, 600, 600, 900]


def test_what_is_early_is_given_up_resumed_cancelled_and_found_as_others_are(queue: ReadyQueue) -> None:
    marks = Marks()
    fill(queue, [5_000] * 2 * WINDOW + [100, 101, 102, 103])
    acknowledged, first = Acknowledgements(), 2 * WINDOW
    feed = Feed(queue, acknowledged, Lanes(Queues(Path()), 0, 1), marks)
    feed.load(now_ms=50)
    assert feed.find(first, 0).place is Place.WAITING
    assert feed.resume("a", column([first]), 10_000) is not None
    assert feed.find(first, 0).place is Place.IN_HAND
    aside = feed.set_aside(column([first, first + 1]), np.zeros(2, np.uint32))
    assert aside.tolist() == [False, True]
    taken = feed.take(200, 10)
    assert taken["offset"].tolist() == [first + 2, first + 3]
    feed.end_marks(column([first + 1]))
    assert feed.take(200, 10)["offset"].tolist() == [first + 1]
    feed.lease(taken["offset"], "b", 10_000)
    feed.take_back("b", taken["offset"])
    assert feed.find(first + 2, 0).place is Place.SETTLING
    acknowledged.add(taken["offset"])
    assert feed.load(now_ms=50).tolist() == []
    assert feed.next_due_ms() == 5_000


def test_where_a_rate_opens_one_offset_after_another_nothing_is_early(queue: ReadyQueue) -> None:
    queue.pace.change(10, 0, 0, 0)
    queue.pace.take_in(0, 100, 50, 0)
    fill(queue, [5_000] * 2 * WINDOW + [100])
    feed = feed_of(queue, Acknowledgements())
    feed.load(now_ms=50)
    assert not feed.to_look()
    assert feed.take(4_999, 10)["offset"].tolist() == []


def test_what_is_early_comes_as_much_later_as_its_group_s_delay(queue: ReadyQueue) -> None:
    """It may be reserved though what is ahead of it waits on disk."""
    fill(queue, [9_000, *[20_000] * 9, 8_900])
    feed = feed_of(queue, Acknowledgements())
    feed.delay.ms = 1_000
    feed.load(now_ms=0)
    assert feed.next == 1
    assert feed.looks_ms() is not None
    assert feed.take(9_899, 10)["offset"].tolist() == []
    assert feed.reserves(9_900, 100) == queue.units
    assert feed.take(9_900, 10)["offset"].tolist() == [10]
    assert feed.take(10_000, 10)["offset"].tolist() == [0]


def test_a_crowd_that_is_not_due_is_not_held_though_the_leader_before_has_delivered_what_was_early(
    queue: ReadyQueue,
) -> None:
    """Its cursor was behind the crowd: of that nobody can have had anything. It goes out marked."""
    first = 3 * WINDOW
    fill(queue, [40] + [5_000] * (first - 1) + [30, 60, 70])
    acknowledged = Acknowledgements()
    acknowledged.add(column([first]))
    feed = feed_of(queue, acknowledged)
    feed.hold(first + 2, until_ms=30_000, due_ms=50)
    while not feed.close_held():
        pass
    assert feed.find(0, 0).place is Place.HELD
    feed.load(now_ms=45)
    taken = feed.take(100, 10)
    assert taken["offset"].tolist() == [first + 1, first + 2]
    assert taken["maybe_duplicate"].tolist() == [1, 0]
    seen = []
    while feed.due(5_000):
        seen += feed.take(5_000, 1_000)["offset"].tolist()
        feed.load(now_ms=5_000)
    assert seen == list(range(1, first))
    feed.end_hold()
    assert feed.take(5_000, 10)["offset"].tolist() == [0]


def test_what_a_filter_leaves_out_of_what_is_early_is_told_once(queue: ReadyQueue) -> None:
    mask = tag_mask(["a"])
    fill(queue, [5_000] * 2 * WINDOW + [100, 100], masks=[mask] * (2 * WINDOW + 1) + [tag_mask(["b"])])
    feed = feed_of(queue, Acknowledgements())
    feed.tags = TagFilter(["a"])
    assert feed.load(now_ms=50).tolist() == [2 * WINDOW + 1]
    for _ in range(2):
        feed.take(5_000, 3 * WINDOW)
        assert feed.load(now_ms=5_000).tolist() == []
    assert feed.next == queue.units
