"""Calls of RocketMQ's clients to a gateway where no node answers: what it decides on its own.

The refusals are those of RocketMQ's own proxy, recorded; those that differ say why.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import grpc
import pytest

from tarry.client.settings import Settings
from tarry.gateway.rocketmq.config import Config, Key, Limits
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tests.gateway.rocketmq_calls import (
    HEADERS,
    Calls,
    code,
    gateway_calls,
    message,
    milliseconds,
    timestamp,
)

NOBODY = Settings(servers=("127.0.0.1:1",), deadline_ms=200, attempt_ms=100)
CONFIG = Config(
    types={"normal": ["NORMAL"], "delay": ["DELAY"], "fifo": ["FIFO"]},
    fifo_groups=["in-order"],
)
Resource = definition.Resource


@pytest.fixture
async def call() -> AsyncIterator[Calls]:
    async with gateway_calls(NOBODY, CONFIG) as address, Calls(address) as calls:
        yield calls


async def route(call: Calls, topic: str, namespace: str = "", **fields: Any) -> Any:
    return await call("QueryRoute", topic=Resource(name=topic, resource_namespace=namespace), **fields)


async def test_a_route_is_the_address_that_the_client_has_called(call: Calls) -> None:
    dialled = definition.Endpoints(
        scheme=definition.DOMAIN_NAME, addresses=[definition.Address(host="mq.example", port=80)]
    )
    answer = await route(call, "orders", endpoints=dialled)
    (queue,) = answer.message_queues
    assert code(answer.status) == "OK"
    assert (queue.topic.name, queue.id, queue.permission) == ("orders", 0, definition.READ_WRITE)
    assert (queue.broker.id, queue.broker.endpoints) == (0, dialled)
    types = [definition.NORMAL, definition.FIFO, definition.DELAY, definition.TRANSACTION]
    assert list(queue.accept_message_types) == types
    (bare,) = (await route(call, "delay")).message_queues
    assert list(bare.accept_message_types) == [definition.DELAY]
    (address,) = bare.broker.endpoints.addresses
    assert address.host == "127.0.0.1"
    assert bare.broker.endpoints.scheme == definition.IPv4


async def test_a_route_has_a_queue_for_each_gateway_that_is_advertised() -> None:
    places = ("10.0.0.1", 8081), ("mq2.example", 8082), ("::1", 8083)
    async with gateway_calls(NOBODY, CONFIG, *places) as address, Calls(address) as call:
        answer = await route(call, "orders")
        told = [
            (queue.broker.endpoints.scheme, each.host, each.port)
            for queue in answer.message_queues
            for each in queue.broker.endpoints.addresses
        ]
        assert told == [
            (definition.IPv4, "10.0.0.1", 8081),
            (definition.DOMAIN_NAME, "mq2.example", 8082),
            (definition.IPv6, "::1", 8083),
        ]
        assert len({queue.broker.name for queue in answer.message_queues}) == 3


@pytest.mark.parametrize(
    ("topic", "namespace", "expected"),
    [
        ("orders", "", "OK"),
        ("a" * 127, "", "OK"),
        ("a" * 128, "", "ILLEGAL_TOPIC"),
        ("", "", "ILLEGAL_TOPIC"),
        ("  ", "", "ILLEGAL_TOPIC"),
        ("a b$", "", "ILLEGAL_TOPIC"),
        ("a|b", "", "ILLEGAL_TOPIC"),
        ("rmq_sys_TRACE_DATA", "", "ILLEGAL_TOPIC"),
        ("SCHEDULE_TOPIC_XXXX", "", "ILLEGAL_TOPIC"),
        ("dlq%billing%orders", "", "OK"),
        ("%x", "", "ILLEGAL_TOPIC"),
        ("orders", "eu", "OK"),
        ("orders", "e u", "ILLEGAL_TOPIC"),
    ],
)
async def test_topics_are_checked(call: Calls, topic: str, namespace: str, expected: str) -> None:
    assert code((await route(call, topic, namespace)).status) == expected


async def test_assignments_are_of_a_broker_or_of_a_group_in_order_of_each_queue(call: Calls) -> None:
    async def assigned(group: str) -> Any:
        return await call("QueryAssignment", topic=Resource(name="orders"), group=Resource(name=group))

    (any_queue,) = (await assigned("billing")).assignments
    (first,) = (await assigned("in-order")).assignments
    assert (any_queue.message_queue.id, first.message_queue.id) == (-1, 0)
    assert code((await assigned("a b$")).status) == "ILLEGAL_CONSUMER_GROUP"


async def test_calls_without_a_client_id_are_refused_and_other_headers_are_not_needed(call: Calls) -> None:
    call.headers = ()
    assert code((await route(call, "orders")).status) == "CLIENT_ID_REQUIRED"
    answer = await call.send(message("orders"))
    assert (code(answer.status), len(answer.entries)) == ("CLIENT_ID_REQUIRED", 0)
    assert await call.receive("orders") == ("CLIENT_ID_REQUIRED", [])
    stream = call.telemetry()
    assert code((await stream.read()).status) == "CLIENT_ID_REQUIRED"
    assert await stream.read() is grpc.aio.EOF
    call.headers = (("x-mq-client-id", "x" * 256),)
    assert code((await route(call, "orders")).status) == "CLIENT_ID_REQUIRED"
    call.headers = (("x-mq-client-id", "host@1@0@abc"), ("x-mq-language", "HTTP"))
    assert code((await route(call, "orders")).status) == "OK"


async def test_heartbeats_and_terminations_of_clients_whose_settings_came_elsewhere_are_taken(
    call: Calls,
) -> None:
    assert code((await call("Heartbeat", client_type=definition.PRODUCER)).status) == "OK"
    assert code((await call("NotifyClientTermination", group=Resource(name="g"))).status) == "OK"


SEND_REFUSALS = [
    ([], "MESSAGE_CORRUPTED"),
    ([message("orders", b"")], "MESSAGE_BODY_EMPTY"),
    ([message("orders", bytes(262_145))], "MESSAGE_BODY_TOO_LARGE"),
    ([message("orders", bytes((4 << 20) + 1))], "MESSAGE_BODY_TOO_LARGE"),
    ([message("orders", tag="a|b")], "ILLEGAL_MESSAGE_TAG"),
    ([message("orders", tag="  ")], "ILLEGAL_MESSAGE_TAG"),
    ([message("orders", keys=["k", "  "])], "ILLEGAL_MESSAGE_KEY"),
    ([message("orders", keys=["a\x01"])], "ILLEGAL_MESSAGE_KEY"),
    ([message("orders", properties={"KEYS": "x"})], "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    ([message("orders", properties={"rocketmq": "x"})], "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    ([message("orders", properties={"a": "x\ny"})], "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    (
        [message("orders", properties={str(n): "x" for n in range(129)})],
        "MESSAGE_PROPERTIES_TOO_LARGE",
    ),
    ([message("orders", properties={"a": "x" * (17 << 10)})], "MESSAGE_PROPERTIES_TOO_LARGE"),
    ([message("orders", message_id="")], "ILLEGAL_MESSAGE_ID"),
    ([message("orders", message_id="x" * 129)], "ILLEGAL_MESSAGE_ID"),
    ([message("orders", message_id="x"), message("orders", message_id="x")], "ILLEGAL_MESSAGE_ID"),
    ([message("orders", message_group="g" * 64)], "ILLEGAL_MESSAGE_GROUP"),
    ([message("orders", message_group="  ")], "ILLEGAL_MESSAGE_GROUP"),
    ([message("orders", message_type=definition.FIFO)], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    ([message("orders", message_type=definition.DELAY)], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    (
        [message("orders", due_ms=10**12, message_type=definition.NORMAL)],
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    ),
    ([message("delay", message_type=definition.TRANSACTION)], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    (
        [message("delay", message_type=definition.TRANSACTION, due_ms=10**12, message_group="g")],
        "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE",
    ),
    ([message("orders", message_type=definition.TRANSACTION, message_id="01 A")], "ILLEGAL_MESSAGE_ID"),
    ([message("orders", message_type=definition.TRANSACTION), message("orders")], "BAD_REQUEST"),
    (
        [
            message(
                "orders",
                message_type=definition.TRANSACTION,
                orphaned_transaction_recovery_duration={"seconds": -1},
            )
        ],
        "BAD_REQUEST",
    ),
    ([message("orders", message_type=definition.PRIORITY)], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    ([message("orders", message_type=definition.LITE)], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    ([message("normal", due_ms=10**12)], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    ([message("delay")], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    ([message("fifo")], "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    (
        [message("orders", message_type=definition.DELAY, delivery_timestamp=timestamp(-5_000))],
        "ILLEGAL_DELIVERY_TIME",
    ),
    ([message("orders"), message("others")], "MESSAGE_CORRUPTED"),
    ([message("a b$")], "ILLEGAL_TOPIC"),
    ([message("rmq_sys_x")], "ILLEGAL_TOPIC"),
    ([message("orders") for _ in range(101)], "PAYLOAD_TOO_LARGE"),
]


@pytest.mark.parametrize(("messages", "expected"), SEND_REFUSALS)
async def test_wrong_messages_are_refused_in_the_answer_without_entries(
    call: Calls, messages: list[definition.Message], expected: str
) -> None:
    answer = await call.send(*messages)
    assert (code(answer.status), len(answer.entries)) == (expected, 0)
    assert answer.status.message


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"invisible_ms": 9_999}, "ILLEGAL_INVISIBLE_TIME"),
        ({"invisible_ms": None}, "ILLEGAL_INVISIBLE_TIME"),
        ({"invisible_ms": 43_200_001}, "ILLEGAL_INVISIBLE_TIME"),
        ({"invisible_ms": -1_000}, "ILLEGAL_INVISIBLE_TIME"),
        ({"wait_ms": -1_000}, "ILLEGAL_POLLING_TIME"),
        ({"tags": "a || "}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"tags": "a | b"}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"sql": "  "}, "ILLEGAL_FILTER_EXPRESSION"),
        ({"topic": "a b$"}, "ILLEGAL_TOPIC"),
        ({"group": "a b$"}, "ILLEGAL_CONSUMER_GROUP"),
        ({"batch_size": 0}, "MESSAGE_NOT_FOUND"),
        ({"batch_size": -1}, "MESSAGE_NOT_FOUND"),
        ({"wait_ms": 0}, "HA_NOT_AVAILABLE"),  # checked, and there is no node
    ],
)
async def test_receives_are_checked(call: Calls, given: dict[str, Any], expected: str) -> None:
    assert await call.receive(**{"topic": "orders", **given}) == (expected, [])


async def test_where_no_node_answers_clients_are_told_what_they_send_again_at_once(call: Calls) -> None:
    """All clients send again at once after HA_NOT_AVAILABLE, and it comes well before their deadline."""
    answer = await call.send(message("orders"))
    assert (code(answer.status), len(answer.entries)) == ("HA_NOT_AVAILABLE", 0)


async def test_a_receive_is_answered_within_the_client_s_deadline_however_long_it_may_wait() -> None:
    patient = replace(NOBODY, deadline_ms=60_000)
    async with gateway_calls(patient, CONFIG) as address, Calls(address, timeout_s=1.0) as call:
        assert await call.receive("orders", wait_ms=20_000) == ("HA_NOT_AVAILABLE", [])


@pytest.mark.parametrize(("secrets", "said"), [([], 1), (["sixteen characters"], 0)])
async def test_access_keys_without_a_secret_are_told_in_the_log(
    secrets: list[str], said: int, caplog: pytest.LogCaptureFixture
) -> None:
    key = Key(access_key="a", secret_key="b", token="t")
    async with gateway_calls(NOBODY, Config(key=[key], secrets=secrets)):
        pass
    assert len([line for line in caplog.messages if "no secrets" in line]) == said


@pytest.mark.parametrize("handle", ["", "garbage", "r1.", "r1.AAAA", "r1.é", "c1.AAAA", "r1." + "A" * 3_000])
async def test_made_up_handles_are_refused_each_on_its_own(call: Calls, handle: str) -> None:
    made_up = message("orders", receipt_handle=handle)
    assert await call.ack("orders", made_up, made_up) == ["INVALID_RECEIPT_HANDLE"] * 2
    assert code((await call.change("orders", handle, 1_000)).status) == "INVALID_RECEIPT_HANDLE"
    assert code((await call.recall("orders", handle)).status) == "BAD_REQUEST"


async def test_an_ack_of_nothing_is_refused(call: Calls) -> None:
    assert await call.ack("orders") == ["BAD_REQUEST"]


@pytest.mark.parametrize(
    ("method", "request_type"),
    [
        ("PullMessage", service.PullMessageRequest),
        ("UpdateOffset", service.UpdateOffsetRequest),
        ("GetOffset", service.GetOffsetRequest),
        ("QueryOffset", service.QueryOffsetRequest),
        ("SyncLiteSubscription", service.SyncLiteSubscriptionRequest),
    ],
)
async def test_methods_that_are_not_served_are_unimplemented(
    call: Calls, method: str, request_type: Any
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        answer = getattr(call.stub, method)(request_type(), metadata=HEADERS)
        if method == "PullMessage":
            await answer.read()
        else:
            await answer
    assert raised.value.code() is grpc.StatusCode.UNIMPLEMENTED


def producer_settings() -> definition.Settings:
    settings = definition.Settings(client_type=definition.PRODUCER)
    settings.publishing.topics.add(name="orders")
    settings.request_timeout.seconds = 3
    settings.user_agent.hostname = "host"
    return settings


def consumer_settings(group: str) -> definition.Settings:
    settings = definition.Settings(client_type=definition.PUSH_CONSUMER)
    settings.subscription.group.name = group
    settings.subscription.subscriptions.add().topic.name = "orders"
    return settings


async def test_settings_come_back_with_what_the_server_decides(call: Calls) -> None:
    stream = call.telemetry()
    await stream.write(service.TelemetryCommand(settings=producer_settings()))
    told = await stream.read()
    assert code(told.status) == "OK"
    assert told.settings.publishing.max_body_size == 262_144
    assert (told.settings.publishing.topics[0].name, told.settings.request_timeout.seconds) == ("orders", 3)
    assert told.settings.user_agent.hostname == "host"
    assert told.settings.HasField("metric")
    policy = told.settings.backoff_policy
    assert (policy.max_attempts, policy.exponential_backoff.multiplier) == (3, 2)
    assert milliseconds(policy.exponential_backoff.initial) == 10
    await stream.write(service.TelemetryCommand(settings=consumer_settings("billing")))
    told = await stream.read()
    assert (told.settings.subscription.fifo, told.settings.subscription.receive_batch_size) == (False, 32)
    assert milliseconds(told.settings.subscription.long_polling_timeout) == 20_000
    waits = [milliseconds(each) for each in told.settings.backoff_policy.customized_backoff.next]
    assert (told.settings.backoff_policy.max_attempts, waits[:2]) == (16, [1_000, 5_000])
    await stream.write(service.TelemetryCommand(settings=consumer_settings("in-order")))
    assert (await stream.read()).settings.subscription.fifo
    await stream.write(service.TelemetryCommand(settings=definition.Settings()))
    assert code((await stream.read()).status) == "UNRECOGNIZED_CLIENT_TYPE"
    await stream.write(service.TelemetryCommand(settings=consumer_settings("a b$")))
    assert code((await stream.read()).status) == "ILLEGAL_CONSUMER_GROUP"
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


async def test_settings_are_answered_again_for_node_which_may_have_missed_the_answer(call: Calls) -> None:
    stream = call.telemetry()
    await stream.write(service.TelemetryCommand(settings=producer_settings()))
    first = await stream.read()
    async with asyncio.timeout(5):
        assert await stream.read() == first
    with pytest.raises(TimeoutError):  # once more, and not for ever
        async with asyncio.timeout(2):
            await stream.read()


async def test_initial_metadata_come_before_anything_is_sent_for_rust_which_waits_for_them(
    call: Calls,
) -> None:
    stream = call.telemetry()
    async with asyncio.timeout(5):
        await stream.initial_metadata()


async def test_what_a_client_tells_beside_settings_is_let_pass(call: Calls) -> None:
    stream = call.telemetry()
    await stream.write(service.TelemetryCommand(thread_stack_trace=service.ThreadStackTrace(nonce="n")))
    await stream.write(service.TelemetryCommand())
    await stream.write(service.TelemetryCommand(settings=producer_settings()))
    assert code((await stream.read()).status) == "OK"


async def test_streams_end_with_the_gateway() -> None:
    async with gateway_calls(NOBODY, CONFIG) as address:
        call = Calls(address)
        stream = call.telemetry()
        await stream.write(service.TelemetryCommand(settings=producer_settings()))
        await stream.read()
    assert await stream.read() is grpc.aio.EOF
    await call.channel.close(None)


async def test_beyond_its_limits_calls_are_refused_in_the_answer() -> None:
    limits = Limits(streams_max=1, sent_bytes_max=1_024, body_bytes_max=700_000, batch_messages_max=2)
    async with gateway_calls(NOBODY, Config(limits=limits)) as address, Calls(address) as call:
        held = call.telemetry()
        await held.write(service.TelemetryCommand(settings=producer_settings()))
        await held.read()
        assert code((await call.telemetry().read()).status) == "TOO_MANY_REQUESTS"
        two = await call.send(message("orders", bytes(700_000)), message("orders", bytes(700_000)))
        assert code(two.status) == "PAYLOAD_TOO_LARGE"  # whatever else ends, it does not fit
        many = [call.send(message("orders", bytes(700_000))) for _ in range(3)]
        codes = {code(each.status) for each in await asyncio.gather(*many)}
        assert codes == {"TOO_MANY_REQUESTS", "HA_NOT_AVAILABLE"}
        three = await call.send(*(message("orders") for _ in range(3)))
        assert code(three.status) == "PAYLOAD_TOO_LARGE"


def signed(access_key: str, secret: str, date: str = "20261127T090000Z") -> tuple[tuple[str, str], ...]:
    """Return headers as clients sign them; Python's have local time and end with a Z all the same."""
    signature = hmac.digest(secret.encode(), date.encode(), hashlib.sha1).hex()
    text = f"MQv2-HMAC-SHA1 Credential={access_key}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return (*HEADERS, ("x-mq-date-time", date), ("authorization", text))


