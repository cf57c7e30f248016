"""A stream with several topics: one credit for all, a turn for each that waits, and nothing lost."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.node.delivery.consumer import ANSWERS_BYTES_MAX, Consumer
from tarry.node.delivery.group import GroupDelivery
from tarry.node.delivery.many_topics import QUANTUM_MESSAGES, RESPONSES_MAX, TURN_SORTED_MAX, ManyTopics
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.refusal import Refusal
from tests.node.group_in_process import GROUP, SETTINGS, Group
from tests.node.group_play import pass_ms, play

FOREVER_MS = 1_000_000


class Several:
    """A stream of some topics in a play, and what it was given."""

    def __init__(self, play: Group, topics: int, credit: int, in_hand_bytes_max: int = 1 << 40) -> None:
        self.play = play
        self.stream = Consumer(
            name="several",
            topic="",
            group=GROUP,
            lease_ms=FOREVER_MS,
            credit=credit,
            in_hand_bytes_max=in_hand_bytes_max,
            streams=True,
            topics=("*",),
        )
        self.many = ManyTopics(self.stream, play.delivery.turn, SETTINGS.batch_bytes_max)
        self.granted = credit
        self.scheduled = Counter[str]()
        self.given: defaultdict[str, list[int]] = defaultdict(list)
        self.order: list[str] = []
        self.held: dict[tuple[str, int], int] = {}
        """Topic and offset of what is in hand, and its queue."""
        for number in range(topics):
            self.join(f"t{number}")

    def opened(self, topic: str) -> GroupDelivery:
        made = self.play.apply(log_pb.SubscribeCommand(topic=topic, group=GROUP))
        return self.play.delivery.group(topic, GROUP, made.queue, made.retry_queue)

    def join(self, topic: str) -> None:
        seat, group = self.many.seat(topic), self.opened(topic)
        self.many.add(seat, group)
        group.join(seat)
        group.pump()

    async def schedule(self, topic: str, count: int, size_bytes: int = 0) -> None:
        """Put messages that are due into a topic's queue, and let it be seen."""
        play = self.play
        record = Record(body=b"x" * size_bytes).SerializeToString()
        now_ms = play.time.now_ms()
        request = producer_pb.ScheduleBatchRequest(
            topics=[topic], due_ms=np.full(count, now_ms), records=[record] * count
        )
        play.apply(play.take_in(request.SerializeToString()))
        self.scheduled[topic] += count
        for _ in range(0, count, 1_000):  # that are released at once
            await pass_ms(play, 1)

    async def settle(self) -> None:
        """Let everything run, and read the stream as its writer does: one response after another."""
        for _ in range(20):
            await asyncio.sleep(0)
            if self.stream.outgoing_bytes:
                self.take(self.stream._outgoing[0])
                response = await self.stream.next_response()
                assert response is not None
                if self.stream.caught_up():
                    self.many.serve_soon()

    async def rest(self) -> None:
        for _ in range(1_000):
            before = len(self.order)
            await self.settle()
            await self.play.commit()
            if len(self.order) == before and not self.stream.outgoing_bytes:
                return
        raise AssertionError("it never comes to rest")

    def take(self, response: bytes) -> None:
        batch = pb.ConsumeResponse.FromString(response).deliveries
        self.order += [batch.topic] * len(batch.offset)
        self.given[batch.topic] += batch.offset
        self.held.update(((batch.topic, offset), batch.queue) for offset in batch.offset)
        assert len(self.order) <= self.granted, "more than there is credit for"

    def add(self, messages: int) -> None:
        self.granted += messages
        self.stream.credit += messages
        self.many.serve_soon()

    def ack(self, count: int) -> None:
        for topic, offset in list(self.held)[:count]:
            group = self.play.delivery.find(topic, GROUP)
            assert group is not None
            queue = self.held.pop((topic, offset))
            group.settlement.ack("several", queue, np.array([offset], dtype=np.uint64))


