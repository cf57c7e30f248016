"""Ledgers read from running nodes by ExportLedger: `option("nodes", "host:port,...")`.

One partition is one node, or of a stream some segments of one; the call is made where the task runs, and the
node itself leaves out what filters exclude.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import grpc
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from tarry.proto import bearer_token
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.ledger.arrow import PLAIN
from tarry.proto.ledger.schema import ALWAYS
from tarry.proto.tarry_operator_pb2_grpc import OperatorServiceStub
from tarry.spark.errors import NodeUnreachable

STATUS_S: Final = 10.0
ROWS: Final = pa.schema([field.with_nullable(field.name not in ALWAYS) for field in PLAIN])
"""Rows as Spark takes them: strings as such, and nulls only where schema.LEDGER has them."""
NO_BOUND: Final = (float("-inf"), float("inf"))


@dataclass(frozen=True)
class Node:
    """A node to be asked. `token` and the PEM files of TLS are as its clients have them."""

    address: str
    token: str = ""
    authority: str = ""
    certificate: str = ""
    key: str = ""

    def last_segment(self) -> int:
        """Return the number of its last closed segment. Raises NodeUnreachable."""
        with self._channel() as channel:
            stub = OperatorServiceStub(channel)
            try:
                request, metadata = pb.ClusterStatusRequest(), bearer_token.metadata(self.token)
                status = stub.ClusterStatus(request, timeout=STATUS_S, metadata=metadata)
            except grpc.RpcError as error:
                raise NodeUnreachable(self.address, str(error)) from error
            return int(status.ledger.last_segment)

    def export(self, request: pb.ExportLedgerRequest) -> Iterator[tuple[Mapping[str, Any], pa.RecordBatch]]:
        """Yield manifests and rows of theirs, oldest first. Raises NodeUnreachable."""
        with self._channel() as channel:
            metadata = bearer_token.metadata(self.token)
            try:
                for part in OperatorServiceStub(channel).ExportLedger(request, metadata=metadata):
                    with pa.ipc.open_stream(part.rows) as stream:
                        yield json.loads(part.segment), stream.read_next_batch()
            except grpc.RpcError as error:
                raise NodeUnreachable(self.address, str(error)) from error

    def _channel(self) -> grpc.Channel:
        options = [("grpc.max_receive_message_length", -1)]
        if not self.authority:
            return grpc.insecure_channel(self.address, options)
        files = (self.authority, self.key, self.certificate)
        credentials = grpc.ssl_channel_credentials(
            *(Path(name).read_bytes() if name else None for name in files)
        )
        return grpc.secure_channel(self.address, credentials, options)


@dataclass
class NodePartition(InputPartition):
    """Closed segments of one node, after one and up to another, to be read by one task."""

    node: Node
    after: int = 0
    up_to: int | None = None
    at_ms: tuple[float, float] = NO_BOUND  # inclusive
    index: tuple[float, float] = NO_BOUND

    def read(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; asks the node here, where the task runs."""
        request = pb.ExportLedgerRequest(
            resume=f"{self.after + 1}.0",
            from_ms=_at_least(self.at_ms[0]),
            to_ms=_below(self.at_ms[1]),
            from_index=_at_least(self.index[0]),
            to_index=_below(self.index[1]),
        )
        for manifest, rows in self.node.export(request):
            if self.up_to is not None and manifest["segment"] > self.up_to:
                return
            yield rows.cast(ROWS)


def _at_least(least: float) -> int:
    return max(0, int(least)) if least != float("-inf") else 0


def _below(most: float) -> int:
    """Return the exclusive bound of a request, 0 for none."""
    return max(1, int(most) + 1) if most != float("inf") else 0