async def test_calls_are_let_in_by_the_signature_of_an_access_key() -> None:
    config = Config(key=[Key(access_key="shop", secret_key="secret", token="t")])
    async with gateway_calls(NOBODY, config) as address, Calls(address) as call:
        for headers, expected in [
            (HEADERS, "UNAUTHORIZED"),
            (signed("", ""), "UNAUTHORIZED"),
            (signed("shop", "other"), "UNAUTHORIZED"),
            (signed("other", "secret"), "UNAUTHORIZED"),
            ((*HEADERS, ("authorization", "Bearer t")), "UNAUTHORIZED"),
            (signed("shop", "secret"), "OK"),
            (signed("shop", "secret", "19990101T000000Z"), "OK"),
        ]:
            call.headers = headers
            assert code((await route(call, "orders")).status) == expected
            stream = call.telemetry()
            await stream.write(service.TelemetryCommand(settings=producer_settings()))
            assert code((await stream.read()).status) == expected
        call.headers = tuple((name, value.upper()) for name, value in signed("shop", "secret"))
        call.headers = tuple(
            (name, value.upper() if name == "x-mq-date-time" else value)
            for name, value in signed("shop", "secret")
        )
        assert code((await route(call, "orders")).status) == "OK"


async def test_clients_without_credentials_have_a_key_of_their_own_where_it_is_given() -> None:
    """Java and Node send no authorization then, Python and Go one with empty names."""
    config = Config(key=[Key(access_key="", token="t"), Key(access_key="a", secret_key="s", token="u")])
    async with gateway_calls(NOBODY, config) as address, Calls(address) as call:
        assert code((await route(call, "orders")).status) == "OK"
        call.headers = signed("", "")
        assert code((await route(call, "orders")).status) == "OK"
        call.headers = signed("a", "wrong")
        assert code((await route(call, "orders")).status) == "UNAUTHORIZED"


