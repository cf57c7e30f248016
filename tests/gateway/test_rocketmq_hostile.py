"""Callers of the gateway for RocketMQ's clients that mean harm, or end in the middle of a call."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tarry.client.aio import AckOutcome, Puller
from tarry.client.consumers.message import Columns, View
from tarry.client.errors import NotFound, NotPermitted
from tarry.client.settings import Settings
from tarry.gateway.handle import Holder
from tarry.gateway.rocketmq import consumer_calls
from tarry.gateway.rocketmq import service as methods
from tarry.gateway.rocketmq.admission import PAUSES_MAX
from tarry.gateway.rocketmq.call import Call, Gateway, within
from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Config, Key, Limits
from tarry.gateway.rocketmq.consumer_calls import acknowledge
from tarry.gateway.rocketmq.handles import Handles, Recall, Receipt, _mac
from tarry.gateway.rocketmq.messages import OWN_PROPERTY, delivered_message
from tarry.gateway.rocketmq.names import topic_of
from tarry.gateway.rocketmq.producer_calls import send
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.renewal import STEP_MAX, Renewals
from tarry.gateway.rocketmq.requests import BYTES_MAX
from tarry.gateway.rocketmq.routes import Routes
from tarry.gateway.rocketmq.service import _refuse
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.tarry_message_pb2 import Record
from tests.gateway.rocketmq_calls import HEADERS, Calls, code, gateway_calls, message
from tests.gateway.test_rocketmq_calls import CONFIG, NOBODY, consumer_settings, producer_settings

KEYS = Config(
    key=[Key(access_key="a", secret_key="s", token="t"), Key(access_key="b", secret_key="s", token="u")]
)
RECEIPT = Receipt(Holder("orders", "g", "rocketmq-1", 0, 0), 7, push=True)


@pytest.fixture
async def call() -> AsyncIterator[Calls]:
    async with gateway_calls(NOBODY, CONFIG) as address, Calls(address) as calls:
        yield calls


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway(NOBODY, KEYS, Routes((), ("127.0.0.1", 8081)))
    yield made
    await made.close()


def its_call(gateway: Gateway, token: str = "t", remaining_ms: int | None = None) -> Call:
    """Return a call of the client ``c`` with a token."""
    return Call(gateway, gateway.accesses._access(token), "c", "JAVA", remaining_ms)


def test_a_namespace_of_any_length_is_not_remembered() -> None:
    with pytest.raises(Refusal, match="longer"):
        topic_of(definition.Resource(resource_namespace="a" * 320, name="orders"))
    assert topic_of(definition.Resource(resource_namespace="a" * 313, name="orders")).endswith("a.orders")


async def test_what_a_request_repeats_is_counted_before_it_is_read(call: Calls) -> None:
    keys = [str(number) for number in range(1_001)]
    assert code((await call.send(message("orders", keys=keys))).status) == "ILLEGAL_MESSAGE_KEY"
    assert code((await call.send(message("orders", keys=keys[1:]))).status) == "HA_NOT_AVAILABLE"
    long = await call.send(message("orders", keys=["k" * 60_000], tag="t" * 5_537))
    assert code(long.status) == "MESSAGE_PROPERTIES_TOO_LARGE"
    many = await call.send(*(message("a b$") for _ in range(101)))
    assert code(many.status) == "PAYLOAD_TOO_LARGE"
    for tags, expected in [("a||" * 21_846 + "b", "ILLEGAL_FILTER_EXPRESSION"), ("a", "HA_NOT_AVAILABLE")]:
        assert await call.receive("orders", tags=tags, wait_ms=0) == (expected, [])


async def test_a_body_that_others_would_misread_and_a_filter_that_is_not_known_are_refused(
    call: Calls,
) -> None:
    """Values of enumerations that came after this gateway."""
    answer = await call.send(message("orders", body_encoding=99))
    assert code(answer.status) == "MESSAGE_CORRUPTED"
    unknown: Any = 99
    expression = definition.FilterExpression(type=unknown, expression="a")
    told = await call.receive("orders", filter_expression=expression, wait_ms=0)
    assert told == ("ILLEGAL_FILTER_EXPRESSION", [])


async def test_settings_that_are_too_large_are_not_kept_to_be_answered_again(call: Calls) -> None:
    stream = call.telemetry()
    settings = producer_settings()
    settings.user_agent.hostname = "x" * 131_072
    await stream.write(service.TelemetryCommand(settings=settings))
    told = await stream.read()
    assert (code(told.status), told.HasField("settings")) == ("PAYLOAD_TOO_LARGE", False)


def forged(version: str, content: bytes) -> str:
    """Return a handle as anybody may make it where no secret is configured."""
    key = b"tarry gateway rocketmq: no secret is configured"
    return f"{version}.{base64.urlsafe_b64encode(_mac(key, version, content) + content).decode().rstrip('=')}"


FORGED = [
    b"[" * 1_400,
    b'["orders","g","\\ud800",0,0,0,true]',
    b'["orders","g","c",-1,0,0,true]',
    b'["orders","g","c",4294967296,0,0,true]',
    b'["orders","g","c",0,-1,0,true]',
    b'["orders","g","c",0,18446744073709551616,0,true]',
    b'["orders","g","c",0,0,18446744073709551616,true]',
    b'["orders","g","c",0,0,1e3,true]',
    b'["orders","g","c",true,0,0,true]',
    b'["orders","g","c",0,0,0,1]',
    b'["orders","g","c",0,0,true]',
    b'{"orders":1}',
    b"\xff",
    b"",
]


@pytest.mark.parametrize("content", FORGED)
async def test_forged_handles_are_refused_in_the_answer_where_there_is_no_secret(
    call: Calls, content: bytes
) -> None:
    handle = forged("r1", content)
    assert await call.ack("orders", message("orders", receipt_handle=handle)) == ["INVALID_RECEIPT_HANDLE"]
    assert code((await call.change("orders", handle, 1_000)).status) == "INVALID_RECEIPT_HANDLE"


@pytest.mark.parametrize(
    "fields", [["orders", "x", "\ud800"], ["orders", "\ud800", "x"], ["orders", 1, 2], [[]]]
)
async def test_forged_handles_of_a_recall_are_refused_in_the_answer(call: Calls, fields: list[Any]) -> None:
    handle = forged("c1", json.dumps(fields, separators=(",", ":")).encode())
    assert code((await call.recall("orders", handle)).status) == "BAD_REQUEST"


def test_a_handle_is_read_whatever_characters_its_message_id_has() -> None:
    handles = Handles([])
    recall = Recall("t" * 320, "0000000f70h0000000n", "\N{ALARM CLOCK}" * 64 + "\N{GRINNING FACE}" * 64)
    assert handles.parse_recall(handles.recall(recall)) == recall


def delivered(properties: dict[str, str], attempt: int = 1, **times: int) -> definition.Message:
    """Return what a client gets of a message that any program may have sent."""
    record = Record(body=b"x", properties=properties, **times).SerializeToString()
    deliveries = consumer_pb.Deliveries(
        topic="t", offset=[0], hour=[1], global_index=[2], due_ms=[3], released_ms=[4], records=[record],
        attempt=[attempt],
    )  # fmt: skip
    view = View(Columns(deliveries, 10, 0), 0, 0)
    return delivered_message(view, definition.Resource(name="t"), "handle", 10_000, 0)


@pytest.mark.parametrize("attempt", [1, 2])
@pytest.mark.parametrize(
    "text",
    [
        "1 DELAY 999999999999999 IDENTITY x",
        "1 DELAY -999999999999999999 GZIP ",
        "1 DELAY -100000000000000 IDENTITY x",
        "1 DELAY 253402300800000 IDENTITY x",
        "1 DELAY 9 X y",
        "2",
    ],
)
def test_a_message_of_another_program_is_read_whatever_it_has_in_the_property_that_is_ours(
    text: str, attempt: int
) -> None:
    """One that is not would end every receive of its group."""
    got = delivered({OWN_PROPERTY: text, "p": "1"}, attempt, born_ms=1 << 62)
    assert (got.body, dict(got.user_properties)) == (b"x", {"p": "1"})
    assert got.system_properties.born_timestamp == got.system_properties.store_timestamp


async def test_a_refusal_that_is_not_read_does_not_hold_its_call(gateway: Gateway) -> None:
    ended: list[grpc.StatusCode] = []

    class Unreading:
        async def write(self, _: object) -> None:
            await asyncio.Event().wait()

        async def abort(self, code: grpc.StatusCode, _: str) -> None:
            ended.append(code)

    context: Any = Unreading()
    gateway.config = gateway.config.model_copy(update={"limits": Limits(call_ms=1)})
    async with asyncio.timeout(10):
        await _refuse(gateway, context, service.ReceiveMessageResponse())
    assert ended == [grpc.StatusCode.DEADLINE_EXCEEDED]


async def test_another_token_s_client_of_the_same_id_ends_nothing_of_it(gateway: Gateway) -> None:
    """Nor does it learn, or give back, what that one was delivered to an attempt."""
    its, anothers = its_call(gateway), its_call(gateway, "u")
    gateway.presence.seen(its.caller)
    gateway.renewals.add(its.caller, "attempt", [RECEIPT])
    await methods.notify_client_termination(anothers, service.NotifyClientTerminationRequest())
    assert gateway.presence.is_there(its.caller)
    assert gateway.renewals.taken_back(anothers.caller, "attempt") == []
    assert gateway.renewals.taken_back(its.caller, "attempt") == [RECEIPT]


async def test_an_ack_that_no_node_has_taken_ends_no_renewal(gateway: Gateway) -> None:
    """A client repeats it, and the message is its own until then; and anybody may send an ack."""
    call = its_call(gateway)
    gateway.renewals.add(call.caller, "", [RECEIPT])
    request = service.AckMessageRequest(
        group=definition.Resource(name="g"),
        topic=definition.Resource(name="orders"),
        entries=[service.AckMessageEntry(receipt_handle=gateway.handles.receipt(RECEIPT))],
    )
    answer = await acknowledge(call, request)
    assert code(answer.status) == "HA_NOT_AVAILABLE"
    assert len(gateway.renewals) == 1


@pytest.mark.parametrize("reason", ["", "GROUP_UNKNOWN", "TOPIC_UNKNOWN", "QUEUE_UNKNOWN"])
async def test_what_is_in_hand_no_more_ends_a_client_s_repetitions(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    """Java's repeats an ack each second, and a dead letter at once, until an answer tells it to stop."""

    async def settle(*_: Any) -> list[AckOutcome]:
        if not reason:
            return [AckOutcome.STALE]
        raise NotFound(reason, reason)

    monkeypatch.setattr(Puller, "settle", settle)
    call, handle = its_call(gateway), gateway.handles.receipt(RECEIPT)
    gateway.renewals.add(call.caller, "", [RECEIPT])
    names = {"group": definition.Resource(name="g"), "topic": definition.Resource(name="orders")}
    entry = service.AckMessageEntry(receipt_handle=handle)
    acked = await acknowledge(call, service.AckMessageRequest(**names, entries=[entry]))
    assert code(acked.status) == "INVALID_RECEIPT_HANDLE"
    assert len(gateway.renewals) == 0
    letter = service.ForwardMessageToDeadLetterQueueRequest(**names, receipt_handle=handle)
    assert code((await consumer_calls.forward_to_dead_letters(call, letter)).status) == "OK"


