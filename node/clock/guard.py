"""Check of the node's own clock: a wrong one is logged, and its node transfers leadership.

Cluster time does not follow a clock that differs from the others', so nothing comes early; but it then
rests on measured round trips, and a second wrong clock would count. So leadership goes to a member whose
clock is right.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import Dispatch
from tarry.replication.clock import to_next
from tarry.replication.driver.driver import Driver
from tarry.replication.errors import TransferRefused
from tarry.replication.status import PeerStatus

log = structlog.get_logger()

LOOK_S: Final = 1.0
TRANSFER_MS: Final = 2_000


class ClockGuard:
    """Looks at the node's own clock now and then."""

    def __init__(self, driver: Driver, time: ClusterTime, config: Dispatch) -> None:
        self._driver = driver
        self._time = time
        self._config = config
        self._wrong_s = 0.0

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            await asyncio.sleep(to_next(LOOK_S, asyncio.get_running_loop().time()))
            await self._look()

    async def _look(self) -> None:
        offset_ms, limit_ms = self._time.own_offset_ms, self._config.clock_offset_ms_max
        if abs(offset_ms) <= limit_ms:
            if self._wrong_s:
                log.info("clock is right again", offset_ms=offset_ms)
            self._wrong_s = 0.0
            return
        if not self._wrong_s:
            log.warning("clock is wrong", offset_ms=offset_ms, limit_ms=limit_ms)
        self._wrong_s += LOOK_S
        if self._wrong_s * 1_000 >= self._config.clock_wrong_ms_max and self._driver.may_serve():
            await self._transfer_leadership(offset_ms)

    async def _transfer_leadership(self, offset_ms: int) -> None:
        target = trusted(self._driver.status().peers, offset_ms, self._config.clock_offset_ms_max)
        if target is None:
            return
        try:
            await self._driver.transfer(target, TRANSFER_MS)
        except TransferRefused as refused:
            log.warning("leadership stays though the clock is wrong", why=str(refused))
        else:
            log.warning("leadership transferred: the clock is wrong", target=target, offset_ms=offset_ms)


def trusted(peers: Mapping[str, PeerStatus], offset_ms: int, limit_ms: int) -> str | None:
    """Return the voting member in reach that has most, of those whose clock agrees with cluster time.

    `offset_ms`: this node's own clock minus cluster time.
    """
    right = [
        name
        for name, peer in sorted(peers.items())
        if peer.connected
        and peer.voting
        and peer.clock_offset_ms is not None
        and abs(peer.clock_offset_ms + offset_ms) <= limit_ms
    ]
    return max(right, key=lambda name: peers[name].match_index, default=None)
