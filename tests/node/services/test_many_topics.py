"""Subscriptions of several topics at a real node: what a pattern has, what joins, what is refused."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.config import Limits
from tarry.node.services.many_topics import TopicsFollowed
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.reasons import Reason
from tarry.replication.journal.journal import Journal
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tests.node.lone_leader import GROUP, Leader, Stream, leader, until
from tests.simulation.edge import StreamEnded


class Taking(Stream):
    """A stream that keeps what it was given, by topic: the queue and offset of each message."""

    def __init__(self, lead: Leader, *topics: str, credit: int = 100, **more: Any) -> None:
        self.given: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
        self.order: list[str] = []
        subscribe = pb.Subscribe(
            topics=topics, group=GROUP, consumer=more.pop("consumer", "c"), credit=credit, **more
        )
        super().__init__(lead.edge, pb.ConsumeRequest(subscribe=subscribe))

    async def _read(self, responses: Any) -> None:
        async for raw in responses:
            response = pb.ConsumeResponse.FromString(raw)
            if response.HasField("deliveries"):
                batch = response.deliveries
                self.received += len(batch.offset)
                self.order += [batch.topic] * len(batch.offset)
                self.given[batch.topic] += [(batch.queue, offset) for offset in batch.offset]
            else:
                self._answers.put_nowait(response)

    async def ack(self, topic: str, count: int = 1) -> list[int]:
        """Acknowledge the first messages of a topic; the offsets that were stale."""
        taken, self.given[topic] = self.given[topic][:count], self.given[topic][count:]
        ack = pb.Ack(request=1, queue=taken[0][0], offset=[offset for _, offset in taken])
        return list((await self.asked(pb.ConsumeRequest(ack=ack))).acked.stale)

    def add(self, messages: int) -> None:
        self.send(pb.ConsumeRequest(credit=pb.Credit(messages=messages)))


async def subscribed(lead: Leader, *topics: str, **more: Any) -> Taking:
    stream = Taking(lead, *topics, **more)
    answered = asyncio.ensure_future(stream.answer())
    await asyncio.wait((answered, stream.ended), return_when=asyncio.FIRST_COMPLETED)
    if stream.ended.done():
        answered.cancel()
        await stream.ended
    assert answered.result().WhichOneof("response") == "subscribed"
    return stream


async def schedule(lead: Leader, topic: str, count: int = 1) -> None:
    """Schedule messages that are due now."""
    await lead.schedule(count, np.full(count, lead.node.time.now_ms() - 1), [topic])


def groups_of(lead: Leader) -> set[str]:
    queues = lead.machine.queues
    return {queue.topic for queue in queues if not queue.group and GROUP in queues.groups_of(queue.queue)}


async def test_a_pattern_has_the_topics_that_there_are_and_those_that_come(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        for topic in ("orders.a", "orders.b", "bills.a"):
            await schedule(lead, topic)
        stream = await subscribed(lead, "orders.*", "single")
        await schedule(lead, "orders.c", 2)
        await schedule(lead, "other")
        await schedule(lead, "single")
        await until(lambda: stream.received == 5)
        assert {topic: len(given) for topic, given in stream.given.items()} == {
            "orders.a": 1,
            "orders.b": 1,
            "orders.c": 2,
            "single": 1,
        }
        assert groups_of(lead) == {"orders.a", "orders.b", "orders.c", "single"}
        assert await stream.ack("orders.c", 2) == []


async def test_no_dead_letter_topic_has_a_pattern_that_does_not_begin_as_they_do(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await lead.propose(log_pb.SubscribeCommand(topic="dlq.g.t", group="other"))
        await lead.propose(log_pb.SubscribeCommand(topic="dnd", group="other"))
        every = await subscribed(lead, "*", consumer="a")
        assert groups_of(lead) == {"dnd"}
        await every.leave()
        letters = await subscribed(lead, "dlq.*", consumer="b")
        assert groups_of(lead) == {"dnd", "dlq.g.t"}
        await letters.leave()


async def test_a_topic_that_is_deleted_as_it_is_joined_ends_no_following(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "orders.a")
        stream = await subscribed(lead, "orders.*")
        moves = lead.node.leadership.group_moves
        propose = moves.propose

        async def and_deletes(command: bytes, cost: float) -> Any:
            monkeypatch.setattr(moves, "propose", propose)
            made = await propose(command, cost)
            await lead.delete_topic("orders.b")
            return made

        monkeypatch.setattr(moves, "propose", and_deletes)
        await schedule(lead, "orders.b")
        await until(lambda: moves.propose is propose and "orders.b" not in groups_of(lead))
        await schedule(lead, "orders.c")
        await until(lambda: stream.received == 2)
        assert set(stream.given) == {"orders.a", "orders.c"}


async def test_a_group_that_has_been_idle_until_it_is_joined_is_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        opens = TopicsFollowed._open_one

        async def and_ends(topics: TopicsFollowed, topic: str) -> Refusal | None:
            refusal = await opens(topics, topic)
            monkeypatch.setattr(TopicsFollowed, "_open_one", opens)
            delivery, group = lead.node.leadership.delivery, topics.many.seats[topic].delivery
            assert delivery is not None
            assert group is not None
            group.end(Refusal(Reason.NO_LEADER, "idle"))
            delivery._forget(group)
            return refusal

        monkeypatch.setattr(TopicsFollowed, "_open_one", and_ends)
        await schedule(lead, "orders.a")
        stream = await subscribed(lead, "orders.*")
        await until(lambda: stream.received == 1)
        assert await stream.ack("orders.a") == []


async def test_a_topic_that_is_deleted_is_left_and_the_others_go_on(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "orders.a")
        await schedule(lead, "orders.b")
        stream = await subscribed(lead, "orders.*")
        await until(lambda: stream.received == 2)
        await lead.delete_topic("orders.a")
        assert await stream.ack("orders.a") == [0]
        await schedule(lead, "orders.b")
        await schedule(lead, "orders.a", 3)  # made anew
        await until(lambda: stream.received == 6)
        assert await stream.ack("orders.a", 3) == []
        assert await stream.ack("orders.b", 2) == []


async def test_a_stream_whose_topics_are_yet_to_come_ends_with_the_leadership(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        stream = await subscribed(lead, "yet.to.come.*")
        lead.node.leadership.delivery.end(Refusal(Reason.NOT_LEADER, "another leads"))
        with pytest.raises(StreamEnded, match="another leads"):
            await asyncio.wait_for(stream.ended, 30)


async def test_all_topics_have_one_credit_and_none_waits_behind_the_backlog_of_another(
    tmp_path: Path,
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "a", 4_000)
        for topic in ("b", "c", "d"):
            await schedule(lead, topic, 2)
        queue = lead.machine.queues.of("a")
        await until(lambda: queue.units == 4_000)
        stream = await subscribed(lead, "a", "b", "c", "d", credit=300)
        await until(lambda: stream.received == 300)
        for _ in range(2):
            stream.add(300)
            was = stream.received
            await until(lambda: stream.received == was + 300)  # noqa: B023 - it is awaited here
        for _ in range(20):
            await asyncio.sleep(0)
        assert stream.received == 900
        assert {topic: len(stream.given[topic]) for topic in "bcd"} == {"b": 2, "c": 2, "d": 2}


async def test_bytes_in_hand_are_of_all_topics_and_any_ack_frees_some(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        stream = await subscribed(lead, "a", "b", in_hand_bytes_max=1)
        await schedule(lead, "a")
        await until(lambda: stream.received == 1)
        await schedule(lead, "b", 2)
        await until(lambda: lead.machine.queues.of("b").units == 2)
        for _ in range(50):
            await asyncio.sleep(0)
        assert stream.received == 1
        await stream.ack("a")
        await until(lambda: stream.received == 3)  # one response may go beyond


async def test_a_consumer_that_comes_back_goes_on_with_what_it_holds_of_each_topic(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        for topic in ("a", "b"):
            await schedule(lead, topic, 2)
        stream = await subscribed(lead, "*")
        await until(lambda: stream.received == 4)
        held = {queue: sorted(o for _, o in given) for given in stream.given.values() for queue, _ in given}
        stream.ended.cancel()
        again = Taking(
            lead, "*", holding=[pb.Holding(queue=queue, offset=offsets) for queue, offsets in held.items()]
        )
        resumed = (await again.answer()).subscribed.resumed
        assert {one.queue: sorted(one.offset) for one in resumed} == held
        again.given = stream.given
        assert await again.ack("a", 2) == []
        await again.leave()  # in order: what is in hand of the other goes to others
        other = await subscribed(lead, "b", consumer="other")
        await until(lambda: other.received == 2)


@pytest.mark.parametrize("topic", ["a", "*"])
async def test_what_another_incarnation_of_the_cluster_delivered_is_not_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """Its offsets are of other messages now: an ack of one would settle what nobody was given."""
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "a", 2)
        stream = await subscribed(lead, topic)
        await until(lambda: stream.received == 2)
        ((queue, _), (_, offset)) = stream.given["a"]
        stream.ended.cancel()
        monkeypatch.setattr(Journal, "cluster_incarnation", 7)  # as if it had been recovered
        holding = [pb.Holding(queue=queue, offset=[0, offset])]
        for told, resumed in ((0, 0), (6, 0), (7, 2)):
            again = Taking(lead, topic, holding=holding, incarnation=told)
            answer = (await again.answer()).subscribed
            assert answer.incarnation == 7
            assert sum(len(one.offset) for one in answer.resumed) == resumed
            await until(lambda again=again, resumed=resumed: again.received == 2 - resumed)
            again.ended.cancel()
        full = Taking(lead, topic, holding=holding, incarnation=6, credit=0)  # all of its credit is in hand
        assert not (await full.answer()).subscribed.resumed


async def test_calls_settle_nothing_that_another_incarnation_of_the_cluster_delivered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "a", 2)
        queue = lead.machine.queues.of("a")
        await until(lambda: queue.units == 2)
        request = pb.ReceiveRequest(topic="a", group=GROUP, consumer="c", messages_max=2)
        received = pb.ReceiveResponse.FromString(await lead.edge.receive(request.SerializeToString()))
        (batch,) = received.deliveries
        assert received.incarnation == 0 and len(batch.offset) == 2
        monkeypatch.setattr(Journal, "cluster_incarnation", 7)  # as if it had been recovered
        named: dict[str, Any] = {"topic": "a", "group": GROUP, "consumer": "c", "queue": batch.queue}

        async def stale(call: Any, request: Any) -> list[int]:
            return list(pb.AckResponse.FromString(await call(request.SerializeToString())).stale)

        for told in (0, 6):
            of_another = {**named, "offset": batch.offset, "incarnation": told}
            for call, asked in (
                (lead.edge.extend, pb.ExtendRequest(**of_another, lease_ms=60_000)),
                (lead.edge.nack, pb.NackRequest(**of_another, delay_ms=0)),
                (lead.edge.ack, pb.AckRequest(**of_another)),
            ):
                assert await stale(call, asked) == list(batch.offset)
        of_this = pb.AckRequest(**named, offset=batch.offset[:1], incarnation=7)
        assert await stale(lead.edge.ack, of_this) == []
        of_a_client_of_before = pb.AckRequest(**named, offset=batch.offset[1:])
        assert await stale(lead.edge.ack, of_a_client_of_before) == []
        again = pb.ReceiveResponse.FromString(await lead.edge.receive(request.SerializeToString()))
        assert (again.incarnation, list(again.deliveries)) == (7, [])


async def test_who_connects_again_replaces_the_stream_of_its_name(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "a")
        first = await subscribed(lead, "*")
        await subscribed(lead, "a", "b")
        with pytest.raises(StreamEnded, match="connected again"):
            await first.ended


@pytest.mark.parametrize("late", [False, True])
async def test_more_topics_than_the_limit_are_refused_whether_they_are_there_or_come(
    tmp_path: Path, late: bool
) -> None:
    async with leader(tmp_path, Holds(), limits=Limits(subscribed_topics_max=2)) as lead:
        for topic in ("a", "b", "c"):
            if topic == "c" and late:
                stream = await subscribed(lead, "*")
            await schedule(lead, topic)
        with pytest.raises(StreamEnded, match=r"3 topics, more than 2: subscribe to fewer"):
            await (stream.ended if late else subscribed(lead, "*"))
        if not late:
            with pytest.raises(StreamEnded, match=r"3 topics, more than 2"):
                await subscribed(lead, "x", "y", "z")
            assert groups_of(lead) == set()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"topic": "a", "topics": ["b"]}, "name all as topics"),
        ({"topics": ["b", ""]}, "empty"),
        ({"topics": ["*b"]}, "characters other"),
        ({"topics": ["b**"]}, "characters other"),
        ({"topics": ["b" * 400 + "*"]}, "more than"),
    ],
)
async def test_names_that_will_not_do_are_refused(tmp_path: Path, given: dict[str, Any], says: str) -> None:
    async with leader(tmp_path, Holds()) as lead:
        subscribe = pb.Subscribe(group=GROUP, consumer="c", credit=1, **given)
        with pytest.raises(StreamEnded, match=says):
            await Stream(lead.edge, pb.ConsumeRequest(subscribe=subscribe)).ended


async def test_temporary_groups_go_with_their_consumer_on_every_topic(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        for topic in ("a", "b"):
            await schedule(lead, topic)
        stream = await subscribed(lead, "*", temporary=True)
        await schedule(lead, "c")
        await until(lambda: stream.received == 3)
        assert groups_of(lead) == {"a", "b", "c"}
        await stream.leave()
        assert groups_of(lead) == set()


async def test_a_broadcast_consumer_has_a_position_of_its_own_on_each_topic_from_when_it_came(
    tmp_path: Path,
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "a")
        queue = lead.machine.queues.of("a")
        await until(lambda: queue.units == 1)
        one = await subscribed(lead, "*", broadcast=True, consumer="one")
        two = await subscribed(lead, "*", broadcast=True, consumer="two")
        await schedule(lead, "a", 2)
        await schedule(lead, "b", 3)
        for stream in (one, two):
            await until(lambda: stream.received == 5)  # noqa: B023 - it is awaited here
            assert len(stream.given["b"]) == 3


async def test_one_call_receives_of_any_topic_and_the_next_begins_with_another(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        for topic in ("a", "b"):
            await schedule(lead, topic, 2)
            queue = lead.machine.queues.of(topic)
            await until(lambda: queue.units == 2)  # noqa: B023 - it is awaited here
        request = pb.ReceiveRequest(topics=["*"], group=GROUP, consumer="c", messages_max=1)
        topics = []
        for _ in range(4):
            answer = pb.ReceiveResponse.FromString(await lead.edge.receive(request.SerializeToString()))
            (batch,) = answer.deliveries
            topics.append(batch.topic)
            ack = pb.AckRequest(
                topic=batch.topic, group=GROUP, consumer="c", queue=batch.queue, offset=batch.offset
            )
            assert not pb.AckResponse.FromString(await lead.edge.ack(ack.SerializeToString())).stale
        assert sorted(topics[:2]) == sorted(topics[2:]) == ["a", "b"]
        request.wait_ms = 5_000
        waiting = asyncio.ensure_future(lead.edge.receive(request.SerializeToString()))
        await until(lambda: lead.node.leadership.delivery.several)
        await schedule(lead, "b")
        answer = pb.ReceiveResponse.FromString(await waiting)
        assert [batch.topic for batch in answer.deliveries] == ["b"]
        assert not lead.node.leadership.delivery.several


async def test_a_stream_counts_as_one_consumer_whatever_its_topics(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), limits=Limits(consumers_max=2)) as lead:
        for topic in ("a", "b", "c"):
            await schedule(lead, topic)
        await subscribed(lead, "*")
        second = await subscribed(lead, "*", consumer="d")
        assert lead.node.leadership.delivery.consumers == 2
        with pytest.raises(StreamEnded, match="its maximum"):
            await subscribed(lead, "*", consumer="e")
        await second.leave()
        assert lead.node.leadership.delivery.consumers == 1


async def test_a_topic_made_anew_is_joined_though_the_end_of_the_one_before_waits_for_its_turn(
    tmp_path: Path,
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await schedule(lead, "orders.a")
        stream = await subscribed(lead, "orders.*")
        await until(lambda: stream.received == 1)
        turn = lead.node.leadership.delivery.turn
        turn.left, turn._renews = -1.0, True  # nothing has a turn
        await lead.propose(log_pb.DeleteTopicCommand(topic="orders.a", now_ms=lead.node.time.now_ms()))
        follower = asyncio.ensure_future(schedule(lead, "orders.a", 2))
        await until(lambda: lead.machine.queues.find("orders.a") is not None)
        for _ in range(50):
            await asyncio.sleep(0)
        turn._renew()
        await follower
        await until(lambda: stream.received == 3)


async def test_where_no_groups_are_made_a_pattern_has_the_topics_whose_group_there_is_or_comes(
    tmp_path: Path,
) -> None:
    async with leader(tmp_path, Holds(), groups_auto_create=False) as lead:
        for topic in ("a", "b"):
            await schedule(lead, topic)
        await lead.propose(log_pb.SubscribeCommand(topic="a", group=GROUP))
        stream = await subscribed(lead, "*")
        await until(lambda: stream.received == 1)
        assert groups_of(lead) == {"a"}
        await lead.propose(log_pb.SubscribeCommand(topic="b", group=GROUP))
        await until(lambda: stream.received == 2)
        with pytest.raises(StreamEnded, match="has no group"):
            await subscribed(lead, "a", "c", consumer="other")


async def test_the_lease_that_is_told_is_the_shortest_also_of_a_topic_that_comes(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:

        async def made(topic: str, lease_ms: int) -> None:
            settings = operator_pb.TopicSettings(group_policy=operator_pb.GroupPolicy(lease_ms=lease_ms))
            now_ms = lead.node.time.now_ms()
            await lead.propose(log_pb.TopicCommand(topic=topic, settings=settings, now_ms=now_ms))

        await until(lambda: lead.machine.level >= 2)
        await made("a", 20_000)
        await made("b", 10_000)
        stream = Taking(lead, "*")
        assert (await stream.answer()).subscribed.lease_ms == 10_000
        await made("c", 5_000)
        assert (await stream.answer()).subscribed.lease_ms == 5_000
        await made("a", 1_000)  # of a topic that it has
        assert (await stream.answer()).subscribed.lease_ms == 1_000
