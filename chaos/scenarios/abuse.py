"""Abuse by clients and strangers, and large ordinary loads; no node is injured."""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

from grpc import aio

from tarry.chaos.cluster.cluster import now_ms
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.load import DAY_MS, LATER
from tarry.chaos.traffic.rate import QUICK
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.message_id import GLOBAL_INDEX_MAX, HOUR_MAX, MessageId
from tarry.proto.tarry_consumer_pb2_grpc import ConsumerServiceStub
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_operator_pb2_grpc import OperatorServiceStub
from tarry.proto.tarry_producer_pb2_grpc import ProducerServiceStub

REMINDERS = 65_536
YEAR_MS = 365 * DAY_MS
SILENT_SOCKETS = 600
SILENT_STREAMS = 2_000
STREAMS_PER_CHANNEL = 50
LARGE = (2**31, 2**32 - 1, 2**63, 2**64 - 1)
REQUESTS = 1_100
"""Of one producer: more than the answers that a node keeps of one."""


@scenario(loads=("light",))
async def year_of_reminders(run: Run) -> None:
    """65,536 reminders evenly over a year, then over 99: the leader keeps its term; then it is killed."""
    for years in (1, 99):
        term = await run.cluster.term()
        first_ms = now_ms() + 2 * DAY_MS
        step_ms = (years * YEAR_MS - 2 * DAY_MS) // REMINDERS
        await run.producers.schedule_at(LATER, [first_ms + number * step_ms for number in range(REMINDERS)])
        after = await run.cluster.term()
        text = f"{REMINDERS} reminders over {years} years took the cluster from term {term} to {after}"
        run.expect(after == term, text, timed=True)
    await run.crash(await run.leader())
    await run.serving()


