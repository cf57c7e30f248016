"""A repeated schedule request is answered alike by every node, in a call and on a stream."""

from __future__ import annotations

import time

from tarry.client.local.cluster import LocalCluster
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest, ScheduleRequest, ScheduleStreamRequest
from tests.cluster.wire import TIMEOUT_S, wire

HOUR_MS = 3_600_000


def test_every_node_answers_a_repeated_request_alike(shared_cluster: LocalCluster) -> None:
    record, due_ms = Record(body=b"r").SerializeToString(), time.time_ns() // 1_000_000 + HOUR_MS
    batch = ScheduleBatchRequest(
        producer="repeats",
        sequence=1,
        topics=["repeats"],
        due_ms=[due_ms + hour * HOUR_MS for hour in range(100)],
        jitter_ms=[5_000] * 100,
        records=[record] * 100,
    )
    one = ScheduleRequest(
        producer="repeats",
        sequence=2,
        topic="repeats",
        due_ms=due_ms,
        jitter_ms=5_000,
        record=Record(body=b"o"),
    )
    shared_cluster.wait_until_serving()
    addresses = [node.address for node in shared_cluster.nodes.values()]
    with wire(addresses[0]) as node:
        first = node.producer.ScheduleBatch(batch, timeout=TIMEOUT_S)
        first_one = node.producer.Schedule(one, timeout=TIMEOUT_S)
    assert (first.repeated, first_one.repeated) == (False, False)
    assert any(told != asked for told, asked in zip(first.due_ms, batch.due_ms, strict=True))
    first.repeated = first_one.repeated = True
    streamed = ScheduleStreamRequest(request=7, batch=batch)
    for address in addresses:
        with wire(address) as node:
            assert node.producer.ScheduleBatch(batch, timeout=TIMEOUT_S) == first
            assert node.producer.Schedule(one, timeout=TIMEOUT_S) == first_one
            (answer,) = node.producer.ScheduleStream(iter([streamed]), timeout=TIMEOUT_S)
        assert (answer.request, answer.accepted) == (7, first)
