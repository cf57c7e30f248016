"""Histories of messages from the ledgers of all nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from grpc import aio

from tarry.client.cluster.nodes import Nodes
from tarry.client.errors import InvalidId, NotPermitted, TarryError, error_of_call
from tarry.client.queries.life import HistoryRow, MessageHistory, NodeHistory, merged
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_query_pb2 as pb

Progress = Callable[[str, int, int], None]
"""Called with a node's address, the rows it has looked through, and those that are left at most."""


async def read(
    nodes: Nodes, request: pb.ReadHistoryRequest, timeout_ms: int, progress: Progress | None
) -> MessageHistory:
    """Return what all nodes' ledgers say. Raises InvalidId and NotPermitted; what else fails is told."""
    await _learn(nodes)
    asked = [_of_node(nodes, address, request, timeout_ms, progress) for address in sorted(nodes.addresses())]
    answers = await asyncio.gather(*asked)
    rows = [row for _, found in answers for row in found]
    return MessageHistory(merged(rows), tuple(node for node, _ in answers))


async def _learn(nodes: Nodes) -> None:
    """Learn the addresses of all members, as far as one answers."""
    node = await nodes.pick()
    request = operator_pb.ClusterStatusRequest(brief=True)
    try:
        status = await node.operator.ClusterStatus(request, timeout=1.0, metadata=nodes.metadata)
    except aio.AioRpcError:
        return  # who is known is asked, and told where it does not answer
    nodes.learn_members(member.address for member in status.members)


async def _of_node(
    nodes: Nodes,
    address: str,
    request: pb.ReadHistoryRequest,
    timeout_ms: int,
    progress: Progress | None,
) -> tuple[NodeHistory, list[HistoryRow]]:
    rows: list[HistoryRow] = []
    gaps: list[str] = []
    last, error = pb.ReadHistoryResponse(), ""
    try:
        call = nodes.node(address).query.ReadHistory(
            request, timeout=timeout_ms / 1_000, metadata=nodes.metadata
        )
        async for last in call:
            rows += map(HistoryRow.of, last.rows)
            gaps += last.gaps
            if progress is not None:
                progress(address, last.rows_looked, last.rows_left)
    except aio.AioRpcError as failure:
        found = error_of_call(failure)
        if isinstance(found, InvalidId | NotPermitted):
            raise found from failure
        error = _text(found)
    told = NodeHistory(
        address,
        last.node,
        last.has_ledger,
        last.complete,
        last.from_beginning,
        last.since_ms,
        tuple(gaps),
        error,
    )
    return told, rows


def _text(error: TarryError) -> str:
    return f"{error.reason}: {error.text}"
