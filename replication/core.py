"""What the procedures of one replica share: its parts, and the turns in which they change."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tarry.replication.clock import Clock
from tarry.replication.consensus import Consensus
from tarry.replication.holds import Holds
from tarry.replication.journal import Journal
from tarry.replication.membership import Membership
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Dropped, NotLeader, Role


class RunBlocking(Protocol):
    def __call__(self, work: Callable[[], Any], /) -> Awaitable[Any]:
        """Runs `work` off the event loop; gives back what it does."""


@dataclass(slots=True)
class Core:
    node: str
    journal: Journal
    membership: Membership
    consensus: Consensus
    """Another object after a snapshot: ask for it anew in every turn."""
    clock: Clock
    settings: ReplicationSettings
    run_blocking: RunBlocking
    applied: int
    given_away: set[int] = field(default_factory=set)
    """Indices of states that followers were given, and have not gone on from yet."""
    dropped: Counter[tuple[str, Dropped]] = field(default_factory=Counter)
    """Messages that count for nothing: by who said them, and why."""
    waits_for: Sequence[str] = ()
    """Members that have yet to say whether this node, which has no journal, has spoken before."""
    stopping: bool = False
    failure: BaseException | None = None
    """Of something beside the turns; the next turn raises it."""
    wake: asyncio.Event = field(default_factory=asyncio.Event)
    holds: Holds = field(default_factory=Holds)
    _waiters: list[asyncio.Future[None]] = field(default_factory=list)

    def fail(self, error: BaseException) -> None:
        self.failure, self.stopping = error, True
        self.wake.set()

    def watch(self, task: asyncio.Task[None]) -> None:
        """Done callback of a task that must not fail unseen."""
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.fail(error)

    def now(self) -> float:
        return self.clock.monotonic()

    def leads(self, term: int) -> bool:
        """In that very term, so without a break."""
        consensus = self.consensus
        return consensus.role is Role.LEADER and consensus.term == term and not self.stopping

    def not_leader(self) -> NotLeader:
        leader = self.consensus.leader
        return NotLeader(None if leader == self.node else leader)

    async def next_turn(self) -> None:
        """Until the end of a turn."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    @property
    def awaited(self) -> bool:
        """Whether somebody waits for the next turn."""
        return bool(self._waiters)

    def end_turn(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


async def in_thread(work: Callable[[], Any]) -> Any:
    """As RunBlocking, in a thread of the loop's."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
