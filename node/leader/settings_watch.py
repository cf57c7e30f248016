"""Watch, on the leader, over settings that have to be equal on all nodes."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog

from tarry.node.equal_settings import Difference, differences
from tarry.replication.driver.driver import Driver

log = structlog.get_logger()

LOOK_S: Final = 1.0
TOLD_S: Final = 300.0
"""How often a leader tells the same difference."""


def differing(driver: Driver) -> list[Difference]:
    """Return what members have told this leader of their settings that differs from its own."""
    status = driver.status()
    told = {node: peer.hello.settings for node, peer in status.peers.items() if peer.hello is not None}
    others = {node: settings for node, settings in told.items() if settings and node in status.members}
    return differences(status.node, status.hello.settings, others)


class SettingsWatch:
    """Tells in the log what differs."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._told_s: dict[Difference, float] = {}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            self.look(asyncio.get_running_loop().time())

    def look(self, now_s: float) -> None:
        """Tell what differs and has not been told lately."""
        found = differing(self._driver)
        self._told_s = {one: told_s for one, told_s in self._told_s.items() if one in found}
        for one in found:
            if now_s - self._told_s.get(one, -TOLD_S) >= TOLD_S:
                self._told_s[one] = now_s
                values = {one.node: one.value, one.other: one.other_value}
                log.warning("settings differ between nodes", key=one.key, values=values)
