"""Groups that nobody uses any more are closed and told no more, and forget nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from tarry.node.delivery import delivery
from tarry.node.delivery.consumer import Consumer
from tarry.proto import tarry_log_pb2 as log_pb
from tests.node.group_in_process import GROUP, SETTINGS, TOPIC, Group
from tests.node.group_play import labels, pass_ms, play, poll, rest
from tests.node.test_cost import counted


def told(group: Group) -> set[str]:
    return {cursor.group for cursor in group.cursors()}


def beat(group: Group) -> dict[int, log_pb.Cursor]:
    """Return a heartbeat's cursors by queue; what it tells must be what there is to tell."""
    state = log_pb.DispatchState.FromString(group.delivery.cursors(1.0))
    opened = group.delivery._groups
    group.delivery._changed.update(dict.fromkeys(opened.values()))
    assert group.delivery.cursors(1.0) == state.SerializeToString()
    return {cursor.queue: cursor for cursor in state.cursors}


def test_a_heartbeat_tells_of_a_group_anew_when_something_has_happened_to_it() -> None:
    async def steps(group: Group) -> None:
        group.apply(log_pb.SubscribeCommand(topic=TOPIC, group="behind"))
        group.schedule("", 0)
        group.release()
        behind = log_pb.Cursor(group="behind", queue=group.queue, doubtful=1)
        await group.fail_over(0, [behind])
        assert len(beat(group)) == 2
        group.join("a")
        assert beat(group)[group.queue].consumers == ["a"]
        await group.settle()
        assert beat(group)[group.queue].offset == 1
        group.settle_first("a", 1, nack=False)
        await group.settle()
        await group.commit()
        group.apply(log_pb.SeekCommand(topic=TOPIC, group=GROUP, offset=0))
        group.show_applied()
        assert beat(group)[group.queue].offset == 0
        group.leave("a", clean=True)
        poll(group, "p", lease_ms=SETTINGS.lease_ms)
        (lease,) = beat(group)[group.queue].leases
        assert lease.consumer == "p"
        group.settle_first("p", 1, nack=False)
        assert not beat(group)[group.queue].leases

    play(steps)


def told_lines(groups: int) -> int:
    """How many lines a heartbeat runs for so many groups, each with a stream that waits."""
    lines: Counter[str] = Counter()

    async def steps(group: Group) -> None:
        for name in (f"g{number}" for number in range(groups)):
            queues = group.apply(log_pb.SubscribeCommand(topic=TOPIC, group=name))
            opened = group.delivery.group(TOPIC, name, queues.queue, queues.retry_queue)
            opened.join(Consumer("a", TOPIC, name, 1_000, 5), {})
        first = group.delivery.cursors(1.0)
        with counted(lines, "beat"):
            assert group.delivery.cursors(2.0) == first

    play(steps)
    return lines["beat"]


def test_a_heartbeat_repeats_what_it_told_of_groups_that_nothing_has_happened_to() -> None:
    assert told_lines(200) - told_lines(100) < 10 * 100


def test_a_group_that_nobody_uses_is_told_no_more_and_goes_on_where_it_was() -> None:
    async def steps(group: Group) -> None:
        group.join("a")
        group.schedule("", 0)
        group.release()
        await group.settle()
        group.settle_first("a", 1, nack=False)
        await group.settle()
        await group.commit()
        await pass_ms(group, 3 * SETTINGS.lease_ms)
        group.delivery.look(group.time.now_ms())
        assert told(group) == {GROUP}  # its stream is open
        await rest(group, clean=True)
        assert told(group) == set()
        assert group.delivery.find(TOPIC, GROUP) is None
        group.schedule("", 0)
        group.release()
        group.join("a")
        await group.settle()
        assert [(one.label, one.maybe_duplicate) for one in group.given] == [("m0", False), ("m1", False)]

    play(steps)


def test_a_group_is_kept_for_a_lease_after_its_last_call_and_while_what_was_delivered_is_out() -> None:
    async def steps(group: Group) -> None:
        group.schedule("", 0)
        group.release()
        poll(group, "p", lease_ms=100 * SETTINGS.lease_ms)
        await rest(group, clean=False)
        assert told(group) == {GROUP}
        group.settle_first("p", 1, nack=False)
        await group.settle()
        await group.commit()
        group.delivery.look(group.time.now_ms())
        poll(group, "p", lease_ms=SETTINGS.lease_ms)
        await pass_ms(group, SETTINGS.lease_ms - 1)
        group.delivery.look(group.time.now_ms())
        assert told(group) == {GROUP}
        await rest(group, clean=False)
        assert told(group) == set()

    play(steps)


def test_what_was_given_back_goes_out_marked_however_long_nobody_came_for_it() -> None:
    async def steps(group: Group) -> None:
        group.join("a")
        group.schedule("", 0)
        group.release()
        await group.settle()
        await rest(group, clean=True)
        await group.fail_over(0, group.cursors())
        await rest(group, clean=True)
        group.join("a")
        await group.settle()
        assert labels(group) == ["m0", "m0"]
        assert group.given[1].maybe_duplicate

    play(steps)


def test_cursors_of_groups_that_never_come_back_are_told_until_all_below_is_acknowledged() -> None:
    async def steps(group: Group) -> None:
        for name in ("past", "behind", "deleted"):
            group.apply(log_pb.SubscribeCommand(topic=TOPIC, group=name))
        group.schedule("", 0)
        group.release()
        offset = bytes(8)
        group.apply(log_pb.AckCommand(group="past", queue=group.queue, offset=offset))
        group.apply(log_pb.DeleteGroupCommand(topic=TOPIC, group="deleted"))
        names = ("past", "behind", "deleted")
        await group.fail_over(0, [log_pb.Cursor(group=name, queue=group.queue, doubtful=1) for name in names])
        group.delivery.look(group.time.now_ms())
        assert told(group) - {GROUP} == {"behind"}
        group.apply(log_pb.AckCommand(group="behind", queue=group.queue, offset=offset))
        await pass_ms(group, SETTINGS.lease_ms)
        group.delivery.look(group.time.now_ms())
        assert told(group) - {GROUP} == set()

    play(steps)


def test_of_many_groups_that_nobody_uses_each_heartbeat_closes_some(monkeypatch: pytest.MonkeyPatch) -> None:
    async def steps(group: Group) -> None:
        for name in (f"g{number}" for number in range(5)):
            queues = group.apply(log_pb.SubscribeCommand(topic=TOPIC, group=name))
            group.delivery.group(TOPIC, name, queues.queue, queues.retry_queue)
        await pass_ms(group, 2 * SETTINGS.lease_ms)
        monkeypatch.setattr(delivery, "CLOSE_LOOKS_MAX", 2)
        left = []
        for _ in range(4):
            group.delivery.look(group.time.now_ms())
            left.append(len(told(group)))
        assert left == [4, 2, 0, 0]  # with the group of the play

    play(steps)
