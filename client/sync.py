"""The client, blocking: the twin of ``tarry.client.aio``, with the same names.

An event loop in a background thread does the work, so that threads that
schedule at the same time share requests, and consumers keep their stream and
leases while the program is busy.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tarry.client import aio
from tarry.client.blocking.consumer import Consumer, Message, MessageBatch
from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.operator import Operator
from tarry.client.blocking.producer import Producer
from tarry.client.blocking.puller import Puller
from tarry.client.consumers.message import Stamp
from tarry.client.consumers.unsettled import AckOutcome
from tarry.client.errors import TarryError
from tarry.client.operators.cluster_operator import Redriven, Sought, TopicDescription, Transferred
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.client.operators.topic_settings import Misfire
from tarry.client.results import CancelOutcome, MessageState, Scheduled, ScheduledBatch, StoredMessage
from tarry.client.settings import Settings, Tls, parse_servers
from tarry.client.start_position import Start

__all__ = [
    "AckOutcome",
    "CancelOutcome",
    "Client",
    "ClusterStatus",
    "Consumer",
    "Message",
    "MessageBatch",
    "MessageState",
    "Misfire",
    "Operator",
    "Producer",
    "Puller",
    "Redriven",
    "Scheduled",
    "ScheduledBatch",
    "Settings",
    "Sought",
    "Stamp",
    "Start",
    "StoredMessage",
    "TarryError",
    "Tls",
    "TopicDescription",
    "Transferred",
    "connect",
]


class Client:
    """One cluster. May be used by any number of threads. Closing it closes what it gave out."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._thread = LoopThread()
        self._client = aio.Client(settings)
        self._closed = False

    def producer(self) -> Producer:
        """Return a new producer, with an id of its own."""
        return Producer(self._thread.run(_made(self._client.producer)), self._thread, self.settings)

    def consumer(
        self,
        topic: str,
        group: str,
        *,
        tags: Iterable[str] = (),
        credit: int = 1_000,
        lease_ms: int = 0,
        name: str = "",
        dedupe: bool = False,
        start: Start | None = None,
        broadcast: bool = False,
        in_hand_bytes_max: int = 0,
    ) -> Consumer:
        """Return a new consumer; ``with`` subscribes it. Arguments as of the async twin."""

        def make() -> aio.Consumer:
            return self._client.consumer(
                topic,
                group,
                tags=tags,
                credit=credit,
                lease_ms=lease_ms,
                name=name,
                dedupe=dedupe,
                start=start,
                broadcast=broadcast,
                in_hand_bytes_max=in_hand_bytes_max,
            )

        return Consumer(self._thread.run(_made(make)), self._thread)

    def puller(
        self,
        topic: str,
        group: str,
        *,
        name: str = "",
        tags: Iterable[str] = (),
        lease_ms: int = 0,
        start: Start | None = None,
    ) -> Puller:
        """Return a consumer that takes messages call by call. Arguments as of ``consumer``."""

        def make() -> aio.Puller:
            return self._client.puller(topic, group, name=name, tags=tags, lease_ms=lease_ms, start=start)

        return Puller(self._thread.run(_made(make)), self._thread)

    def operator(self) -> Operator:
        """Return an operator."""
        return Operator(self._thread.run(_made(self._client.operator)), self._thread)

    def close(self) -> None:
        """Close producers (after their answers) and consumers, then the connections and the thread."""
        if not self._closed:
            self._closed = True
            self._thread.run(self._client.close())
            self._thread.stop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


async def _made(make: Any) -> Any:
    # Channels and events belong to the loop in which they are made.
    return make()


def connect(servers: str | Iterable[str], **settings: Any) -> Client:
    """Return a client of the cluster that has these addresses, as ``tarry.client.aio.connect`` does."""
    return Client(Settings(servers=parse_servers(servers), **settings))
