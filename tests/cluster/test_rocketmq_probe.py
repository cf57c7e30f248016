"""The same requests to RocketMQ 5.5.0's proxy, whose answers were recorded, and to the gateway, side by side.

Where an answer differs, a row of the page's table of differences says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import grpc
import pytest

from tarry.client.local.cluster import LocalCluster
from tarry.client.settings import Settings, parse_servers
from tarry.gateway.rocketmq.config import Config
from tarry.gateway.rocketmq.handles import Handles, Recall
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tests.cluster.test_upgrade import level
from tests.gateway.rocketmq_calls import HEADERS, Calls, code, gateway_calls, message

pytestmark = pytest.mark.beside

Resource = definition.Resource
Probe: TypeAlias = Callable[[Calls], Awaitable[str]]
PAGE: Final = Path(__file__).resolve().parents[2] / "gateway/ROCKETMQ.md"
NORMAL, DELAY = "probe-normal", "probe-delay"
CONFIG: Final = Config(types={NORMAL: ["NORMAL"], DELAY: ["DELAY"]})
"""As the topics were at the proxy, whose message types are those of the topic."""
QUICK_MS: Final = 1_000
QUICK: Final = Config.model_validate({"limits": {"invisible_ms_min": QUICK_MS}})
"""For what is asked of a handle whose message is not invisible any more."""
CONFLICT: Final = "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"
HOUR_MS: Final = 3_600_000


class Row(NamedTuple):
    """A request, and what both answer."""

    probe: Probe
    proxy: str
    """The recorded code."""
    gateway: str = ""
    """Where it is another: the code."""
    row: str = ""
    """And the beginning of the page's row."""


def sends(*messages: definition.Message) -> Probe:
    async def play(call: Calls) -> str:
        return code((await call.send(*messages)).status)

    return play


def one(topic: str = NORMAL, body: bytes = b"x", **system: Any) -> Probe:
    return sends(message(topic, body, **system))


def asks(method: str, **fields: Any) -> Probe:
    async def play(call: Calls) -> str:
        return code((await call(method, **fields)).status)

    return play


def route(topic: str) -> Probe:
    return asks("QueryRoute", topic=Resource(name=topic))


def receives(topic: str = "probe-empty", **more: Any) -> Probe:
    async def play(call: Calls) -> str:
        return (await call.receive(topic, **{"wait_ms": 100, **more}))[0]

    return play


def nameless(probe: Probe) -> Probe:
    async def play(call: Calls) -> str:
        call.headers = ()
        try:
            return await probe(call)
        finally:
            call.headers = HEADERS

    return play


def recalls(topic: str = DELAY, handle: str | None = None, times: int = 1) -> Probe:
    """Recall a message that is sent for it, unless a handle is given."""

    async def play(call: Calls) -> str:
        given = handle
        if given is None:
            answer = await call.send(message(DELAY, due_ms=due(HOUR_MS)))
            given = answer.entries[0].recall_handle
            assert given
        for _ in range(times - 1):
            assert code((await call.recall(topic, given)).status) == "OK"
        return code((await call.recall(topic, given)).status)

    return play


def ends(*resolutions: int, transaction_id: str | None = None) -> Probe:
    """End a transaction that is begun for it, unless its id is given; return the last answer."""

    async def play(call: Calls) -> str:
        half, answer = message("probe-transactions", message_type=definition.TRANSACTION), ""
        named = transaction_id
        if named is None:
            named = (await call.send(half)).entries[0].transaction_id
        for resolution in resolutions:
            told = await call(
                "EndTransaction",
                topic=Resource(name="probe-transactions"),
                message_id=half.system_properties.message_id,
                transaction_id=named,
                resolution=resolution,
            )
            answer = code(told.status)
        return answer

    return play


def settles(*steps: str, topic: str = "") -> Probe:
    """Receive a message and acknowledge it, or change its invisible duration; return the last answer."""

    async def play(call: Calls) -> str:
        own = f"probe-{time.time_ns()}"
        assert code((await call.send(message(own))).status) == "OK"
        _, (got,) = await call.receive(own)
        told = ""
        for step in steps:
            if step == "ack":
                (told,) = await call.ack(topic or own, got)
            else:
                told = code((await call.change(own, got, int(step))).status)
        return told

    return play


