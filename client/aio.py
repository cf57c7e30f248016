"""The client, async: ``connect`` and what it gives. ``tarry.client.sync`` is its blocking twin."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Unpack

from tarry.client.bulk.bulk import Bulk
from tarry.client.bulk.values import (
    Columns,
    DryRun,
    Exported,
    Files,
    Imported,
    PostgresqlTable,
    RedisSet,
)
from tarry.client.cluster.nodes import Nodes
from tarry.client.consumers.consumer import Consumer
from tarry.client.consumers.consumer_options import ConsumerOptions, PullerOptions
from tarry.client.consumers.message import Message, MessageBatch, Stamp
from tarry.client.consumers.puller import Puller
from tarry.client.consumers.unsettled import AckOutcome, FailedAcks
from tarry.client.durability import Durability
from tarry.client.errors import TarryError
from tarry.client.found import CancelledByKey, FoundMessage, FoundPage
from tarry.client.operators.cluster_operator import (
    DeletedTopic,
    Operator,
    Redriven,
    Sought,
    TopicDescription,
    Transferred,
)
from tarry.client.operators.cluster_settings import ClusterDescription
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.client.operators.group_policy import Exponential, GroupDescription
from tarry.client.operators.topic_settings import Misfire
from tarry.client.producers.new_message import NewMessage
from tarry.client.producers.producer import Producer
from tarry.client.producers.selectors import ByHash, Outgoing, RoundRobin, Selector
from tarry.client.queries.bulk_cancel import BulkCancel
from tarry.client.queries.forecast import Forecast
from tarry.client.queries.life import (
    GroupState,
    HistoryRow,
    MessageHistory,
    MessageInGroup,
    MessageLife,
    NodeHistory,
)
from tarry.client.queries.listing import ListedMessage, ListedPage, ListedState
from tarry.client.queries.query import Query
from tarry.client.recurring.recurring import Recurring
from tarry.client.recurring.schedule import (
    Fire,
    FireOutcome,
    NextFires,
    RecurringSchedule,
    SchedulePage,
    Triggered,
)
from tarry.client.recurring.specification import Cron, Interval, Missed, Overlap, Specification
from tarry.client.results import (
    CancelOutcome,
    Change,
    ChangeOutcome,
    MessageState,
    Scheduled,
    ScheduledBatch,
    StoredMessage,
)
from tarry.client.settings import Settings, Tls, parse_servers
from tarry.client.start_position import Start
from tarry.client.tracing import Tracing
from tarry.client.transactions.check_stream import CheckHandler
from tarry.client.transactions.half import (
    Half,
    TransactionEnd,
    TransactionInfo,
    TransactionPage,
    TransactionState,
)
from tarry.client.transactions.transaction import Transaction
from tarry.client.transactions.transactions import Transactions

__all__ = [
    "AckOutcome",
    "Bulk",
    "BulkCancel",
    "ByHash",
    "CancelOutcome",
    "CancelledByKey",
    "Change",
    "ChangeOutcome",
    "Client",
    "ClusterDescription",
    "ClusterStatus",
    "Columns",
    "Consumer",
    "Cron",
    "DeletedTopic",
    "DryRun",
    "Durability",
    "Exponential",
    "Exported",
    "FailedAcks",
    "Files",
    "Fire",
    "FireOutcome",
    "Forecast",
    "FoundMessage",
    "FoundPage",
    "GroupDescription",
    "GroupState",
    "Half",
    "HistoryRow",
    "Imported",
    "Interval",
    "ListedMessage",
    "ListedPage",
    "ListedState",
    "Message",
    "MessageBatch",
    "MessageHistory",
    "MessageInGroup",
    "MessageLife",
    "MessageState",
    "Misfire",
    "Missed",
    "NewMessage",
    "NextFires",
    "NodeHistory",
    "Operator",
    "Outgoing",
    "Overlap",
    "PostgresqlTable",
    "Producer",
    "Puller",
    "Query",
    "Recurring",
    "RecurringSchedule",
    "RedisSet",
    "Redriven",
    "RoundRobin",
    "SchedulePage",
    "Scheduled",
    "ScheduledBatch",
    "Selector",
    "Settings",
    "Sought",
    "Specification",
    "Stamp",
    "Start",
    "StoredMessage",
    "TarryError",
    "Tls",
    "TopicDescription",
    "Tracing",
    "Transaction",
    "TransactionEnd",
    "TransactionInfo",
    "TransactionPage",
    "TransactionState",
    "Transactions",
    "Transferred",
    "Triggered",
    "connect",
]


class Client:
    """One cluster, from one event loop. Closing it closes what it gave out."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._nodes: Nodes | None = None
        self._opened: set[Producer | Consumer] = set()

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
        producer = Producer(self._cluster(), self._opened.discard, selector, group=group, check=check)
        self._opened.add(producer)
        return producer

    def consumer(self, topic: str = "", group: str = "", **options: Unpack[ConsumerOptions]) -> Consumer:
        """Return a new consumer of a topic, or of ``topics``; ``with`` (``async with``) subscribes it.

        Raises InvalidSubscription.
        """
        consumer = Consumer(self._cluster(), topic, group, on_closed=self._opened.discard, **options)
        self._opened.add(consumer)
        return consumer

    def puller(self, topic: str = "", group: str = "", **options: Unpack[PullerOptions]) -> Puller:
        """Return a consumer that takes messages call by call."""
        return Puller(self._cluster(), topic, group, **options)

    def query(self) -> Query:
        """Return a query."""
        return Query(self._cluster())

    def recurring(self) -> Recurring:
        """Return a keeper of schedules that recur."""
        return Recurring(self._cluster())

    def transactions(self) -> Transactions:
        """Return what prepares, ends and lists transactions by name."""
        return Transactions(self._cluster())

    def operator(self) -> Operator:
        """Return an operator."""
        return Operator(self._cluster())

    def bulk(self) -> Bulk:
        """Return what exports and imports many messages."""
        return Bulk(self._cluster())

    async def close(self) -> None:
        """Close producers (after their answers) and consumers, then the connections."""
        await asyncio.gather(*(each.close() for each in tuple(self._opened)))
        if self._nodes is not None:
            await self._nodes.close()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _cluster(self) -> Nodes:
        if self._nodes is None:  # not before there is a running event loop
            self._nodes = Nodes(self.settings)
        return self._nodes


def connect(servers: str | Iterable[str], **settings: Any) -> Client:
    """Return a client of the cluster that has these addresses, ``"host:port,host:port"`` or a sequence.

    One address is enough; the others are learned. Further arguments are fields
    of Settings. Nothing is connected before the first call. Raises ValueError
    for a malformed address or setting, ModuleNotFoundError for ``tracing``
    without its extra.
    """
    return Client(Settings(servers=parse_servers(servers), **settings))