@scenario(loads=("light", "singles"), unavailable_ms_max=1_500)
async def strangers(run: Run) -> None:
    """Silent sockets and streams by the hundred, and paths that are no text; a node restarts meanwhile."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    leader, follower = await run.leader(), (await run.followers())[0]
    term = await run.cluster.term()
    async with AsyncExitStack() as stack:
        for name in run.names:
            await stack.enter_async_context(_silent_sockets(run.cluster.local.nodes[name].peer_address))
            await _call_no_text(run.cluster.local.nodes[name].address)
        await stack.enter_async_context(_silent_streams(run.cluster.local.nodes[leader].address))
        await run.during(2)
        async with run.disturbed("restart", follower):
            await run.cluster.restart(follower)
            await run.serving()
        await run.during(1)
    after = await run.cluster.term()
    run.expect(after == term, f"strangers took the cluster from term {term} to {after}", timed=True)


@asynccontextmanager
async def _silent_sockets(address: str) -> AsyncIterator[None]:
    """Hold connections that say nothing; those that the node ends are opened again."""
    host, _, port = address.rpartition(":")
    held: dict[int, socket.socket] = {}

    async def hold() -> None:
        while True:
            for number in range(SILENT_SOCKETS):
                if number in held:
                    held[number].close()
                held[number] = _opened(host, int(port))
                if number % 20 == 0:
                    await asyncio.sleep(0.02)

    task = asyncio.create_task(hold())
    try:
        yield
    finally:
        task.cancel()
        for one in held.values():
            one.close()


async def _call_no_text(address: str) -> None:
    """Call a method whose path is not UTF-8."""
    async with aio.insecure_channel(address) as channel:
        path: Any = b"/tarry.v1.ProducerService/\xff"
        with suppress(aio.AioRpcError):
            await channel.unary_unary(path, None, None)(b"", timeout=1)


def _opened(host: str, port: int) -> socket.socket:
    one = socket.socket()
    one.setblocking(False)
    with suppress(BlockingIOError):
        one.connect((host, port))
    return one


@asynccontextmanager
async def _silent_streams(address: str) -> AsyncIterator[None]:
    """Hold calls that never send their first request."""
    async with AsyncExitStack() as stack:
        calls = []
        for number in range(SILENT_STREAMS):
            if number % STREAMS_PER_CHANNEL == 0:
                channel = await stack.enter_async_context(aio.insecure_channel(address, QUICK))
                await asyncio.sleep(0.01)
            calls.append(ConsumerServiceStub(channel).Consume(timeout=60))
        yield
        for call in calls:
            call.cancel()


@scenario(loads=("light",))
async def poison(run: Run) -> None:
    """Absurd numbers, forged dead letters and ids in every request; then all nodes are killed and started."""
    leader = run.cluster.local.nodes[await run.leader()]
    async with aio.insecure_channel(leader.address, QUICK) as channel:
        await _absurd_sequences(ProducerServiceStub(channel))
        await _forged_letters(ProducerServiceStub(channel), OperatorServiceStub(channel))
        await _forged_ids(ProducerServiceStub(channel), ConsumerServiceStub(channel))
    await run.during(6)  # a checkpoint on every node
    for name in run.names:
        running = run.cluster.local.nodes[name].running
        run.expect(running, f"{name} has ended: {run.cluster.local.nodes[name].log_tail(5)}")
    await run.crash_all()
    await run.during(6)
    for name in run.names:
        text = f"{name} has ended again: {run.cluster.local.nodes[name].log_tail(5)}"
        run.expect(run.cluster.local.nodes[name].running, text)


async def _answered(call: Awaitable[object]) -> None:
    """Wait for an answer, whichever: a refusal is one."""
    with suppress(aio.AioRpcError):
        await call


def _batch(topic: str, record: Record, **fields: Any) -> producer_pb.ScheduleBatchRequest:
    return producer_pb.ScheduleBatchRequest(
        topics=[topic],
        due_ms=[now_ms() + 3_600_000],
        records=[record.SerializeToString()],
        **fields,
    )


async def _absurd_sequences(producers: ProducerServiceStub) -> None:
    for number, sequence in enumerate(LARGE):
        name = f"poison-{number}"
        await _answered(producers.ScheduleBatch(_batch("poison", Record(), producer=name, sequence=sequence)))
    for sequence in range(1, REQUESTS):
        request = _batch("poison", Record(), producer="poison-4", sequence=sequence)
        await _answered(producers.ScheduleBatch(request))


async def _forged_letters(producers: ProducerServiceStub, operators: OperatorServiceStub) -> None:
    for hour in LARGE[:2]:
        forged = Record(
            properties={
                "tarry.origin_id": str(MessageId(0, hour, 1)),
                "tarry.origin_due_ms": str(10**30),
                "tarry.attempts": str(10**30),
                "tarry.group": "g",
                "tarry.topic": "poison",
            }
        )
        for topic in ("dlq.g.poison", "poison"):
            request = _batch(topic, forged)
            request.due_ms[0] = now_ms()
            await _answered(producers.ScheduleBatch(request))
    await asyncio.sleep(0.5)
    redrive = operators.Redrive(operator_pb.RedriveRequest(topic="dlq.g.poison"))
    with suppress(aio.AioRpcError):
        async for _ in redrive:
            pass


async def _forged_ids(producers: ProducerServiceStub, consumers: ConsumerServiceStub) -> None:
    for number in LARGE:
        hour, index = min(number, HOUR_MAX), min(number, GLOBAL_INDEX_MAX)
        found = str(MessageId(0, hour, index))
        await _answered(producers.Cancel(producer_pb.CancelRequest(ids=[found])))
        await _answered(producers.Get(producer_pb.GetRequest(id=found)))
        named: dict[str, Any] = {"topic": "poison", "group": "g", "consumer": "c", "queue": hour}
        named["offset"] = [number]
        await _answered(consumers.Ack(consumer_pb.AckRequest(**named)))
        await _answered(consumers.Nack(consumer_pb.NackRequest(**named, delay_ms=index)))
        await _answered(consumers.Extend(consumer_pb.ExtendRequest(**named, lease_ms=index)))
