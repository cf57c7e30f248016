"""Ordering keys in a group: one after another, whatever happens in between, and no other key is held up."""

from __future__ import annotations

import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tests.node.group_in_process import Group
from tests.node.group_play import labels, pass_ms, play


def test_messages_of_a_key_come_one_after_another_and_other_keys_are_not_held_up() -> None:
    async def steps(group: Group) -> None:
        for key in ("k", "k", "l", "", "k", "l"):
            group.schedule(key, 0)
        group.join("a", credit=100)
        group.join("b", credit=100)
        await pass_ms(group, 1)
        assert sorted(labels(group)) == ["m0", "m2", "m3"]
        for expected in (["m1", "m5"], ["m4"], []):
            group.given.clear()
            for name in "ab":
                group.settle_first(name, 9, nack=False)
            await group.settle()
            assert labels(group) == []  # said, and not yet in the log
            await group.commit()
            assert sorted(labels(group)) == expected

    play(steps)


def test_a_message_scheduled_later_for_an_earlier_time_goes_first() -> None:
    async def steps(group: Group) -> None:
        group.schedule("k", 40)
        group.release()
        group.schedule("k", 10)
        group.join("a")
        await pass_ms(group, 45)
        assert labels(group) == ["m1"]
        group.settle_first("a", 1, nack=False)
        await group.settle()
        await group.commit()
        assert labels(group) == ["m1", "m0"]

    play(steps)


@pytest.mark.parametrize("nack", [True, False])
def test_a_retry_is_waited_for_also_by_the_next_leader(nack: bool) -> None:
    async def steps(group: Group) -> None:
        group.schedule("k", 0)
        group.schedule("k", 0)
        group.join("a")
        await pass_ms(group, 1)
        if nack:
            group.settle_first("a", 1, nack=True)
        else:
            group.hands["a"].held.clear()
            await pass_ms(group, 1_001)  # its lease
        await group.settle()
        await group.commit()
        assert len(group.machine.queues.blocked) == 1
        await group.fail_over(0, [])
        group.join("b")
        await pass_ms(group, 10)
        assert labels(group) == ["m0"]
        await pass_ms(group, 50)
        assert [(one.label, one.attempt) for one in group.given] == [("m0", 1), ("m0", 2)]
        group.settle_first("b", 1, nack=False)
        await group.settle()
        await group.commit()
        assert labels(group) == ["m0", "m0", "m1"]
        assert not group.machine.queues.blocked

    play(steps)


def test_a_dead_letter_lets_the_next_of_its_key_out() -> None:
    async def steps(group: Group) -> None:
        group.schedule("k", 0)
        group.schedule("k", 0)
        group.join("a")
        for _ in range(10):
            await pass_ms(group, 50)
            if "m1" not in labels(group):
                group.settle_first("a", 1, nack=True)
            await group.settle()
            await group.commit()
        assert [one.attempt for one in group.given] == [1, 2, 3, 1]
        assert group.places()["m0"] == ["dead"]

    play(steps)


def test_what_may_be_in_hand_after_a_failover_holds_its_key_until_its_consumer_is_back() -> None:
    async def steps(group: Group) -> None:
        group.schedule("k", 0)
        group.schedule("k", 0)
        group.join("a")
        await pass_ms(group, 1)
        await group.fail_over(0, group.cursors())
        group.join("b")
        await pass_ms(group, 1)
        assert labels(group) == ["m0"]
        group.join("a")  # with m0
        group.settle_first("a", 1, nack=False)
        await group.settle()
        await group.commit()
        assert labels(group) == ["m0", "m1"]

    play(steps)


def test_nothing_is_delivered_before_the_keys_of_all_that_may_be_in_hand_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tarry.node.delivery.feed.HELD_PIECE", 1)

    async def steps(group: Group) -> None:
        for key in ("k", "l", "m", "k", "l", "m", ""):
            group.schedule(key, 0)
        group.join("a")
        await pass_ms(group, 1)
        assert labels(group) == ["m0", "m1", "m2", "m6"]
        cursors = group.cursors()
        cursors[0].offset = 3
        await group.fail_over(0, cursors)
        group.join("b")
        await pass_ms(group, 10)
        assert labels(group)[4:] == ["m6"]

    play(steps)


def test_what_a_consumer_gives_back_goes_out_again_before_the_next_of_its_key() -> None:
    async def steps(group: Group) -> None:
        group.schedule("k", 0)
        group.schedule("k", 0)
        group.join("a")
        await pass_ms(group, 1)
        group.leave("a", clean=True)
        group.join("b")
        await group.settle()
        assert [(one.label, one.maybe_duplicate) for one in group.given] == [("m0", False), ("m0", True)]

    play(steps)


def test_a_filter_that_leaves_the_first_of_a_key_out_does_not_hold_up_the_next() -> None:
    async def steps(group: Group) -> None:
        group.schedule("k", 0, ["red"])
        group.schedule("k", 0, ["blue"])
        group.schedule("k", 0, ["red"])
        group.join("a", tags=["red"])
        await pass_ms(group, 1)
        await group.commit()
        group.settle_first("a", 1, nack=False)
        await group.settle()
        await group.commit()
        assert labels(group) == ["m0", "m2"]

    play(steps)


def test_a_cancelled_retry_is_waited_for_no_more() -> None:
    async def steps(group: Group) -> None:
        group.schedule("k", 0)
        group.schedule("k", 0)
        group.join("a")
        await pass_ms(group, 1)
        group.settle_first("a", 1, nack=True, delay_ms=5_000)
        await group.settle()
        await group.commit()
        ((hour, index),) = group.machine.queues.blocked.values()
        cancel = log_pb.CancelCommand(
            hour=hour.to_bytes(4, "little"), global_index=index.to_bytes(4, "little")
        )
        group._propose(cancel)
        await group.commit()
        assert labels(group) == ["m0", "m1"]

    play(steps)


def test_a_group_that_is_moved_back_while_a_retry_is_out_gets_the_retry_first() -> None:
    async def steps(group: Group) -> None:
        group.schedule("k", 0)
        group.schedule("k", 0)
        group.join("a")
        await pass_ms(group, 1)
        group.settle_first("a", 1, nack=True)
        await group.settle()
        await group.commit()
        group._propose(log_pb.SeekCommand(topic="t", group="g", offset=0))
        await group.commit()
        for _ in range(6):
            await pass_ms(group, 50)
            group.settle_first("a", 1, nack=False)
            await group.settle()
            await group.commit()
        assert [(one.label, one.attempt) for one in group.given[1:]] == [("m0", 2), ("m0", 1), ("m1", 1)]

    play(steps)


def test_a_retry_that_the_next_consumers_filter_leaves_out_lets_the_next_of_its_key_out() -> None:
    async def steps(group: Group) -> None:
        group.schedule("k", 0, ["red"])
        group.schedule("k", 0, ["red", "blue"])
        group.join("a", tags=["red"])
        await pass_ms(group, 1)
        group.settle_first("a", 1, nack=True)
        await group.settle()
        await group.commit()
        group.leave("a", clean=True)
        group.join("b", tags=["blue"])
        for _ in range(3):
            await pass_ms(group, 50)
            await group.commit()
        assert labels(group) == ["m0", "m1"]
        assert not group.machine.queues.blocked

    play(steps)
