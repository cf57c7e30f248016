"""Messages of a consumer, the columns in which they came, and the verdicts on them; read when asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from tarry.client.consumers.unsettled import AckOutcome, Verdict
from tarry.client.records import bodies_of, body_of
from tarry.client.results import Place, ids_of
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.tarry_message_pb2 import Record, RecordTimes

Number = TypeVar("Number", bound=np.generic)
Spans: TypeAlias = "Callable[[View | MessageBatch], AbstractContextManager[Any]]"
"""Makes the span of the processing of a message or batch."""


class Stamp(NamedTuple):
    """Leader that delivered, and the position of its wheel."""

    node: str
    term: int
    tick: int
    """Second since the epoch."""
    local_index: int
    """Messages of that second released so far."""


class Columns:
    """Messages of one queue that came together. Columns have shape (n,)."""

    def __init__(
        self,
        deliveries: consumer_pb.Deliveries,
        received_ms: int,
        incarnation: int,
        spans: Spans | None = None,
    ) -> None:
        self.topic = deliveries.topic
        self.queue = deliveries.queue
        self.offsets: list[int] = deliveries.offset[:]
        """With the queue: what an ack names."""
        self.received_ms = received_ms
        """By this machine's clock."""
        self.incarnation = incarnation
        """Of the cluster, drawn when it was restored or recovered, 0 before: to which offsets belong."""
        self.ack_verdict = Verdict(self.queue, incarnation=incarnation)
        self.spans = spans
        """None where the client does not trace."""
        self._deliveries = deliveries
        self._positions: list[int] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    def nacking(self, delay_ms: int | None, *, at_least: bool = False, dead_letter: bool = False) -> Verdict:
        """Return the nack of some of the messages. Raises InvalidTime for a delay out of range."""
        named = {"at_least": at_least, "dead_letter": dead_letter}
        return Verdict.nacking(self.queue, delay_ms, incarnation=self.incarnation, **named)

    def extending(self, lease_ms: int) -> Verdict:
        """Return the extension of some of the messages. Raises InvalidSubscription for a lease too long."""
        return Verdict.extending(self.queue, lease_ms, incarnation=self.incarnation)

    def keep(self, positions: list[int]) -> None:
        """Keep only the messages at these positions. To be called before any column is read."""
        of_all = range(len(self)) if self._positions is None else self._positions
        self._positions = [of_all[position] for position in positions]
        self.offsets = [self.offsets[position] for position in positions]

    @cached_property
    def records(self) -> list[bytes]:
        """Serialized records, as the producer's client made them."""
        records = self._deliveries.records
        return records[:] if self._positions is None else [records[position] for position in self._positions]

    @cached_property
    def bodies(self) -> list[bytes]:
        """Bodies of all messages."""
        return bodies_of(self.records)

    @cached_property
    def ids(self) -> list[str]:
        """Message ids; a retried message keeps its first id."""
        hours, indices = self._column("hour", np.uint32), self._column("global_index", np.uint32)
        return ids_of(self._deliveries.shard, hours, indices)

    @cached_property
    def due_ms(self) -> NDArray[np.int64]:
        """Due time of each delivery; a retry's is later than the message's, and so is a delayed group's."""
        return self._column("due_ms", np.int64)

    @property
    def delay_ms(self) -> int:
        """Delay of the group, in the due times: the messages were due so much earlier; 0 for retries."""
        return self._deliveries.delay_ms

    @cached_property
    def released_ms(self) -> NDArray[np.int64]:
        """Time of each release into the ready queue, by the cluster's clock: ahead of the due time."""
        return self._column("released_ms", np.int64)

    @cached_property
    def born_ms(self) -> NDArray[np.int64]:
        """Time at which each was sent first, by its producer's clock; 0: not known. A retry keeps it."""
        return np.fromiter(map(attrgetter("born_ms"), self._times), np.int64, len(self))

    @cached_property
    def stored_ms(self) -> NDArray[np.int64]:
        """Time at which the cluster took each, by its clock; 0: not known. A retry keeps it."""
        return np.fromiter(map(attrgetter("stored_ms"), self._times), np.int64, len(self))

    @property
    def delivered_ms(self) -> int | None:
        """Time at which the leader handed the batch over, by the cluster's clock; None: one of 0.2.0 did."""
        return self._deliveries.delivered_ms or None

    @cached_property
    def _times(self) -> list[RecordTimes]:
        return list(map(RecordTimes.FromString, self.records))

    @cached_property
    def attempts(self) -> NDArray[np.uint32]:
        """Number of the delivery, from 1."""
        if not self._deliveries.attempt:
            return np.ones(len(self), dtype=np.uint32)
        return self._column("attempt", np.uint32)

    @cached_property
    def maybe_duplicates(self) -> NDArray[np.bool_]:
        """True for each message that may have been delivered before a failover."""
        marked = np.zeros(len(self._deliveries.offset), dtype=bool)
        marked[np.array(self._deliveries.maybe_duplicate, dtype=np.uint32)] = True
        return marked if self._positions is None else marked[self._positions]

    @cached_property
    def stamp(self) -> Stamp:
        """Leader that delivered the batch."""
        stamp = self._deliveries.stamp
        return Stamp(stamp.node, stamp.term, stamp.tick, stamp.local_index)

    @cached_property
    def places(self) -> list[Place]:
        """Identities of the messages and of their deliveries."""
        columns = (self._column("hour", np.uint32), self._column("global_index", np.uint32), self.due_ms)
        listed = [column.tolist() for column in columns]
        marks = self.attempts.tolist(), self.maybe_duplicates.tolist()
        return list(map(Place, *listed, self.offsets, *marks))

    def _column(self, name: str, dtype: type[Number]) -> NDArray[Number]:
        column = np.array(getattr(self._deliveries, name), dtype=dtype)
        return column if self._positions is None else column[self._positions]


