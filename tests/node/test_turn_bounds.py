"""A request that names as much as it may holds the event loop for no longer than a turn may take."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tarry.node.config import Delivery, Limits
from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.delivery import GROUPS_SERIALIZED_MAX
from tarry.node.delivery.redrive import redrive
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.dead_letters import dead_letter_topic
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_consumer_pb2 import GroupStart
from tarry.proto.tarry_message_pb2 import Record, Retried
from tarry.proto.tarry_producer_pb2 import (
    CANCEL_OUTCOME_CANCELLED,
    CancelRequest,
    CancelResponse,
    GetRequest,
    ScheduleBatchRequest,
)
from tarry.replication.state_machine import commands as command_codec
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS
from tarry.wheel.wheel import Wheel
from tests import turns as cost
from tests.node.lone_leader import GROUP, RECORD, TOPIC, Leader, Stream, play, subscription, until
from tests.simulation.edge import StreamEnded

LIMITS = Limits()
IN_HAND = LIMITS.credit_max


KINDS: dict[str, type[pb.Ack | pb.Nack | pb.Extend]] = {"ack": pb.Ack, "nack": pb.Nack, "extend": pb.Extend}


async def in_hand(lead: Leader, count: int, name: str) -> tuple[Stream, int]:
    """A stream whose consumer holds the first messages of a queue; and the queue."""
    await lead.ready(count)
    stream = Stream(lead.edge, subscription(name, count))
    assert (await stream.answer()).HasField("subscribed")
    await until(lambda: stream.received >= count)
    return stream, lead.machine.queues.of(TOPIC).queue


def test_what_a_consumer_says_of_all_that_it_may_hold() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        stream, queue = await in_hand(lead, IN_HAND, "a")
        offsets = list(range(IN_HAND))
        third = offsets[: IN_HAND // 3]
        ack = pb.ConsumeRequest(ack=pb.Ack(request=1, queue=queue, offset=offsets))
        ack_third = pb.ConsumeRequest(ack=pb.Ack(request=2, queue=queue, offset=third))
        extend = pb.ConsumeRequest(extend=pb.Extend(request=3, queue=queue, offset=offsets, lease_ms=60_000))
        resume = subscription("a", 1, holding=[pb.Holding(queue=queue, offset=offsets)])
        async with steps.step("extend"):
            assert not (await stream.asked(extend)).acked.stale
        async with steps.step("resume"):
            again = Stream(lead.edge, resume)
            assert len((await again.answer()).subscribed.resumed[0].offset) == IN_HAND
        other = Stream(lead.edge, subscription("b", 1))
        assert (await other.answer()).HasField("subscribed")
        async with steps.step("another's"):
            assert len((await other.asked(ack)).acked.stale) == IN_HAND
        await other.leave()
        async with steps.step("ack"):
            assert not (await again.asked(ack_third)).acked.stale
        async with steps.step("leave"):
            await again.leave()
            group = lead.group()
            await until(lambda: not group.feeds[queue].in_flight_messages)

    assert cost.too_long(play(act)) == {}


def test_nacking_all_that_a_consumer_may_hold_and_what_becomes_of_the_retries() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        stream, queue = await in_hand(lead, IN_HAND, "a")
        nack = pb.Nack(request=1, queue=queue, offset=range(IN_HAND), delay_ms=0)
        async with steps.step("nack"):
            assert not (await stream.asked(pb.ConsumeRequest(nack=nack))).acked.stale
        retries = lead.machine.queues.of(TOPIC, GROUP)
        async with steps.step("release of the copies"):
            await until(lambda: retries.units == IN_HAND)
        async with steps.step("delivery of the copies"):
            stream.send(pb.ConsumeRequest(credit=pb.Credit(messages=IN_HAND)))
            await until(lambda: stream.received == 2 * IN_HAND)
        again = pb.Nack(request=2, queue=retries.queue, offset=range(IN_HAND // 4), delay_ms=0)
        async with steps.step("nack of the copies"):
            assert not (await stream.asked(pb.ConsumeRequest(nack=again))).acked.stale

    assert cost.too_long(play(act)) == {}


def test_delivering_and_nacking_the_largest_messages() -> None:
    largest, count = Record(body=bytes(LIMITS.body_bytes_max)).SerializeToString(), 200

    async def act(lead: Leader, steps: cost.Steps) -> None:
        now_ms = lead.node.time.now_ms()
        for _ in range(count // 10):
            assert isinstance(
                await lead.edge.schedule(batch([TOPIC], np.full(10, now_ms), [largest] * 10)), bytes
            )
        await until(lambda: lead.machine.queues.of(TOPIC).units == count)
        async with steps.step("delivery"):
            stream = Stream(lead.edge, subscription("a", count))
            assert (await stream.answer()).HasField("subscribed")
            await until(lambda: stream.received == count)
        queue = lead.machine.queues.of(TOPIC).queue
        nack = pb.Nack(request=1, queue=queue, offset=range(count), delay_ms=3_600_000)
        async with steps.step("nack"):
            assert not (await stream.asked(pb.ConsumeRequest(nack=nack))).acked.stale

    assert cost.too_long(play(act)) == {}


def test_a_consumer_gets_what_has_become_due_over_thousands_of_hours() -> None:
    hours = 1_500

    async def act(lead: Leader, steps: cost.Steps) -> None:
        first_ms = lead.node.time.now_ms() - (hours + 1) * HOUR_MS
        due_ms = first_ms + np.arange(2 * hours) % hours * HOUR_MS
        records = [RECORD] * len(due_ms)
        columns = log_pb.ScheduleColumns(topics=[TOPIC], due_ms=due_ms.tobytes(), records=records)
        await lead.propose(log_pb.ScheduleCommand(now_ms=first_ms, request=columns))
        async with steps.step("release"):
            await until(lambda: lead.machine.queues.of(TOPIC).units == len(due_ms))
        stream = Stream(lead.edge, subscription("a", len(due_ms)))
        async with steps.step("delivery"):
            await until(lambda: stream.received == len(due_ms))

    assert cost.too_long(play(act)) == {}


def test_settling_messages_and_copies_for_retries_of_thousands_of_hours() -> None:
    hours = 1_500

    async def act(lead: Leader, steps: cost.Steps) -> None:
        first_ms = lead.node.time.now_ms() - (hours + 1) * HOUR_MS
        due_ms = first_ms + np.arange(2 * hours) // 2 * HOUR_MS
        columns = log_pb.ScheduleColumns(
            topics=[TOPIC], due_ms=due_ms.tobytes(), records=[RECORD] * 2 * hours
        )
        await lead.propose(log_pb.ScheduleCommand(now_ms=first_ms, request=columns))
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        queue, retries = lead.machine.queues.of(TOPIC), lead.machine.queues.of(TOPIC, GROUP)
        await until(lambda: queue.units == 2 * hours)
        for start in range(0, hours, 100):
            offsets = 2 * np.arange(start, start + 100, dtype="<u8")
            copies = copies_of(queue.queue, offsets, due_ms[offsets.astype(np.intp)], first_ms)
            await lead.propose(copies)
        stream = Stream(lead.edge, subscription("a", 2 * hours))
        await stream.answer()
        await until(lambda: stream.received == 2 * hours)
        later, half = 10 * HOUR_MS, hours // 2
        requests = {
            "nack": pb.Nack(queue=queue.queue, offset=range(1, 2 * hours, 2), delay_ms=later),
            "nack of copies": pb.Nack(queue=retries.queue, offset=range(half), delay_ms=later),
            "ack of copies": pb.Ack(queue=retries.queue, offset=range(half, hours)),
        }
        for number, (name, request) in enumerate(requests.items(), 1):
            request.request = number
            kind = "ack" if isinstance(request, pb.Ack) else "nack"
            async with steps.step(name):
                answer = await stream.asked(pb.ConsumeRequest(**{kind: request}))
            assert not answer.acked.stale
        acknowledged = lead.machine.queues.acknowledged
        assert acknowledged[GROUP, queue.queue].floor == 2 * hours
        assert acknowledged[GROUP, retries.queue].floor == hours

    assert cost.too_long(play(act)) == {}


def test_redriving_letters_of_thousands_of_hours() -> None:
    hours = 1_000

    async def act(lead: Leader, steps: cost.Steps) -> None:
        first_ms = lead.node.time.now_ms() - (hours + 1) * HOUR_MS
        due_ms = first_ms + np.arange(hours) * HOUR_MS
        columns = log_pb.ScheduleColumns(topics=[TOPIC], due_ms=due_ms.tobytes(), records=[RECORD] * hours)
        await lead.propose(log_pb.ScheduleCommand(now_ms=first_ms, request=columns))
        queue = lead.machine.queues.of(TOPIC)
        await until(lambda: queue.units == hours)
        stream = Stream(lead.edge, subscription("a", hours))
        await stream.answer()
        await until(lambda: stream.received == hours)
        nack = pb.Nack(request=1, queue=queue.queue, offset=range(hours), delay_ms=0)
        await stream.asked(pb.ConsumeRequest(nack=nack))
        letters = lead.machine.queues.of(dead_letter_topic(TOPIC, GROUP))
        await until(lambda: letters.units == hours)
        request = operator_pb.RedriveRequest(topic=letters.topic)
        damage, now_ms = lead.node._core.damage, lead.node.time.now_ms
        redriving = redrive(lead.machine, damage, lead.propose, now_ms, request, LIMITS.retries_bytes_max)
        async with steps.step("redrive"):
            told = [done async for done in redriving]
        assert isinstance(told[-1], operator_pb.RedriveResponse)
        assert told[-1].redriven == hours

    assert cost.too_long(play(act, delivery=Delivery(attempts_max=1))) == {}


def copies_of(
    queue: int, offsets: NDArray[np.uint64], due_ms: NDArray[np.int64], now_ms: int
) -> log_pb.RetryCommand:
    """Return the command that has copies of deliveries come due at such times."""
    numbered = zip((due_ms // HOUR_MS).tolist(), (offsets % 2).tolist(), strict=True)
    return log_pb.RetryCommand(
        group=GROUP,
        queue=queue,
        offset=offsets.tobytes(),
        due_ms=due_ms.tobytes(),
        tag_mask=bytes(8 * len(offsets)),
        records=[
            Retried(
                record=RECORD, hour=hour, global_index=index, attempt=2, topic=TOPIC, group=GROUP
            ).SerializeToString()
            for hour, index in numbered
        ],
        target_topic=TOPIC,
        target_group=GROUP,
        now_ms=now_ms,
    )


def test_large_requests_that_come_together_share_no_turn() -> None:
    calls, most = 8, LIMITS.batch_messages_max
    keyed = [
        Record(body=bytes(200), ordering_key=f"k{n}", tags=["a", "b"], keys=[f"q{n}"]).SerializeToString()
        for n in range(most)
    ]
    ids = [str(MessageId(0, 500_000, n)) for n in range(1_024)]

    async def act(lead: Leader, steps: cost.Steps) -> None:
        due_ms = np.full(most, lead.node.time.now_ms() + 24 * HOUR_MS)
        await lead.edge.schedule(batch([TOPIC], due_ms[:1], [RECORD]))
        request = batch([TOPIC], due_ms, keyed)
        async with steps.step("schedule"):
            answers = await asyncio.gather(*(lead.edge.schedule(request) for _ in range(calls)))
        assert all(isinstance(answer, bytes) for answer in answers)
        cancel = CancelRequest(ids=ids).SerializeToString()
        async with steps.step("cancel"):
            answers = await asyncio.gather(*(lead.edge.cancel(cancel) for _ in range(calls)))
        assert all(isinstance(answer, bytes) for answer in answers)

    assert cost.too_long(play(act)) == {}


def test_scheduling_and_cancelling_as_much_as_a_request_may_over_as_many_hours() -> None:
    most = LIMITS.batch_messages_max
    large = Record(body=bytes(LIMITS.body_bytes_max)).SerializeToString()
    filling = Record(body=bytes(LIMITS.batch_bytes_max // most - 100)).SerializeToString()

    async def act(lead: Leader, steps: cost.Steps) -> None:
        due_ms = lead.node.time.now_ms() + (1 + np.arange(most)) * HOUR_MS
        name = "t" * LIMITS.topic_chars_max
        requests = {
            "new hours": batch([name], due_ms, [RECORD] * most),
            "the same hours": batch([name], due_ms, [RECORD] * most),
            "as many bytes as may be": batch([name], due_ms, [filling] * most),
            "large records": batch([name], due_ms[:15], [large] * 15),
        }
        await lead.edge.schedule(batch([name], due_ms[:1], [RECORD]))
        answers = {}
        for kind, request in requests.items():
            async with steps.step(kind):
                answer = await lead.edge.schedule(request)
            assert isinstance(answer, bytes), answer
            answers[kind] = log_pb.ScheduledColumns.FromString(answer)
        scheduled = answers["the same hours"]
        hour, index = np.frombuffer(scheduled.hour, "<u4"), np.frombuffer(scheduled.global_index, "<u4")
        ids = [str(MessageId(0, *one)) for one in zip(hour.tolist(), index.tolist(), strict=True)]
        cancel = CancelRequest(ids=ids[: LIMITS.cancel_ids_max]).SerializeToString()
        before = lead.machine.wheel.pending
        async with steps.step("cancel"):
            assert not isinstance(await lead.edge.cancel(cancel), Refusal)
        assert lead.machine.wheel.pending == before - LIMITS.cancel_ids_max

    assert cost.too_long(play(act)) == {}


def test_commands_as_large_as_they_may_be_that_wait_together() -> None:
    most = LIMITS.batch_messages_max
    records = [Record(body=bytes(LIMITS.batch_bytes_max // most - 100)).SerializeToString()] * most

    async def act(lead: Leader, steps: cost.Steps) -> None:
        now_ms = lead.node.time.now_ms()
        columns = log_pb.ScheduleColumns(
            topics=[TOPIC], due_ms=np.full(most, now_ms + HOUR_MS).tobytes(), records=records
        )
        command = command_codec.encode(log_pb.ScheduleCommand(now_ms=now_ms, request=columns))
        await lead.node.driver.propose(command)
        async with steps.step("at once"):
            await asyncio.gather(*(lead.node.driver.propose(command) for _ in range(15)))

    assert cost.too_long(play(act)) == {}


def chained(wheel: Wheel, due_ms: NDArray[np.int64], monkeypatch: pytest.MonkeyPatch) -> None:
    """One request after the other adds a message to each of as many hours as it may."""
    monkeypatch.setattr("tarry.wheel.placement._FULL_UNITS", 10_000)
    for _ in range(250):
        append(wheel, due_ms)
    assert wheel.partitions() == ()


def in_partitions(wheel: Wheel, due_ms: NDArray[np.int64], _: pytest.MonkeyPatch) -> None:
    """Requests over few hours each leave each hour files of its own."""
    for first in range(0, 1_600, 8):
        append(wheel, np.repeat(due_ms[first : first + 8], 20))
    append(wheel, due_ms[1_600:])
    assert len(wheel.partitions()) == 1_600


def append(wheel: Wheel, due_ms: NDArray[np.int64]) -> None:
    count = len(due_ms)
    wheel.append(due_ms, np.zeros(count, np.uint32), np.zeros(count, np.uint64), [RECORD] * count)


@pytest.mark.parametrize("layout", [chained, in_partitions])
def test_cancelling_and_getting_what_lies_as_badly_as_it_may(
    layout: Callable[[Wheel, NDArray[np.int64], pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    most = LIMITS.cancel_ids_max
    random = np.random.default_rng(3)

    async def act(lead: Leader, steps: cost.Steps) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group="g"))
        wheel = lead.machine.wheel
        due_ms = lead.node.time.now_ms() + (24 + np.arange(most)) * HOUR_MS
        layout(wheel, due_ms, monkeypatch)
        pending = wheel.pending - most
        ids = [str(MessageId(0, at, 0)) for at in random.permutation(due_ms // HOUR_MS).tolist()]
        async with steps.step("get"):
            answer = await lead.edge.get(GetRequest(id=ids[0]).SerializeToString())
        assert isinstance(answer, bytes)
        async with steps.step("cancel"):
            cancelled = await lead.edge.cancel(CancelRequest(ids=ids).SerializeToString())
        assert isinstance(cancelled, bytes)
        assert set(CancelResponse.FromString(cancelled).outcomes) == {CANCEL_OUTCOME_CANCELLED}
        assert wheel.pending == pending

    assert cost.too_long(play(act)) == {}


def test_repeating_requests_whose_messages_are_many_or_lie_in_files_of_thousands_of_hours() -> None:
    most = LIMITS.batch_messages_max
    random = np.random.default_rng(5)

    def request(sequence: int, due_ms: NDArray[np.int64]) -> bytes:
        return ScheduleBatchRequest(
            topics=[TOPIC], due_ms=due_ms, records=[RECORD] * len(due_ms), producer="p", sequence=sequence
        ).SerializeToString()

    def repeated(first: object) -> bytes:
        assert isinstance(first, bytes), first
        expected = log_pb.ScheduledColumns.FromString(first)
        expected.repeated = True
        return expected.SerializeToString()

    async def act(lead: Leader, steps: cost.Steps) -> None:
        due_ms = lead.node.time.now_ms() + random.permutation(24 + np.arange(most)) * HOUR_MS
        of_hours, of_one = request(1, due_ms), request(2, np.full(most, due_ms[0]))
        first = repeated(await lead.edge.schedule(of_hours))
        other = repeated(await lead.edge.schedule(of_one))
        hours = lead.machine.wheel._hours
        assert all(map(hours.find, hours.hours()))
        assert len(hours.partitions()) == most
        async with steps.step("over as many hours"):
            assert await lead.edge.schedule(of_hours) == first
        async with steps.step("some at once"):
            assert await asyncio.gather(*map(lead.edge.schedule, [of_hours] * 3)) == [first] * 3
        short = request(2, due_ms[:1])
        async with steps.step("as many messages, by requests of one"):
            assert await asyncio.gather(*map(lead.edge.schedule, [short] * 200)) == [other] * 200
        single = [request(3 + number, due_ms[number : number + 1]) for number in range(50)]
        answers = await asyncio.gather(*map(lead.edge.schedule, single))
        async with steps.step("single messages"):
            assert await asyncio.gather(*map(lead.edge.schedule, single)) == list(map(repeated, answers))

    assert cost.too_long(play(act)) == {}


def test_messages_to_thousands_of_new_topics_that_are_due_at_one_instant() -> None:
    most, batches = LIMITS.batch_topics_max, 4

    async def act(lead: Leader, steps: cost.Steps) -> None:
        due_ms, records = np.full(most, lead.node.time.now_ms() + 2_000), [RECORD] * most
        requests = [
            batch(
                [f"t{first + at:0{LIMITS.topic_chars_max - 1}d}" for at in range(most)],
                due_ms,
                records,
            )
            for first in range(0, batches * most, most)
        ]
        async with steps.step("new topics, each alone"):
            for request in requests[: batches // 2]:
                assert isinstance(await lead.edge.schedule(request), bytes)
        async with steps.step("new topics, at once"):
            answers = await asyncio.gather(*map(lead.edge.schedule, requests[batches // 2 :]))
        assert all(isinstance(answer, bytes) for answer in answers)
        async with steps.step("the same topics"):
            for request in requests:
                assert isinstance(await lead.edge.schedule(request), bytes)
        queues = lead.machine.queues
        async with steps.step("release"):
            await until(lambda: lead.machine.wheel.pending == 0)
        assert [queue.units for queue in queues] == [2] * (batches * most)
        late = batch([queue.topic for queue in queues][:most], due_ms - 10_000, records)
        async with steps.step("overdue"):
            assert isinstance(await lead.edge.schedule(late), bytes)
            await until(lambda: lead.machine.wheel.pending == 0)
        async with steps.step("checkpoint"):
            await lead.node._core.checkpoints.write()
        async with steps.step("digest"):
            await lead.status(digest=True)

    assert cost.too_long(play(act)) == {}


def batch(topics: list[str], due_ms: NDArray[np.int64], records: list[bytes]) -> bytes:
    """Return a request whose messages go to the topics in turn."""
    topic = np.arange(len(due_ms)) % len(topics)
    return ScheduleBatchRequest(
        topics=topics, topic=topic, due_ms=due_ms, records=records
    ).SerializeToString()


def test_offsets_that_nobody_holds() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        stream, queue = await in_hand(lead, 1, "a")
        offsets = list(range(10**9, 10**9 + LIMITS.offsets_max))
        for kind, message in KINDS.items():
            request = pb.ConsumeRequest(**{kind: message(request=1, queue=queue, offset=offsets)})
            async with steps.step(kind):
                assert len((await stream.asked(request)).acked.stale) == len(offsets)
        subscribe = subscription("a", 1, holding=[pb.Holding(queue=queue, offset=offsets)])
        async with steps.step("resume"):
            again = Stream(lead.edge, subscribe)
            assert not (await again.answer()).subscribed.resumed

    assert cost.too_long(play(act)) == {}


def test_more_offsets_are_refused_before_they_are_looked_at() -> None:
    most = LIMITS.offsets_max
    text = f"{most + 1} offsets, more than {most}"

    async def act(lead: Leader, steps: cost.Steps) -> None:
        stream, queue = await in_hand(lead, 1, "a")
        offsets = range(most + 1)
        subscribe = subscription("b", 1, holding=[pb.Holding(queue=queue, offset=offsets)])
        async with steps.step("resume"):
            with pytest.raises(StreamEnded, match=text):
                await Stream(lead.edge, subscribe).ended
        for kind, message in KINDS.items():
            request = pb.ConsumeRequest(**{kind: message(request=1, queue=queue, offset=offsets)})
            async with steps.step(kind):
                stream.send(request)
                with pytest.raises(StreamEnded, match=text):
                    await stream.ended
            stream = Stream(lead.edge, subscription("a", 1))
            await stream.answer()

    assert cost.too_long(play(act)) == {}


def test_a_new_leader_that_knows_nothing_looks_at_as_many_groups_as_there_may_be() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        leadership, groups = lead.node.leadership, LIMITS.queues_max
        for number in range(groups):
            lead.machine.queues.subscribe(TOPIC, f"g{number}", GroupStart())
        lead.machine.term_before = 9  # of which nobody has heard anything
        gc.collect()
        gc.freeze()

        async def lead_again() -> None:
            before = leadership.delivery
            leadership._lost.set()
            await until(lambda: leadership.delivery not in (before, None))
            leadership.dispatch_state(1.0)

        async with steps.step("nothing is left to deliver"):
            await lead_again()
        assert not leadership.known().cursors
        await lead.ready(3)
        async with steps.step("all groups are behind"):
            await lead_again()
        assert [cursor.doubtful for cursor in leadership.known().cursors] == [3] * groups
        async with steps.step("they have been told"):
            await lead_again()
        assert [cursor.doubtful for cursor in leadership.known().cursors] == [3] * groups
        delivery, queues = leadership.delivery, lead.machine.queues
        assert delivery is not None
        async with steps.step("a group is opened"):
            delivery.group(TOPIC, "g0", queues.of(TOPIC).queue, queues.of(TOPIC, "g0").queue)
            leadership.dispatch_state(1.0)
        async with steps.step("groups that are behind are looked for"):
            delivery._closes_at_ms = 0
            leadership.look()

    assert cost.too_long(play(act)) == {}


def test_heartbeats_of_thousands_of_groups_with_messages_in_hand() -> None:
    many = 4_000

    async def act(lead: Leader, steps: cost.Steps) -> None:
        leadership, queues = lead.node.leadership, lead.machine.queues
        await lead.ready(1)
        delivery, queue = leadership.delivery, queues.of(TOPIC)
        assert delivery is not None
        for number in range(many):
            name = f"g{number}"
            queues.subscribe(TOPIC, name, GroupStart())
            opened = delivery.group(TOPIC, name, queue.queue, queues.of(TOPIC, name).queue)
            opened.join(Consumer("a", TOPIC, name, 60_000, 5))
            opened.pump()
            if number % 100 == 0:
                await asyncio.sleep(0)
        await until(
            lambda: all(group.feeds[queue.queue].in_flight_messages for group in delivery._groups.values())
        )
        gc.collect()
        gc.freeze()
        async with steps.step("heartbeat"):
            leadership.dispatch_state(1.0)
        async with steps.step("all have changed"):
            delivery.pump()
            leadership.dispatch_state(2.0)
        async with steps.step("no more is delivered"):
            leadership.dispatch_state(None)
        told = 1
        while not leadership.told_all:
            leadership.dispatch_state(None)
            told += 1
        assert many // GROUPS_SERIALIZED_MAX <= told <= many // GROUPS_SERIALIZED_MAX + 1
        async with steps.step("the leadership ends"):
            leadership._lost.set()
            await until(lambda: leadership.delivery not in (delivery, None))

    assert cost.too_long(play(act)) == {}


def test_deleting_a_topic_of_many_groups() -> None:
    many = 5_000

    async def act(lead: Leader, steps: cost.Steps) -> None:
        made = [log_pb.SubscribeCommand(topic=TOPIC, group=f"g{number}") for number in range(many)]
        await asyncio.gather(*map(lead.propose, made))
        async with steps.step("delete"):
            deleted = await lead.delete_topic(TOPIC)
        assert deleted.groups == many
        assert lead.machine.queues.find(TOPIC) is None

    assert cost.too_long(play(act)) == {}