def settles_anew(*steps: str) -> Probe:
    """The same, each time with the handle that the step before gave."""

    async def play(call: Calls) -> str:
        own = f"probe-{time.time_ns()}"
        assert code((await call.send(message(own))).status) == "OK"
        told, (got,) = await call.receive(own)
        for step in steps:
            if step == "ack":
                (told,) = await call.ack(own, got)
                continue
            changed = await call.change(own, got, int(step))
            told, got.system_properties.receipt_handle = code(changed.status), changed.receipt_handle
        return told

    return play


def expired(probe: Callable[[Calls, str, definition.Message], Awaitable[str]]) -> Probe:
    """Receive a message, and settle it once it is not invisible any more."""

    async def play(call: Calls) -> str:
        own = f"probe-{time.time_ns()}"
        assert code((await call.send(message(own))).status) == "OK"
        _, (got,) = await call.receive(own, invisible_ms=QUICK_MS)
        await asyncio.sleep(2 * QUICK_MS / 1_000)
        return await probe(call, own, got)

    return play


async def acks_late(call: Calls, topic: str, got: definition.Message) -> str:
    return (await call.ack(topic, got))[0]


async def changes_late(call: Calls, topic: str, got: definition.Message) -> str:
    return code((await call.change(topic, got, 12_000)).status)


async def recalls_delivered(call: Calls) -> str:
    """A handle of a time that is over, as of a message that has been delivered."""
    own = f"probe-{time.time_ns()}"
    (entry,) = (await call.send(message(own, due_ms=due(500)))).entries
    _, (got,) = await call.receive(own)
    assert got.body == b"body"
    return code((await call.recall(own, entry.recall_handle)).status)


async def receives_in_a_hurry(call: Calls) -> str:
    usual, call.timeout_s = call.timeout_s, 3
    try:
        return (await call.receive("probe-empty", wait_ms=5_000))[0]
    finally:
        call.timeout_s = usual


def acks(handle: str) -> Probe:
    async def play(call: Calls) -> str:
        return (await call.ack(NORMAL, message(NORMAL, receipt_handle=handle)))[0]

    return play


async def acks_nothing(call: Calls) -> str:
    return (await call.ack(NORMAL))[0]


async def changes_garbage(call: Calls) -> str:
    return code((await call.change(NORMAL, "garbage", 12_000)).status)


def twice(sent: definition.Message) -> Probe:
    async def play(call: Calls) -> str:
        assert code((await call.send(sent)).status) == "OK"
        return code((await call.send(sent)).status)

    return play


def unserved(method: str) -> Probe:
    async def play(call: Calls) -> str:
        try:
            answer = getattr(call.stub, method)(getattr(service, f"{method}Request")(), metadata=HEADERS)
            await (answer.read() if method == "PullMessage" else answer)
        except grpc.aio.AioRpcError as error:
            return f"gRPC {error.code().name}"
        return "OK"

    return play


def due(ahead_ms: int) -> int:
    return time.time_ns() // 1_000_000 + ahead_ms


