"""Groups that nobody uses any more are deleted, so that they do not keep messages on disk for ever.

A group is used while it has consumers, and by each of its commands. The log has the times of those; for a
group that is open here and has had none lately, the leader proposes one, so that the next leader knows, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

import structlog

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import Dispatch
from tarry.node.defaults import dispatch
from tarry.node.leader.group_moves import GroupMoves
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.errors import Overloaded
from tarry.replication.state_machine.group_uses import Use
from tarry.replication.state_machine.machine import Machine

log = structlog.get_logger()

NOTED_SHARE: Final = 8
"""A use is noted when the last is an eighth of the expiry ago, so it may be so much later than told."""
RETURN_MS: Final = 60_000
"""Time for which consumers may come back to a new leader, at least."""
GROUPS: Final = 500
"""Looked at in one turn of the event loop."""
CHANGES_MAX: Final = 500
"""Commands proposed in one look; the others follow with the next."""


class Due(NamedTuple):
    """Step to be taken about a group."""

    topic: str
    group: str
    use: Use
    expired: bool
    """It is to be deleted; else its use is to be noted."""


def expiry_ms(use: Use, settings: Dispatch) -> int:
    """Return without use for how long a group is deleted; 0: never."""
    match use.life:
        case log_pb.GROUP_LIFE_EXPIRES:
            return use.expiry_ms or settings.group_expiry_ms
        case log_pb.GROUP_LIFE_TEMPORARY:
            return settings.temporary_group_ms
        case _:
            return 0


def is_due(use: Use, expires_ms: int, now_ms: int, returned_ms: int, *, is_open: bool) -> bool | None:
    """Return whether a group has expired (True) or its use is to be noted (False); None: neither.

    ``returned_ms``: by then consumers have come back to this leader, if they ever do.
    """
    noted_ms = expires_ms // NOTED_SHARE
    idle_ms = now_ms - use.used_ms
    if is_open or not use.used_ms:
        return False if idle_ms >= noted_ms else None
    return True if idle_ms >= expires_ms + noted_ms and now_ms >= returned_ms else None


class GroupExpiry:
    """Deletes expired groups, on the leader."""

    def __init__(
        self,
        machine: Machine,
        time: ClusterTime,
        settings: Dispatch,
        propose: Callable[[log_pb.AckCommand | log_pb.DeleteGroupCommand], Awaitable[Any]],
        is_open: Callable[[str, str], bool],
        moves: GroupMoves,
    ) -> None:
        """Take ``is_open``: whether anybody consumes as a group of a topic, or has just done so.

        ``propose`` is to raise Overloaded, for a group may be used while that is waited out.
        """
        self._machine, self._time, self._settings = machine, time, settings
        self._propose, self._is_open, self._moves = propose, is_open, moves
        self._begun_ms = time.now_ms()
        # after an outage they have as long as it was
        self._return_ms = max(RETURN_MS, self._begun_ms - machine.frontier_ms)

    async def run(self) -> None:
        """Run until cancelled. Raises NotLeader, Unknown: the next leader goes on."""
        while True:
            await asyncio.sleep(self._settings.retention_check_ms / 1000)
            await self.look()

    async def look(self) -> None:
        """Delete what has expired, and note what is used. Raises as ``run``."""
        queues = self._machine.queues
        names = [(queue.topic, queue.group) for queue in queues if queue.group]
        for one in [due async for due in self._due(names)][:CHANGES_MAX]:
            # it may have been used, or made anew, since
            due = self._step(one.topic, one.group, self._counting())
            if due is None or (due.expired and self._moves.under_way):
                continue
            try:
                await self._change(due)
            except Overloaded:
                return

    async def _due(self, names: Iterable[tuple[str, str]]) -> AsyncIterator[Due]:
        for at, (topic, group) in enumerate(names):
            if at % GROUPS == 0:
                await asyncio.sleep(0)
                settings = self._counting()
            due = self._step(topic, group, settings)
            if due is not None:
                yield due

    def _counting(self) -> Dispatch:
        return dispatch(self._machine.queues.defaults, self._settings)

    def _step(self, topic: str, group: str, settings: Dispatch) -> Due | None:
        use = self._machine.queues.uses.of(topic, group)
        expires_ms = expiry_ms(use, settings)
        if not expires_ms:
            return None
        returned_ms = self._begun_ms + min(expires_ms, self._return_ms)
        now_ms, is_open = self._time.now_ms(), self._is_open(topic, group)
        expired = is_due(use, expires_ms, now_ms, returned_ms, is_open=is_open)
        return None if expired is None else Due(topic, group, use, expired)

    async def _change(self, due: Due) -> None:
        queue, now_ms = self._machine.queues.find(due.topic), self._time.now_ms()
        if due.expired:
            await self._propose(log_pb.DeleteGroupCommand(topic=due.topic, group=due.group, now_ms=now_ms))
            log.info("group expired", topic=due.topic, group=due.group, used_ms=due.use.used_ms)
        elif queue is not None:  # to acknowledge nothing is a use, and makes no group again that is gone
            await self._propose(log_pb.AckCommand(group=due.group, queue=queue.queue, now_ms=now_ms))
