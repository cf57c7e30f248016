"""Certificates and tokens, read again while the node runs: on SIGHUP, and when their files change.

Files are looked at every `reload_check_ms`, a stat each in a thread: that works on any file system and for
secrets that are mounted as links, and costs some 100 µs, where a library of file events would be one more
dependency that must notice a link's change. What has changed is read once it has stayed so from one look to
the next, since certificate and key are written one after the other. What cannot be read, or does not go
together, is told, and everything stays in force as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

import structlog

from tarry.node.config import NodeConfig, Tls, faults
from tarry.node.config_source import ConfigSource, Stamps
from tarry.node.edge.tls import Certificates, read
from tarry.replication.blocking import in_thread
from tarry.replication.clock import to_next

log = structlog.get_logger()

RELOADED: Final = frozenset({"tokens", "tokens_file", "peer_token", "peer_tokens_accepted", "tls"})
"""Keys that count from then on. What else has changed counts from the next start on."""

Apply: TypeAlias = Callable[[NodeConfig, Certificates | None], int]
"""Has what was read in force; returns how many streams ended because their callers may do less now."""


@dataclass(slots=True)
class ReloadStatus:
    """Outcome of the reloads of this start."""

    done: int = 0
    at_ms: int = 0
    """Of the last that succeeded, by the node's own clock; 0: none has."""
    failure: str = ""
    """Why the last did not; empty: it did."""


class Reload:
    """Reads again for as long as the node runs."""

    def __init__(
        self,
        source: ConfigSource,
        config: NodeConfig,
        apply: Apply,
        status: ReloadStatus,
        wall_ms: Callable[[], float],
    ) -> None:
        """Take the configuration as it was read last, and `status`, which is kept up to date."""
        self.status = status
        self._source, self._started, self._config = source, config, config
        self._apply, self._wall_ms = apply, wall_ms
        self._asked = asyncio.Event()
        self._read = self._seen = source.stamps(config)

    def ask(self) -> None:
        """Read at once, whatever has changed."""
        self._asked.set()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await self._wait()
            await self.look()

    async def look(self) -> None:
        """Read again where that was asked for, or the files have changed and settled."""
        asked = self._asked.is_set()
        self._asked.clear()
        found = await in_thread(lambda: self._source.stamps(self._config))
        if asked or self._read != found == self._seen:
            await self._reload(found)
        self._seen = found

    async def _wait(self) -> None:
        check_s = self._config.reload_check_ms / 1_000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(
                to_next(check_s, asyncio.get_running_loop().time()) if check_s else None
            ):
                await self._asked.wait()

    async def _reload(self, found: Stamps) -> None:
        self._read = found
        try:
            config, certificates = await in_thread(self._read_all)
        except (OSError, ValueError) as error:
            self.status.failure = "; ".join(faults(error, self._source.path))
            log.error("not reloaded: what was read before stays in force", why=self.status.failure)
            return
        if left := self._left_for_a_start(config):
            log.warning("changed, and read at a start only", keys=left)
        ended = self._apply(config, None if "tls" in left else certificates)
        self._config = config
        self.status.done += 1
        self.status.at_ms, self.status.failure = round(self._wall_ms()), ""
        log.info("reloaded", tokens=len(config.tokens), streams_ended=ended)

    def _read_all(self) -> tuple[NodeConfig, Certificates | None]:
        config = self._source.load()
        return config, read(config.tls)

    def _left_for_a_start(self, config: NodeConfig) -> list[str]:
        """Return the keys whose new values count only from the next start on."""
        names = [
            name
            for name in NodeConfig.model_fields
            if name not in RELOADED and getattr(config, name) != getattr(self._started, name)
        ]
        return names if _kind(config.tls) == _kind(self._started.tls) else [*names, "tls"]


def _kind(tls: Tls | None) -> tuple[bool, ...]:
    return () if tls is None else (tls.authority is not None, tls.bind_peers)