COMMIT, ROLLBACK = definition.COMMIT, definition.ROLLBACK
MANY = {str(number): "x" for number in range(129)}
INTERNAL = "INTERNAL_SERVER_ERROR"
NONE = "INVALID_RECEIPT_HANDLE"
GROUP = {"group": Resource(name="a b$")}
RECORDED: Final[Mapping[str, Row]] = {
    "Heartbeat before settings": Row(
        asks("Heartbeat", client_type=definition.PRODUCER), "UNRECOGNIZED_CLIENT_TYPE", "OK", "heartbeat"
    ),
    "Send before settings": Row(one(), "OK"),
    "Receive before settings": Row(receives(), INTERNAL, "MESSAGE_NOT_FOUND", "heartbeat or receive"),
    "NotifyClientTermination before settings": Row(
        asks("NotifyClientTermination"), "UNRECOGNIZED_CLIENT_TYPE", "OK", "termination"
    ),
    "Send without any x-mq header": Row(nameless(one()), "CLIENT_ID_REQUIRED"),
    "QueryRoute without any x-mq header": Row(nameless(route(NORMAL)), "CLIENT_ID_REQUIRED"),
    "QueryRoute unknown topic": Row(route("probe-nope"), "TOPIC_NOT_FOUND", "OK", "route of an unknown"),
    "QueryRoute illegal characters": Row(route("a b$"), "ILLEGAL_TOPIC"),
    "QueryRoute empty topic": Row(route(""), "ILLEGAL_TOPIC"),
    "QueryRoute 128-character topic": Row(route("a" * 128), "ILLEGAL_TOPIC"),
    "QueryRoute system topic": Row(route("rmq_sys_TRACE_DATA"), "ILLEGAL_TOPIC"),
    "QueryRoute without endpoints": Row(route(NORMAL), "OK"),
    "QueryAssignment unknown topic": Row(
        asks("QueryAssignment", topic=Resource(name="probe-nope"), group=Resource(name="g")),
        "TOPIC_NOT_FOUND",
        "OK",
        "assignment",
    ),
    "QueryAssignment illegal group": Row(
        asks("QueryAssignment", topic=Resource(name=NORMAL), **GROUP), "ILLEGAL_CONSUMER_GROUP"
    ),
    "Send normal": Row(one(), "OK"),
    "Send no messages": Row(sends(), "MESSAGE_CORRUPTED"),
    "Send empty body": Row(one(body=b""), "MESSAGE_BODY_EMPTY"),
    "Send 4 MiB exactly": Row(one(body=bytes(4 << 20)), "OK", "MESSAGE_BODY_TOO_LARGE", "body"),
    "Send 4 MiB + 1": Row(one(body=bytes((4 << 20) + 1)), "MESSAGE_BODY_TOO_LARGE"),
    "Send tag with |": Row(one(tag="a|b"), "ILLEGAL_MESSAGE_TAG"),
    "Send blank tag": Row(one(tag="  "), "ILLEGAL_MESSAGE_TAG"),
    "Send blank key": Row(one(keys=["  "]), "ILLEGAL_MESSAGE_KEY"),
    "Send control character in key": Row(one(keys=["a\x01"]), "ILLEGAL_MESSAGE_KEY"),
    "Send system property name KEYS": Row(one(properties={"KEYS": "x"}), "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    "Send control character in property": Row(one(properties={"a": "\x01"}), "ILLEGAL_MESSAGE_PROPERTY_KEY"),
    "Send 129 properties": Row(one(properties=MANY), "MESSAGE_PROPERTIES_TOO_LARGE"),
    "Send 17 KiB of properties": Row(one(properties={"a": "x" * 17_408}), "MESSAGE_PROPERTIES_TOO_LARGE"),
    "Send empty message id": Row(one(message_id=""), "ILLEGAL_MESSAGE_ID"),
    "Send group of 64 bytes": Row(one(message_group="g" * 64), "ILLEGAL_MESSAGE_GROUP"),
    "Send blank group": Row(one(message_group="  "), "ILLEGAL_MESSAGE_GROUP"),
    "Send FIFO without group": Row(one(message_type=definition.FIFO), CONFLICT),
    "Send type UNSPECIFIED": Row(one(message_type=definition.MESSAGE_TYPE_UNSPECIFIED), "OK"),
    "Send DELAY type to NORMAL topic": Row(one(due_ms=due(HOUR_MS)), CONFLICT),
    "Send NORMAL to DELAY topic": Row(one(DELAY), CONFLICT),
    "Send DELAY without timestamp": Row(one(DELAY, message_type=definition.DELAY), CONFLICT),
    "Send NORMAL type with delivery_timestamp": Row(
        one(due_ms=due(HOUR_MS), message_type=definition.NORMAL), CONFLICT
    ),
    "Send DELAY due 1 h ago": Row(one(DELAY, due_ms=due(-HOUR_MS)), "OK"),
    "Send DELAY in 24 h - 1 min": Row(one(DELAY, due_ms=due(24 * HOUR_MS - 60_000)), "OK"),
    "Send DELAY in 24 h + 1 min": Row(
        one(DELAY, due_ms=due(24 * HOUR_MS + 60_000)), "ILLEGAL_DELIVERY_TIME", "OK", "a delay beyond a day"
    ),
    "Send DELAY + message group": Row(
        one(DELAY, due_ms=due(HOUR_MS), message_group="g", message_type=definition.DELAY), "OK"
    ),
    "Send 2 NORMAL in one request": Row(sends(message(NORMAL), message(NORMAL)), "OK"),
    "Send 2 DELAY in one request": Row(
        sends(message(DELAY, due_ms=due(HOUR_MS)), message(DELAY, due_ms=due(HOUR_MS))),
        INTERNAL,
        "OK",
        "several delayed messages",
    ),
    "Send 2 topics in one request": Row(sends(message(NORMAL), message("other")), "MESSAGE_CORRUPTED"),
    "Send unknown topic": Row(one("probe-nope"), CONFLICT, "OK", "message of a type"),
    "Send illegal topic": Row(one("a b$"), "ILLEGAL_TOPIC"),
    "Send system topic": Row(one("rmq_sys_x"), "ILLEGAL_TOPIC"),
    "Send same message id twice": Row(twice(message(NORMAL)), "OK"),
    "Recall": Row(recalls(), "OK"),
    "Recall again": Row(recalls(times=2), "OK"),
    "Recall other topic": Row(recalls("other"), CONFLICT, "BAD_REQUEST", "recall with a handle of another"),
    "Recall empty": Row(recalls(handle=""), INTERNAL, "BAD_REQUEST", "a recall handle that is none"),
    "Recall garbage": Row(recalls(handle="x"), INTERNAL, "BAD_REQUEST", "a recall handle that is none"),
    "Recall past timestamp": Row(
        recalls_delivered, INTERNAL, "MESSAGE_NOT_FOUND", "recall of a delivered message"
    ),
    "Recall never-sent message id": Row(
        recalls(handle=Handles([]).recall(Recall(DELAY, "0000000f70h0000000n", "01AA"))),
        "OK",
        "MESSAGE_NOT_FOUND",
        "recall of a message that was never sent",
    ),
    "EndTransaction empty id": Row(ends(COMMIT, transaction_id=""), "INVALID_TRANSACTION_ID"),
    "EndTransaction unknown id": Row(
        ends(COMMIT, transaction_id="x"), INTERNAL, "INVALID_TRANSACTION_ID", "a transaction id that is none"
    ),
    "EndTransaction commit": Row(ends(COMMIT), "OK"),
    "EndTransaction commit twice": Row(ends(COMMIT, COMMIT), INTERNAL, "OK", "commit or rollback again"),
    "EndTransaction rollback after commit": Row(
        ends(COMMIT, ROLLBACK), INTERNAL, "INVALID_TRANSACTION_ID", "commit or rollback again"
    ),
    "half message to NORMAL topic": Row(one(message_type=definition.TRANSACTION), CONFLICT),
    "Heartbeat consumer": Row(
        asks("Heartbeat", client_type=definition.SIMPLE_CONSUMER, group=Resource(name="g")), "OK"
    ),
    "Receive invisible 5 s": Row(receives(invisible_ms=5_000), "ILLEGAL_INVISIBLE_TIME"),
    "Receive invisible 13 h": Row(receives(invisible_ms=13 * HOUR_MS), "ILLEGAL_INVISIBLE_TIME"),
    "Receive bad SQL": Row(
        receives(sql="a ="), INTERNAL, "ILLEGAL_FILTER_EXPRESSION", "a filter that is no SQL"
    ),
    "Receive deadline 3 s": Row(
        receives_in_a_hurry, "ILLEGAL_POLLING_TIME", "MESSAGE_NOT_FOUND", "receive with little time"
    ),
    "Receive batch 0": Row(receives(batch_size=0), "MESSAGE_NOT_FOUND"),
    "Receive unknown topic": Row(
        receives("probe-unknown"), "TOPIC_NOT_FOUND", "MESSAGE_NOT_FOUND", "receive of an unknown topic"
    ),
    "Receive illegal group": Row(receives(group="a b$"), "ILLEGAL_CONSUMER_GROUP"),
    "Receive": Row(settles_anew(), "OK"),
    "Ack with the new handle": Row(settles_anew("12000", "ack"), "OK"),
    "ChangeInvisible 12 s": Row(settles("12000"), "OK"),
    "ChangeInvisible with the old handle": Row(settles("12000", "12000"), "OK"),
    "Ack with the old handle": Row(settles("12000", "ack"), "OK"),
    "Ack twice": Row(settles("ack", "ack"), "OK", NONE, "ack again, or a change"),
    "ChangeInvisible after ack": Row(settles("ack", "12000"), "OK", NONE, "ack again, or a change"),
    "ChangeInvisible 13 h": Row(settles(str(13 * HOUR_MS)), "ILLEGAL_INVISIBLE_TIME"),
    "Ack wrong topic": Row(settles("ack", topic="other"), "OK", NONE, "a receipt handle of another topic"),
    "Ack garbage handle": Row(acks("garbage"), INTERNAL, NONE, "a receipt handle that is none"),
    "Ack empty handle": Row(acks(""), INTERNAL, NONE, "a receipt handle that is none"),
    "Ack no entries": Row(acks_nothing, INTERNAL, "BAD_REQUEST", "an ack of nothing"),
    "ChangeInvisible garbage": Row(changes_garbage, INTERNAL, NONE, "a receipt handle that is none"),
    "ForwardToDLQ garbage": Row(
        asks(
            "ForwardMessageToDeadLetterQueue",
            topic=Resource(name=NORMAL),
            group=Resource(name="g"),
            receipt_handle="garbage",
        ),
        INTERNAL,
        NONE,
        "a receipt handle that is none",
    ),
    "PullMessage": Row(unserved("PullMessage"), "gRPC UNIMPLEMENTED"),
    "UpdateOffset": Row(unserved("UpdateOffset"), "gRPC UNIMPLEMENTED"),
    "GetOffset": Row(unserved("GetOffset"), "gRPC UNIMPLEMENTED"),
    "QueryOffset": Row(unserved("QueryOffset"), "gRPC UNIMPLEMENTED"),
    "SyncLiteSubscription": Row(
        unserved("SyncLiteSubscription"), "ILLEGAL_TOPIC", "gRPC UNIMPLEMENTED", "a subscription to lite"
    ),
    "NotifyClientTermination": Row(asks("NotifyClientTermination", group=Resource(name="g")), "OK"),
    "Receive after termination": Row(receives(), INTERNAL, "MESSAGE_NOT_FOUND", "heartbeat or receive"),
}


RECORDED_LATE: Final[Mapping[str, Row]] = {
    "Ack 3 s after expiry": Row(expired(acks_late), NONE),
    "ChangeInvisible after expiry": Row(expired(changes_late), NONE),
}
"""Asked with a handle whose message is not invisible any more."""


@pytest.mark.parametrize(("config", "recorded"), [(CONFIG, RECORDED), (QUICK, RECORDED_LATE)])
async def test_what_the_proxy_was_asked_the_gateway_answers_alike_or_as_the_page_says(
    shared_cluster: LocalCluster, config: Config, recorded: Mapping[str, Row]
) -> None:
    await level(shared_cluster, 2)
    settings = Settings(servers=parse_servers(shared_cluster.addresses))
    async with gateway_calls(settings, config) as address, Calls(address) as call:
        answers = {name: await row.probe(call) for name, row in recorded.items()}
    assert answers == {name: row.gateway or row.proxy for name, row in recorded.items()}


def test_each_answer_that_differs_has_a_row_of_the_page() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    for name, row in {**RECORDED, **RECORDED_LATE}.items():
        assert bool(row.gateway) == bool(row.row), name
        if row.row:
            assert row.gateway != row.proxy, name
            assert [line for line in rows if line.startswith(f"| {row.row}")], name
