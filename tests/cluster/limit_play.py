"""A cluster that is sent requests at their limits, and what each node says held its event loop meanwhile."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import grpc
import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from tarry.client.local.cluster import toml
from tarry.node.config import Limits
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import Record
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.streams import Consuming
from tests.cluster.wire import Wire, wire

LIMITS: Final = Limits()
PATIENCE_S: Final = 60.0
CALLS_AT_A_TIME: Final = 16
TINY: Final = Record(body=b"x").SerializeToString()
SETTINGS: Final[dict[str, Any]] = {
    "consensus": STEADY,
    "delivery": {"attempts_max": 2, "lease_ms": 300_000},
    "dispatch": {"checkpoint_ms": 1_000, "retention_check_ms": 1_000},
}
AUDITED: Final = 20_000
AUDITED_MS: Final = 1_700_000_000_000


def _audited(second: int) -> bytes:
    """A line of an audit log, of a call of long ago."""
    at = datetime.fromtimestamp(AUDITED_MS / 1_000 + second, UTC).isoformat(timespec="milliseconds")
    return (
        b'{"at": "%s", "node": "n1", "stage": "asked", "method": "DeleteTopic", "arguments": {}}\n'
        % at.encode()
    )


class Play:
    """Three nodes, the leader's stubs, and what tests send through them."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Disposable(3, folder, SETTINGS)
        for name, node in self.cluster.nodes.items():
            file = folder / f"{name}.audit"
            file.write_bytes(b"".join(map(_audited, range(AUDITED))))
            with node.config.open("a") as config:
                config.write("\n".join(("", *toml({"audit": {"file": str(file)}}))))
        self._ends = ExitStack()
        self._numbers = itertools.count()
        self._millions: dict[int, str] = {}

    def __enter__(self) -> Self:
        self._ends.enter_context(self.cluster)
        self.cluster.start()
        self.leader = self.cluster.wait_until_serving()
        self.address = self.cluster.nodes[self.leader].address
        self.node: Wire = self._ends.enter_context(wire(self.address))
        unbounded = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]
        self.channel = self._ends.enter_context(grpc.insecure_channel(self.address, unbounded))
        self.term = self.statuses()[0].term
        self._warm_up()
        return self

    def _warm_up(self) -> None:
        """What a node does first loads code, and has numpy look at the processor: that is no request's."""
        topic = self.name()
        answer = self.schedule([topic], [TINY] * 2_000, due_ms=hours_from(self.now_ms(), 2_000))
        self.node.producer.Cancel(producer_pb.CancelRequest(ids=ids_of(answer)), timeout=PATIENCE_S)
        holding = self.in_hand(self.ready(100), 100)
        for queue, offsets in holding.offsets.items():
            holding.say("extend", queue, offsets)
            holding.say("nack", queue, offsets[::2], delay_ms=0)
            holding.say("ack", queue, offsets)
        holding.end()

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def name(self, chars: int = LIMITS.topic_chars_max) -> str:
        """Return a new name of so many characters."""
        return f"{next(self._numbers)}-".ljust(chars, "n")

    # -- what nodes say

    def statuses(self, *, digest: bool = False) -> list[operator_pb.ClusterStatusResponse]:
        """Return what all three nodes say; they must."""
        found = [self.cluster.status(name, PATIENCE_S, digest=digest) for name in self.cluster.nodes]
        return [status for status in found if status is not None]

    def settled(self) -> list[operator_pb.ClusterStatusResponse]:
        """Return what the nodes say once they are equal."""
        ends = time.monotonic() + PATIENCE_S
        while True:
            found = self.statuses(digest=True)
            stands = {(status.applied_index, status.state_digest) for status in found}
            if len(found) == 3 and len(stands) == 1:
                return found
            assert time.monotonic() < ends, stands
            time.sleep(0.05)

    def until(self, condition: Callable[[], object]) -> None:
        """Return once it holds."""
        ends = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < ends, "it never came to it"
            time.sleep(0.02)

    # -- producing

    def schedule(
        self, topics: Sequence[str], records: Sequence[bytes], **columns: Any
    ) -> producer_pb.ScheduleBatchResponse:
        """Schedule one batch."""
        request = producer_pb.ScheduleBatchRequest(topics=topics, records=records, **columns)
        answer: producer_pb.ScheduleBatchResponse = self.node.producer.ScheduleBatch(
            request, timeout=PATIENCE_S
        )
        return answer

    def stream(self, batches: Sequence[producer_pb.ScheduleBatchRequest]) -> None:
        """Schedule batches on one stream, as many at once as it takes."""
        requests = (
            producer_pb.ScheduleStreamRequest(request=number, batch=batch)
            for number, batch in enumerate(batches)
        )
        for answer in self.node.producer.ScheduleStream(requests, timeout=PATIENCE_S):
            assert answer.HasField("accepted"), answer

    def released(self, topic: str) -> int:
        """Return how many messages of a topic have been released."""
        answer = self.node.operator.DescribeTopic(
            operator_pb.DescribeTopicRequest(topic=topic), timeout=PATIENCE_S
        )
        return int(answer.topic.released)

    def ready(self, count: int, record: bytes = TINY, within_ms: int = 1) -> str:
        """Return a new topic that has so many messages, released one after another within a time."""
        topic, room = self.name(), LIMITS.batch_bytes_max // (len(record) + 30)
        most = min(LIMITS.batch_messages_max, room)
        sizes = [most] * (count // most) + [count % most] * (count % most > 0)
        self.stream(
            [
                producer_pb.ScheduleBatchRequest(
                    topics=[topic], records=[record] * size, delay_ms=np.arange(size) * within_ms // size
                )
                for size in sizes
            ]
        )
        self.until(lambda: self.released(topic) >= count)
        return topic

    def of_many(self, count: int) -> str:
        """Return a topic that has so many released messages, the same for all who ask for as many."""
        if count not in self._millions:
            self._millions[count] = self.ready(count, within_ms=10_000)
        return self._millions[count]

    def forget_many(self) -> None:
        """Forget the topics of many messages: they are gone."""
        self._millions.clear()

    def now_ms(self) -> int:
        """Return cluster time."""
        return int(self.statuses()[0].now_ms)

    # -- consuming

    def in_hand(self, topic: str, count: int, group: str = "g", consumer: str = "c") -> Holding:
        """Subscribe, and take so many messages."""
        return Holding(self.node, topic, group, consumer, count)

    def call(self, path: str, request: bytes) -> list[bytes]:
        """Make a call of any service, whatever its kind; its answers."""
        return list(
            self.channel.stream_stream(f"/tarry.v1.{path}", None, None)(iter([request]), timeout=PATIENCE_S)
        )

    def calls(self, path: str, requests: Iterable[Message]) -> None:
        """Make calls that have an answer each, some at a time: for what has to be there by the thousand."""
        with ThreadPoolExecutor(CALLS_AT_A_TIME) as pool:
            for answers in pool.map(
                partial(self.call, path), [each.SerializeToString() for each in requests]
            ):
                assert len(answers) == 1


class Holding:
    """A consumer with messages in hand."""

    def __init__(self, node: Wire, topic: str, group: str, consumer: str, count: int) -> None:
        self.topic, self.group, self.consumer = topic, group, consumer
        self._stream = Consuming(node)
        self._requests = itertools.count(1)
        subscribe = consumer_pb.Subscribe(
            topic=topic, group=group, consumer=consumer, credit=max(count, 1), in_hand_bytes_max=1 << 32
        )
        self._stream.send(consumer_pb.ConsumeRequest(subscribe=subscribe))
        assert self._stream.next().HasField("subscribed")
        self.offsets: dict[int, list[int]] = {}
        self.take(count)

    def take(self, count: int) -> None:
        """Take so many more, whose credit there is."""
        taken = 0
        while taken < count:
            response = self._stream.next()
            if response.HasField("deliveries"):
                taken += len(response.deliveries.offset)
                self.offsets.setdefault(response.deliveries.queue, []).extend(response.deliveries.offset)

    def credit(self, count: int) -> None:
        """Allow so many more."""
        self._stream.send(consumer_pb.ConsumeRequest(credit=consumer_pb.Credit(messages=count)))

    def say(self, kind: str, queue: int, offsets: Sequence[int], **more: Any) -> int:
        """Ack, nack or extend; how many of the offsets were stale."""
        message = getattr(consumer_pb, kind.capitalize())
        number = next(self._requests)
        said = message(request=number, queue=queue, offset=offsets, **more)
        self._stream.send(consumer_pb.ConsumeRequest(**{kind: said}))
        while True:
            response = self._stream.next()
            if response.HasField("acked") and response.acked.request == number:
                return len(response.acked.stale)
            if response.HasField("deliveries"):
                self.offsets.setdefault(response.deliveries.queue, []).extend(response.deliveries.offset)

    def end(self) -> None:
        """Leave."""
        self._stream.end()


def hours_from(now_ms: int, count: int) -> NDArray[np.int64]:
    """Return a due time in each of so many hours."""
    due: NDArray[np.int64] = now_ms + (2 + np.arange(count, dtype=np.int64)) * 3_600_000
    return due


def ids_of(answer: producer_pb.ScheduleBatchResponse) -> list[str]:
    """Return the messages' ids."""
    places = zip(answer.hour, answer.global_index, strict=True)
    return [str(MessageId(answer.shard, hour, index)) for hour, index in places]


def pieces(offsets: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """Yield the offsets in pieces."""
    return (offsets[start : start + size] for start in range(0, len(offsets), size))
