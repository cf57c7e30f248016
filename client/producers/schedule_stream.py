"""Schedule requests of one producer on a stream to the leader, which costs less than a call for each.

    no stream ──► one request opens it ──► answered: up to 32 share it ──► idle, silent, or another leads:
                  the others are calls                                     no more requests, then it ends

The end of a stream says nothing about any one of several requests, so they end as OutcomeUnknown and their
retries find what was done. A node may refuse a stream as a whole (no such token, too many calls) before its
first answer only; until then the stream carries one request, which ends as the stream does, like a call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from functools import partial
from itertools import count
from typing import Final

import grpc
from grpc import aio

from tarry.client.cluster.calls import Answering, Method
from tarry.client.cluster.nodes import Node, Nodes
from tarry.client.errors import OutcomeUnknown, TarryError, Unavailable, error_of_call, error_of_status
from tarry.client.records import varint
from tarry.proto import tarry_producer_pb2 as producer_pb

PATH: Final = "/tarry.v1.ProducerService/ScheduleStream"
REQUEST_BYTES_MAX: Final = 48 << 10
"""Larger ones are calls: a node ends the whole stream for one over its limit, which is 64 KiB at least."""
STREAMS_MAX: Final = 100
"""Of one client, for a node takes 1,024 calls of a connection at once; more producers make calls."""
IDLE_S: Final = 10.0
"""An unused stream ends after one to two such periods: it counts as a call at its node, and sends pings."""
CALLS_S: Final = 300.0
"""Time for which a node gets calls after a stream to it ended without one answer."""
NUMBER_TAG: Final = bytes([producer_pb.ScheduleStreamRequest.REQUEST_FIELD_NUMBER << 3])
BATCH_TAG: Final = bytes([producer_pb.ScheduleStreamRequest.BATCH_FIELD_NUMBER << 3 | 2])

Answer = asyncio.Future[producer_pb.ScheduleBatchResponse]


class ScheduleStreams:
    """Sends requests on the stream to the leader, and as calls where there is none or it has no room."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._stream: _Stream | None = None
        self._open: set[_Stream] = set()
        self._calls_until: dict[str, float] = {}
        self._closed = False

    def method(self, node: Node) -> Method[producer_pb.ScheduleBatchResponse]:
        """Return what sends a request to the node, with the arguments of its stub ``ScheduleBatch``."""
        return partial(self._send, node)

    async def close(self) -> None:
        """End the streams; those with requests in flight when these are answered."""
        self._closed = True
        for stream in tuple(self._open):
            stream.retire()
            if not stream.in_flight:
                stream.cancel()
        await asyncio.gather(*(stream.reader for stream in self._open if not stream.in_flight))

    def _send(
        self,
        node: Node,
        request: producer_pb.ScheduleBatchRequest,
        *,
        timeout: float,
        metadata: aio.Metadata,
    ) -> Answering[producer_pb.ScheduleBatchResponse]:
        raw = request.SerializeToString()
        stream = self._stream_to(node) if len(raw) <= REQUEST_BYTES_MAX else None
        if stream is not None:
            return stream.send(raw, timeout)
        call: Answering[producer_pb.ScheduleBatchResponse]
        call = node.producer.ScheduleBatch(request, timeout=timeout, metadata=metadata)
        return call

    def _stream_to(self, node: Node) -> _Stream | None:
        """Return the stream if it has room, opened where there is none; None for a request to be a call."""
        stream = self._stream
        if stream is not None and stream.address != node.address:
            stream.retire()
        if stream is not None and stream.usable:
            return stream if stream.in_flight < stream.in_flight_max else None
        if (
            self._closed
            or node.address != self._nodes.leader
            or self._calls_until.get(node.address, 0.0) > time.monotonic()
            or self._nodes.schedule_streams >= STREAMS_MAX
        ):
            return None
        self._stream = _Stream(node, self._nodes, self._unproven, self._ended)
        self._nodes.schedule_streams += 1
        self._open.add(self._stream)
        return self._stream

    def _unproven(self, address: str) -> None:
        self._calls_until[address] = time.monotonic() + CALLS_S

    def _ended(self, stream: _Stream) -> None:
        self._nodes.schedule_streams -= 1
        self._open.discard(stream)


