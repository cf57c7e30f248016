"""One group on one queue: whatever happens, every message is in exactly one place."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.node.delivery.feed import NONE, Feed
from tarry.node.delivery.leases import Leases
from tarry.node.delivery.ordering import Lanes
from tarry.node.delivery.waiting_messages import TURN_SORTED_MAX
from tarry.proto.tags import TagFilter, tag_mask
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import UNIT, ReadyQueue
from tests.node.delivery.feeds import column, feed_of, fill


def load_all(feed: Feed) -> None:
    while feed.to_look():
        feed.wait_again()
        feed.load()


def end_hold(feed: Feed) -> None:
    while feed.held_until_ms is not None:
        feed.end_hold()


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[ReadyQueue]:
    opened = ReadyQueue(tmp_path, 0, "t")
    yield opened
    opened.close()


def test_what_a_leader_nobody_heard_may_have_delivered_goes_out_at_its_time_marked(
    queue: ReadyQueue,
) -> None:
    fill(queue, [100, 110, 120, 130])
    feed = feed_of(queue, Acknowledgements(1))
    feed.hold(0, 0, doubtful=3)
    assert feed.held_until_ms is None
    feed.load()
    assert feed.take(105, 10)["offset"].tolist() == []
    taken = feed.take(200, 10)
    assert taken["offset"].tolist() == [1, 2, 3]
    assert taken["maybe_duplicate"].tolist() == [1, 1, 0]


def test_a_rate_holds_back_what_is_due_until_it_opens(queue: ReadyQueue) -> None:
    queue.pace.change(10, 0, 0, 0)
    queue.pace.take_in(0, 100, 50, 0)
    fill(queue, [100, 100, 100, 900])
    feed = feed_of(queue, Acknowledgements())
    feed.load()
    assert feed.next_due_ms() == 100
    assert feed.take(199, 10)["offset"].tolist() == [0]
    assert feed.next_due_ms() == 200
    assert feed.take(300, 10)["offset"].tolist() == [1, 2]
    assert feed.next_due_ms() == 900
    assert feed.take(899, 10)["offset"].tolist() == []
    assert feed.take(900, 10)["offset"].tolist() == [3]


def test_messages_go_out_in_due_order_though_a_late_one_was_released_after(queue: ReadyQueue) -> None:
    fill(queue, [100, 120, 140, 110])
    feed = feed_of(queue, Acknowledgements())
    feed.load()
    assert feed.next_due_ms() == 100
    assert feed.take(99, 10)["offset"].tolist() == []
    assert feed.take(125, 10)["offset"].tolist() == [0, 3, 1]
    assert feed.next_due_ms() == 140


def test_an_ack_of_what_another_has_in_hand_is_not_taken(queue: ReadyQueue) -> None:
    fill(queue, [1, 1, 1, 1])
    feed = feed_of(queue, Acknowledgements())
    feed.load()
    feed.lease(column(feed.take(5, 2)["offset"]), "a", 100)
    other = feed.lease(column(feed.take(5, 2)["offset"]), "b", 100)
    assert feed.take_back("a", column([2])).tolist() == [False]
    assert feed.take_back("a", column([0, 2, 7])).tolist() == [True, False, False]
    assert feed.expire(other).tolist() == [2, 3]
    assert feed.in_flight_messages == 1


def test_what_is_still_in_hand_when_a_lease_ends_is_given_up(queue: ReadyQueue) -> None:
    fill(queue, [1, 1])
    feed, leases = feed_of(queue, Acknowledgements()), Leases()
    feed.load()
    leases.add(feed, feed.lease(column(feed.take(5, 2)["offset"]), "a", 100))
    feed.take_back("a", column([0]))
    assert list(leases.expire(99, 10)) == []
    [(_, given_up)] = leases.expire(100, 10)
    assert given_up.tolist() == [1]


def test_what_a_filter_passes_over_is_named_to_be_acknowledged(queue: ReadyQueue) -> None:
    masks = [tag_mask(tags) for tags in (["a"], ["b"], ["a", "b"], [])]
    fill(queue, [1, 2, 3, 4], masks=masks)
    feed = feed_of(queue, Acknowledgements())
    feed.tags = TagFilter(["b"])
    assert feed.load().tolist() == [0, 3]
    assert feed.take(9, 9)["offset"].tolist() == [1, 2]


def test_after_a_failover_what_may_be_in_hand_is_held_then_goes_out_marked(queue: ReadyQueue) -> None:
    fill(queue, [1, 2, 3, 4, 5])
    acknowledged = Acknowledgements()
    acknowledged.add(column([1]))
    feed = feed_of(queue, acknowledged)
    feed.hold(cursor=3, until_ms=1_000)
    feed.load()
    assert feed.take(9, 9)["offset"].tolist() == [3, 4]
    assert feed.held_until_ms == 1_000
    acknowledged.add(column([2]))
    feed.end_hold()
    again = feed.take(9, 9)
    assert again["offset"].tolist() == [0]
    assert again["maybe_duplicate"].all()


def test_a_resumed_consumer_keeps_what_it_holds_also_beyond_the_cursor(queue: ReadyQueue) -> None:
    fill(queue, [1, 2, 3, 4, 5])
    acknowledged = Acknowledgements()
    feed = feed_of(queue, acknowledged)
    feed.hold(cursor=2, until_ms=1_000)
    kept = feed.resume("a", column([1, 3, 99]), 2_000)
    assert kept is not None
    assert kept.offsets.tolist() == [1, 3]
    feed.load()
    assert feed.take(9, 9)["offset"].tolist() == [2, 4]
    feed.end_hold()
    assert feed.take(9, 9)["offset"].tolist() == [0]


def test_what_another_took_meanwhile_is_not_resumed(queue: ReadyQueue) -> None:
    fill(queue, [1, 2])
    feed = feed_of(queue, Acknowledgements())
    feed.load()
    feed.lease(column(feed.take(9, 1)["offset"]), "b", 100)
    assert feed.resume("a", column([0]), 200) is None


def test_what_is_put_back_later_goes_out_in_due_order_but_not_if_it_was_settled_meanwhile(
    queue: ReadyQueue,
) -> None:
    fill(queue, [30, 20, 10, 40, 25])
    acknowledged = Acknowledgements()
    feed = feed_of(queue, acknowledged)
    feed.load()
    taken = feed.take(30, 9)
    assert taken["offset"].tolist() == [2, 1, 4, 0]
    acknowledged.add(column([1]))
    assert feed.resume("a", column([4]), 100)
    feed.put_back(taken)
    feed.put_back(taken)
    assert feed.take(99, 9)["offset"].tolist() == [2, 0, 3]


@pytest.mark.parametrize("settling", [False, True])
def test_what_is_put_back_after_a_consumer_has_resumed_it_keeps_its_key_to_itself(
    queue: ReadyQueue, settling: bool
) -> None:
    units = np.zeros(2, dtype=UNIT)
    units["lane"] = 1
    queue.append(units)
    feed = feed_of(queue, Acknowledgements())
    feed.load()
    taken = feed.take(1, 1)
    assert feed.resume("a", column([0]), 100)
    if settling:
        assert feed.take_back("a", column([0])).all()
    feed.put_back(taken)
    feed.load()
    assert feed.take(1, 9)["offset"].tolist() == []
    feed.lanes.leave(0, column([0]))
    feed.load()
    assert feed.take(1, 9)["offset"].tolist() == [1]


def test_what_was_resumed_is_forgotten_once_all_below_is_acknowledged(queue: ReadyQueue) -> None:
    fill(queue, [1] * 5)
    acknowledged = Acknowledgements()
    feed = feed_of(queue, acknowledged)
    feed.load()
    for offset in range(5):
        feed.resume("a", column([offset]), 100)
        feed.take_back("a", column([offset]))
        acknowledged.add(column([offset]))
    assert list(feed._resumed) == [4]


def test_what_was_resumed_and_given_back_can_be_taken_and_put_back_again(queue: ReadyQueue) -> None:
    fill(queue, [1])
    feed = feed_of(queue, Acknowledgements())
    feed.load()
    batch = feed.resume("a", column([0]), 100)
    assert batch is not None
    feed.give_back("a", [batch])
    feed.wait_again()
    taken = feed.take(1, 1)
    assert taken["offset"].tolist() == [0]
    feed.put_back(taken)
    assert feed.take(1, 1)["offset"].tolist() == [0]


def test_what_is_given_back_waits_again_only_where_there_is_room(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound, most in (("WINDOW", 2), ("HELD_PIECE", 1)):
        monkeypatch.setattr(f"tarry.node.delivery.feed.{bound}", most)
    fill(queue, [1] * 6)
    feed = feed_of(queue, Acknowledgements())
    kept = feed.resume("a", column(np.arange(6)), 100)
    assert kept is not None
    feed.give_back("a", [kept])
    out = []
    for _ in range(3):
        for _ in range(6):
            feed.wait_again()
            feed.load()
        out.append(feed.take(1, 6)["offset"].tolist())
    assert out == [[0, 1], [2, 3], [4, 5]]
    assert not feed.to_look()


def test_what_a_rate_has_not_opened_does_not_keep_what_is_given_back_from_waiting(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.node.delivery.feed.WINDOW", 2)
    queue.pace.change(1, 0, 0, 0)
    queue.pace.take_in(0, 100, 5, 0)
    fill(queue, [100] * 5)
    feed = feed_of(queue, Acknowledgements())
    feed.load()
    first = feed.lease(feed.take(100, 1)["offset"], "a", 1_000)
    feed.load()
    assert feed.resume("b", column([4]), 1_000)  # the cursor is above all that waits
    assert feed.take(100, 9)["offset"].tolist() == []
    feed.give_back("a", [first])
    feed.wait_again()
    assert feed.take(100, 9)["offset"].tolist() == [0]


@pytest.mark.parametrize("keyed", [False, True])
def test_to_close_the_lanes_of_a_piece_is_charged(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    monkeypatch.setattr("tarry.node.delivery.feed.HELD_PIECE", 4)
    units = np.zeros(6, dtype=UNIT)
    units["lane"] = np.arange(1, 7) if keyed else 0
    queue.append(units)
    feed = feed_of(queue, Acknowledgements())
    feed.hold(cursor=6, until_ms=1_000)
    spent = []
    while not feed.close_held():
        spent.append(feed.take_spent())
    spent.append(feed.take_spent())
    assert spent == ([1.0, 0.5] if keyed else [0.5, 0.25])


def test_to_let_one_wait_again_is_charged_for_all_that_it_is_sorted_among(queue: ReadyQueue) -> None:
    count = 8_000
    fill(queue, list(range(count, 0, -1)))
    feed = feed_of(queue, Acknowledgements())
    feed.load()
    lease = feed.lease(feed.take(1, 1)["offset"], "a", 1_000)
    feed.take_spent()
    feed.give_back("a", [lease])
    feed.wait_again()
    assert feed.take_spent() >= count / TURN_SORTED_MAX
    assert feed.take_spent() == 0.0


def test_a_hold_of_many_ends_by_pieces_and_closes_their_keys_until_its_end(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.node.delivery.feed.HELD_PIECE", 2)
    units = np.zeros(6, dtype=UNIT)
    units["due_ms"], units["lane"] = 100, [1, 2, 3, 1, 2, 4]
    queue.append(units)
    feed = feed_of(queue, Acknowledgements())
    feed.hold(cursor=5, until_ms=1_000)
    assert [feed.close_held() for _ in range(4)] == [False, False, True, True]
    out = []
    for left in (True, True, False):
        feed.end_hold()
        assert (feed.held_until_ms == 0) == left
        feed.load()
        taken = feed.take(2_000, 9)
        out.append(taken["offset"].tolist())
    assert feed.held_until_ms is None
    assert out == [[5], [0, 2], [1]]
    feed.lanes.leave(0, column([0, 1]))
    feed.load()
    assert feed.take(2_000, 9)["offset"].tolist() == [3, 4]


def test_a_hold_that_is_over_goes_on_once_what_waits_leaves_room(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.node.delivery.feed.WAITING_MAX", 3)
    monkeypatch.setattr("tarry.node.delivery.feed.HELD_PIECE", 2)
    fill(queue, [100] * 7)
    feed = feed_of(queue, Acknowledgements())
    feed.hold(cursor=5, until_ms=1_000)
    feed.load()
    assert feed.hold_ends_ms() == 1_000
    out = []
    for _ in range(2):
        feed.end_hold()
        assert feed.hold_ends_ms() is None
        out.append(feed.take(2_000, 3)["offset"].tolist())
        assert feed.hold_ends_ms() == 0
    feed.end_hold()
    assert feed.held_until_ms is None
    out.append(feed.take(2_000, 3)["offset"].tolist())
    assert out == [[0, 1, 5], [2, 3, 6], [4]]


def test_what_is_given_back_beyond_the_room_comes_before_later_ones_of_its_key(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for bound in ("WINDOW", "HELD_PIECE"):
        monkeypatch.setattr(f"tarry.node.delivery.feed.{bound}", 2)
    units = np.zeros(12, dtype=UNIT)
    units["lane"] = [1, 2, 3, 4, 5, 6] * 2
    queue.append(units)
    feed = feed_of(queue, Acknowledgements())
    for _ in range(3):
        feed.load()
        feed.lease(feed.take(1, 2)["offset"], "a", 1_000)
    feed.load()
    assert feed.take(1, 9)["offset"].tolist() == []  # parked
    feed.give_back("a", feed.in_flight.batches("a"))
    kept = feed.resume("a", column([5]), 1_000)
    assert kept is not None
    out = []
    while feed.to_look() or len(feed._waiting):
        feed.wait_again()
        feed.load()
        taken = feed.take(1, 1)
        assert taken["maybe_duplicate"].tolist() == (taken["offset"] < 5).tolist()
        out += taken["offset"].tolist()
        feed.lanes.leave(0, taken["offset"])
    assert sorted(out) == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10]
    assert all(out.index(offset) < out.index(offset + 6) for offset in range(5))


def test_what_is_back_while_the_keys_of_what_is_held_are_being_closed_does_not_stay_closed(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.node.delivery.feed.HELD_PIECE", 2)
    units = np.zeros(6, dtype=UNIT)
    units["lane"] = [1, 2, 3, 4, 3, 4]
    queue.append(units)
    feed = feed_of(queue, Acknowledgements())
    feed.hold(cursor=4, until_ms=1_000)
    assert not feed.close_held()
    batch = feed.resume("a", column([2]), 1_000)
    assert batch is not None
    assert feed.close_held()
    feed.give_back("a", [batch])
    feed.wait_again()
    feed.load()
    assert feed.take(1, 9)["offset"].tolist() == [2]
    feed.lanes.leave(0, column([2]))
    feed.load()
    assert feed.take(1, 9)["offset"].tolist() == [4]


def test_no_message_overtakes_a_parked_one_whose_key_is_open_and_has_not_had_its_turn(
    queue: ReadyQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.node.delivery.feed.UNPARKED_PIECE", 1)
    units = np.zeros(9, dtype=UNIT)
    units["due_ms"], units["lane"] = [1] * 6 + [2] * 3, [1, 2, 3] * 3
    queue.append(units)
    feed = feed_of(queue, Acknowledgements())
    feed.load(6)
    assert feed.take(1, 9)["offset"].tolist() == [0, 1, 2]
    feed.lanes.leave(0, column([0, 1, 2]))
    out = []
    for _ in range(3):
        feed.load()
        out += feed.take(2, 9)["offset"].tolist()
    assert sorted(out) == [3, 4, 5]
    assert not feed.to_look()
    feed.lanes.leave(0, column([3, 4, 5]))
    for _ in range(3):
        feed.load()
        out += feed.take(2, 9)["offset"].tolist()
    assert sorted(out[3:]) == [6, 7, 8]


lane_steps = st.lists(
    st.one_of(
        st.tuples(st.just("release"), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=9)),
        st.tuples(st.just("take"), st.integers(1, 9)),
        st.tuples(st.just("acknowledge"), st.integers(1, 9)),
        st.tuples(st.just("give back"), st.just(0)),
        st.tuples(st.just("cancel"), st.just(0)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(1, 3), lane_steps)
def test_a_key_keeps_its_order_and_none_is_stuck_however_few_lanes_open_in_a_turn(
    piece: int, steps: list[tuple]
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tarry.node.delivery.feed.UNPARKED_PIECE", piece)
        patch.setattr("tarry.node.delivery.feed.HELD_PIECE", piece)
        queue, tables, acknowledged = (
            ReadyQueue(Path(folder), 0, "t"),
            Queues(Path(folder)),
            Acknowledgements(),
        )
        feed = Feed(queue, acknowledged, Lanes(tables, 0, 1))
        left: dict[int, set[tuple[int, int]]] = {}  # by lane, not acknowledged: due time and offset

        def take(count: int) -> int:
            feed.wait_again()
            feed.load()
            taken = feed.take(9, count)
            for lane, due_ms, offset in taken[["lane", "due_ms", "offset"]].tolist():
                assert not lane or (due_ms, offset) == min(left[lane])
            if len(taken):
                feed.lease(column(taken["offset"]), "a", 100)
            return len(taken)

        def acknowledge(count: int) -> int:
            batches = feed.in_flight.batches("a")
            parts = [feed.left_of(batch) for batch in batches]
            offsets = np.sort(np.concatenate([NONE, *parts]))[:count]
            feed.take_back("a", offsets)
            acknowledged.add(offsets)
            units = queue.at(offsets)
            columns = units["lane"].tolist(), units["due_ms"].tolist(), offsets.tolist()
            for lane, due_ms, offset in zip(*columns, strict=True):
                left[lane].remove((due_ms, offset))
            feed.lanes.leave(0, offsets)
            return len(offsets)

        for kind, more in steps:
            if kind == "release":
                units = np.zeros(len(more), dtype=UNIT)
                for n, (lane, due_ms) in enumerate(more):
                    units[n]["lane"], units[n]["due_ms"] = lane, due_ms
                    left.setdefault(lane, set()).add((due_ms, queue.units + n))
                queue.append(units)
            elif kind == "take":
                take(more)
            elif kind == "acknowledge":
                acknowledge(more)
            elif kind == "give back":
                feed.give_back("a", feed.in_flight.batches("a"))
            else:
                tables.retries_cancelled += 1
        while take(99) + acknowledge(99) or feed.to_look():
            pass
        assert not any(left.values())
        queue.close()


ops = st.lists(
    st.one_of(
        st.tuples(st.just("release"), st.integers(1, 4)),
        st.tuples(st.just("deliver"), st.sampled_from("ab"), st.integers(1, 4)),
        st.tuples(st.just("ack"), st.sampled_from("ab"), st.sets(st.integers(0, 12), max_size=4)),
        st.tuples(st.just("nack"), st.sampled_from("ab"), st.sets(st.integers(0, 12), max_size=4)),
        st.tuples(st.just("expire"), st.integers(0, 3)),
        st.tuples(st.just("leave"), st.sampled_from("ab")),
        st.tuples(st.just("failover"), st.booleans()),
        st.tuples(st.just("resume"), st.sampled_from("ab"), st.sets(st.integers(0, 12), max_size=4)),
        st.tuples(st.just("end_hold"), st.none()),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
@given(ops)
def test_every_message_is_in_exactly_one_place(steps: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tarry.node.delivery.feed.HELD_PIECE", 2)
        queue = ReadyQueue(Path(folder), 0, "t")
        acknowledged = Acknowledgements()
        feed = feed_of(queue, acknowledged)
        batches = []
        retried: set[int] = set()  # acknowledged for the group, and a copy is in the wheel
        for step in steps:
            if step[0] == "release":
                fill(queue, list(range(queue.units, queue.units + step[1])))
            elif step[0] == "deliver":
                feed.wait_again()
                feed.load()
                taken = column(feed.take(10**6, step[2])["offset"])
                assert not acknowledged.contains(taken).any()
                if len(taken):
                    batches.append(feed.lease(taken, step[1], 0))
            elif step[0] in ("ack", "nack"):
                offsets = column(sorted(step[2]))
                own = offsets[feed.take_back(step[1], offsets)]
                assert not acknowledged.add(own).any()
                retried |= set(own.tolist()) if step[0] == "nack" else set()
            elif step[0] == "expire" and step[1] < len(batches):
                gone = feed.expire(batches[step[1]])
                assert not acknowledged.add(gone).any()
                retried |= set(gone.tolist())
            elif step[0] == "leave":
                feed.give_back(step[1], feed.in_flight.batches(step[1]))
            elif step[0] == "failover":
                cursor = feed.cursor
                feed, batches = feed_of(queue, acknowledged), []
                if step[1]:
                    feed.hold(cursor, 0)
            elif step[0] == "resume":
                kept = feed.resume(step[1], column(sorted(step[2])), 0)
                if kept:
                    batches.append(kept)
            elif step[0] == "end_hold":
                feed.end_hold()
        load_all(feed)
        held = [batch for name in "ab" for batch in feed.in_flight.batches(name)]
        in_hand = [offset for batch in held for offset in feed.left_of(batch).tolist()]
        assert len(in_hand) == feed.in_flight_messages
        end_hold(feed)
        waiting = feed.take(10**6, 10**6)["offset"].tolist()
        done = [o for o in range(queue.units) if acknowledged.contains(column([o]))[0]]
        assert sorted([*in_hand, *waiting, *done]) == list(range(queue.units))
        assert retried <= set(done)
        queue.close()