steps_of = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), st.integers(0, 4), st.sampled_from([1, 2, 50, 300])),
        st.tuples(st.just("credit"), st.sampled_from([1, 10, 200]), st.just(0)),
        st.tuples(st.just("ack"), st.sampled_from([1, 5, 1_000]), st.just(0)),
        st.tuples(st.just("settle"), st.just(0), st.just(0)),
        st.tuples(st.just("topic"), st.just(0), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps_of, st.integers(1, 300), st.sampled_from([1 << 40, 5_000]))
def test_whatever_comes_credit_and_bytes_hold_and_each_message_is_given_once(
    steps: list[tuple[str, int, int]], credit: int, bytes_max: int
) -> None:
    async def played(group: Group) -> None:
        several = Several(group, 2, credit, bytes_max)
        for kind, number, count in steps:
            topics = len(several.many.seats)
            if kind == "schedule":
                await several.schedule(f"t{number % topics}", count, 100)
            elif kind == "credit":
                several.add(number)
            elif kind == "ack":
                several.ack(number)
            elif kind == "topic" and topics < 5:
                several.join(f"t{topics}")
            await several.settle()
            known = sum(seat.in_hand_bytes for seat in several.many.seats.values())
            assert abs(known - several.many.in_hand_bytes) < 1
        for _ in range(200):
            several.ack(1_000)
            several.add(1_000)
            await several.rest()
            if len(several.order) == several.scheduled.total():
                break
        for topic, count in several.scheduled.items():
            assert sorted(several.given[topic]) == list(range(count)), topic

    play(played)


def test_a_backlog_waits_its_turn_behind_topics_with_few_messages() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 5, credit=1)
        await several.schedule("t0", 1_000)
        await several.settle()
        for number in range(1, 5):
            await several.schedule(f"t{number}", 2)
        await several.rest()
        assert several.order == ["t0"]
        several.add(QUANTUM_MESSAGES + 8)
        await several.rest()
        assert {topic: len(given) for topic, given in several.given.items()} == {
            "t0": 1 + QUANTUM_MESSAGES,
            **{f"t{number}": 2 for number in range(1, 5)},
        }

    play(played)


def test_a_topic_that_is_looked_at_while_others_wait_waits_behind_them() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 3, credit=1)
        await several.schedule("t0", 100)
        for topic in ("t1", "t2"):
            await several.schedule(topic, 1)
        await several.rest()
        several.add(10)
        await several.rest()
        assert several.order == ["t0"] * 11
        several.add(2)
        first = several.many.seats["t0"].delivery
        assert first is not None
        first.pump()  # as an ack of it, or a release, does
        await several.rest()
        assert several.order[11:] == ["t1", "t2"]

    play(played)


def test_who_is_first_in_a_round_is_first_also_where_to_put_it_in_order_uses_up_the_turn() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 3, credit=1)
        for topic in ("t0", "t1", "t2"):
            await several.schedule(topic, 2)
            await pass_ms(group, 5)
        await several.rest()
        several.granted += 1
        several.stream.credit += 1
        group.delivery.turn.left = 1 / TURN_SORTED_MAX
        several.many._serve()
        await several.rest()
        assert several.order == ["t0", "t0"]

    play(played)


def test_two_backlogs_have_as_much_of_a_large_credit() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 2, credit=1)
        for topic in ("t0", "t1"):
            await several.schedule(topic, 2_000)
        await several.rest()
        several.add(1_000)
        await several.rest()
        assert [len(several.given[topic]) for topic in ("t0", "t1")] == [501, 500]

    play(played)


def test_a_topic_whose_message_was_due_first_has_the_first_turn_of_a_round() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 4, credit=1)
        await several.schedule("t0", 1)
        for topic in ("t3", "t1", "t2"):
            await several.schedule(topic, 1)
            await pass_ms(group, 5)
        await several.rest()
        several.add(3)
        await several.rest()
        assert several.order == ["t0", "t3", "t1", "t2"]

    play(played)


