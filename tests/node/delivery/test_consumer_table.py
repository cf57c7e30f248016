"""The consumers of a group as operators are shown them."""

from __future__ import annotations

import numpy as np
import pytest

from tarry.node.delivery import consumer_table
from tarry.node.delivery.consumer import FILTER_CHARS_SHOWN, TAG_CHARS_SHOWN, TAGS_SHOWN, Consumer
from tarry.node.delivery.consumer_table import KEPT_MIN, ConsumerTable
from tarry.node.delivery.in_flight import Batch, InFlight
from tarry.node.filters.property_filter import PropertyFilter
from tarry.proto import tarry_operator_pb2 as pb
from tests.node.group_in_process import GROUP, SETTINGS, TOPIC, Group
from tests.node.group_play import pass_ms, play, poll

ADDRESS = "10.0.0.1:5000"


def shown(group: Group) -> list[pb.Consumer]:
    """Return the consumers that are shown; nobody is left out."""
    *pieces, told = group.group.shown()
    assert set(pieces) <= {None}
    assert told is not None
    consumers, left_out = told
    assert left_out == 0
    return consumers


def join(group: Group, name: str, credit: int) -> None:
    group.join(name, credit=credit)
    stream = group.hands[name].consumer
    assert stream is not None
    stream.address = ADDRESS


def consumer(name: str, *tags: str, address: str = "") -> Consumer:
    return Consumer(name, TOPIC, GROUP, 1_000, 5, frozenset(tags), address=address, since_ms=7)


def in_flight(**held: list[int]) -> InFlight:
    """Return messages in flight to consumers: two for each end of a lease."""
    some = InFlight()
    for name, ends_ms in held.items():
        for end_ms in ends_ms:
            some.add(Batch(name, np.arange(2, dtype=np.uint64), end_ms))
    return some


def told(table: ConsumerTable, consumers: list[Consumer], *some: InFlight) -> tuple[list[pb.Consumer], int]:
    *_, last = table.shown(consumers, some)
    assert last is not None
    return last


def test_a_stream_is_shown_with_what_it_has_not_settled_until_it_leaves() -> None:
    async def steps(group: Group) -> None:
        for _ in range(5):
            group.schedule("", 0)
        began_ms = group.time.now_ms()
        join(group, "a", credit=8)
        await pass_ms(group, 10)
        [one] = shown(group)
        assert (one.consumer, one.address, one.connected, one.polls) == ("a", ADDRESS, True, False)
        assert (one.in_hand, one.credit, one.since_ms) == (5, 3, began_ms)
        now_ms = group.time.now_ms()
        assert now_ms < one.lease_end_ms <= now_ms + SETTINGS.lease_ms
        group.settle_first("a", 2, nack=False)
        [one] = shown(group)
        assert (one.in_hand, one.credit) == (3, 3)
        await group.commit()
        group.leave("a", clean=True)
        await group.settle()
        assert shown(group) == []

    play(steps)


def test_a_stream_that_breaks_is_shown_until_its_leases_end() -> None:
    async def steps(group: Group) -> None:
        group.schedule("", 0)
        join(group, "a", credit=5)
        await pass_ms(group, 10)
        group.leave("a", clean=False)
        [one] = shown(group)
        assert (one.connected, one.in_hand, one.credit, one.address) == (False, 1, 0, ADDRESS)
        await pass_ms(group, SETTINGS.lease_ms + 10)
        assert shown(group) == []

    play(steps)


def test_who_receives_by_calls_is_shown_between_two_of_them_while_it_has_messages_in_hand() -> None:
    async def steps(group: Group) -> None:
        group.schedule("", 0)
        await pass_ms(group, 10)
        poll(group, "p", 1_000)
        [one] = shown(group)
        assert (one.consumer, one.polls, one.connected, one.in_hand) == ("p", True, False, 1)
        assert one.since_ms == group.time.now_ms()
        group.settle_first("p", 1, nack=False)
        assert shown(group) == []

    play(steps)


