"""Commands that make a group or move it back, from their proposal until they are applied.

Retention deletes what all groups are past, and expiry deletes groups that nobody uses, by a state in which
these are not yet: both wait for them.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol


class Proposes(Protocol):
    async def propose(self, command: bytes, cost_us: int = 0) -> Any: ...


class GroupMoves:
    """Proposes such commands for the services, and knows which are under way."""

    def __init__(self, driver: Proposes) -> None:
        self._driver = driver
        self._proposals: set[asyncio.Task[Any]] = set()

    @property
    def under_way(self) -> bool:
        return bool(self._proposals)

    async def propose(self, command: bytes, cost_us: int) -> Any:
        """Propose as the driver does; a caller that is cancelled takes nothing back.

        Raises NotLeader, Unknown, Overloaded.
        """
        proposal = asyncio.ensure_future(self._driver.propose(command, cost_us))
        self._proposals.add(proposal)
        proposal.add_done_callback(self._done)
        return await asyncio.shield(proposal)

    def _done(self, proposal: asyncio.Task[Any]) -> None:
        self._proposals.discard(proposal)
        if not proposal.cancelled():
            proposal.exception()  # retrieved, where the caller is gone
