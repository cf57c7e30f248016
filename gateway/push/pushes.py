"""Pushes: each is a consumer whose messages are posted, as many at once as the push says.

consumer ──► post ──► 2xx: ack
                 └──► else: nack, by the group's back-off, or later, as the receiver's Retry-After says
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from tarry.client.aio import AckOutcome, Client, Consumer, Message
from tarry.client.errors import TarryError
from tarry.client.settings import Settings
from tarry.gateway.push.post import Delivery, Posted, Receiver
from tarry.gateway.push.settings import Push

SETTLE_MS: Final = 15_000
"""What a lease has beyond the time of a post: to settle it, also while leaders change."""
SETTLE_MS_MIN: Final = 5_000
"""The same of a message that has waited in hand while the push paused."""
AGAIN_S_MAX: Final = 30.0
"""Pause after failures in a row, at most: of the subscription, and of posts."""
FAILURES_TO_PAUSE: Final = 5
"""Failed posts in a row from which on the push pauses, so that a receiver that is down does not use up the
attempts of all messages."""
TELL_S: Final = 10.0
"""Time between two lines of the log about one push."""
Failed: TypeAlias = Callable[[BaseException], None]
log = logging.getLogger(__name__)


class Pusher:
    """One push. Several gateways may have the same: they share its group's messages."""

    def __init__(self, settings: Settings, push: Push, end_ms: int, on_failed: Failed) -> None:
        token = settings.token if push.token is None else push.token
        self.push = push
        self.taken = 0
        """Messages that the receiver has taken."""
        self.failed = 0
        """Posts that failed."""
        self._client = Client(replace(settings, token=token))
        self._receiver = Receiver(push)
        self._end_s, self._on_failed = end_ms / 1_000, on_failed
        self._posting: set[asyncio.Task[None]] = set()
        self._failures = 0
        self._resumes_s = 0.0
        self._told_s = float("-inf")
        self._ending = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    @property
    def in_flight(self) -> int:
        """Posts under way."""
        return len(self._posting)

    def start(self) -> None:
        """Begin."""
        self._working = asyncio.create_task(self._work())
        self._working.add_done_callback(self._ended)

    def end(self) -> None:
        """Post nothing more; what is under way goes on."""
        self._ending.set()

    async def close(self) -> None:
        """Wait for the posts under way, for as long as the gateway may, and give back the other messages."""
        self.end()
        if self._working is not None:
            await asyncio.wait([self._working])
        await self._receiver.close()
        await self._client.close()

    async def _work(self) -> None:
        failures = 0
        while not self._ending.is_set():
            try:
                async with self._consumer() as consumer:
                    failures = 0
                    try:
                        await self._consume(consumer)
                    finally:
                        await self._finish()
            except TarryError as error:
                failures += 1
                self._tell(f"cannot consume, and tries again: {error}")
            await self._pause(failures)

    def _consumer(self) -> Consumer:
        push = self.push
        return self._client.consumer(
            push.topic,
            push.group,
            tags=push.tags,
            filter=push.filter,
            start=push.begin,
            credit=push.in_flight_max,
            lease_ms=lease_ms(push.timeout_ms),
        )

    async def _consume(self, consumer: Consumer) -> None:
        """Post what comes until the push is to end. Raises TarryError where the subscription ends."""
        ending = asyncio.ensure_future(self._ending.wait())
        waiting: asyncio.Future[Message] | None = None
        try:
            while not self._ending.is_set():
                if (left_s := self._resumes_s - time.monotonic()) > 0:
                    await asyncio.wait({ending}, timeout=left_s)
                    continue
                waiting = asyncio.ensure_future(anext(consumer))
                await asyncio.wait({waiting, ending}, return_when=asyncio.FIRST_COMPLETED)
                if not waiting.done():
                    return
                task = asyncio.create_task(self._deliver(waiting.result()))
                self._posting.add(task)
                task.add_done_callback(self._posting.discard)
                task.add_done_callback(self._ended)
        finally:
            ending.cancel()
            if waiting is not None:
                waiting.cancel()

    async def _finish(self) -> None:
        """Wait for the posts under way; those that take too long are given up, and posted again."""
        if self._posting:
            await asyncio.wait(self._posting, timeout=self._end_s)
        for task in self._posting:
            task.cancel()
        await asyncio.gather(*self._posting, return_exceptions=True)

    async def _deliver(self, message: Message) -> None:
        delivery = Delivery(
            message.id,
            message.topic,
            self.push.group,
            message.due_ms,
            message.attempt,
            message.maybe_duplicate,
            message.properties,
            message.body,
            message.born_ms,
            message.stored_ms,
            message.delivered_ms,
        )
        posted = await self._receiver.post(delivery, time.time())
        self._note(posted)
        with contextlib.suppress(TarryError):  # its lease ends, and it comes again
            if posted.taken:
                outcome = await message.ack()
                if outcome is not AckOutcome.OK:
                    self._tell(
                        f"message {message.id} was taken, but its ack is {outcome}: it may be posted again"
                    )
            else:
                # of a receiver that is down, and asks for a second, the group's back-off saves the attempts
                await message.nack(self._delay_ms(posted), at_least=True)

    def _delay_ms(self, posted: Posted) -> int | None:
        """Return the delay that the receiver asks for, within bounds; None: it asks for none."""
        return min(posted.retry_after_ms or 0, self.push.retry_after_ms_max) or None

    def _note(self, posted: Posted) -> None:
        if posted.taken:
            if self._failures >= FAILURES_TO_PAUSE:
                log.warning("push %s: posts are taken again", self.push.name)
            self.taken += 1
            self._failures, self._resumes_s = 0, 0.0
            return
        self.failed += 1
        self._failures += 1
        self._tell(f"{self._failures} posts in a row have failed, the last: {posted.text}")
        if self._failures >= FAILURES_TO_PAUSE:
            self._resumes_s = time.monotonic() + _pause_s(self._failures - FAILURES_TO_PAUSE)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Report what ended a task of the push, which nothing awaits: a defect."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failed(error)

    def _tell(self, text: str) -> None:
        if time.monotonic() - self._told_s >= TELL_S:
            self._told_s = time.monotonic()
            log.warning("push %s: %s", self.push.name, text)

    async def _pause(self, failures: int) -> None:
        if failures:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_pause_s(failures)):
                    await self._ending.wait()