def test_a_new_leader_knows_of_one_that_has_not_called_it_what_it_has_in_hand_and_no_more() -> None:
    async def steps(group: Group) -> None:
        group.schedule("", 0)
        await pass_ms(group, 10)
        poll(group, "p", 1_000)
        await group.fail_over(0, group.cursors())
        [one] = shown(group)
        assert (one.consumer, one.in_hand, one.connected, one.since_ms, one.address) == ("p", 1, False, 0, "")

    play(steps)


def test_calls_of_one_name_are_one_consumer_and_leases_of_both_queues_are_its() -> None:
    two = [consumer("a", address="x:1"), consumer("a", address="y:2")]
    main, retry = in_flight(a=[300, 200], b=[50]), in_flight(a=[100])
    first, second = told(ConsumerTable(), two, main, retry)[0]
    assert (first.consumer, first.credit, first.in_hand, first.lease_end_ms) == ("a", 10, 6, 100)
    assert (first.address, first.since_ms) == ("y:2", 7)
    assert (second.consumer, second.in_hand, second.lease_end_ms) == ("b", 2, 50)


def test_the_first_by_name_are_shown_in_pieces_and_the_others_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_table, "CONSUMERS_MAX", 10)
    monkeypatch.setattr(consumer_table, "PIECE_CONSUMERS", 4)
    some = in_flight(**{f"h{n:02}": [1] for n in range(8)})
    pieces = list(ConsumerTable().shown([consumer(f"c{n:02}") for n in reversed(range(7))], [some]))
    assert pieces[:-1] == [None] * 4  # the names in hand, the choice, and four consumers twice
    assert pieces[-1] is not None
    rows, left_out = pieces[-1]
    assert [row.consumer for row in rows] == [f"c{n:02}" for n in range(7)] + ["h00", "h01", "h02"]
    assert left_out == 5


def test_one_that_settles_all_while_others_are_looked_at_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_table, "PIECE_CONSUMERS", 1)
    some = in_flight(a=[1], b=[2])
    steps = ConsumerTable().shown([], [some])
    assert next(steps) is None
    assert next(steps) is None
    [batch] = some.batches("b")
    some.remove(batch, 2)
    *_, last = steps
    assert last is not None
    assert [row.consumer for row in last[0]] == ["a"]


def test_tags_are_shown_cut_and_as_a_terminal_may_have_them() -> None:
    [row] = told(ConsumerTable(), [consumer("a", "b\x1b[31m\n", "t" * 10_000)])[0]
    assert row.tags == ["b?[31m?", "t" * (TAG_CHARS_SHOWN - 1) + "…"]


def test_a_filter_is_shown_cut_and_as_a_terminal_may_have_it() -> None:
    wanted = PropertyFilter("a = '\x1b" + "t" * 300 + "'")
    one = Consumer("a", TOPIC, GROUP, 1_000, 5, frozenset(), wanted)
    (row,), _ = list(ConsumerTable().shown([one], []))[-1] or ([], 0)
    assert row.filter == ("a = '?" + "t" * 300)[: FILTER_CHARS_SHOWN - 1] + "…"


def test_of_many_tags_the_first_are_shown_and_the_others_counted() -> None:
    names = [f"{number:04}" for number in range(1_000)]
    [row] = told(ConsumerTable(), [consumer("a", *names)])[0]
    assert (list(row.tags), row.tags_left_out) == (names[:TAGS_SHOWN], 1_000 - TAGS_SHOWN)


def test_those_that_have_gone_are_forgotten_once_they_have_nothing_in_hand() -> None:
    table, some = ConsumerTable(), InFlight()
    for n in range(10 * KEPT_MIN):
        one = consumer(f"c{n}", address=f"a:{n}")
        table.came(one)
        batch = Batch(one.name, np.zeros(1, np.uint64), n)
        some.add(batch)
        table.left(one, [some])
        if n:
            some.remove(batch, 1)
        assert len(table._gone) <= KEPT_MIN + 4
    [row] = told(table, [], some)[0]
    assert (row.consumer, row.address) == ("c0", "a:0")
