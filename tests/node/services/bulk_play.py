"""Cancels of many messages at a node that leads alone, as a client makes them: call by call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np

from tarry.node.config import Upgrade
from tarry.node.edge.auth import Authorizer
from tarry.node.services.cancel_matching import CancelCalls, PurgeCalls
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import MessageState, Record
from tarry.proto.tarry_producer_pb2 import CancelRequest, GetRequest, GetResponse, ScheduleBatchRequest
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tests.node.lone_leader import Leader, leader
from tests.simulation.edge import Context


class Bulk:
    """The calls of one leader."""

    def __init__(self, lead: Leader) -> None:
        core, nobody = lead.node._core, Authorizer({})
        self.lead = lead
        self.calls = CancelCalls(core, nobody, lead.edge._calls)
        self._purges = PurgeCalls(core, nobody, lead.edge._calls, lead._operator._audit)

    async def step(self, cursor: str = "", *, dry_run: bool = False, **wanted: Any) -> pb.BulkCancel:
        """Make one call of CancelMatching, or of PurgeTopic; it must not be refused."""
        answer = await self.asked(cursor, dry_run=dry_run, **wanted)
        assert isinstance(answer, bytes), answer
        return pb.CancelMatchingResponse.FromString(answer).progress

    async def asked(
        self, cursor: str = "", *, dry_run: bool = False, purge: bool = False, **wanted: Any
    ) -> bytes | Refusal:
        """Make the same call; return its answer: both have the same form."""
        context: Any = Context()
        if purge:
            asked = operator_pb.PurgeTopicRequest(cursor=cursor, dry_run=dry_run, **wanted)
            return await self._purges._told(asked.SerializeToString(), context)
        request = pb.CancelMatchingRequest(filter=pb.MessageFilter(**wanted), cursor=cursor, dry_run=dry_run)
        return await self.calls._cancel(request, context)

    async def all(self, cursor: str = "", **asked: Any) -> pb.BulkCancel:
        """Make calls until all is done; return what the last one tells."""
        while not (told := await self.step(cursor, **asked)).done:
            cursor = told.cursor
        return told

    async def schedule(
        self, topic: str, due_ms: list[int], tags: list[str] | None = None, keys: list[str] | None = None
    ) -> list[str]:
        """Schedule messages, each with a tag and a key; return their ids."""
        tags, keys = tags or ["a"] * len(due_ms), keys or ["k"] * len(due_ms)
        raw = ScheduleBatchRequest(
            topics=[topic],
            due_ms=due_ms,
            tag_mask=[tag_mask([tag]) for tag in tags],
            records=[
                Record(body=b"x", tags=[tag], keys=[key]).SerializeToString()
                for tag, key in zip(tags, keys, strict=True)
            ],
        ).SerializeToString()
        answer = await self.lead.edge.schedule(raw)
        assert isinstance(answer, bytes), answer
        placed = log_pb.ScheduledColumns.FromString(answer)
        hours, index = np.frombuffer(placed.hour, "<u4"), np.frombuffer(placed.global_index, "<u4")
        return [str(MessageId(0, *one)) for one in zip(hours.tolist(), index.tolist(), strict=True)]

    async def cancel(self, *ids: str) -> None:
        """Cancel messages one by one, as another caller."""
        answer = await self.lead.edge.cancel(CancelRequest(ids=ids).SerializeToString())
        assert isinstance(answer, bytes), answer

    async def state(self, message: str) -> str:
        """Return the state of a message."""
        answer = await self.lead.edge.get(GetRequest(id=message).SerializeToString())
        assert isinstance(answer, bytes), answer
        return MessageState.Name(GetResponse.FromString(answer).state).removeprefix("MESSAGE_STATE_")


def led(folder: Path, act: Callable[[Bulk], Awaitable[None]], *, level: int = 2) -> None:
    """Let a leader act."""

    async def whole() -> None:
        finish: Literal["auto", "manual"] = "auto" if level > 1 else "manual"
        async with leader(folder, Holds(), upgrade=Upgrade(finish=finish)) as lead:
            await act(Bulk(lead))

    asyncio.run(whole())
