"""The end of an upgrade: the cluster's level is raised once every member can apply the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from tarry.replication.driver.driver import Driver
from tarry.replication.errors import LevelRefused, MembershipRefused, Overloaded
from tarry.replication.state_machine.machine import Machine

log = structlog.get_logger()

LOOK_S: Final = 0.5
TOLD_S: Final = 60.0
"""How often a leader says the same of the members."""
ANSWER_MS: Final = 2_000
"""In which every member has to say anew what it can apply."""


class Upgrade:
    """Raises the level, on the leader."""

    def __init__(
        self, machine: Machine, driver: Driver, now_ms: Callable[[], int], *, by_itself: bool
    ) -> None:
        """Take ``by_itself``: no operator has to say so."""
        self._machine = machine
        self._driver = driver
        self._now_ms = now_ms
        self._by_itself = by_itself
        self._told: dict[str, tuple[Mapping[str, str], float]] = {}

    async def run(self) -> None:
        """Raise the level by itself, and tell of members below it. Raises NotLeader, Unknown."""
        while True:
            await asyncio.sleep(LOOK_S)
            level, unable = self._machine.level, self._driver.unable(self._machine.level)
            if self._is_news("unable", unable):
                log.warning("members cannot apply the cluster's level", level=level, members=dict(unable))
            if self._by_itself and self._further:
                lacking = self._driver.lacking(level + 1)
                if not lacking:
                    await self._try()
                elif self._is_news("lacking", lacking):
                    log.info("the level stays until these are upgraded", level=level, members=dict(lacking))

    async def finish(self) -> int:
        """Raise the level by one for as long as every member can apply the next; return it.

        Raises LevelRefused where a member cannot, MembershipRefused, NotLeader, Unknown.
        """
        while self._further:
            level = self._machine.level + 1
            await self._driver.raise_level(level, self._now_ms(), ANSWER_MS)
            log.warning("the level is raised: no member can go back to an earlier version", level=level)
        return self._machine.level

    @property
    def _further(self) -> bool:
        """True if this node can apply more than the cluster's level."""
        return self._machine.level < self._driver.status().hello.level

    async def _try(self) -> None:
        try:
            await self.finish()
        except (LevelRefused, MembershipRefused, Overloaded) as refused:
            log.info("the level stays for now", level=self._machine.level, why=str(refused))

    def _is_news(self, what: str, members: Mapping[str, str]) -> bool:
        """Return whether to log of members: they have changed, or the last time is long ago."""
        now_s = asyncio.get_running_loop().time()
        before, told_s = self._told.get(what, ({}, now_s))
        news = bool(members) and (members != before or now_s - told_s >= TOLD_S)
        if news:
            self._told[what] = members, now_s
        return news
