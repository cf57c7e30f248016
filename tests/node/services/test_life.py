"""GetLife of a node that leads: what a message is to each group, and why nobody has it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.config import Token
from tarry.node.delivery import waiting_retries
from tarry.node.edge.auth import Authorizer
from tarry.node.services.life import LIVES_MAX, LifeCalls
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import MessageId, format_ids
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import MessageState, Record, RetryReason
from tarry.proto.tarry_producer_pb2 import (
    CancelOutcome,
    CancelRequest,
    CancelResponse,
    ScheduleBatchRequest,
)
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS
from tarry.wheel.wheel import Wheel
from tests.node.decay import decay
from tests.node.lone_leader import GROUP, TOPIC, Leader, Stream, leader, subscription, until
from tests.simulation.edge import Context

UNKNOWN = format_ids(0, np.array([7]), np.array([7]))[0]
STATES = {number: name.removeprefix("GROUP_STATE_") for name, number in pb.GroupState.items()}


def led(folder: Path, act: Callable[[Leader], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with leader(folder, Holds()) as lead:
            await lead.propose(log_pb.RaiseLevelCommand(level=2, now_ms=lead.node.time.now_ms()))
            await act(lead)

    asyncio.run(whole())


async def scheduled(lead: Leader, *delays_ms: int, ordering_key: str = "") -> list[str]:
    due_ms = lead.node.time.now_ms() + np.array(delays_ms)
    record = Record(body=b"x", ordering_key=ordering_key).SerializeToString()
    raw = ScheduleBatchRequest(
        topics=[TOPIC],
        due_ms=due_ms,
        records=[record] * len(due_ms),
    ).SerializeToString()
    answer = await lead.edge.schedule(raw)
    assert isinstance(answer, bytes), answer
    columns = log_pb.ScheduledColumns.FromString(answer)
    return format_ids(0, np.frombuffer(columns.hour, "<u4"), np.frombuffer(columns.global_index, "<u4"))


def calls(lead: Leader, tokens: dict[str, Token] | None = None) -> LifeCalls:
    return LifeCalls(lead.node._core, Authorizer(tokens or {}), lead.edge._calls)


class Shown(Context):
    """A caller with a token."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def invocation_metadata(self) -> Any:
        return (("authorization", f"Bearer {self._token}"),)


async def life(lead: Leader, message: str) -> pb.GetLifeResponse:
    context: Any = Context()
    answer = await calls(lead)._get(pb.GetLifeRequest(id=message), context)
    assert isinstance(answer, bytes), answer
    return pb.GetLifeResponse.FromString(answer)


async def of_group(lead: Leader, message: str, group: str = GROUP) -> pb.MessageInGroup:
    (found,) = [one for one in (await life(lead, message)).groups if one.group == group]
    return found


async def is_in(lead: Leader, message: str, state: str) -> pb.MessageInGroup:
    """The group's state once it is that."""
    for _ in range(1_000):
        found = await of_group(lead, message)
        if STATES[found.state] == state:
            return found
        await asyncio.sleep(0.005)
    raise AssertionError(found)


async def group(lead: Leader, **policy: Any) -> None:
    """Make the group, with a policy of its own."""
    await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP, now_ms=lead.node.time.now_ms()))
    if policy:
        await lead.propose(
            log_pb.GroupPolicyCommand(topic=TOPIC, group=GROUP, policy=operator_pb.GroupPolicy(**policy))
        )


def verdict(kind: str, *offsets: int, **more: Any) -> consumer_pb.ConsumeRequest:
    message = {"ack": consumer_pb.Ack, "nack": consumer_pb.Nack}[kind]
    return consumer_pb.ConsumeRequest(**{kind: message(request=1, offset=offsets, **more)})


