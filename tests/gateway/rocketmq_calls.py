"""Calls of the gateway for RocketMQ's clients, as its clients make them: raw, on the protocol's own stub."""

from __future__ import annotations

import itertools
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tarry.client.settings import Settings
from tarry.gateway.rocketmq.config import Config
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code
from tarry.gateway.rocketmq.protocol.service_pb2_grpc import MessagingServiceStub
from tarry.gateway.rocketmq.server import Certificate, running

HEADERS = (("x-mq-client-id", "host@1@0@abc"), ("x-mq-language", "JAVA"), ("x-mq-protocol", "v2"))
_numbers = itertools.count(1)


def new_id() -> str:
    """Return a message id of the form that clients make."""
    return f"01A1B2C3D4E5F6{time.time_ns() % (1 << 40):012X}{next(_numbers):08X}"


def code(status: Any) -> str:
    """Return the name of a status' code."""
    return Code.Name(status.code)


def timestamp(milliseconds: int) -> Timestamp:
    """Return a time in a message."""
    return Timestamp(seconds=milliseconds // 1_000, nanos=milliseconds % 1_000 * 1_000_000)


def milliseconds(given: Timestamp | Duration) -> int:
    """Return a time or duration in milliseconds."""
    return given.seconds * 1_000 + given.nanos // 1_000_000


def message(topic: str, body: bytes = b"body", **system: Any) -> definition.Message:
    """Return a message; ``due_ms``, ``properties`` and ``namespace`` stand beside system properties."""
    properties, namespace = system.pop("properties", {}), system.pop("namespace", "")
    if (due_ms := system.pop("due_ms", None)) is not None:
        system.setdefault("delivery_timestamp", timestamp(due_ms))
        system.setdefault("message_type", definition.DELAY)
    if system.get("message_group"):
        system.setdefault("message_type", definition.FIFO)
    given: dict[str, Any] = {
        "message_id": new_id(),
        "message_type": definition.NORMAL,
        "born_host": "10.0.0.7",
        **system,
    }
    return definition.Message(
        topic=definition.Resource(name=topic, resource_namespace=namespace),
        body=body,
        user_properties=properties,
        system_properties=definition.SystemProperties(**given),
    )


class Calls:
    """A client of one gateway, with headers of its own."""

    def __init__(
        self,
        address: str,
        headers: Iterable[tuple[str, str]] = HEADERS,
        authority: bytes | None = None,
        timeout_s: float | None = 10,
        channel_options: Sequence[tuple[str, int]] = (),
    ) -> None:
        if authority is None:
            self.channel = grpc.aio.insecure_channel(address, options=channel_options)
        else:
            self.channel = grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority))
        self.stub: Any = MessagingServiceStub(self.channel)
        self.address = address
        self.headers = tuple(headers)
        self.timeout_s = timeout_s

    async def __aenter__(self) -> Calls:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.channel.close(None)

    async def __call__(self, method: str, request: Any = None, **fields: Any) -> Any:
        """Return the answer of a method."""
        request = request if request is not None else getattr(service, f"{method}Request")(**fields)
        called = getattr(self.stub, method)
        return await called(request, metadata=self.headers, timeout=self.timeout_s)

    async def send(self, *messages: definition.Message) -> service.SendMessageResponse:
        """Send messages in one request."""
        answer = await self("SendMessage", messages=messages)
        assert isinstance(answer, service.SendMessageResponse)
        return answer

    async def receive(
        self, topic: str, group: str = "g", **more: Any
    ) -> tuple[str, list[definition.Message]]:
        """Return the status of a receive, and the messages. ``wait_ms`` and ``invisible_ms`` are short."""
        told = [each async for each in self.received(topic, group, **more)]
        assert told[0].WhichOneof("content") == "status"
        return code(told[0].status), [each.message for each in told if each.HasField("message")]

    def received(self, topic: str, group: str = "g", **more: Any) -> Any:
        """Return the stream of a receive."""
        request = self.receive_request(topic, group, **more)
        return self.stub.ReceiveMessage(request, metadata=self.headers, timeout=self.timeout_s)

    def receive_request(self, topic: str, group: str = "g", **more: Any) -> service.ReceiveMessageRequest:
        """Return the request of a receive."""
        wait_ms, invisible_ms = more.pop("wait_ms", 5_000), more.pop("invisible_ms", 10_000)
        tags, sql, push = more.pop("tags", "*"), more.pop("sql", ""), more.pop("push", False)
        kind = definition.SQL if sql else definition.TAG
        fields: dict[str, Any] = {
            "group": definition.Resource(name=group),
            "message_queue": definition.MessageQueue(topic=definition.Resource(name=topic)),
            "filter_expression": definition.FilterExpression(type=kind, expression=sql or tags),
            "batch_size": 16,
            "auto_renew": push,
        }
        if wait_ms is not None:
            fields["long_polling_timeout"] = Duration(seconds=wait_ms // 1_000, nanos=wait_ms % 1_000 * 10**6)
        if not push and invisible_ms is not None:
            seconds, rest = divmod(invisible_ms, 1_000)
            fields["invisible_duration"] = Duration(seconds=seconds, nanos=rest * 10**6)
        return service.ReceiveMessageRequest(**fields | more)

    async def ack(self, topic: str, *messages: definition.Message, group: str = "g") -> list[str]:
        """Acknowledge messages; return the code of each."""
        answer = await self(
            "AckMessage",
            group=definition.Resource(name=group),
            topic=definition.Resource(name=topic),
            entries=[
                service.AckMessageEntry(
                    message_id=each.system_properties.message_id,
                    receipt_handle=each.system_properties.receipt_handle,
                )
                for each in messages
            ],
        )
        return [code(entry.status) for entry in answer.entries] or [code(answer.status)]

    async def change(
        self, topic: str, message: definition.Message | str, invisible_ms: int | None, group: str = "g"
    ) -> Any:
        """Change the invisible duration of a message, given by itself or its handle."""
        handle = message if isinstance(message, str) else message.system_properties.receipt_handle
        duration = None
        if invisible_ms is not None:
            duration = Duration(seconds=invisible_ms // 1_000, nanos=invisible_ms % 1_000 * 10**6)
        return await self(
            "ChangeInvisibleDuration",
            group=definition.Resource(name=group),
            topic=definition.Resource(name=topic),
            receipt_handle=handle,
            invisible_duration=duration,
        )

    async def recall(self, topic: str, handle: str) -> Any:
        """Recall a message by its handle."""
        return await self("RecallMessage", topic=definition.Resource(name=topic), recall_handle=handle)

    def telemetry(self) -> Any:
        """Open a stream of telemetry."""
        return self.stub.Telemetry(metadata=self.headers)


@asynccontextmanager
async def gateway_calls(
    settings: Settings, config: Config, *advertised: tuple[str, int], certificate: Certificate | None = None
) -> AsyncIterator[str]:
    """Run a gateway in this process; yield its address."""
    async with running(settings, config, ("127.0.0.1", 0), advertised, certificate) as served:
        yield f"127.0.0.1:{served.port}"