TEXTS = ["", " ", "orders", "a|b", "\x00", "é" * 50, "x" * 5_000, "%", ".", "r1.AAAA", "c1.AAAA", "t1.AAAA"]


def scalar(field: Any, chance: random.Random) -> Any:
    """Return any value of a field."""
    match field.cpp_type:
        case field.CPPTYPE_STRING:
            text = chance.choice(TEXTS)
            return text.encode() if field.type == field.TYPE_BYTES else text
        case field.CPPTYPE_BOOL:
            return chance.random() < 0.5
        case field.CPPTYPE_ENUM:
            return chance.choice([0, 1, 2, 3, 4, 99])
        case field.CPPTYPE_FLOAT:
            return chance.choice([0.0, float("nan"), 1e30])
    highest = 63 if field.cpp_type == field.CPPTYPE_INT64 else 31
    return chance.choice([0, 1, -1, 10, (1 << highest) - 1, -(1 << highest)])


def fill(message: Any, chance: random.Random, depth: int = 0) -> None:
    """Set some of the fields of a message to anything."""
    for field in message.DESCRIPTOR.fields:
        if chance.random() < 0.3 or depth > 4:
            continue
        if field.message_type is None:
            if field.is_repeated:
                getattr(message, field.name).append(scalar(field, chance))
            else:
                setattr(message, field.name, scalar(field, chance))
        elif field.message_type.GetOptions().map_entry:
            getattr(message, field.name)[chance.choice(TEXTS)] = chance.choice(TEXTS)
        elif field.is_repeated:
            for _ in range(chance.randrange(3)):
                fill(getattr(message, field.name).add(), chance, depth + 1)
        else:
            fill(getattr(message, field.name), chance, depth + 1)


METHODS = [
    "QueryRoute", "QueryAssignment", "Heartbeat", "SendMessage", "RecallMessage", "AckMessage",
    "ChangeInvisibleDuration", "EndTransaction", "NotifyClientTermination", "ReceiveMessage",
]  # fmt: skip


async def test_no_request_gets_a_status_of_grpc_whatever_is_in_it(call: Calls) -> None:
    chance = random.Random(7)
    for _ in range(60):
        for method in METHODS:
            request = getattr(service, f"{method}Request")()
            fill(request, chance)
            if method == "ReceiveMessage":
                request.long_polling_timeout.seconds = 0
                answers = [each async for each in call.stub.ReceiveMessage(request, metadata=HEADERS)]
                assert answers[0].WhichOneof("content") == "status"
            else:
                assert (await call(method, request)).status.code
    stream = call.telemetry()
    for _ in range(60):
        command = service.TelemetryCommand()
        fill(command.settings, chance)
        await stream.write(command)
        assert await stream.read() is not grpc.aio.EOF