async def test_a_dead_letter_is_refused_after_a_pause_in_which_it_has_no_place(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Java's client asks again at once, and for ever."""
    paused: list[tuple[float, int]] = []
    gateway = Gateway(NOBODY, Config(), Routes((), ("127.0.0.1", 8081)))

    async def sleep(seconds: float) -> None:
        paused.append((seconds, gateway.admission.calls.used))

    async def refused(*_: Any) -> None:
        raise NotPermitted("PERMISSION_DENIED", "no right")

    monkeypatch.setattr(methods.asyncio, "sleep", sleep)
    monkeypatch.setattr(methods, "request_of", refused)
    monkeypatch.setattr(methods, "call_of", lambda *_: its_call(gateway))
    for name, pauses in ("ForwardMessageToDeadLetterQueue", 1), ("AckMessage", 0):
        told = methods._unary(gateway, *methods.UNARY[name])
        assert code((await told.stream_unary(None, None)).status) == "FORBIDDEN"
        assert paused == [(1.0, 0)] * pauses
        paused.clear()
    with gateway.admission.pauses.taken(
        PAUSES_MAX
    ):  # whoever calls again and again leaves gRPC its own places
        told = methods._unary(gateway, *methods.UNARY["ForwardMessageToDeadLetterQueue"])
        assert code((await told.stream_unary(None, None)).status) == "FORBIDDEN"
        assert paused == []
    await gateway.close()


def test_limits_that_leave_nothing_are_refused() -> None:
    with pytest.raises(ValueError, match=r"\(2000\) must be no more than"):
        Limits(invisible_ms_min=2_000, invisible_ms_max=1_000)


def test_names_in_the_file_may_be_as_clients_write_them() -> None:
    config = Config(types={"dlq%g%t": ["NORMAL"]}, fifo_groups=["a%b"])
    assert (list(config.types), config.fifo_groups) == (["dlq.g.t"], ["a.b"])
    with pytest.raises(ValueError, match="named twice"):
        Config(types={"a%b": ["NORMAL"], "a.b": ["FIFO"]})


async def test_a_renewal_that_no_node_has_taken_is_tried_again_before_the_lease_ends(
    gateway: Gateway,
) -> None:
    now_s = 0.0
    renewals = Renewals(Limits(), gateway.presence, lambda: now_s)
    caller = its_call(gateway).caller
    gateway.presence.seen(caller)
    renewals.add(caller, "", [RECEIPT])
    now_s = 30
    assert await renewals.renew() is False
    assert len(renewals) == 1
    gateway.presence.leave(caller)
    now_s = 31
    await renewals.renew()  # it is looked at, and its client is gone
    assert len(renewals) == 0


async def test_what_is_delivered_again_is_renewed_from_then_on(gateway: Gateway) -> None:
    """And those that were delivered before it are renewed at their own time."""
    now_s = 0.0
    renewals = Renewals(Limits(), gateway.presence, lambda: now_s)
    gone = its_call(gateway).caller
    first, second = (Receipt(RECEIPT.holder, number, push=True) for number in range(2))
    renewals.add(gone, "", [first, second])
    now_s = 20
    renewals.add(gone, "", [first])
    now_s = 30
    await renewals.renew()
    assert len(renewals) == 1


def test_a_client_is_a_consumer_of_another_name_each_second(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a receipt of before a seek or a failover names is not what is delivered again."""
    now_s = 7.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    call, another = its_call(gateway), Call(gateway, gateway.accesses._access("t"), "d", "JAVA", None)
    before = call.consumer("*")
    now_s = 7.9
    assert its_call(gateway).consumer("*") == before
    others = another.consumer("*"), its_call(gateway, "u").consumer("*"), call.consumer("tag")
    assert len({before, *others}) == 4
    now_s = 8.0
    assert call.consumer("*") != before


async def test_more_renewals_than_one_look_takes_are_looked_at_without_a_pause(gateway: Gateway) -> None:
    now_s = 0.0
    renewals = Renewals(Limits(), gateway.presence, lambda: now_s)
    gone = its_call(gateway).caller
    renewals.add(gone, "", [Receipt(RECEIPT.holder, number, push=True) for number in range(STEP_MAX + 1)])
    now_s = 30
    assert await renewals.renew() is True
    assert len(renewals) == 1
    assert await renewals.renew() is False
    assert len(renewals) == 0


async def test_the_bytes_of_a_message_count_until_its_outcome_though_its_client_is_gone() -> None:
    """Else short deadlines would fill the memory while no node answers."""
    settings = Settings(servers=("127.0.0.1:1",), deadline_ms=400, attempt_ms=100)
    gateway = Gateway(settings, Config(), Routes((), ("127.0.0.1", 8081)))
    call = Call(gateway, gateway.accesses.of("", ""), "c", "JAVA", 2)
    first, second = (
        service.SendMessageRequest(
            messages=[message("orders", bytes(size), keys=["k" * 64], properties={"name": "v" * 9_000})]
        )
        for size in (1_000, 500)
    )
    assert second.ByteSize() > 9_500  # all of it counts, not the body alone
    with pytest.raises(TimeoutError):
        await send(call, first)
    assert gateway.admission.sent.used == first.ByteSize()
    task = asyncio.create_task(send(Call(gateway, call.access, "c", "JAVA", None), second))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gateway.admission.sent.used == first.ByteSize() + second.ByteSize()
    await gateway.close()
    assert gateway.admission.sent.used == 0


async def test_a_defect_is_answered_within_the_answer_and_tells_nothing(
    monkeypatch: pytest.MonkeyPatch, call: Calls, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("secret")

    monkeypatch.setattr(methods, "types_of", broken)
    monkeypatch.setattr("tarry.gateway.rocketmq.consumer_calls._filter_of", broken)
    monkeypatch.setattr("tarry.gateway.rocketmq.telemetry.answer", broken)
    answer = await call("QueryRoute", topic=definition.Resource(name="orders"))
    (told,) = [each async for each in call.received("orders")]
    stream = call.telemetry()
    await stream.write(service.TelemetryCommand(settings=consumer_settings("g")))
    for status in (answer.status, told.status, (await stream.read()).status):
        assert code(status) == "INTERNAL_SERVER_ERROR"
        assert "secret" not in status.message
    assert "secret" in caplog.text


async def test_an_answer_names_no_node(call: Calls) -> None:
    answer = await call.send(message("orders"))
    assert code(answer.status) == "HA_NOT_AVAILABLE"
    assert "127.0.0.1" not in answer.status.message


async def test_a_failure_may_wait_as_long_as_a_policy_has_told_it(call: Calls) -> None:
    """A policy may have longer waits than leases are; a lease for so long is refused."""
    push = Handles([]).receipt(RECEIPT)
    simple = Handles([]).receipt(Receipt(RECEIPT.holder, 7, push=False))
    day_ms = 86_400_000
    for handle, milliseconds, expected in [
        (push, day_ms, "HA_NOT_AVAILABLE"),
        (push, 1 << 32, "ILLEGAL_INVISIBLE_TIME"),
        (simple, day_ms, "ILLEGAL_INVISIBLE_TIME"),
    ]:
        assert code((await call.change("orders", handle, milliseconds)).status) == expected
    for seconds, nanos in [(-1, 0), (0, -1), (0, 1_000_000_000), ((1 << 63) - 1, 0), (-(1 << 63), 0)]:
        answer = await call(
            "ChangeInvisibleDuration",
            group=definition.Resource(name="g"),
            topic=definition.Resource(name="orders"),
            receipt_handle=push,
            invisible_duration=Duration(seconds=seconds, nanos=nanos),
        )
        assert code(answer.status) == "ILLEGAL_INVISIBLE_TIME"


async def test_settings_of_many_topics_are_answered_within_a_turn_and_no_more(call: Calls) -> None:
    stream = call.telemetry()
    settings = consumer_settings("g")
    for _ in range(5_000):
        settings.subscription.subscriptions.add().topic.name = "a" * 30
    await stream.write(service.TelemetryCommand(settings=settings))
    assert code((await stream.read()).status) == "PAYLOAD_TOO_LARGE"


async def test_a_request_that_does_not_come_is_waited_for_no_longer_than_a_call_may_take() -> None:
    config = Config(limits=Limits(call_ms=500, calls_max=1))
    async with gateway_calls(NOBODY, config) as address, Calls(address) as call:
        assert code((await call("Heartbeat")).status) == "OK"
        path = f"/{methods.SERVICE}"
        send = call.channel.stream_unary(f"{path}/SendMessage")
        late = send(metadata=HEADERS)
        poll = call.channel.stream_stream(f"{path}/ReceiveMessage")(metadata=HEADERS)
        refused = False
        while not late.done() and not refused:  # it has the one slot
            refused = code((await call("Heartbeat")).status) == "TOO_MANY_REQUESTS"
        assert refused
        assert code(service.SendMessageResponse.FromString(await late).status) == "REQUEST_TIMEOUT"
        assert code((await call("Heartbeat")).status) == "OK"
        assert code(service.ReceiveMessageResponse.FromString(await poll.read()).status) == "REQUEST_TIMEOUT"
        nothing = send(metadata=HEADERS)
        await nothing.done_writing()
        assert code(service.SendMessageResponse.FromString(await nothing).status) == "BAD_REQUEST"


async def test_settings_that_do_not_come_are_waited_for_no_longer_either() -> None:
    config = Config(limits=Limits(call_ms=500, streams_max=1))
    async with gateway_calls(NOBODY, config) as address, Calls(address) as call:
        silent = call.telemetry()
        assert code((await silent.read()).status) == "REQUEST_TIMEOUT"
        stream = call.telemetry()  # the one slot is free again
        await stream.write(service.TelemetryCommand(settings=consumer_settings("g")))
        assert code((await stream.read()).status) == "OK"


async def test_where_all_places_are_taken_the_gateway_says_so_itself() -> None:
    """And not gRPC, whose status clients take for another thing."""
    config = Config(limits=Limits(call_ms=20_000, calls_max=1, polls_max=1, streams_max=1))
    async with gateway_calls(NOBODY, config) as address, Calls(address) as call:
        path = f"/{methods.SERVICE}"
        stream = call.telemetry()
        await stream.write(service.TelemetryCommand(settings=consumer_settings("g")))
        assert code((await stream.read()).status) == "OK"
        held = [
            call.channel.stream_unary(f"{path}/SendMessage")(metadata=HEADERS),
            call.channel.stream_stream(f"{path}/ReceiveMessage")(metadata=HEADERS),
        ]
        while code((await call("Heartbeat")).status) != "TOO_MANY_REQUESTS":
            pass
        while await call.receive("orders", wait_ms=0) != ("TOO_MANY_REQUESTS", []):
            pass
        another = call.telemetry()
        assert code((await another.read()).status) == "TOO_MANY_REQUESTS"
        for each in held:
            each.cancel()


async def test_what_is_left_of_a_call_counts_from_its_beginning(gateway: Gateway) -> None:
    """Its request may have come late within it."""
    access, call_ms = gateway.accesses._access("t"), gateway.config.limits.call_ms
    before_s = time.monotonic() - 2
    late = Call(gateway, access, "c", "JAVA", 3_000, before_s)
    assert 0 < (late.remaining_ms or 0) <= 1_000
    assert 0 < late.budget_s <= 0.8
    over = Call(gateway, access, "c", "JAVA", 1_500, before_s)
    assert (over.remaining_ms, over.budget_s) == (0, 0)
    endless = Call(gateway, access, "c", "GO", None, before_s)
    assert endless.remaining_ms is None
    assert 0 < endless.budget_s * 1_000 <= call_ms - 2_000


async def test_a_read_that_takes_too_long_is_left_to_grpc_which_would_never_free_its_message() -> None:
    read: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    async def reading() -> bytes:
        return await read

    with pytest.raises(TimeoutError):
        await within(reading(), 0)
    assert not read.cancelled()
    read.set_exception(RuntimeError("the call is over"))  # which is told nobody
    await asyncio.sleep(0)


async def test_who_has_no_credentials_is_refused_before_anything_of_a_request_is_read() -> None:
    config = Config(key=[Key(access_key="shop", secret_key="secret", token="t")])
    async with gateway_calls(NOBODY, config) as address, Calls(address) as call:
        called = call.channel.stream_unary(f"/{methods.SERVICE}/SendMessage")(metadata=HEADERS)
        assert code(service.SendMessageResponse.FromString(await called).status) == "UNAUTHORIZED"


async def test_requests_that_are_none_or_too_large_are_refused_before_they_are_parsed(call: Calls) -> None:
    many = service.AckMessageRequest(
        entries=[service.AckMessageEntry(receipt_handle="h" * BYTES_MAX)]
    ).SerializeToString()
    for request, expected in ((b"\xff\xff", "BAD_REQUEST"), (many, "PAYLOAD_TOO_LARGE")):
        for method, answer in (
            ("AckMessage", service.AckMessageResponse),
            ("ReceiveMessage", service.ReceiveMessageResponse),
        ):
            called = call.channel.unary_stream(f"/{methods.SERVICE}/{method}")(request, metadata=HEADERS)
            assert code(answer.FromString(await called.read()).status) == expected
        stream = call.channel.stream_stream(f"/{methods.SERVICE}/Telemetry")(metadata=HEADERS)
        await stream.write(request)
        assert code(service.TelemetryCommand.FromString(await stream.read()).status) == expected
