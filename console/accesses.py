"""Visitors of the console: with which token each asks the cluster.

A visitor is known by a random cookie. Who has not signed in asks without a token, as a guest; a cluster
without tokens lets guests do everything. All visitors of one token share a client, and looks at the cluster.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tarry.client.aio import Client
from tarry.client.producers.producer import Producer
from tarry.client.settings import Settings
from tarry.console.jobs import Jobs
from tarry.console.shared_answers import SharedAnswers
from tarry.console.watch import Watch

VISITS_MAX: Final = 1_000
"""Visitors with a token; beyond, who has been away longest is signed out."""
VISITS_OF_TOKEN_MAX: Final = 100
"""The same of one token, so that who has one cannot sign all others out."""
IDLE_S: Final = 12 * 3_600.0
"""Without a request for so long, a visitor is signed out; an open page alone makes none."""
SWEEP_S: Final = 30.0
"""Time between two looks for idle visitors. A client that nobody needs is closed with the second one: a call
takes 15 s at most."""
SIGNING_IN_MAX: Final = 10
"""Tokens tried at once; more wait."""


class Access:
    """One token's way to the cluster."""

    def __init__(self, settings: Settings, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.client = Client(settings)
        self.watch = Watch(self.client.operator)
        self.jobs = Jobs(clock_s, self.watch.outdate)
        self.shared = SharedAnswers()
        self._producer: Producer | None = None

    @property
    def producer(self) -> Producer:
        """The producer of all its visitors."""
        if self._producer is None:
            self._producer = self.client.producer()
        return self._producer

    async def close(self) -> None:
        """End its event streams, its jobs, and its connections."""
        await self.jobs.end()
        await self.watch.ended()
        await self.client.close()


@dataclass(slots=True)
class Visit:
    """A visitor who has signed in."""

    token: str
    used_s: float


class Accesses:
    """The access of each visitor, by the cookie."""

    def __init__(self, settings: Settings, clock_s: Callable[[], float]) -> None:
        self._settings, self._clock_s = settings, clock_s
        self._key = secrets.token_bytes(32)
        self._guest: Access | None = None
        self._visits: OrderedDict[str, Visit] = OrderedDict()  # the longest unused first
        self._of_token: dict[str, Access] = {}
        self._left: list[Access] = []  # that nobody asks with any more, calls under way apart
        self._signing_in = asyncio.Semaphore(SIGNING_IN_MAX)

    @property
    def guest(self) -> Access:
        """The access of all who have not signed in."""
        if self._guest is None:
            self._guest = Access(replace(self._settings, token=None))
        return self._guest

    def used(self, cookie: str) -> None:
        """Note that a visitor has asked for something."""
        if self.knows(cookie):
            self._visits[cookie].used_s = self._clock_s()
            self._visits.move_to_end(cookie)

    def of(self, cookie: str) -> Access:
        """Return a visitor's access."""
        return self._of_token[self._visits[cookie].token] if self.knows(cookie) else self.guest

    def knows(self, cookie: str) -> bool:
        """Return whether the visitor is signed in."""
        visit = self._visits.get(cookie)
        return visit is not None and self._clock_s() - visit.used_s <= IDLE_S

    def form_token(self, cookie: str) -> str:
        """Return what a visitor's forms carry, so that no other site can send one."""
        return hmac.new(self._key, cookie.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, cookie: str, given: str) -> bool:
        """Return whether a form is this visitor's."""
        return hmac.compare_digest(self.form_token(cookie).encode(), given.encode())

    async def sign_in(self, token: str) -> str:
        """Return the cookie of a visitor with a token that the cluster knows.

        Raises ValueError: it cannot be sent; NotPermitted: the cluster knows no such token; Unavailable.
        """
        async with self._signing_in:
            tried = Access(replace(self._settings, token=token))
            try:
                await tried.client.operator().status()
            except BaseException:
                await tried.close()
                raise
        cookie = new_cookie()
        known = self._of_token.setdefault(token, tried)
        self._visits[cookie] = Visit(token, self._clock_s())  # before anything waits: it keeps the token
        self._make_room(token)
        if known is not tried:
            await tried.close()
        return cookie

    def sign_out(self, cookie: str) -> None:
        """Forget a visitor, and with the last one of a token the token."""
        visit = self._visits.pop(cookie, None)
        if visit is None or any(other.token == visit.token for other in self._visits.values()):
            return
        access = self._of_token.pop(visit.token)
        access.watch.end()
        access.jobs.stop()
        self._left.append(access)

    def end(self) -> None:
        """End all event streams."""
        for access in self._all():
            access.watch.end()

    async def sweep(self) -> None:
        """Sign idle visitors out, and close what nobody has asked with since the sweep before."""
        left, self._left = self._left, []
        for cookie in [cookie for cookie in self._visits if not self.knows(cookie)]:
            self.sign_out(cookie)
        await asyncio.gather(*(access.close() for access in left))

    async def close(self) -> None:
        """Close everything."""
        await asyncio.gather(*(access.close() for access in self._all()))

    def _all(self) -> list[Access]:
        return [*self._of_token.values(), *self._left, *filter(None, (self._guest,))]

    def _make_room(self, token: str) -> None:
        same = [cookie for cookie, visit in self._visits.items() if visit.token == token]
        for cookie in same[: max(0, len(same) - VISITS_OF_TOKEN_MAX)]:
            self.sign_out(cookie)
        while len(self._visits) > VISITS_MAX:
            self.sign_out(next(iter(self._visits)))


def new_cookie() -> str:
    """Return a new visitor's cookie."""
    return secrets.token_urlsafe(32)