def test_an_ack_of_one_topic_lets_another_go_on_that_waits_for_bytes() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 2, credit=1_000, in_hand_bytes_max=1_000)
        await several.schedule("t0", 1, 2_000)
        await several.settle()
        await several.schedule("t1", 1, 2_000)
        await several.rest()
        assert several.order == ["t0"]
        several.ack(1)
        await several.rest()
        assert several.order == ["t0", "t1"]

    play(played)


def test_no_more_responses_wait_for_the_writer_than_the_bound_and_idle_topics_are_not_pumped() -> None:
    async def played(group: Group) -> None:
        count = 3 * RESPONSES_MAX
        several = Several(group, count, credit=1_000)
        for number in range(0, count, 2):
            await several.schedule(f"t{number}", 1)
        assert len(several.stream._outgoing) == RESPONSES_MAX + 1
        pumps = Counter[str]()
        for topic, seat in several.many.seats.items():
            assert seat.delivery is not None
            seat.delivery.pump = _counted(seat.delivery, pumps, topic)  # type: ignore[method-assign]
        await several.rest()
        assert Counter(several.order) == {f"t{number}": 1 for number in range(0, count, 2)}
        assert not [topic for topic in pumps if int(topic[1:]) % 2]

    play(played)


def test_large_messages_of_many_topics_do_not_make_a_consumer_too_slow_that_reads() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 12, credit=1_000)
        for number in range(12):
            await several.schedule(f"t{number}", 3, 250_000)
        assert several.stream.outgoing_bytes <= ANSWERS_BYTES_MAX // 2 + 250_000
        await several.rest()
        assert several.stream.ended is None
        assert Counter(several.order) == {f"t{number}": 3 for number in range(12)}

    play(played)


def test_an_ack_looks_at_what_its_own_consumer_has_in_hand_and_at_no_other() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 1, credit=10)
        await several.schedule("t0", 1)
        await several.rest()
        delivery = several.many.seats["t0"].delivery
        assert delivery is not None
        for number in range(5):
            other = replace(several.stream, name=f"other{number}")
            many = ManyTopics(other, group.delivery.turn, SETTINGS.batch_bytes_max)
            many.add(seat := many.seat("t0"), delivery)
            delivery.join(seat)
        assert len(delivery.seats) == len(delivery.consumers) == 6
        asked = list[str]()
        delivery.seats._in_hand = lambda name: asked.append(name) or 0.0  # type: ignore[func-returns-value]
        several.ack(1)
        assert asked == ["several"]
        delivery.leave(seat, clean=False)
        assert len(delivery.seats) == len(delivery.consumers) == 5

    play(played)


def _counted(group: GroupDelivery, pumps: Counter[str], topic: str):  # type: ignore[no-untyped-def]
    pump = group.pump

    def counted() -> None:
        pumps[topic] += 1
        pump()

    return counted


def test_a_group_that_is_deleted_is_left_with_its_bytes_and_a_leadership_that_ends_ends_the_stream() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 2, credit=10, in_hand_bytes_max=1_000)
        await several.schedule("t0", 1, 2_000)
        await several.settle()
        await several.schedule("t1", 1)
        group.apply(log_pb.DeleteGroupCommand(topic="t0", group=GROUP))
        group.show_applied()
        await several.rest()
        assert several.order == ["t0", "t1"]
        assert set(several.many.seats) == {"t1"}
        assert several.stream.ended is None
        group.delivery.end(Refusal(Reason.NOT_LEADER, "gone"))
        await asyncio.sleep(0)
        assert several.stream.ended is not None
        assert several.stream.ended.reason is Reason.NOT_LEADER

    play(played)


def test_who_leaves_in_order_gives_back_what_is_in_hand_of_every_topic() -> None:
    async def played(group: Group) -> None:
        several = Several(group, 3, credit=10)
        for number in range(3):
            await several.schedule(f"t{number}", 1)
        await several.rest()
        left = await several.many.leave(clean=True)
        assert len(left) == 3
        assert not any(one.consumers or one.seats for one in left)
        again = Several(group, 3, credit=10)
        await again.rest()
        assert sorted(again.order) == ["t0", "t1", "t2"]

    play(played)
