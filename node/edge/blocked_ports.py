"""Log lines about peers whose port this node cannot reach."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import structlog

from tarry.replication.transport.blocked_port import BlockedPort

log = structlog.get_logger()

LOG_PERIOD_S: Final = 60.0


class BlockedPortLog:
    """Names each blocked port when it is found, then once in LOG_PERIOD_S while it stays so."""

    def __init__(self) -> None:
        self._told: dict[str, tuple[str, float]] = {}  # by peer: the address, and when

    def look(self, blocked: Mapping[str, BlockedPort], now_s: float) -> None:
        """Log what has to be told of the ports that are blocked now."""
        for peer, port in blocked.items():
            address, told_s = self._told.get(peer, ("", 0.0))
            if address == port.address and now_s - told_s < LOG_PERIOD_S:
                continue
            self._told[peer] = port.address, now_s
            to_do = f"open TCP {port.address} to this node, or change peer_listen of {peer}, or [dial] here"
            log.warning("peer port blocked", peer=peer, address=port.address, why=port.why, to_do=to_do)
        for peer in self._told.keys() - blocked.keys():
            address, _ = self._told.pop(peer)
            log.info("peer port open again", peer=peer, address=address)
