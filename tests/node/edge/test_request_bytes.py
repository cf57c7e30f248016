"""A request that names as much as it may is within its method's bytes."""

from __future__ import annotations

import pytest
from google.protobuf.message import Message

from tarry.node.config import Limits
from tarry.node.edge import request_bytes
from tarry.node.edge.grpc_types import parse, unknown_field
from tarry.node.services import bulk_cursor, key_calls, list_cursor, message_filter
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_query_pb2 as query_pb
from tarry.proto.tarry_peer_pb2 import FetchSnapshotRequest, SnapshotFile
from tarry.replication.snapshot.transfer import KEPT_FILES_MAX
from tarry.replication.state_machine import ready_queue
from tarry.replication.state_machine.refusal import Refusal
from tests import turns as cost

LIMITS = Limits()
TOPIC = "t" * LIMITS.topic_chars_max
NAMES = ["\U0001f562" * message_filter.CHARS_MAX] * message_filter.NAMES_MAX
FILTER = query_pb.MessageFilter(
    topic=TOPIC, tags=NAMES, keys=NAMES, key_prefix=NAMES[0], due_from_ms=1 << 50, due_to_ms=1 << 51
)
LARGEST: dict[str, Message] = {
    "ListMessages": query_pb.ListMessagesRequest(
        filter=FILTER,
        states=list(range(1, 7)),
        group="g" * LIMITS.group_chars_max,
        page_size=1_000,
        cursor="c" * list_cursor.CHARS,
        bodies=True,
    ),
    "CancelMatching": query_pb.CancelMatchingRequest(
        filter=FILTER, cursor="c" * bulk_cursor.CURSOR_CHARS_MAX, dry_run=True
    ),
    "PurgeTopic": operator_pb.PurgeTopicRequest(
        topic=TOPIC, cursor="c" * bulk_cursor.CURSOR_CHARS_MAX, dry_run=True
    ),
    "Forecast": query_pb.ForecastRequest(topic=TOPIC, tags=NAMES, from_ms=1 << 50, buckets=3_600),
    "FindByKey": query_pb.FindByKeyRequest(topic=TOPIC, key="\U0001f562" * key_calls.KEY_CHARS_MAX),
}


@pytest.mark.parametrize("method", LARGEST)
def test_a_query_that_names_as_much_as_it_may_is_taken(method: str) -> None:
    bytes_max = request_bytes.of_clients(LIMITS)(f"/tarry.v1.Service/{method}")
    assert 0 < bytes_max - LARGEST[method].ByteSize() < 2 * request_bytes.OVERHEAD_BYTES


@pytest.mark.parametrize("method", LARGEST)
@pytest.mark.parametrize("field", [b"\x78\x00", b"\x7b\x7c"], ids=["numbers", "groups"])
def test_a_query_of_nothing_but_unknown_fields_is_refused_within_a_turn(method: str, field: bytes) -> None:
    bytes_max = request_bytes.of_clients(LIMITS)(f"/tarry.v1.Service/{method}")
    raw, kind = field * (bytes_max // len(field)), type(LARGEST[method])

    def refused() -> None:
        request = parse(kind, raw)
        assert not isinstance(request, Refusal)
        assert unknown_field(request) is not None

    assert cost.cpu_s(refused) <= cost.bound_s()


def test_an_unknown_field_is_told_of_by_the_message_that_has_it() -> None:
    assert unknown_field(query_pb.ListMessagesRequest(filter=query_pb.MessageFilter(topic="t"))) is None
    within = query_pb.MessageFilter.FromString(b"\x78\x00")
    refusal = unknown_field(query_pb.ListMessagesRequest(filter=within))
    assert refusal is not None
    assert "MessageFilter has a field" in refusal.text


def test_a_request_for_a_snapshot_that_names_as_many_files_as_it_may_is_taken() -> None:
    name = f"ready/{2**32 - 1}/{ready_queue.segment_name(2**44)}"
    file = SnapshotFile(name=name, size_bytes=2**48, crc32c=1)
    request = FetchSnapshotRequest(cluster="c" * 200, node="n" * 200, kept=[file] * KEPT_FILES_MAX)
    assert request.ByteSize() <= request_bytes.of_nodes("/tarry.v1.PeerService/FetchSnapshot")


def test_other_calls_of_nodes_name_little() -> None:
    assert request_bytes.of_nodes("/tarry.v1.PeerService/Meet") == request_bytes.OVERHEAD_BYTES
