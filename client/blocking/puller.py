"""The blocking puller."""

from __future__ import annotations

from collections.abc import Sequence

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.consumers.message import View
from tarry.client.consumers.puller import Puller as AsyncPuller
from tarry.client.consumers.unsettled import AckOutcome


class Puller:
    """One consumer of a group, by calls. Made by ``Client.puller``; threads may share it."""

    def __init__(self, puller: AsyncPuller, thread: LoopThread) -> None:
        self._puller = puller
        self._thread = thread

    @property
    def name(self) -> str:
        """By which the group knows who has received."""
        return self._puller.name

    def receive(self, messages_max: int = 1, *, wait_ms: int = 0) -> list[View]:
        """Return due messages, leased, as the async twin does."""
        return self._thread.run(self._puller.receive(messages_max, wait_ms=wait_ms))

    def ack(self, messages: Sequence[View]) -> list[AckOutcome]:
        """Acknowledge; return an outcome for each: fsynced on a majority, or stale."""
        return self._thread.run(self._puller.ack(messages))

    def nack(self, messages: Sequence[View], delay_ms: int | None = None) -> list[AckOutcome]:
        """Have them delivered again after ``delay_ms``, or by the group's back-off table."""
        return self._thread.run(self._puller.nack(messages, delay_ms))

    def extend(self, messages: Sequence[View], lease_ms: int) -> list[AckOutcome]:
        """Keep them for ``lease_ms`` from now on; return whether each still was in hand."""
        return self._thread.run(self._puller.extend(messages, lease_ms))