class View:
    """One message of the columns; its record is parsed when asked for."""

    __slots__ = ("_batch", "_position", "_record", "offset")

    def __init__(self, batch: Columns, position: int, offset: int) -> None:
        self._batch = batch
        self._position = position
        self.offset = offset
        """Position in its queue, in release order."""

    @property
    def id(self) -> str:
        """The message's id; a retried message keeps its first."""
        return self._batch.ids[self._position]

    @property
    def topic(self) -> str:
        return self._batch.topic

    @property
    def batch(self) -> Columns:
        """Batch in which the message was delivered."""
        return self._batch

    @property
    def place(self) -> Place:
        """Identity of the message and of this delivery."""
        return self._batch.places[self._position]

    @property
    def queue(self) -> int:
        """The topic's ready queue, or the group's retry queue of it."""
        return self._batch.queue

    @property
    def body(self) -> bytes:
        return body_of(self._batch.records[self._position])

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self._parsed.tags)

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(self._parsed.keys)

    @property
    def ordering_key(self) -> str:
        """Messages of one key are delivered one after another; empty: in no order."""
        return self._parsed.ordering_key

    @property
    def idempotency_key(self) -> str:
        """The key by which it was scheduled once only; empty: it has none."""
        return self._parsed.idempotency_key

    @property
    def properties(self) -> Mapping[str, str]:
        return dict(self._parsed.properties)

    @property
    def due_ms(self) -> int:
        """Due time of this delivery, ms since the epoch; in a group with a delay, later by that."""
        return int(self._batch.due_ms[self._position])

    @property
    def delay_ms(self) -> int:
        """Delay of the group, which is in the due time; 0 for a retry, which is not delayed again."""
        return self._batch.delay_ms

    @property
    def released_ms(self) -> int:
        """Time of release into the ready queue, by the cluster's clock."""
        return int(self._batch.released_ms[self._position])

    @property
    def born_ms(self) -> int | None:
        """Time at which its producer sent it first, by the producer's clock; None: not known.

        A retried, rescheduled or updated message keeps it, and so does a dead letter.
        """
        return self._parsed.born_ms or None

    @property
    def stored_ms(self) -> int | None:
        """Time at which the cluster took it, by the cluster's clock; otherwise as ``born_ms``."""
        return self._parsed.stored_ms or None

    @property
    def delivered_ms(self) -> int | None:
        """Time at which the leader handed it over, by the cluster's clock; None: a node of 0.2.0 did."""
        return self._batch.delivered_ms

    @property
    def received_ms(self) -> int:
        """Time of receipt, by this machine's clock."""
        return self._batch.received_ms

    @property
    def attempt(self) -> int:
        """Number of this delivery, from 1."""
        return int(self._batch.attempts[self._position])

    @property
    def maybe_duplicate(self) -> bool:
        """True if it may have been delivered before a failover."""
        return bool(self._batch.maybe_duplicates[self._position])

    @property
    def stamp(self) -> Stamp:
        """Leader that delivered it."""
        return self._batch.stamp

    def span(self) -> AbstractContextManager[Any]:
        """Return what a ``with`` processes the message in: a span, linked to the one that scheduled it.

        It is current inside, notes the verdict and an error that ends the ``with``, and is given as
        OpenTelemetry's Span; None where the client does not trace (``Settings.tracing``).
        """
        spans = self._batch.spans
        return nullcontext() if spans is None else spans(self)

    @property
    def _parsed(self) -> Record:
        try:
            return self._record
        except AttributeError:
            self._record: Record = Record.FromString(self._batch.records[self._position])
            return self._record

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.topic}, attempt {self.attempt}>"


