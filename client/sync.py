"""The client, blocking: the twin of ``tarry.client.aio``, with the same names.

An event loop in a background thread does the work, so that threads that
schedule at the same time share requests, and consumers keep their stream and
leases while the program is busy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar, Unpack

from tarry.client import aio
from tarry.client.aio import (
    AckOutcome as AckOutcome,
    BulkCancel as BulkCancel,
    ByHash as ByHash,
    CancelOutcome as CancelOutcome,
    CancelledByKey as CancelledByKey,
    Change as Change,
    ChangeOutcome as ChangeOutcome,
    ClusterDescription as ClusterDescription,
    ClusterStatus as ClusterStatus,
    Columns as Columns,
    Cron as Cron,
    DeletedTopic as DeletedTopic,
    DryRun as DryRun,
    Durability as Durability,
    Exponential as Exponential,
    Exported as Exported,
    FailedAcks as FailedAcks,
    Files as Files,
    Fire as Fire,
    FireOutcome as FireOutcome,
    Forecast as Forecast,
    FoundMessage as FoundMessage,
    FoundPage as FoundPage,
    GroupDescription as GroupDescription,
    Imported as Imported,
    ListedMessage as ListedMessage,
    ListedPage as ListedPage,
    ListedState as ListedState,
    GroupState as GroupState,
    Half as Half,
    HistoryRow as HistoryRow,
    Interval as Interval,
    MessageHistory as MessageHistory,
    MessageInGroup as MessageInGroup,
    MessageLife as MessageLife,
    MessageState as MessageState,
    Misfire as Misfire,
    Missed as Missed,
    NewMessage as NewMessage,
    NextFires as NextFires,
    NodeHistory as NodeHistory,
    Outgoing as Outgoing,
    Overlap as Overlap,
    PostgresqlTable as PostgresqlTable,
    RecurringSchedule as RecurringSchedule,
    RedisSet as RedisSet,
    Redriven as Redriven,
    RoundRobin as RoundRobin,
    SchedulePage as SchedulePage,
    Scheduled as Scheduled,
    ScheduledBatch as ScheduledBatch,
    Selector as Selector,
    Settings as Settings,
    Sought as Sought,
    Specification as Specification,
    Stamp as Stamp,
    Start as Start,
    StoredMessage as StoredMessage,
    TarryError as TarryError,
    Tls as Tls,
    TopicDescription as TopicDescription,
    Tracing as Tracing,
    TransactionEnd as TransactionEnd,
    TransactionInfo as TransactionInfo,
    TransactionPage as TransactionPage,
    TransactionState as TransactionState,
    Transferred as Transferred,
    Triggered as Triggered,
)
from tarry.client.blocking.consumer import Consumer as Consumer, Message as Message
from tarry.client.blocking.consumer import MessageBatch as MessageBatch, Puller as Puller
from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.operator import Operator as Operator
from tarry.client.blocking.bulk import Bulk as Bulk
from tarry.client.blocking.producer import Producer as Producer
from tarry.client.blocking.query import Query as Query
from tarry.client.blocking.recurring import Recurring as Recurring
from tarry.client.blocking.transactions import CheckHandler, in_thread
from tarry.client.blocking.transactions import Transaction as Transaction, Transactions as Transactions
from tarry.client.consumers.consumer_options import ConsumerOptions, PullerOptions
from tarry.client.errors import Closed
from tarry.client.settings import parse_servers

__all__ = aio.__all__  # the imports above name themselves, so that type checkers see them exported

T = TypeVar("T")


class Client:
    """One cluster. May be used by any number of threads. Closing it closes what it gave out."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._thread = LoopThread()
        self._client = aio.Client(settings)

    def producer(
        self, *, selector: Selector | None = None, group: str = "", check: CheckHandler | None = None
    ) -> Producer:
        """Return a new producer, with an id of its own.

        Args:
            selector: chooses the ordering key of each message that is given none.
            group: the producer group of its transactions.
            check: tells how transactions of the group ended, of any of its producers; may be called several
                times at once, by the blocking client in threads. Without it others of the group have to.

        Raises InvalidTransaction.
        """
        handler = None if check is None else in_thread(check)
        made = self._made(partial(self._client.producer, selector=selector, group=group, check=handler))
        return Producer(made, self._thread, self.settings)

    def consumer(self, topic: str = "", group: str = "", **options: Unpack[ConsumerOptions]) -> Consumer:
        """Return a new consumer of a topic, or of ``topics``; ``with`` (``async with``) subscribes it.

        Raises InvalidSubscription.
        """
        return Consumer(self._made(partial(self._client.consumer, topic, group, **options)), self._thread)

    def puller(self, topic: str = "", group: str = "", **options: Unpack[PullerOptions]) -> Puller:
        """Return a consumer that takes messages call by call."""
        return Puller(self._made(partial(self._client.puller, topic, group, **options)), self._thread)

    def query(self) -> Query:
        """Return a query."""
        return Query(self._made(self._client.query), self._thread)

    def recurring(self) -> Recurring:
        """Return a keeper of schedules that recur."""
        return Recurring(self._made(self._client.recurring), self._thread)

    def transactions(self) -> Transactions:
        """Return what prepares, ends and lists transactions by name."""
        return Transactions(self._made(self._client.transactions), self._thread)

    def operator(self) -> Operator:
        """Return an operator."""
        return Operator(self._made(self._client.operator), self._thread)

    def bulk(self) -> Bulk:
        """Return what exports and imports many messages."""
        return Bulk(self._made(self._client.bulk), self._thread)

    def close(self) -> None:
        """Close producers (after their answers) and consumers, then the connections and the thread."""
        with suppress(Closed):  # another has closed it
            self._thread.run(self._client.close())
        self._thread.stop()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _made(self, make: Callable[[], T]) -> T:
        async def work() -> T:  # channels and events belong to the loop in which they are made
            return make()

        return self._thread.run(work())


def connect(servers: str | Iterable[str], **settings: Any) -> Client:
    """Return a client of the cluster that has these addresses, as ``tarry.client.aio.connect`` does."""
    return Client(Settings(servers=parse_servers(servers), **settings))
