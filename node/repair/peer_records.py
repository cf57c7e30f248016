"""RecordService: records for peers whose own copies are damaged. Nodes alone may call it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import grpc
import numpy as np
import structlog
from google.protobuf.message import DecodeError

from tarry.node.edge.forwarder import Forwarder
from tarry.node.edge.grpc_types import CallContext, M, ServiceHandler
from tarry.node.edge.peer_auth import PeerCalls
from tarry.node.repair.records import ASKED_BYTES_MAX, ASKED_RECORDS_MAX, Numbers
from tarry.proto import tarry_peer_pb2 as pb
from tarry.proto.bearer_token import PeerTokens
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.queue_checksums import BLOCK_UNITS
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import QueueDamaged
from tarry.wheel.columns import portions
from tarry.wheel.delay_log import UNIT_BYTES
from tarry.wheel.wheel import Wheel

log = structlog.get_logger()

SERVICE: Final = "tarry.v1.RecordService"
INDEX_UNITS_MAX: Final = ASKED_BYTES_MAX // UNIT_BYTES
DEADLINE_S: Final = 5.0


def whole(wheel: Wheel, hour: int, global_index: Numbers) -> tuple[list[int], list[bytes]]:
    """Return which of the records are there and match their checksums, and they themselves.

    No more than one call may answer: of more, what does not fit is left out.
    """
    known = global_index[global_index < wheel.units_in_hour(hour)]
    if not len(known):
        return [], []
    hours = np.full(len(known), hour, dtype=np.uint32)
    hours, known = hours[there := wheel.readable(hours, known)], known[there]
    if not len(known):
        return [], []
    first = next(portions(wheel.units(hours, known)["size"], ASKED_BYTES_MAX))
    records = wheel.read(hours[first], known[first])
    sound = [
        (number, record)
        for number, record in zip(known.tolist(), records, strict=False)
        if record is not None
    ]
    return [number for number, _ in sound], [record for _, record in sound]


def index_units(wheel: Wheel, hour: int, first: int, count: int) -> bytes:
    """Return units of an hour's index from one on, as many as one call may answer; nothing where it ends."""
    state = wheel.upkeep.whole_state(hour)
    end = min(state.units if state else 0, first + min(count, INDEX_UNITS_MAX))
    if first >= end:
        return b""
    numbers = np.arange(first, end, dtype=np.uint32)
    return wheel.units(np.full(len(numbers), hour, dtype=np.uint32), numbers, thinned=True).tobytes()


def ready_units(queues: Queues, number: int, first: int, count: int) -> bytes:
    """Return units of a queue; nothing where they are not all there, sound, and of one block."""
    if number >= len(queues) or not 0 < count <= BLOCK_UNITS:
        return b""
    queue = queues[number]
    if queue.deleted or first < queue.proof.base or first + count > queue.units:
        return b""
    try:
        return queue.read(first, count).tobytes()
    except QueueDamaged:
        return b""  # the scrub finds it, or whoever needs it here


class RecordService:
    """Answers peers."""

    def __init__(self, machine: Machine, peers: PeerCalls) -> None:
        self._machine = machine
        self._peers = peers

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        methods = {
            "FetchRecords": self._peers.unary(pb.FetchRecordsRequest, self._fetch_records),
            "FetchIndex": self._peers.unary(pb.FetchIndexRequest, self._fetch_index),
            "FetchReady": self._peers.unary(pb.FetchReadyRequest, self._fetch_ready),
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _fetch_records(
        self, request: pb.FetchRecordsRequest, context: CallContext
    ) -> pb.FetchRecordsResponse:
        if len(request.global_index) > ASKED_RECORDS_MAX:
            text = f"{len(request.global_index)} records: ask for {ASKED_RECORDS_MAX} at most"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)
        numbers = np.array(request.global_index, dtype=np.uint32)
        there, records = whole(self._machine.wheel, request.hour, numbers)
        return pb.FetchRecordsResponse(global_index=there, records=records)

    async def _fetch_index(self, request: pb.FetchIndexRequest, _: CallContext) -> pb.FetchIndexResponse:
        units = index_units(self._machine.wheel, request.hour, request.first, request.count)
        return pb.FetchIndexResponse(units=units)

    async def _fetch_ready(self, request: pb.FetchReadyRequest, _: CallContext) -> pb.FetchReadyResponse:
        units = ready_units(self._machine.queues, request.queue, request.first, request.count)
        return pb.FetchReadyResponse(units=units)


class PeerRecords:
    """Asks peers; ``fetch`` is what ``Damage.run`` wants."""

    def __init__(
        self, forwarder: Forwarder, cluster: Callable[[], str], node: str, tokens: PeerTokens
    ) -> None:
        self._forwarder = forwarder
        self._cluster = cluster
        self._node = node
        self._tokens = tokens

    async def fetch(self, address: str, hour: int, global_index: Numbers) -> dict[int, bytes]:
        """Return what the peer gave, nothing where it did not answer."""
        request = pb.FetchRecordsRequest(hour=hour, global_index=global_index.tolist())
        answer = await self._ask(address, "FetchRecords", request, pb.FetchRecordsResponse)
        return dict(zip(answer.global_index, answer.records, strict=False)) if answer else {}

    async def fetch_index(self, address: str, hour: int, units: int) -> bytes:
        """Return an hour's first units as the peer has them, nothing where it did not give them all."""
        parts: list[bytes] = []
        first = 0
        while first < units:
            request = pb.FetchIndexRequest(hour=hour, first=first, count=units - first)
            answer = await self._ask(address, "FetchIndex", request, pb.FetchIndexResponse)
            if answer is None or not answer.units:
                return b""
            parts.append(answer.units)
            first += len(answer.units) // UNIT_BYTES
        return b"".join(parts)

    async def fetch_ready(self, address: str, queue: int, first: int, count: int) -> bytes:
        """Return units of a ready queue from an offset on, nothing where the peer did not give them."""
        request = pb.FetchReadyRequest(queue=queue, first=first, count=count)
        answer = await self._ask(address, "FetchReady", request, pb.FetchReadyResponse)
        return answer.units if answer else b""

    async def _ask(self, address: str, method: str, request: Any, kind: type[M]) -> M | None:
        request.cluster, request.node = self._cluster(), self._node
        call = self._forwarder.channel(address).unary_unary(f"/{SERVICE}/{method}", None, None)
        try:
            raw: bytes = await call(
                request.SerializeToString(), metadata=self._tokens.metadata, timeout=DEADLINE_S
            )
            return kind.FromString(raw)
        except (grpc.aio.AioRpcError, DecodeError) as error:
            log.warning("peer gave nothing", asked=method, peer=address, error=str(error))
            return None
