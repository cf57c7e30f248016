"""Reschedule and Update of a node that leads: due at the new time, under the id that was given."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from google.protobuf.message import Message
from structlog.testing import capture_logs

from tarry.node.delivery import waiting_retries
from tarry.node.delivery.cancels import Cancels
from tarry.node.ledger.ledger import Ledger
from tarry.node.services.changes import TURN_BYTES, changed
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.idempotency import digest
from tarry.proto.message_id import format_ids, parse_ids
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import MessageState, Record
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.refusal import Refusal
from tests.node.keys.test_find_by_key import complete, find, schedule
from tests.node.lone_leader import GROUP, TOPIC, Leader, until
from tests.node.services.bulk_play import Bulk
from tests.node.services.test_bulk_cancel import chosen_of
from tests.node.services.test_cancel import cancel, led, scheduled, state
from tests.node.services.test_listing import Lists

NAMES = {number: name.removeprefix("CHANGE_OUTCOME_") for name, number in pb.ChangeOutcome.items()}
HOUR_MS = 3_600_000
CONSUMER = {"topic": TOPIC, "group": GROUP, "consumer": "c"}


async def reschedule(lead: Leader, *ids: str, **more: Any) -> list[str]:
    request = pb.RescheduleRequest(ids=ids, **more)
    answer = await lead.edge.reschedule(request.SerializeToString())
    assert isinstance(answer, bytes), answer
    return [NAMES[number] for number in pb.RescheduleResponse.FromString(answer).outcomes]


async def refused(lead: Leader, request: Message) -> Reason:
    call = lead.edge.update if isinstance(request, pb.UpdateRequest) else lead.edge.reschedule
    answer = await call(request.SerializeToString())
    assert isinstance(answer, Refusal), answer
    assert answer.text
    return answer.reason


async def schedule_record(lead: Leader, record: Record, due_ms: int) -> str:
    columns = {"topics": [TOPIC], "due_ms": [due_ms], "records": [record.SerializeToString()]}
    answer = await lead.edge.schedule(pb.ScheduleBatchRequest(**columns).SerializeToString())
    assert isinstance(answer, bytes), answer
    done = log_pb.ScheduledColumns.FromString(answer)
    return format_ids(0, np.frombuffer(done.hour, "<u4"), np.frombuffer(done.global_index, "<u4"))[0]


async def update(lead: Leader, message: str, **more: Any) -> str:
    answer = await lead.edge.update(pb.UpdateRequest(id=message, **more).SerializeToString())
    assert isinstance(answer, bytes), answer
    return NAMES[pb.UpdateResponse.FromString(answer).outcome]


async def get(lead: Leader, message: str) -> pb.GetResponse:
    answer = await lead.edge.get(pb.GetRequest(id=message).SerializeToString())
    assert isinstance(answer, bytes), answer
    return pb.GetResponse.FromString(answer)


async def received(lead: Leader, count: int) -> list[tuple[str, bytes, int, int]]:
    """Messages as a consumer gets them: id, body, attempt, offset."""
    got: list[tuple[str, bytes, int, int]] = []
    while len(got) < count:
        request = consumer_pb.ReceiveRequest(**CONSUMER, messages_max=10, wait_ms=3_000)
        answer = await lead.edge.receive(request.SerializeToString())
        assert isinstance(answer, bytes), answer
        for part in consumer_pb.ReceiveResponse.FromString(answer).deliveries:
            names = format_ids(0, np.array(part.hour), np.array(part.global_index))
            attempts = list(part.attempt) or [1] * len(names)
            bodies = [Record.FromString(record).body for record in part.records]
            got += zip(names, bodies, attempts, part.offset, strict=True)
    return got


async def nack(lead: Leader, offset: int, delay_ms: int) -> None:
    request = consumer_pb.NackRequest(**CONSUMER, offset=[offset], delay_ms=delay_ms)
    answer = await lead.edge.nack(request.SerializeToString())
    assert isinstance(answer, bytes), answer


def test_a_message_is_delivered_at_its_new_time_alone_under_its_id(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        sooner, later, past = await scheduled(lead, 9 * HOUR_MS, 200, HOUR_MS)
        begun_ms = lead.node.time.now_ms()
        due_ms = [begun_ms + 300, begun_ms + 30 * 24 * HOUR_MS, begun_ms - 5]
        assert await reschedule(lead, sooner, later, past, due_ms=due_ms) == ["CHANGED"] * 3
        assert (await get(lead, later)).due_ms == due_ms[1]
        got = await received(lead, 2)
        assert [name for name, *_ in got] == [past, sooner]
        assert lead.node.time.now_ms() >= due_ms[0]
        assert [await state(lead, one) for one in (sooner, later, past)] == [
            "RELEASED",
            "PENDING",
            "RELEASED",
        ]
        assert await reschedule(lead, sooner, later, due_ms=due_ms[1:2]) == ["ALREADY_RELEASED", "ALREADY_SO"]
        assert await cancel(lead, sooner, later, past) == [
            "ALREADY_DELIVERED",
            "CANCELLED",
            "ALREADY_DELIVERED",
        ]
        assert await cancel(lead, later) == ["ALREADY_CANCELLED"]

    led(tmp_path, act)


def test_a_moved_message_that_is_released_is_cancelled_by_its_id(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        (one,) = await scheduled(lead, HOUR_MS)
        assert await reschedule(lead, one, delay_ms=[0]) == ["CHANGED"]
        await until(lambda: lead.machine.queues.of(TOPIC).units == 1)
        assert await cancel(lead, one) == ["CANCELLED"]
        assert (await state(lead, one), await cancel(lead, one)) == ("CANCELLED", ["ALREADY_CANCELLED"])

    led(tmp_path, act)


TURNS = 12


def test_of_a_message_that_is_cancelled_while_two_reschedule_it_no_due_time_is_told(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        told = []
        for turns, one in enumerate(await scheduled(lead, *[HOUR_MS] * TURNS)):
            requests = (pb.RescheduleRequest(ids=[one], delay_ms=[hours * HOUR_MS]) for hours in (2, 3))
            moves = [
                asyncio.ensure_future(lead.edge.reschedule(each.SerializeToString())) for each in requests
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
            assert await cancel(lead, one) == ["CANCELLED"]
            answers = [raw for raw in await asyncio.gather(*moves) if isinstance(raw, bytes)]
            told += [pb.RescheduleResponse.FromString(raw) for raw in answers]
        late = [each.due_ms[0] for each in told if NAMES[each.outcomes[0]] == "ALREADY_CANCELLED"]
        assert late
        assert set(late) == {0}

    led(tmp_path, act)


def test_it_is_rescheduled_only_where_it_is_due_as_expected_and_a_repetition_says_so(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        one, two = await scheduled(lead, HOUR_MS, HOUR_MS)
        first_ms = (await get(lead, one)).due_ms
        asked = {"due_ms": [first_ms + 5], "if_due_ms": [first_ms]}
        assert await reschedule(lead, one, **asked) == ["CHANGED"]
        assert await reschedule(lead, one, two, **asked) == ["ALREADY_SO", "CHANGED"]
        request = pb.RescheduleRequest(ids=[one], due_ms=[first_ms + 9], if_due_ms=[first_ms])
        answer = await lead.edge.reschedule(request.SerializeToString())
        assert isinstance(answer, bytes)
        told = pb.RescheduleResponse.FromString(answer)
        assert (NAMES[told.outcomes[0]], list(told.due_ms)) == ("DUE_DIFFERS", [first_ms + 5])

    led(tmp_path, act)


def test_an_update_replaces_what_it_gives_and_keeps_the_rest(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        (one,) = await scheduled(lead, HOUR_MS)
        before = await get(lead, one)
        assert await update(lead, one, body=b"new", keys={"texts": ["k"]}) == "CHANGED"
        assert await update(lead, one, body=b"new", keys={"texts": ["k"]}) == "ALREADY_SO"
        assert await update(lead, one, tags={"texts": ["red"]}, if_due_ms=before.due_ms) == "CHANGED"
        assert await update(lead, one, tags={"texts": []}, if_due_ms=7) == "DUE_DIFFERS"
        assert await update(lead, one, properties={"properties": {"a": "b"}}) == "CHANGED"
        now = await get(lead, one)
        assert (now.due_ms, now.state) == (before.due_ms, MessageState.MESSAGE_STATE_PENDING)
        stored_ms = before.record.stored_ms  # kept
        assert stored_ms
        assert now.record == Record(
            body=b"new", keys=["k"], tags=["red"], properties={"a": "b"}, stored_ms=stored_ms
        )
        assert await reschedule(lead, one, delay_ms=[0]) == ["CHANGED"]
        ((name, body, *_),) = await received(lead, 1)
        assert (name, body) == (one, b"new")

    led(tmp_path, act)


def test_a_message_with_an_idempotency_key_keeps_it_and_what_it_was_scheduled_with(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        first, due_ms = Record(body=b"first", idempotency_key="k"), lead.node.time.now_ms() + HOUR_MS
        one = await schedule_record(lead, first, due_ms)
        assert await update(lead, one, body=b"first") == "ALREADY_SO"
        first.stored_ms = (await get(lead, one)).record.stored_ms
        assert (await get(lead, one)).record == first
        for body in (b"second", b"third"):
            assert await update(lead, one, body=body, tags={"texts": ["red"]}) == "CHANGED"
            expected = Record(body=body, tags=["red"], idempotency_key="k", stored_ms=first.stored_ms)
            expected.scheduled_digest = digest(first)
            assert (await get(lead, one)).record == expected
        assert [each.idempotency_key for each in await Lists(lead).all()] == ["k"]
        assert await reschedule(lead, one, delay_ms=[0]) == ["CHANGED"]
        ((_, _, _, offset),) = await received(lead, 1)
        assert (await get(lead, one)).record == expected
        await nack(lead, offset, HOUR_MS)
        copy = {"topic": TOPIC, "group": GROUP}
        assert await update(lead, one, body=b"fourth", **copy) == "CHANGED"  # its copy, under the same id
        assert (await get(lead, one)).record == expected

    led(tmp_path, act)


def test_changes_of_one_message_at_the_same_time_take_nothing_back(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        (one,) = await scheduled(lead, HOUR_MS)
        before = await get(lead, one)
        due_ms = before.due_ms + 7
        calls = [
            update(lead, one, body=b"new"),
            reschedule(lead, one, due_ms=[due_ms]),
            update(lead, one, keys={"texts": ["k"]}),
        ]
        await asyncio.gather(*calls)
        now = await get(lead, one)
        assert (now.due_ms, now.record) == (
            due_ms,
            Record(body=b"new", keys=["k"], stored_ms=before.record.stored_ms),
        )
        assert lead.machine.wheel.pending == 1

    led(tmp_path, act)


def test_a_retry_is_rescheduled_by_the_message_and_the_group(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        one, two = await scheduled(lead, HOUR_MS, 0)
        assert await reschedule(lead, one, delay_ms=[0]) == ["CHANGED"]  # a moved message's retry
        got = {name: offset for name, _, _, offset in await received(lead, 2)}
        await nack(lead, got[one], HOUR_MS)
        await until(lambda: lead.machine.wheel.pending == 1)
        assert await reschedule(lead, one, delay_ms=[5]) == ["ALREADY_RELEASED"]
        again = await reschedule(lead, one, two, delay_ms=[2 * HOUR_MS], group=GROUP)
        assert again == ["CHANGED", "ALREADY_RELEASED"]
        assert await update(lead, one, body=b"fixed", group=GROUP) == "CHANGED"
        assert await reschedule(lead, one, delay_ms=[0], group=GROUP, topic=TOPIC) == ["CHANGED"]
        ((name, body, attempt, _),) = await received(lead, 1)
        assert (name, body, attempt) == (one, b"fixed", 2)
        assert await reschedule(lead, one, delay_ms=[0], group=GROUP) == ["ALREADY_RELEASED"]

    led(tmp_path, act)


@pytest.mark.parametrize("times", [1, 99])
def test_a_retry_that_is_rescheduled_while_it_is_cancelled_is_cancelled_or_the_answer_is_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    left = times
    cancel_copies = Cancels._cancel_copies

    async def act(lead: Leader) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        (one,) = await scheduled(lead, 0)
        ((*_, offset),) = await received(lead, 1)
        await nack(lead, offset, HOUR_MS)
        await until(lambda: lead.machine.wheel.pending == 1)

        async def moved_before(*args: Any) -> Any:
            nonlocal left
            if left:
                left -= 1
                another_ms = HOUR_MS + 60_000 * left  # whatever the clock does between two of them
                assert await reschedule(lead, one, delay_ms=[another_ms], group=GROUP) == ["CHANGED"]
            return await cancel_copies(*args)

        monkeypatch.setattr(Cancels, "_cancel_copies", moved_before)
        expected = ("CANCELLED", 0) if times == 1 else ("ALREADY_DELIVERED", 1)
        assert ((await cancel(lead, one))[0], lead.machine.wheel.pending) == expected

    led(tmp_path, act)


async def found_by_key(lead: Leader, key: str) -> list[str]:
    return [each.id for each in (await find(lead, key)).messages]


async def listed(lead: Leader, key: str) -> list[str]:
    return [each.id for each in (await Lists(lead).page(keys=[key])).messages]


async def chosen_to_be_cancelled(lead: Leader, key: str) -> list[str]:
    return sorted(chosen_of(await Bulk(lead).step(topic=TOPIC, keys=[key])))


@pytest.mark.parametrize("ids_by_key", [found_by_key, listed, chosen_to_be_cancelled])
def test_a_moved_message_that_moves_again_while_its_record_is_read_is_told_of_by_its_id(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ids_by_key: Callable[[Leader, str], Awaitable[list[str]]],
) -> None:
    async def act(lead: Leader) -> None:
        await complete(lead)
        (one,) = await schedule(lead, [["k"]], lead.node.time.now_ms() + HOUR_MS)
        assert await reschedule(lead, one, delay_ms=[2 * HOUR_MS]) == ["CHANGED"]
        reads = lead.node._core.damage.reads
        read = reads.read

        async def read_and_moved(hour: Any, index: Any) -> Any:
            records = await read(hour, index)
            monkeypatch.undo()
            assert await reschedule(lead, one, delay_ms=[5 * HOUR_MS]) == ["CHANGED"]
            return records

        monkeypatch.setattr(reads, "read", read_and_moved)
        assert await ids_by_key(lead, "k") == [one]

    led(tmp_path, act)


def test_the_ledger_and_the_log_of_damage_name_a_moved_message_by_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[int, int]] = []

    def nacked(_: Ledger, event: Event, *__: Any) -> None:
        assert event.hour is not None
        assert event.global_index is not None
        told.extend(zip(event.hour.tolist(), event.global_index.tolist(), strict=True))

    async def act(lead: Leader) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        monkeypatch.setattr(Ledger, "nacked", nacked)
        (one,) = await scheduled(lead, 9 * HOUR_MS)
        assert await reschedule(lead, one, delay_ms=[0]) == ["CHANGED"]
        ((*_, offset),) = await received(lead, 1)
        await nack(lead, offset, HOUR_MS)
        await until(lambda: bool(told))
        _, hour, index = parse_ids([one])
        assert told == [(int(hour[0]), int(index[0]))]
        with capture_logs() as logs:
            lead.node._core.damage.report(*lead.machine.wheel.places_of(hour, index))
        assert [each["ids"] for each in logs] == [[one]]

    led(tmp_path, act)


def test_what_is_left_of_a_deleted_topic_is_changed_no_more(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        (one,) = await scheduled(lead, HOUR_MS)
        await lead.propose(log_pb.DeleteTopicCommand(topic=TOPIC))
        outcomes = await reschedule(lead, one, delay_ms=[2 * HOUR_MS]), await update(lead, one, body=b"x")
        assert outcomes == (["NOT_FOUND"], "NOT_FOUND")

    led(tmp_path, act)


def test_the_retry_of_a_cancelled_message_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(lead: Leader) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        (one,) = await scheduled(lead, HOUR_MS)
        await cancel(lead, one)
        searches = 0
        search = waiting_retries.find

        def counted(*args: Any) -> Any:
            nonlocal searches
            searches += 1
            return search(*args)

        monkeypatch.setattr(waiting_retries, "find", counted)
        assert await reschedule(lead, one, delay_ms=[5], group=GROUP) == ["ALREADY_CANCELLED"]
        assert searches == 1

    led(tmp_path, act)


def test_an_update_takes_its_part_of_a_turn_by_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(lead: Leader) -> None:
        parts: list[float] = []
        turns = lead.edge._producer._turns
        enter = turns.enter

        def noted(part: float) -> Any:
            parts.append(part)
            return enter(part)

        (one,) = await scheduled(lead, HOUR_MS)
        monkeypatch.setattr(turns, "enter", noted)
        for body in (b"", bytes(TURN_BYTES // 4)):
            assert await update(lead, one, body=body) in ("CHANGED", "ALREADY_SO")
        assert parts[1] - parts[0] >= 0.25

    led(tmp_path, act)


def test_what_cannot_be_asked_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        (one,) = await scheduled(lead, HOUR_MS)
        most = lead.node._core.config.limits.reschedule_ids_max
        many = format_ids(0, np.full(most + 1, 7), np.arange(most + 1))
        far = 2**62
        for request, reason in (
            (pb.RescheduleRequest(delay_ms=[1]), Reason.REQUEST_EMPTY),
            (pb.RescheduleRequest(ids=many, delay_ms=[1]), Reason.BATCH_TOO_LARGE),
            (pb.RescheduleRequest(ids=[one]), Reason.DUE_MISSING),
            (pb.RescheduleRequest(ids=[one], delay_ms=[1], due_ms=[1]), Reason.DUE_AMBIGUOUS),
            (pb.RescheduleRequest(ids=[one], delay_ms=[1, 2]), Reason.COLUMNS_DIFFER),
            (pb.RescheduleRequest(ids=[one], delay_ms=[1], if_due_ms=[1, 2]), Reason.COLUMNS_DIFFER),
            (pb.RescheduleRequest(ids=[one], delay_ms=[-1]), Reason.DELAY_NEGATIVE),
            (pb.RescheduleRequest(ids=[one], due_ms=[-1]), Reason.DUE_INVALID),
            (pb.RescheduleRequest(ids=[one], due_ms=[1], if_due_ms=[-1]), Reason.DUE_INVALID),
            (pb.RescheduleRequest(ids=[one], due_ms=[far]), Reason.DUE_TOO_FAR),
            (pb.RescheduleRequest(ids=[one], delay_ms=[far]), Reason.DUE_TOO_FAR),
            (pb.RescheduleRequest(ids=[one, one], delay_ms=[1]), Reason.ID_MALFORMED),
            (pb.RescheduleRequest(ids=["x"], delay_ms=[1]), Reason.ID_MALFORMED),
            (pb.RescheduleRequest(ids=many[:1], delay_ms=[1], group="g"), Reason.TOPIC_UNKNOWN),
            (pb.UpdateRequest(id=one), Reason.REQUEST_EMPTY),
            (pb.UpdateRequest(id=one, body=b"", if_due_ms=-1), Reason.DUE_INVALID),
            (pb.UpdateRequest(id=one, tags={"texts": ["t"] * 99}), Reason.TOO_MANY_TAGS),
            (pb.UpdateRequest(id=one, body=bytes(1 << 23)), Reason.RECORD_TOO_LARGE),
            (pb.UpdateRequest(id=one, properties={"properties": {"tarry.x": ""}}), Reason.PROPERTY_RESERVED),
        ):
            assert (await refused(lead, request), request.ByteSize()) == (reason, request.ByteSize())
        assert await reschedule(lead, *many[:most], delay_ms=[1]) == ["NOT_FOUND"] * most
        assert await update(lead, many[0], body=b"") == "NOT_FOUND"

    led(tmp_path, act)


def test_a_request_may_have_many_messages_whose_records_are_large(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        ids = await scheduled(lead, *range(HOUR_MS, HOUR_MS + 400))
        for one in ids[:8]:
            assert await update(lead, one, body=bytes(200_000)) == "CHANGED"
        assert await reschedule(lead, *ids, delay_ms=[2 * HOUR_MS]) == ["CHANGED"] * 400
        assert {len((await get(lead, one)).record.body) for one in ids[:8]} == {200_000}
        assert lead.machine.wheel.pending == 400

    led(tmp_path, act)


def test_below_level_two_it_is_refused(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        (one,) = await scheduled(lead, HOUR_MS)
        assert await refused(lead, pb.RescheduleRequest(ids=[one], delay_ms=[1])) is Reason.LEVEL_TOO_LOW
        assert await refused(lead, pb.UpdateRequest(id=one, body=b"")) is Reason.LEVEL_TOO_LOW

    led(tmp_path, act, level=1)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (pb.UpdateRequest(body=b""), Record(tags=["t"], keys=["k"], ordering_key="o")),
        (pb.UpdateRequest(tags=pb.Texts()), Record(keys=["k"], body=b"b", ordering_key="o")),
        (
            pb.UpdateRequest(properties=pb.Properties()),
            Record(tags=["t"], keys=["k"], body=b"b", ordering_key="o"),
        ),
    ],
)
def test_a_part_may_be_emptied(request_: pb.UpdateRequest, expected: Record) -> None:
    assert changed(Record(tags=["t"], keys=["k"], body=b"b", ordering_key="o"), request_) == expected
