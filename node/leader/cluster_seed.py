"""The cluster's settings are seeded once, by the first leader that may, with what its configuration says.

An upgrade from 0.2.0 so keeps what operators had written into files, and a failover changes nothing from then
on. What another file says and does not count is told, each time its node begins to lead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import structlog

from tarry.node import defaults
from tarry.node.config import NodeConfig
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.machine import Machine

log = structlog.get_logger()


class ClusterSeed:
    """Seeds the settings, on the leader."""

    def __init__(
        self,
        machine: Machine,
        config: NodeConfig,
        now_ms: Callable[[], int],
        propose: Callable[[log_pb.ClusterSettingsCommand], Awaitable[Any]],
    ) -> None:
        self._machine, self._config = machine, config
        self._now_ms, self._propose = now_ms, propose
        self._may = asyncio.Event()
        self.look()

    def look(self) -> None:
        """Go on where the level allows it by now."""
        if self._machine.level >= levels.CLUSTER_SETTINGS:
            self._may.set()

    async def run(self) -> None:
        """Seed the settings once the level allows it. Raises NotLeader, Unknown: the next leader does it."""
        await self._may.wait()
        if not self._machine.queues.defaults.seeded:
            written = defaults.written(self._config)
            command = log_pb.ClusterSettingsCommand(settings=written, seed=True, now_ms=self._now_ms())
            await self._propose(command)
            log.info("the cluster's settings are seeded from the configuration", settings=str(written))
        overruled = defaults.overruled(self._config, self._machine.queues.defaults)
        for key, (value, counts) in overruled.items():
            log.warning("configuration does not count", key=key, value=value, counts=counts)
