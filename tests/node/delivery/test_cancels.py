"""Cancels of released messages at the leader: what is cancelled is never handed over, whatever happens."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.node.delivery import cancels
from tarry.node.delivery.cancels import Released
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_consumer_pb2 import GroupStart, StartAt
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.refusal import Refusal
from tests.node.delivery.test_group import drain, step, take
from tests.node.group_in_process import GROUP, TOPIC, Group
from tests.node.group_play import labels, pass_ms, play

NAMES = {number: name.removeprefix("CANCEL_OUTCOME_") for name, number in pb.CancelOutcome.items()}
EARLIEST = GroupStart(at=StartAt.START_AT_EARLIEST)


def raised(group: Group) -> None:
    group.apply(log_pb.RaiseLevelCommand(level=2, now_ms=group.time.now_ms()))


def released(group: Group, chosen: list[str]) -> Released:
    """The released messages of the topic that have these labels, in the order of their offsets."""
    queue = group.machine.queues[group.queue]
    units = queue.read(queue.first, queue.units)
    records = group.machine.wheel.read(units["hour"], units["global_index"])
    found = [Record.FromString(record or b"").body.decode() in chosen for record in records]
    units = units[np.array(found, dtype=np.bool_)]
    return Released(units["hour"].copy(), units["global_index"].copy(), units["due_ms"].copy())


def cancelling(group: Group, chosen: list[str], *, remaining: bool = False) -> asyncio.Task[Any]:
    work = group.delivery.cancels.cancel(group.queue, released(group, chosen), remaining=remaining)
    return asyncio.ensure_future(work)


async def cancel(group: Group, *chosen: str, remaining: bool = False) -> list[str]:
    """Cancel, with all commits that it takes."""
    task = cancelling(group, list(chosen), remaining=remaining)
    for _ in range(8):
        await group.settle()
        await group.commit()
    answer = await task
    assert not isinstance(answer, Refusal), answer
    return [NAMES[number] for number in answer.tolist()]


async def ready(group: Group, *keys: str) -> list[str]:
    """Schedule messages of these keys, released ahead of their due time."""
    raised(group)
    made = [group.schedule(key, 40) for key in keys]
    await pass_ms(group, 1)
    return made


def test_what_is_released_ahead_is_cancelled_and_what_follows_is_delivered() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "", "", "")
        group.join("a")
        assert await cancel(group, made[1]) == ["CANCELLED"]
        assert await cancel(group, made[0], made[1]) == ["CANCELLED", "ALREADY_CANCELLED"]
        await pass_ms(group, 100)
        assert labels(group) == [made[2]]
        assert group.settle_first("a", 5, nack=False)
        await group.settle()
        await group.commit()
        assert group.machine.queues.acknowledged[GROUP, group.queue].floor == 3

    play(steps)


def test_what_a_consumer_has_or_has_had_is_not_cancelled_and_nothing_is_committed() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "", "")
        group.join("a", credit=1)
        await pass_ms(group, 100)
        assert labels(group) == [made[0]]
        before = group.machine.applied_index
        assert await cancel(group, made[0]) == ["ALREADY_DELIVERED"]
        assert group.machine.applied_index == before
        group.settle_first("a", 1, nack=False)
        await group.settle()
        await group.commit()
        assert await cancel(group, made[0]) == ["ALREADY_DONE"]
        group.add_credit("a", 5)
        await pass_ms(group, 10)
        assert labels(group) == made

    play(steps)


def test_while_its_cancel_is_under_way_nothing_is_handed_over_to_anybody() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "", "k", "k")
        task = cancelling(group, made[:2])
        await group.settle()
        group.join("a")
        late = log_pb.SubscribeCommand(topic=TOPIC, group="late", start=EARLIEST)
        queues = group.apply(late)
        opened = group.delivery.group(TOPIC, "late", queues.queue, queues.retry_queue)
        await pass_ms(group, 200)
        assert labels(group) == []  # the third waits for its key
        feed = opened.feeds[group.queue]
        feed.load(100)
        assert len(feed.take(group.time.now_ms(), 10)) == 0
        await group.commit()
        assert [NAMES[number] for number in await task] == ["CANCELLED"] * 2
        await pass_ms(group, 10)
        assert labels(group) == [made[2]]
        feed.load(100)
        assert feed.take(group.time.now_ms(), 10)["offset"].tolist() == [2]
        assert group.machine.queues.acknowledged["late", group.queue].missing(0, 3).tolist() == [2]

    play(steps)


def test_where_it_comes_to_nothing_the_marks_are_lifted_and_keys_keep_their_order() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "k", "k", "")
        group.join("a", credit=1)
        await pass_ms(group, 41)
        assert labels(group) == [made[0]]
        task = cancelling(group, [made[1], made[2]])
        await group.settle()
        (_, answer) = group.log.pop()
        answer.set_result(Refusal(Reason.QUEUE_UNKNOWN, "the topic was deleted"))
        await task
        group.settle_first("a", 1, nack=False)
        group.add_credit("a", 5)
        await group.settle()
        await group.commit()
        await pass_ms(group, 10)
        assert sorted(labels(group)) == made

    play(steps)


def test_held_keys_are_cancelled_and_the_next_of_the_key_is_delivered() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "k", "k", "k")
        group.join("a", credit=5)
        await pass_ms(group, 60)
        assert labels(group) == [made[0]]  # the others wait for it
        assert await cancel(group, made[1]) == ["CANCELLED"]
        group.settle_first("a", 1, nack=False)
        await group.settle()
        await group.commit()
        await pass_ms(group, 10)
        assert labels(group) == [made[0], made[2]]

    play(steps)


def test_the_rest_of_the_groups_go_on_without_it() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "", "")
        group.apply(log_pb.SubscribeCommand(topic=TOPIC, group="other", start=EARLIEST))
        group.join("a", credit=1)
        await pass_ms(group, 60)
        assert await cancel(group, made[0]) == ["ALREADY_DELIVERED"]
        assert await cancel(group, made[0], remaining=True) == ["CANCELLED"]
        assert await cancel(group, made[0], remaining=True) == ["ALREADY_CANCELLED"]
        other = group.machine.queues.acknowledged["other", group.queue]
        assert other.missing(0, 2).tolist() == [1]
        group.settle_first("a", 1, nack=True)
        await group.settle()
        await group.commit()
        group.add_credit("a", 5)
        for _ in range(10):
            await pass_ms(group, 30)
        assert labels(group).count(made[0]) == 2  # it goes on where it was

    play(steps)


def test_what_the_leader_before_may_have_delivered_counts_as_handed_over() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "", "")
        cursor = log_pb.Cursor(group=GROUP, queue=group.queue, offset=0, doubtful=1)
        await group.fail_over(0, [cursor])
        group.delivery.find(TOPIC, GROUP)
        assert await cancel(group, *made) == ["ALREADY_DELIVERED", "CANCELLED"]
        group.join("a")
        await pass_ms(group, 100)
        assert labels(group) == [made[0]]

    play(steps)


def test_what_a_closed_group_s_consumers_may_have_had_counts_as_handed_over() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "", "")
        group.apply(log_pb.SubscribeCommand(topic=TOPIC, group="closed", start=EARLIEST))
        await group.fail_over(0, [log_pb.Cursor(group="closed", queue=group.queue, doubtful=1)])
        assert group.delivery.find(TOPIC, "closed") is None
        assert await cancel(group, *made) == ["ALREADY_DELIVERED", "CANCELLED"]

    play(steps)


def test_a_group_that_was_moved_back_may_still_have_it_in_hand() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "", "")
        group.join("a", credit=1)
        await pass_ms(group, 60)
        group.apply(log_pb.SeekCommand(topic=TOPIC, group=GROUP, offset=0, now_ms=group.time.now_ms()))
        group.show_applied()
        assert await cancel(group, *made) == ["ALREADY_DELIVERED", "CANCELLED"]

    play(steps)


def test_without_the_lease_nothing_is_decided() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "")
        group.has_lease = False
        task = cancelling(group, made)
        await group.settle()
        answer = await task
        assert isinstance(answer, Refusal)
        assert (answer.reason, group.log) == (Reason.NO_LEADER, [])
        group.has_lease = True
        group.join("a")
        await pass_ms(group, 100)
        assert labels(group) == made

    play(steps)


def test_a_caller_that_goes_ends_nothing_and_a_lost_leadership_answers_that_nobody_knows() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "", "")
        gone, waiting = cancelling(group, made[:1]), cancelling(group, made[1:])
        await group.settle()
        gone.cancel()
        await group.settle()
        assert len(group.log) == 2
        group.delivery.end(Refusal(Reason.NO_LEADER, "over"))
        assert (await waiting).reason is Reason.OUTCOME_UNKNOWN
        await group.fail_over(1, group.cursors())
        group.join("a")
        await pass_ms(group, 100)
        assert labels(group) == [made[1]]

    play(steps)


def test_where_some_are_trimmed_meanwhile_the_rest_is_cancelled() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "", "", "")
        found, queue = released(group, made), group.machine.queues[group.queue]
        queue.first = 1  # as retention has it since they were found
        work = group.delivery.cancels._in_queue(queue, np.arange(3, dtype=np.uint64), found, remaining=False)
        task = asyncio.ensure_future(work)
        for _ in range(8):
            await group.settle()
            await group.commit()
        answer: Any = await task
        assert [NAMES[number] for number in answer.tolist()] == ["ALREADY_DONE", "CANCELLED", "CANCELLED"]

    play(steps)


def test_two_requests_for_one_message_have_one_commit() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "")
        first, second = cancelling(group, made), cancelling(group, made)
        await group.settle()
        await group.settle()
        assert len(group.log) == 1
        await group.commit()
        await group.settle()
        assert group.log == []
        assert [NAMES[int((await one)[0])] for one in (first, second)] == ["CANCELLED", "ALREADY_CANCELLED"]

    play(steps)


def test_a_topic_of_too_many_groups_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cancels, "GROUPS_MAX", 0)

    async def steps(group: Group) -> None:
        made = await ready(group, "")
        answer = await cancelling(group, made)
        assert isinstance(answer, Refusal)
        assert answer.reason is Reason.TOO_MANY_GROUPS

    play(steps)


def test_where_too_many_groups_to_be_named_have_had_it_it_stays_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cancels, "HAD_BY_BYTES_MAX", 0)

    async def steps(group: Group) -> None:
        made = await ready(group, "", "")
        group.apply(log_pb.SubscribeCommand(topic=TOPIC, group="other", start=EARLIEST))
        group.join("a", credit=1)
        await pass_ms(group, 60)
        before = group.machine.applied_index
        assert await cancel(group, made[0], remaining=True) == ["ALREADY_DELIVERED"]
        assert group.machine.applied_index == before
        assert await cancel(group, made[1], remaining=True) == ["CANCELLED"]

    play(steps)


def test_a_consumer_that_claims_what_is_being_cancelled_does_not_get_it() -> None:
    async def steps(group: Group) -> None:
        made = await ready(group, "")
        assert group.group.feeds[group.queue].load(10).tolist() == []
        task = cancelling(group, made)
        await group.settle()
        offsets = np.array([0], np.uint64)
        assert group.group.feeds[group.queue].resume("liar", offsets, 10**15) is None
        await group.commit()
        assert NAMES[int((await task)[0])] == "CANCELLED"

    play(steps)


async def nacked(group: Group, *, delay_ms: int) -> str:
    """Let a consumer give a message back; its copy waits so long for the retry."""
    (made,) = await ready(group, "")
    group.join("a", credit=1)
    await pass_ms(group, 60)
    group.settle_first("a", 1, nack=True, delay_ms=delay_ms)
    await group.settle()
    await group.commit()
    assert group.places()[made] == ["retry"]
    group.add_credit("a", 5)
    return made


async def pass_time(group: Group) -> None:
    """Let more than half a second pass, with releases."""
    for _ in range(12):
        await pass_ms(group, 50)


def test_a_message_that_waits_for_its_retry_is_cancelled_by_its_first_id() -> None:
    async def steps(group: Group) -> None:
        made = await nacked(group, delay_ms=500)
        assert await cancel(group, made) == ["CANCELLED"]
        assert group.machine.wheel.pending == 0
        assert await cancel(group, made) == ["ALREADY_CANCELLED"]
        await pass_time(group)
        assert labels(group) == [made]

    play(steps)


def test_a_retry_that_is_released_and_not_handed_over_is_cancelled_and_one_in_hand_is_not() -> None:
    async def steps(group: Group) -> None:
        made = await nacked(group, delay_ms=40)
        group.release()
        assert group.machine.queues[group.retry_queue].units == 1
        assert await cancel(group, made) == ["CANCELLED"]
        await pass_time(group)
        assert labels(group) == [made]
        other = group.schedule("", 0)
        await pass_ms(group, 10)
        group.settle_first("a", 1, nack=False)
        await group.commit()
        other = group.schedule("", 0)
        await pass_ms(group, 10)
        group.settle_first("a", 1, nack=True, delay_ms=0)
        await group.settle()
        await group.commit()
        await pass_ms(group, 10)
        assert labels(group)[-2:] == [other, other]
        assert await cancel(group, other) == ["ALREADY_DELIVERED"]

    play(steps)


def test_where_another_group_has_it_in_hand_a_retry_is_cancelled_for_the_rest_alone() -> None:
    async def steps(group: Group) -> None:
        made = await nacked(group, delay_ms=500)
        queues = group.apply(log_pb.SubscribeCommand(topic=TOPIC, group="other", start=EARLIEST))
        other = group.delivery.group(TOPIC, "other", queues.queue, queues.retry_queue).feeds[group.queue]
        other.load(10)
        other.take(group.time.now_ms(), 1)
        other.lease(np.array([0], np.uint64), "b", 10**15)
        assert await cancel(group, made) == ["ALREADY_DELIVERED"]
        assert group.machine.wheel.pending == 1
        assert await cancel(group, made, remaining=True) == ["CANCELLED"]
        assert group.machine.wheel.pending == 0
        assert group.machine.queues.acknowledged["other", group.queue].missing(0, 1).tolist() == [0]

    play(steps)


def test_a_copy_that_is_handed_over_meanwhile_is_not_said_to_be_cancelled() -> None:
    async def steps(group: Group) -> None:
        made = await nacked(group, delay_ms=40)
        task = cancelling(group, [made])
        for _ in range(3):
            await group.settle()
        assert [type(payload).__name__ for payload, _ in group.log] == ["CancelCommand"]
        await pass_ms(group, 60)
        assert labels(group) == [made, made]
        for _ in range(4):
            await group.commit()
        assert [NAMES[number] for number in await task] == ["ALREADY_DELIVERED"]

    play(steps)


def test_more_copies_than_one_request_reads_are_said_to_be_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tarry.node.delivery.waiting_retries.COPIES_MAX", 0)

    async def steps(group: Group) -> None:
        made = await nacked(group, delay_ms=500)
        assert await cancel(group, made) == ["ALREADY_DELIVERED"]
        await pass_time(group)
        assert labels(group) == [made, made]

    play(steps)


cancel_step = st.tuples(st.just("cancel"), st.integers(0, 30), st.integers(1, 3))

due_step = st.tuples(st.just("pass"), st.sampled_from([20, 60]))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.one_of(step, cancel_step, due_step), max_size=60))
def test_whatever_happens_what_is_cancelled_is_never_delivered_and_the_rest_is(steps: list[Any]) -> None:
    async def whole(group: Group) -> None:
        raised(group)
        heard: list[log_pb.Cursor] = []
        acked: set[str] = set()
        asked: list[tuple[list[str], asyncio.Task[Any]]] = []
        retried: set[str] = set()  # waited for a retry, or may have by the time of the decision
        certain: set[str] = set()
        perhaps: set[str] = set()
        seen = 0

        def look() -> None:
            nonlocal seen
            for one in group.given[seen:]:
                assert one.label not in certain, f"{one} was cancelled"
            seen = len(group.given)
            for chosen, task in [one for one in asked if one[1].done()]:
                asked.remove((chosen, task))
                answer = task.result()
                if isinstance(answer, Refusal):
                    continue
                for label, number in zip(chosen, answer.tolist(), strict=True):
                    had = any(one.label == label for one in group.given)
                    match NAMES[number]:
                        case "CANCELLED":
                            certain.add(label)
                            if had:  # its retry was cancelled: it is nowhere any more
                                assert label in retried, f"{label} was delivered"
                                assert group.places()[label][0] == "done"
                        case "ALREADY_CANCELLED":
                            assert label in perhaps
                        case "ALREADY_DONE":
                            assert group.places()[label][0] in ("done", "dead")

        for one in steps:
            if one[0] == "cancel":
                _, first, count = one
                queue = group.machine.queues[group.queue]
                units = queue.read(queue.first, queue.units)[first : first + count]
                records = group.machine.wheel.read(units["hour"], units["global_index"])
                chosen = [Record.FromString(record or b"").body.decode() for record in records]
                if chosen:
                    perhaps.update(chosen)
                    places = group.places()
                    retried.update(one for one in chosen if asked or places[one][0] == "retry")
                    asked.append((chosen, cancelling(group, chosen)))
            else:
                await take(group, one, heard, acked)
            await group.settle()
            look()
        await group.commit()
        await drain(group)
        await group.settle()
        look()
        left = {label for *_, label in group.scheduled} - perhaps
        assert left <= set(labels(group))

    play(whole)