class Settler(Protocol):
    """Receiver of verdicts: the consumer that received the messages."""

    def settle_soon(self, verdict: Verdict, offset: int) -> None: ...
    def settle(self, verdict: Verdict, offset: int) -> asyncio.Future[AckOutcome]: ...
    def settle_many_soon(self, verdict: Verdict, offsets: Sequence[int]) -> None: ...
    def settle_many(self, verdict: Verdict, offsets: Sequence[int]) -> asyncio.Future[list[AckOutcome]]: ...


class Message(View):
    """One delivered message. Outcomes of ``ack``, ``nack`` and ``extend`` are awaited."""

    __slots__ = ("_settler",)

    def __init__(self, batch: Columns, position: int, offset: int, settler: Settler) -> None:
        super().__init__(batch, position, offset)
        self._settler = settler

    def ack(self) -> asyncio.Future[AckOutcome]:
        """Acknowledge, and return the outcome: fsynced on a majority, or stale."""
        return self._settler.settle(self._batch.ack_verdict, self.offset)

    def ack_soon(self) -> None:
        """Acknowledge without waiting: sent within ``Settings.ack_linger_ms``, again after a reconnect.

        ``on_ack_failed`` of the consumer is told where it did not count; else a warning is logged.
        """
        self._settler.settle_soon(self._batch.ack_verdict, self.offset)

    def nack(
        self, delay_ms: int | None = None, *, at_least: bool = False, dead_letter: bool = False
    ) -> asyncio.Future[AckOutcome]:
        """Have it delivered again after ``delay_ms``, or by the group's back-off table.

        With ``at_least`` the table counts where it has more than ``delay_ms``. With ``dead_letter`` it is not
        delivered again: it is a dead letter at once, as after its last attempt.
        Raises InvalidTime for a delay out of range.
        """
        verdict = self._batch.nacking(delay_ms, at_least=at_least, dead_letter=dead_letter)
        return self._settler.settle(verdict, self.offset)

    def extend(self, lease_ms: int) -> asyncio.Future[AckOutcome]:
        """Keep it in hand for ``lease_ms`` from now on; return whether it still was in hand.

        Raises InvalidSubscription for a lease out of range.
        """
        return self._settler.settle(self._batch.extending(lease_ms), self.offset)


class MessageBatch(Columns):
    """Messages of one queue that came together; iterating gives messages. Outcomes are awaited."""

    def __init__(
        self,
        deliveries: consumer_pb.Deliveries,
        received_ms: int,
        incarnation: int,
        settler: Settler,
        leased_s: float,
        spans: Spans | None = None,
    ) -> None:
        super().__init__(deliveries, received_ms, incarnation, spans)
        self.leased_s = leased_s
        """From when the leases count, in monotonic seconds, of what was not handed out yet."""
        self._settler = settler

    def __iter__(self) -> Iterator[Message]:
        return map(Message, repeat(self), range(len(self.offsets)), self.offsets, repeat(self._settler))

    def ack(self) -> asyncio.Future[list[AckOutcome]]:
        """Acknowledge all, and return the outcomes, one a message, in order."""
        return self._settler.settle_many(self.ack_verdict, self.offsets)

    def ack_soon(self) -> None:
        """Acknowledge all without waiting, like ``Message.ack_soon``."""
        self._settler.settle_many_soon(self.ack_verdict, self.offsets)

    def nack(
        self, delay_ms: int | None = None, *, at_least: bool = False, dead_letter: bool = False
    ) -> asyncio.Future[list[AckOutcome]]:
        """Have all delivered again after ``delay_ms``, or by the group's back-off table.

        With ``at_least`` the table counts where it has more than ``delay_ms``. With ``dead_letter`` they are
        not delivered again: they are dead letters at once, as after their last attempt.
        """
        verdict = self.nacking(delay_ms, at_least=at_least, dead_letter=dead_letter)
        return self._settler.settle_many(verdict, self.offsets)

    def extend(self, lease_ms: int) -> asyncio.Future[list[AckOutcome]]:
        """Keep all in hand for ``lease_ms`` from now on; return whether each still was in hand."""
        return self._settler.settle_many(self.extending(lease_ms), self.offsets)

    def span(self) -> AbstractContextManager[Any]:
        """Return what a ``with`` processes all in: one span, linked to each that scheduled some of them.

        Otherwise as ``Message.span``; baggage is not restored.
        """
        return nullcontext() if self.spans is None else self.spans(self)
