"""Consumer streams driven by hand, over the bare wire."""

from __future__ import annotations

import queue
import time
import uuid

import grpc

from tarry.proto.tarry_consumer_pb2 import ConsumeRequest, ConsumeResponse, Credit, Subscribe
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tests.cluster.wire import TIMEOUT_S, Wire, refusal


def subscribe(topic: str, **fields: object) -> ConsumeRequest:
    given = {"topic": topic, "group": "g", "credit": 10, **fields}
    return ConsumeRequest(subscribe=Subscribe(**given))  # type: ignore[arg-type]


def schedule(node: Wire, topic: str, body: bytes = b"hello", messages: int = 1) -> None:
    record = Record(body=body).SerializeToString()
    request = ScheduleBatchRequest(
        producer=uuid.uuid4().hex,
        sequence=1,
        topics=[topic],
        delay_ms=[0] * messages,
        records=[record] * messages,
    )
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            node.producer.ScheduleBatch(request, timeout=TIMEOUT_S)
            return
        except grpc.RpcError as error:
            if refusal(error).code is not grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


class Consuming:
    """A consumer stream that is driven by hand."""

    def __init__(self, node: Wire, *requests: ConsumeRequest) -> None:
        self._requests: queue.SimpleQueue[ConsumeRequest | None] = queue.SimpleQueue()
        for request in requests:
            self.send(request)
        self.responses = node.consumer.Consume(iter(self._requests.get, None), timeout=30)

    def send(self, request: ConsumeRequest) -> None:
        self._requests.put(request)

    def next(self) -> ConsumeResponse:
        response: ConsumeResponse = next(self.responses)
        return response

    def take(self, messages: int) -> list[int]:
        """Return the offsets of as many messages, giving their credit back."""
        offsets: list[int] = []
        while len(offsets) < messages:
            response = self.next()
            if response.HasField("deliveries"):
                offsets += response.deliveries.offset
                self.send(ConsumeRequest(credit=Credit(messages=len(response.deliveries.offset))))
        return offsets

    def end(self) -> None:
        self._requests.put(None)
        self.responses.cancel()