class Pushes:
    """All pushes of the gateway's file."""

    def __init__(self, settings: Settings, pushes: Sequence[Push], end_ms: int) -> None:
        self._settings, self._pushes, self._end_ms = settings, pushes, end_ms
        self.pushers: list[Pusher] = []
        self.on_failed: Failed = _raise_in_loop
        """Told of a defect, which has ended a push."""

    def start(self) -> None:
        """Begin all. Raises OSError for an authority's file that cannot be read."""
        self.pushers = [Pusher(self._settings, push, self._end_ms, self.on_failed) for push in self._pushes]
        for pusher in self.pushers:
            pusher.start()

    def end(self) -> None:
        """Post nothing more."""
        for pusher in self.pushers:
            pusher.end()

    async def close(self) -> None:
        """Wait for the posts under way, and close all."""
        await asyncio.gather(*(pusher.close() for pusher in self.pushers))


def lease_ms(timeout_ms: int) -> int:
    """Return the lease of messages that are posted within that time.

    One that waits in hand is renewed by the consumer before 3/8 of its lease are over.
    """
    return max(timeout_ms + SETTLE_MS, (timeout_ms + SETTLE_MS_MIN) * 8 // 5)


def _raise_in_loop(error: BaseException) -> None:
    asyncio.get_running_loop().call_exception_handler({"message": "a push has failed", "exception": error})


def _pause_s(failures: int) -> float:
    return min(AGAIN_S_MAX, 0.2 * 2.0 ** min(failures, 10)) * random.uniform(0.6, 1.0)
