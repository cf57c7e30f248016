"""Clients of the cluster, one a token, shared by all requests that bear it.

A token that no node has known yet is tried in one of a few places of its own, so that made-up tokens
cannot push out those in use.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from tarry.client.errors import NotFound, NotPermitted
from tarry.client.settings import Settings
from tarry.gateway.cluster_access import ClusterAccess
from tarry.gateway.http.config import BODY_BYTES_MAX, Limits
from tarry.gateway.http.errors import GatewayReason, RequestRefused
from tarry.proto.reasons import Reason

SWEEP_S: Final = 30.0
BATCH_BYTES_MAX: Final = 2 * BODY_BYTES_MAX
"""More than a request's body can become: a batch is one request to the cluster, taken whole or not at all."""


class Access(ClusterAccess):
    """One token's way to the cluster, and whether it is in use."""

    def __init__(self, settings: Settings, now_s: float) -> None:
        super().__init__(settings)
        self.requests = 0
        """Under way."""
        self.known = False
        """A node has answered other than that it does not know the token."""
        self.used_s = now_s


class Accesses:
    """The access of each token; None: of requests without one."""

    def __init__(self, settings: Settings, limits: Limits, clock_s: Callable[[], float]) -> None:
        self._limits, self._clock_s = limits, clock_s
        self._settings = replace(
            settings,
            token=None,
            batch_messages_max=limits.batch_messages_max,
            batch_bytes_max=BATCH_BYTES_MAX,
        )
        self._of_token: dict[str | None, Access] = {}  # the longest unused first
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._of_token)

    @asynccontextmanager
    async def of(self, token: str | None) -> AsyncIterator[Access]:
        """Yield the access of a token, which stays open meanwhile. Raises RequestRefused."""
        access = self._of_token.pop(token, None) or self._made(token)
        self._of_token[token] = access
        access.requests += 1
        try:
            yield access
            access.known = True
        except (NotPermitted, NotFound) as error:  # others may be the client's own, without a node
            access.known |= error.reason != Reason.UNAUTHENTICATED
            raise
        finally:
            access.requests -= 1
            access.used_s = self._clock_s()
            if not access.known and not access.requests and token is not None:
                self._let_go(token)

    def sweep(self) -> None:
        """Close what nobody has used for long."""
        oldest_s = self._clock_s() - self._limits.token_idle_ms / 1_000
        for token, access in list(self._of_token.items()):
            if access.used_s < oldest_s and not access.requests:
                self._let_go(token)

    async def close(self) -> None:
        """Close all clients."""
        for token in list(self._of_token):
            self._let_go(token)
        await asyncio.gather(*self._closing)

    def _made(self, token: str | None) -> Access:
        if token is not None:
            self._make_room()
        try:
            settings = replace(self._settings, token=token)
        except ValueError as error:
            raise RequestRefused(GatewayReason.TOKEN_INVALID, str(error)) from None
        return Access(settings, self._clock_s())

    def _make_room(self) -> None:
        tried = sum(not access.known for token, access in self._of_token.items() if token is not None)
        if tried >= self._limits.tokens_tried_max:
            text = f"{tried} tokens that no node has known yet are being tried, the maximum"
            raise RequestRefused(GatewayReason.GATEWAY_BUSY, text)
        if len(self._of_token) < self._limits.tokens_max:
            return
        idle = [token for token, access in self._of_token.items() if token and not access.requests]
        if not idle:
            text = f"{len(self._of_token)} tokens are in use, the maximum"
            raise RequestRefused(GatewayReason.GATEWAY_BUSY, text)
        self._let_go(idle[0])

    def _let_go(self, token: str | None) -> None:
        access = self._of_token.pop(token, None)
        if access is not None:
            task = asyncio.create_task(access.client.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