def test_a_message_is_followed_from_its_scheduling_to_its_acknowledgement(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await group(lead)
        later, now = await scheduled(lead, 3_600_000, -1)
        told = await life(lead, later)
        assert (told.id, told.topic, told.state) == (later, TOPIC, MessageState.MESSAGE_STATE_PENDING)
        assert not told.HasField("offset")
        (one,) = told.groups
        assert STATES[one.state] == "WAITING"
        assert one.why == "it is not due yet; no consumer of the group is connected"
        await until(lambda: lead.machine.queues.of(TOPIC).units == 1)
        told = await life(lead, now)
        assert (told.state, told.offset) == (MessageState.MESSAGE_STATE_RELEASED, 0)
        assert told.released_ms >= told.due_ms
        (one,) = told.groups
        assert (STATES[one.state], one.why) == ("WAITING", "no consumer of the group is connected")
        assert (one.before, one.consumers, one.attempt) == (0, 0, 1)
        stream = Stream(lead.edge, subscription("c", 1, lease_ms=60_000))
        await until(lambda: stream.received == 1)
        one = await of_group(lead, now)
        assert (STATES[one.state], one.consumer, one.consumers) == ("IN_HAND", "c", 1)
        assert one.why == "consumer 'c' has it in hand"
        assert 0 < one.until_ms - lead.node.time.now_ms() <= 60_000
        second, third = await scheduled(lead, -1, -1)
        await until(lambda: lead.machine.queues.of(TOPIC).units == 3)
        assert "ask for no more" in (await of_group(lead, second)).why
        one = await of_group(lead, third)
        assert (one.before, STATES[one.state]) == (1, "WAITING")
        assert "1 messages go first" in one.why
        await stream.leave()
        await lead.propose(log_pb.AckCommand(group=GROUP, queue=0, offset=np.array([0], "<u8").tobytes()))
        assert STATES[(await of_group(lead, now)).state] == "DONE"

    led(tmp_path, act)


def test_a_nack_leads_to_a_back_off_then_to_another_delivery_then_to_a_dead_letter(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await group(lead, attempts_max=2, back_off=operator_pb.BackOff(fixed_ms=60_000))
        (message,) = await scheduled(lead, -1)
        stream = Stream(lead.edge, subscription("c", 5))
        await until(lambda: stream.received == 1)
        await stream.asked(verdict("nack", 0))
        one = await is_in(lead, message, "IN_BACK_OFF")
        assert (one.attempt, one.reason) == (2, RetryReason.RETRY_REASON_NACKED)
        assert 50_000 < one.until_ms - lead.node.time.now_ms() <= 60_000
        assert one.why == "a consumer gave it back: it waits for its next attempt, delivery 2"
        told_of_copy = await life(lead, one.retry_id)
        assert told_of_copy.id == message
        assert one.dead_letter_topic == f"dlq.{GROUP}.{TOPIC}"
        await stream.leave()

    led(tmp_path, act)


def test_a_retry_in_the_retry_queue_is_followed_to_who_has_it_and_to_its_end(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await group(lead, attempts_max=2)
        (message,) = await scheduled(lead, -1)
        stream = Stream(lead.edge, subscription("c", 1))
        await until(lambda: stream.received == 1)
        await stream.asked(verdict("nack", 0, delay_ms=1))
        queue = lead.machine.queues
        await until(lambda: (copies := queue.find(TOPIC, GROUP)) is not None and copies.units == 1)
        one = await is_in(lead, message, "WAITING")
        assert one.attempt == 2
        assert "ask for no more" in one.why
        stream.send(consumer_pb.ConsumeRequest(credit=consumer_pb.Credit(messages=1)))
        one = await is_in(lead, message, "IN_HAND")
        assert (one.consumer, one.attempt, one.why) == (
            "c", 2, "consumer 'c' has it in hand, delivery 2",
        )  # fmt: skip
        copies = queue.find(TOPIC, GROUP)
        assert copies is not None
        await stream.asked(verdict("nack", 0, delay_ms=1, queue=copies.queue))
        await is_in(lead, message, "DONE")
        assert (await life(lead, message)).state == MessageState.MESSAGE_STATE_RELEASED
        await stream.leave()

    led(tmp_path, act)


async def nacked_behind(lead: Leader, hours: int) -> str:
    """Have a message wait for its retry behind others, one in each of so many hours; return its id."""
    await group(lead)
    (message,) = await scheduled(lead, -1)
    stream = Stream(lead.edge, subscription("c", 1))
    await until(lambda: stream.received == 1)
    await stream.asked(verdict("nack", 0, delay_ms=(hours + 2) * HOUR_MS))
    await stream.leave()
    await is_in(lead, message, "IN_BACK_OFF")
    others = lead.machine.wheel.pending_in_hour
    begin = lead.node.time.now_ms() // HOUR_MS + 1
    await scheduled(lead, *[(begin + n) * HOUR_MS - lead.node.time.now_ms() for n in range(hours)])
    assert all(others(begin + n) for n in range(hours))
    return message


MANY_HOURS = waiting_retries.UNITS_MAX // waiting_retries.STEP_UNITS + 1


def test_a_retry_behind_many_hours_with_few_messages_each_is_found(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        message = await nacked_behind(lead, MANY_HOURS)
        assert STATES[(await of_group(lead, message)).state] == "IN_BACK_OFF"

    led(tmp_path, act)


def test_a_retry_behind_many_hours_with_few_messages_each_is_cancelled(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        answer = await lead.edge.cancel(_cancel(await nacked_behind(lead, MANY_HOURS)))
        assert isinstance(answer, bytes)
        assert [*CancelResponse.FromString(answer).outcomes] == [CancelOutcome.CANCEL_OUTCOME_CANCELLED]
        copies = lead.machine.queues.find(TOPIC, GROUP)
        assert copies is not None
        assert lead.machine.wheel.pending_of(copies.queue) == 0

    led(tmp_path, act)


def test_no_hour_is_looked_at_behind_the_one_that_has_the_last_retry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(lead: Leader) -> None:
        message = await nacked_behind(lead, 1)
        await scheduled(lead, *[(4 + n) * HOUR_MS for n in range(MANY_HOURS)])
        asked, units_in_hour = [0], Wheel.units_in_hour

        def counted(wheel: Wheel, hour: int) -> int:
            asked[0] += 1
            return units_in_hour(wheel, hour)

        monkeypatch.setattr(Wheel, "units_in_hour", counted)
        assert STATES[(await of_group(lead, message)).state] == "IN_BACK_OFF"
        assert asked[0] < 10

    led(tmp_path, act)


@pytest.mark.parametrize("hours", [2, 3])
def test_a_retry_behind_more_hours_than_the_bound_may_wait_and_that_is_said(
    tmp_path: Path, hours: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting_retries, "HOURS_MAX", 3)

    async def act(lead: Leader) -> None:
        one = await of_group(lead, await nacked_behind(lead, hours))
        told = "a consumer gave it back" if hours < 3 else "not all that waits could be looked at"
        assert told in one.why

    led(tmp_path, act)


def test_where_a_retry_is_damaged_it_is_not_said_that_none_waits(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        message = await nacked_behind(lead, 1)
        copy = MessageId.parse((await of_group(lead, message)).retry_id)
        decay(lead.machine, (copy.hour, copy.global_index))
        assert STATES[(await of_group(lead, message)).state] == "DONE_OR_RETRIED"
        context: Any = Context()
        refused = await calls(lead)._get(pb.GetLifeRequest(id=str(copy)), context)
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.MESSAGE_DAMAGED

    led(tmp_path, act)


def test_a_lease_that_ends_leads_to_a_back_off_that_says_so(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await group(lead, back_off=operator_pb.BackOff(fixed_ms=60_000))
        (message,) = await scheduled(lead, -1)
        stream = Stream(lead.edge, subscription("c", 1, lease_ms=1_000))
        await until(lambda: stream.received == 1)
        one = await is_in(lead, message, "IN_BACK_OFF")
        assert one.why.startswith("its lease ended without an answer")
        await stream.leave()

    led(tmp_path, act)


def test_what_waits_behind_its_ordering_key_is_blocked_and_says_by_what(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await group(lead, back_off=operator_pb.BackOff(fixed_ms=60_000))
        first, second = await scheduled(lead, -2, -1, ordering_key="k")
        stream = Stream(lead.edge, subscription("c", 5))
        await until(lambda: stream.received == 1)
        assert STATES[(await of_group(lead, first)).state] == "IN_HAND"
        one = await of_group(lead, second)
        assert (STATES[one.state], one.why) == (
            "BLOCKED", "an earlier message of its ordering key is in hand",
        )  # fmt: skip
        await stream.asked(verdict("nack", 0))
        assert (await is_in(lead, first, "IN_BACK_OFF")).attempt == 2
        one = await of_group(lead, second)
        assert one.why == "an earlier message of its ordering key waits for its retry"
        await stream.leave()

    led(tmp_path, act)


def test_groups_that_are_made_later_and_messages_that_are_cancelled_or_trimmed_are_told(
    tmp_path: Path,
) -> None:
    async def act(lead: Leader) -> None:
        await group(lead)
        first, second = await scheduled(lead, -1, -1)
        queue = lead.machine.queues.of(TOPIC)
        await until(lambda: queue.units == 2)
        start = consumer_pb.GroupStart(at=consumer_pb.START_AT_LATEST)
        now_ms = lead.node.time.now_ms()
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group="late", start=start, now_ms=now_ms))
        assert STATES[(await of_group(lead, first, "late")).state] == "DONE"
        assert STATES[(await of_group(lead, first)).state] == "WAITING"
        await lead.edge.cancel(_cancel(second))
        told = await life(lead, second)
        assert told.state == MessageState.MESSAGE_STATE_CANCELLED
        assert {STATES[one.state] for one in told.groups} == {"CANCELLED"}
        assert told.groups[0].why == "cancelled, unless the group had acknowledged it before"
        await lead.propose(_trim(queue.queue, 1, now_ms))
        told = await life(lead, first)
        assert not told.HasField("offset")
        assert {STATES[one.state] for one in told.groups} == {"GONE"}
        (pending,) = await scheduled(lead, 60_000)
        await lead.edge.cancel(_cancel(pending))
        assert {(STATES[one.state], one.why) for one in (await life(lead, pending)).groups} == {
            ("CANCELLED", "cancelled"),
        }
        await lead.propose(_trim(queue.queue, 2, now_ms))
        assert (await of_group(lead, second)).why == "cancelled, unless the group had acknowledged it before"

    led(tmp_path, act)


def _cancel(message: str) -> bytes:
    return CancelRequest(ids=[message], every_outcome=True, remaining_groups=True).SerializeToString()


def _trim(queue: int, offset: int, now_ms: int) -> log_pb.TrimCommand:
    columns = np.array([queue], "<u4").tobytes(), np.array([offset], "<u8").tobytes()
    return log_pb.TrimCommand(queue=columns[0], offset=columns[1], now_ms=now_ms)


def test_a_rate_that_holds_a_message_back_is_named(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        settings = operator_pb.TopicSettings(release_per_s_max=1)
        await lead.propose(
            log_pb.TopicCommand(topic=TOPIC, settings=settings, now_ms=lead.node.time.now_ms())
        )
        await group(lead)
        messages = await scheduled(lead, *[-1] * 50)
        stream = Stream(lead.edge, subscription("c", 100))
        await until(lambda: lead.machine.queues.of(TOPIC).units == 50)
        await until(lambda: stream.received)
        one = await of_group(lead, messages[-1])
        assert "the topic's release rate holds it back" in one.why
        assert one.until_ms > lead.node.time.now_ms() + 10_000
        await stream.leave()

    led(tmp_path, act)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (UNKNOWN, Reason.MESSAGE_NOT_FOUND),
        ("nonsense", Reason.ID_MALFORMED),
        ("", Reason.ID_MALFORMED),
        (format_ids(3, np.array([7]), np.array([7]))[0], Reason.MESSAGE_NOT_FOUND),
    ],
)
def test_an_id_that_is_none_of_this_cluster_s_is_refused(
    tmp_path: Path, message: str, reason: Reason
) -> None:
    async def act(lead: Leader) -> None:
        context: Any = Context()
        refused = await calls(lead)._get(pb.GetLifeRequest(id=message), context)
        assert isinstance(refused, Refusal)
        assert refused.reason is reason

    led(tmp_path, act)


def test_who_has_no_right_on_the_topic_is_told_as_if_there_were_no_message(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        (message,) = await scheduled(lead, -1)
        tokens = {
            "producer": Token(produce=("t",)),
            "consumer": Token(consume=("t*",)),
            "operator": Token(operate=True),
            "other": Token(produce=("u",), consume=("u",)),
        }
        told = {}
        for token in tokens:
            context: Any = Shown(token)
            answer = await calls(lead, tokens)._get(pb.GetLifeRequest(id=message), context)
            told[token] = answer.reason if isinstance(answer, Refusal) else "told"
        assert told == {
            "producer": "told", "consumer": "told", "operator": "told", "other": Reason.MESSAGE_NOT_FOUND,
        }  # fmt: skip

    led(tmp_path, act)


def test_more_lives_than_the_bound_are_refused_with_when_to_try_again(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await group(lead)
        (message,) = await scheduled(lead, 60_000)
        life_calls, context = calls(lead), Context()
        given: Any = context
        asked = [life_calls._get(pb.GetLifeRequest(id=message), given) for _ in range(3 * LIVES_MAX)]
        answers = await asyncio.gather(*asked)
        refused = [answer for answer in answers if isinstance(answer, Refusal)]
        assert {(one.reason, one.retry_ms) for one in refused} == {(Reason.OVERLOADED, 100)}
        assert len(answers) - len(refused) >= LIVES_MAX

    led(tmp_path, act)
