"""However many messages a feed has, no step of it takes longer than a turn of the event loop may."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from tarry.node.delivery.feed import PARKED_MAX, Feed
from tarry.node.delivery.waiting_messages import WAITING
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue
from tests import turns
from tests.node.delivery.feeds import column, feed_of
from tests.node.test_cost import counted

MANY = 200_000


def keyed(folder: Path, count: int) -> ReadyQueue:
    """A queue of messages that are due, each of a key of its own."""
    queue = ReadyQueue(folder, 0, "t")
    units = np.zeros(count, dtype=UNIT)
    units["lane"] = np.random.default_rng(1).permutation(count) + 1
    queue.append(units)
    return queue


def test_to_hold_many_keyed_messages_takes_a_turn_for_each_piece(tmp_path: Path) -> None:
    queue = keyed(tmp_path, MANY)
    feeds = [feed_of(queue, Acknowledgements()) for _ in range(turns.TRIES)]
    held = iter(feeds)
    assert turns.cpu_s(lambda: next(held).hold(MANY, 1_000)) < turns.bound_s()
    (feed, *_) = feeds
    while not feed.close_held():
        pass
    assert len(feed.lanes._held) == MANY
    queue.close()


def load(feed: Feed) -> None:
    """Load the feed, and ask the lanes for the retry queue, too, as every pump of a group does."""
    feed.load()
    feed.lanes.take_opened(1, dict[int, None]().keys())


@pytest.mark.parametrize(("gap", "keyed"), [(1, False), (100, False), (1, True)])
def test_a_hold_of_however_many_takes_a_turn_for_each_piece_from_its_beginning_to_its_end(
    tmp_path: Path, gap: int, keyed: bool
) -> None:
    count = 500_000
    queue, units = ReadyQueue(tmp_path, 0, "t"), np.zeros(count, dtype=UNIT)
    units["due_ms"] = np.random.default_rng(1).permutation(count)
    units["lane"] = np.random.default_rng(2).permutation(count) + 1 if keyed else 0
    queue.append(units)
    held = column(np.arange(0, count, gap))
    acknowledged = Acknowledgements()
    acknowledged.add(np.setdiff1d(column(np.arange(count)), held))
    feeds = [feed_of(queue, acknowledged) for _ in range(2)]
    steps = turns.Timed(feeds)

    steps.each("hold", lambda feed: feed.hold(count, 1_000))
    while not all(feed._closed == held[-1] + 1 for feed in feeds):
        steps.each("close", Feed.close_held)
    steps.each("ack", lambda feed: feed.take_back("a", held[:1]))
    steps.each("resume", lambda feed: feed.resume("a", held[1:2], 1_000))
    while feeds[0].held_until_ms is not None:
        steps.each("end", Feed.end_hold)
        steps.each("load", load)
        steps.each("take", lambda feed: feed.take(count, 4_000))
    assert steps.too_long() == {}
    queue.close()


@pytest.mark.parametrize("keys", [0, 300_000])
def test_however_much_is_given_back_each_piece_of_it_waits_again_in_a_turn(tmp_path: Path, keys: int) -> None:
    count, names = 300_000, ("a", "b", "c")
    queue, units = ReadyQueue(tmp_path, 0, "t"), np.zeros(count, dtype=UNIT)
    units["due_ms"] = np.random.default_rng(1).permutation(count)
    units["lane"] = np.minimum(np.arange(1, count + 1), keys)
    queue.append(units)
    feeds = [feed_of(queue, Acknowledgements()) for _ in range(2)]
    for feed in feeds:
        for name in names:
            while feed.in_flight.get(name) is None or feed.in_flight[name].messages < count // len(names):
                feed.load()
                feed.lease(feed.take(count, 2_000)["offset"], name, count)
    steps = turns.Timed(feeds)
    again: dict[Feed, list[int]] = {feed: [] for feed in feeds}

    for name in names:
        while feeds[0].in_flight.batches(name):
            steps.each(
                "give back", lambda feed, name=name: feed.give_back(name, feed.in_flight.batches(name)[-1:])
            )
            steps.each("wait", Feed.wait_again)
    while feeds[0].to_look() or len(feeds[0]._waiting):
        steps.each("wait", Feed.wait_again)
        steps.each("load", load)
        steps.each("take", lambda feed: again[feed].extend(feed.take(count, 4_000)["offset"].tolist()))
    assert steps.too_long() == {}
    assert all(sorted(offsets) == list(range(count)) for offsets in again.values())
    queue.close()


def test_many_keys_that_open_at_once_wait_again_by_pieces(tmp_path: Path) -> None:
    queue = keyed(tmp_path, PARKED_MAX)
    feeds = [feed_of(queue, Acknowledgements()) for _ in range(turns.TRIES)]
    for feed in feeds:
        units = np.zeros(PARKED_MAX, dtype=WAITING)
        units["lane"], units["offset"] = queue.read(0, PARKED_MAX)["lane"], np.arange(PARKED_MAX)
        feed._parked.put(units)
        feed.next = PARKED_MAX
        feed.lanes.open(range(1, PARKED_MAX + 1))
    opened = iter(feeds)
    assert turns.cpu_s(lambda: next(opened).load()) < turns.bound_s()
    (feed, *_) = feeds
    while feed.to_look():
        feed.load()
    assert sorted(feed.take(1, PARKED_MAX)["offset"].tolist()) == list(range(PARKED_MAX))
    queue.close()


def lines_of_resuming(parked: int) -> int:
    """Return how many lines it runs to resume one message while so many others are set aside."""
    lines: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        queue = ReadyQueue(Path(folder), 0, "t")
        units = np.zeros(2 * parked + 1, dtype=UNIT)
        units["lane"] = [*range(1, parked + 1), *range(1, parked + 1), parked + 1]
        queue.append(units)
        feed = feed_of(queue, Acknowledgements())
        feed.load()
        taken = feed.take(1, 2 * parked)
        assert len(taken) == parked
        with counted(lines, "resume"):
            assert feed.resume("a", column([2 * parked]), 1_000)
        queue.close()
    return lines["resume"]


def test_to_resume_does_not_look_through_what_other_keys_have_set_aside() -> None:
    assert lines_of_resuming(400) == lines_of_resuming(200)
