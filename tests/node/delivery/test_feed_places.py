"""Where an offset is in a feed, held to a model that knows each by what was done with it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from unittest import mock

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tarry.node.delivery import feed as feed_module
from tarry.node.delivery.places import Found, Place
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue
from tests.node.delivery.feeds import column, feed_of

UNITS = 40
WINDOW = 8
ACTS = st.lists(st.tuples(st.sampled_from(["take", "ack", "settle", "load"]), st.integers(1, 6)), max_size=30)


@settings(max_examples=80, deadline=None)
@given(acts=ACTS, held=st.integers(0, 5))
def test_each_offset_is_where_what_was_done_with_it_has_put_it(
    acts: list[tuple[str, int]], held: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(feed_module, "WINDOW", WINDOW):
        queue, acknowledged = ReadyQueue(Path(folder), 0, "t"), Acknowledgements()
        units = np.zeros(UNITS, UNIT)
        units["due_ms"] = 1
        queue.append(units)
        feed = feed_of(queue, acknowledged)
        known = dict.fromkeys(range(UNITS), Place.WAITING)
        feed.hold(held, until_ms=77)
        while not feed.close_held():
            pass
        known.update(dict.fromkeys(range(held), Place.HELD))
        for act, count in acts:
            in_hand = [offset for offset, place in known.items() if place is Place.IN_HAND][:count]
            if act == "load":
                feed.load()
            elif act == "take":
                taken = feed.take(1, count)["offset"]
                if len(taken):
                    feed.lease(taken, "c", 99)
                    known.update(dict.fromkeys(taken.tolist(), Place.IN_HAND))
            elif in_hand:
                assert feed.take_back("c", column(in_hand)).all()
                known.update(dict.fromkeys(in_hand, Place.SETTLING))
                if act == "ack":
                    acknowledged.add(column(in_hand))
                    known.update(dict.fromkeys(in_hand, Place.ACKNOWLEDGED))
        found = {offset: feed.find(offset, 0) for offset in range(UNITS)}
        assert {offset: one.place for offset, one in found.items()} == known
        waiting = [offset for offset, place in known.items() if place is Place.WAITING]
        assert [found[offset].before for offset in waiting] == list(range(len(waiting)))
        for offset, place in known.items():
            if place is Place.IN_HAND:
                assert found[offset] == Found(Place.IN_HAND, "c", 99)
            if place is Place.HELD:
                assert found[offset] == Found(Place.HELD, until_ms=77, maybe_delivered=True)


def test_what_is_given_back_waits_and_may_have_been_delivered(tmp_path: Path) -> None:
    queue, acknowledged = ReadyQueue(tmp_path, 0, "t"), Acknowledgements()
    queue.append(np.zeros(3, UNIT))
    feed = feed_of(queue, acknowledged)
    feed.load()
    batch = feed.lease(feed.take(0, 2)["offset"], "c", 99)
    feed.give_back("c", [batch])
    assert feed.find(0, 0) == Found(Place.WAITING, before=1, maybe_delivered=True)
    feed.wait_again()
    assert feed.find(0, 0) == Found(Place.WAITING, before=0, maybe_delivered=True)
    assert feed.find(2, 0) == Found(Place.WAITING, before=2)


def test_the_count_of_what_is_missing_is_that_of_the_missing_offsets() -> None:
    known = Acknowledgements(5)
    known.add(column([7, 9, 10, 1_000_000]))
    for start, end in ((0, 0), (0, 5), (0, 8), (6, 12), (8, 2_000_000), (9, 11), (12, 10)):
        assert known.missing_count(start, end) == len(known.missing(start, end))
