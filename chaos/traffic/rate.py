"""Rates of traffic, and messages on the wire for producers that speak the protocol themselves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

from grpc import aio

from tarry.chaos.history import Sent
from tarry.chaos.traffic.traffic import TOKEN
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import Record

Stub = TypeVar("Stub")
QUICK = [
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True, slots=True)
class Rates:
    """Rates of traffic: messages a second of each kind, and their greatest delay."""

    singles: float = 60
    batched: float = 60
    streamed: float = 20
    repeated: float = 20
    by_key_share: float = 0.5  # of the repeated have an idempotency key instead of a producer's number
    delay_ms_max: int = 2_400
    keyed_share: float = 0.15  # of the singles have an ordering key
    ask_share: float = 0.25  # of the messages are cancelled or looked up


def request_of(
    producer: str, sequence: int, draft: Sent, idempotency_key: str = ""
) -> pb.ScheduleBatchRequest:
    record = Record(body=TOKEN.pack(draft.token), idempotency_key=idempotency_key).SerializeToString()
    return pb.ScheduleBatchRequest(
        producer=producer, sequence=sequence, topics=[draft.topic], due_ms=[draft.due_ms], records=[record]
    )


def id_of(answer: pb.ScheduleBatchResponse) -> str:
    return str(MessageId(answer.shard, answer.hour[0], answer.global_index[0]))


@asynccontextmanager
async def stubs_of(
    addresses: Iterable[str], kind: Callable[[aio.Channel], Stub]
) -> AsyncIterator[list[Stub]]:
    """Yield a stub for each address, of the service whose stubs are of this kind."""
    async with AsyncExitStack() as stack:
        channels = [aio.insecure_channel(address, QUICK) for address in addresses]
        yield [kind(await stack.enter_async_context(channel)) for channel in channels]
