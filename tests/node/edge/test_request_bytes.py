"""A request that names as much as it may is within its method's bytes."""

from __future__ import annotations

from tarry.node.edge import request_bytes
from tarry.proto.tarry_peer_pb2 import FetchSnapshotRequest, SnapshotFile
from tarry.replication.snapshot.transfer import KEPT_FILES_MAX
from tarry.replication.state_machine import ready_queue


def test_a_request_for_a_snapshot_that_names_as_many_files_as_it_may_is_taken() -> None:
    name = f"ready/{2**32 - 1}/{ready_queue.segment_name(2**44)}"
    file = SnapshotFile(name=name, size_bytes=2**48, crc32c=1)
    request = FetchSnapshotRequest(cluster="c" * 200, node="n" * 200, kept=[file] * KEPT_FILES_MAX)
    assert request.ByteSize() <= request_bytes.of_nodes("/tarry.v1.PeerService/FetchSnapshot")


def test_other_calls_of_nodes_name_little() -> None:
    assert request_bytes.of_nodes("/tarry.v1.PeerService/Meet") == request_bytes.OVERHEAD_BYTES