class _Stream:
    """One stream to one node."""

    def __init__(
        self,
        node: Node,
        nodes: Nodes,
        on_unproven: Callable[[str], None],
        on_ended: Callable[[_Stream], None],
    ) -> None:
        self.address = node.address
        self.usable = True
        self.in_flight_max = 1
        self._proven = False
        """The node has answered a request on it."""
        self._settings = nodes.settings
        self._on_unproven, self._on_ended = on_unproven, on_ended
        self._waiting: dict[int, tuple[Answer, asyncio.TimerHandle]] = {}
        self._numbers = count(1)
        self._last = self._last_looked_at = 0
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        stub = node.channel.stream_stream(PATH, None, producer_pb.ScheduleStreamResponse.FromString)
        self._call = stub(self._outgoing(), metadata=nodes.metadata)
        self._timer = self._loop.call_later(IDLE_S, self._look_idle)
        self.reader = asyncio.create_task(self._read())

    @property
    def in_flight(self) -> int:
        """Requests without an answer, given up or not."""
        return len(self._waiting)

    def send(self, raw: bytes, timeout_s: float) -> Answer:
        """Return the answer to a serialized request, or a TarryError. May be cancelled without harm."""
        number = self._last = next(self._numbers)
        answer: Answer = self._loop.create_future()
        self._waiting[number] = answer, self._loop.call_later(timeout_s, self._late, answer)
        self._frames.put_nowait(b"".join((NUMBER_TAG, varint(number), BATCH_TAG, varint(len(raw)), raw)))
        return answer

    def retire(self) -> None:
        """Take no more requests; the stream ends when those in flight are answered or given up."""
        if self.usable:
            self.usable = False
            self._frames.put_nowait(None)
            self._timer.cancel()
            # By then every request in flight has been given up.
            self._timer = self._loop.call_later(1 + self._settings.attempt_ms / 1_000, self._call.cancel)

    def cancel(self) -> None:
        """End the stream now, and what waits for its answers as a call that is cancelled."""
        self._call.cancel()

    async def _outgoing(self) -> AsyncIterator[bytes]:
        while (frame := await self._frames.get()) is not None:
            yield frame

    async def _read(self) -> None:
        error: TarryError | None = OutcomeUnknown("UNAVAILABLE", f"{self.address} ended the stream")
        try:
            async for response in self._call:
                if not self._take(response):
                    self._on_unproven(self.address)
                    break
        except aio.AioRpcError as failure:
            error = error_of_call(failure)
            if self._proven:
                error = OutcomeUnknown(error.reason, error.text)
            elif failure.code() is grpc.StatusCode.UNIMPLEMENTED:
                error = Unavailable("UNIMPLEMENTED", error.text, retry_ms=0)
        except asyncio.CancelledError:
            error = None
        finally:
            self._end(error)

    def _take(self, response: producer_pb.ScheduleStreamResponse) -> bool:
        """Return whether it is the answer to a request in flight; if not, no later one can be relied on."""
        outcome = response.WhichOneof("outcome")
        if outcome is None or response.request not in self._waiting:
            return False
        self.in_flight_max = self._settings.in_flight_max
        self._proven = True
        answer, timer = self._waiting.pop(response.request)
        timer.cancel()
        if answer.done():
            return True  # given up
        if outcome == "accepted":
            answer.set_result(response.accepted)
        else:
            answer.set_exception(error_of_status(response.refused))
        return True

    def _late(self, answer: Answer) -> None:
        """Give up one request; no more go on a stream that is silent for so long."""
        self.retire()
        if not self._proven:
            self._on_unproven(self.address)
        if not answer.done():
            answer.set_exception(
                OutcomeUnknown("DEADLINE_EXCEEDED", f"{self.address} did not answer in time")
            )

    def _look_idle(self) -> None:
        if self._last == self._last_looked_at and not self._waiting:
            self.retire()
            return
        self._last_looked_at = self._last
        self._timer = self._loop.call_later(IDLE_S, self._look_idle)

    def _end(self, error: TarryError | None) -> None:
        """Fail what waits for answers; without an error it is cancelled, as by a channel that is closed."""
        self.usable = False
        self._frames.put_nowait(None)  # ends gRPC's task that reads them, which a call that is over does not
        self._call.cancel()
        self._timer.cancel()
        if (
            not self._proven
            and error
            and (isinstance(error, OutcomeUnknown) or error.reason == "UNIMPLEMENTED")
        ):
            self._on_unproven(self.address)
        for answer, timer in self._waiting.values():
            timer.cancel()
            if error is None:
                answer.cancel()
            elif not answer.done():  # a copy for each: one exception raised in many tasks mixes tracebacks
                answer.set_exception(type(error)(error.reason, error.text, error.facts, error.retry_ms))
        self._waiting.clear()
        self._on_ended(self)
