"""A producer: schedules messages one by one or in bulk, changes or cancels them, looks them up.

Every request carries the producer's id and a sequence, kept over retries, so
that a retry finds the answer to the first attempt instead of scheduling twice.
Where messages have idempotency keys, a retry finds them by these instead.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from time import time_ns
from typing import TYPE_CHECKING, Final, Unpack

from numpy.typing import ArrayLike

from tarry.client.cluster.calls import Calls
from tarry.client.cluster.nodes import Nodes
from tarry.client.durability import Durability
from tarry.client.errors import (
    Closed,
    InvalidTime,
    InvalidTransaction,
    Overloaded,
    Refused,
    TarryError,
    TooLarge,
)
from tarry.client.found import CancelledByKey, find_request
from tarry.client.integers import whole
from tarry.client.producers.accumulator import Accumulator, SharedRequest
from tarry.client.producers.batch import Batch, Time, batch_of, joined, parts_around, time_of
from tarry.client.producers.changes import Column, reschedules, update_request
from tarry.client.producers.completions import Callback, OneWay, OneWayErrors, Waiter, fail
from tarry.client.producers.message_options import MessageOptions
from tarry.client.producers.new_message import NewMessage, columns_of
from tarry.client.producers.schedule_stream import ScheduleStreams
from tarry.client.producers.selectors import Selector, selected
from tarry.client.producers.sequences import Sequences
from tarry.client.receipts import receipts
from tarry.client.records import record
from tarry.client.results import (
    CancelOutcome,
    Change,
    MessageState,
    Scheduled,
    ScheduledBatch,
    StoredMessage,
    rows_of,
)
from tarry.client.tracing import tracing_of
from tarry.client.transactions.check_stream import CheckHandler, CheckStream
from tarry.client.transactions.transaction import Transaction
from tarry.client.transactions.transactions import Transactions
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.reasons import Reason
from tarry.proto.tags import tag_mask

if TYPE_CHECKING:
    from tarry.client.producers.send_spans import SendSpans


KEY_PAGE: Final = 1_000
"""Messages of a key that are looked up, and then cancelled, at a time."""


class Producer(OneWayErrors):
    """Schedules messages. Made by ``Client.producer``; may be shared by any number of tasks."""

    def __init__(
        self,
        nodes: Nodes,
        on_closed: Callable[[Producer], None] = lambda _: None,
        selector: Selector | None = None,
        *,
        group: str = "",
        check: CheckHandler | None = None,
    ) -> None:
        self._selector = selector
        self.id = uuid.uuid4().hex
        self.group = group
        """The producer group of its transactions."""
        self._checks: CheckStream | None = None
        if check is not None:
            if not group:
                raise InvalidTransaction(Reason.TRANSACTION_INVALID, "a check handler is of a group: name it")
            self._checks = CheckStream(nodes, group, self.id, check)
            self._checks.start()
        self._on_closed = on_closed
        self._receipts = receipts(nodes.settings, f"producer:{self.id}")
        self._transactions = Transactions(nodes, self._receipts)
        self._settings = nodes.settings
        self._calls = Calls(nodes)
        self._streams = ScheduleStreams(nodes)
        self._sequences = Sequences(nodes.settings.in_flight_max)
        self._accumulator = Accumulator(nodes.settings, self._send_shared)
        self._spans: SendSpans | None = None
        if (tracing := tracing_of(nodes.settings.tracing)) is not None:
            from tarry.client.producers import send_spans  # loads opentelemetry, which others do without

            self._spans = send_spans.SendSpans(tracing, self.id)
            self._accumulator = send_spans.TracedAccumulator(nodes.settings, self._send_shared, self._spans)
        self._one_way = OneWay()
        self._closed = False

    def schedule(
        self, topic: str, body: bytes = b"", **options: Unpack[MessageOptions]
    ) -> asyncio.Future[Scheduled]:
        """Schedule one message; the answer comes once it is fsynced on a majority.

        Where the cluster's durability is async, once a majority has written it; see ``durability``.

        Give exactly one of ``due_ms``, ``delay_ms`` and ``delay_level``; the answer contains the
        due time. Messages scheduled at the same time, by tasks or threads, share a request.
        Cancelling the wait does not cancel the message.

        With an ``idempotency_key`` it may be called again whatever became of the call before, by any process:
        the message is scheduled once, and later answers are ``repeated``, with its id and present due time.
        The content has to be the same; the due time may be another, and that of the first call holds.

        Raises InvalidTime, Closed, and Overloaded for too many waiting, at once: an async call before it
        is awaited. Raises Refused, Overloaded, Unavailable or OutcomeUnknown as the cluster answers;
        IdempotencyConflict where other content was scheduled with the key.
        """
        answer: asyncio.Future[Scheduled] = asyncio.get_running_loop().create_future()
        self._put(topic, body, answer, **options)
        return answer

    def schedule_soon(
        self,
        topic: str,
        body: bytes = b"",
        *,
        on_done: Callable[[Scheduled | BaseException], None],
        **options: Unpack[MessageOptions],
    ) -> None:
        """Schedule one message as ``schedule`` does; ``on_done`` is called with the answer or the error."""
        self._put(topic, body, Callback(on_done), **options)

    def schedule_one_way(self, topic: str, body: bytes = b"", **options: Unpack[MessageOptions]) -> None:
        """Schedule one message without an answer: errors are only counted, in ``one_way_errors``."""
        try:
            self._put(topic, body, self._one_way, **options)
        except Closed:
            raise
        except TarryError as error:
            self._one_way.set_exception(error)

    async def schedule_batch(
        self,
        topic: str | Sequence[str],
        bodies: Sequence[bytes],
        *,
        due_ms: ArrayLike | None = None,
        delay_ms: ArrayLike | None = None,
        delay_level: ArrayLike | None = None,
        jitter_ms: ArrayLike | None = None,
        tags: Sequence[Sequence[str]] | None = None,
        keys: Sequence[Sequence[str]] | None = None,
        properties: Sequence[Mapping[str, str] | None] | None = None,
        ordering_keys: Sequence[str] | None = None,
        selector: Selector | None = None,
        idempotency_keys: Sequence[str] | None = None,
        durability: Durability | str = "",
    ) -> ScheduledBatch:
        """Schedule n messages: all of them or none, up to ``batch_messages_max`` and ``batch_bytes_max``.

        More are sent in pieces, several at a time, each of which is all or
        none. The topic is one for all, or a column of n; so is a time (list or
        array). The other columns have n or are None. A ``selector`` chooses the
        ordering keys instead of ``ordering_keys``.

        ``idempotency_keys`` has one for each message, and none is empty. The answer's ``repeats`` tells which
        were used before; after any error the same batch may be scheduled again.

        ``durability`` is ``sync`` for an answer once a majority has flushed it, whatever the cluster's.

        Raises what ``schedule`` does, and PartlyScheduled where some pieces of
        several were taken and others were not.
        """
        self._check_open()
        time, times = time_of(due_ms, delay_ms, delay_level)
        ordering_keys = self._ordering_keys(topic, bodies, tags, keys, properties, ordering_keys, selector)
        batch = batch_of(
            topic,
            bodies,
            time,
            times,
            tags,
            keys,
            properties,
            jitter_ms,
            ordering_keys,
            idempotency_keys,
        )
        batch.synced = _is_synced(durability)
        if self._spans is None:
            return await self._send_batch(batch)
        with self._spans.batch(batch, properties) as traced:
            return await self._send_batch(traced)

    async def schedule_many(
        self, messages: Iterable[NewMessage], *, selector: Selector | None = None
    ) -> ScheduledBatch:
        """Schedule messages of any topics, as ``schedule_batch`` does: all of them or none.

        All name their times in the same way, and all have an idempotency key or none has. Of a refusal,
        ``facts["position"]`` is the place of the message that it is about, where it is about one. A
        ``selector`` chooses the ordering keys of messages that have none.
        """
        return await self.schedule_batch(**columns_of(list(messages)), selector=selector)

    async def cancel(self, message_id: str, *, remaining_groups: bool = False) -> CancelOutcome:
        """Cancel a message until a consumer is given it. The outcome is definite and linearizable.

        One that waits for its retry is cancelled, too, if no other group has it, or has had it.

        Args:
            remaining_groups: where some groups have had it, cancel it for the others.
        """
        return (await self.cancel_many([message_id], remaining_groups=remaining_groups))[0]

    async def cancel_many(
        self, message_ids: Iterable[str], *, remaining_groups: bool = False
    ) -> list[CancelOutcome]:
        """Cancel messages as ``cancel`` does; one outcome for each id, in order."""
        ids = list(message_ids)
        outcomes: list[CancelOutcome] = []
        for start in range(0, len(ids), self._settings.batch_messages_max):
            request = producer_pb.CancelRequest(
                ids=ids[start : start + self._settings.batch_messages_max],
                remaining_groups=remaining_groups,
                every_outcome=True,
            )
            response = await self._calls.call(lambda node: node.producer.Cancel, request)
            outcomes += map(CancelOutcome.of, response.outcomes)
        return outcomes

    async def cancel_by_key(
        self,
        topic: str,
        key: str = "",
        *,
        idempotency_key: str = "",
        due_from_ms: int = 0,
        due_to_ms: int = 0,
    ) -> CancelledByKey:
        """Cancel the messages of a topic that have a key, until a consumer is given them; count the outcomes.

        Of all that was acknowledged before the call and is pending or released, nothing is left out; what is
        scheduled or rescheduled meanwhile may be. Where it raises, some may be cancelled: repeat it.

        Args:
            key, idempotency_key: one of the two. Several may have an idempotency key, one after another.
            due_from_ms, due_to_ms: only what is due from then on, and before then; 0: whenever.

        Raises NotFound, NotPermitted, InvalidQuery; Unavailable with KEYS_INCOMPLETE while the leader builds
        its index of keys.
        """
        outcomes: Counter[CancelOutcome] = Counter()
        unreadable, begin = 0, ""
        while True:
            request = find_request(
                topic,
                key,
                idempotency_key=idempotency_key,
                due_from_ms=due_from_ms,
                due_to_ms=due_to_ms,
                states=(MessageState.PENDING, MessageState.RELEASED),
                limit=KEY_PAGE,
                begin=begin,
            )
            page = await self._calls.call(lambda node: node.query.FindByKey, request, changes=False)
            outcomes.update(await self.cancel_many(message.id for message in page.messages))
            unreadable, begin = unreadable + page.unreadable, page.next
            if not begin:
                return CancelledByKey(dict(outcomes), unreadable)

    async def reschedule(
        self,
        message_id: str,
        *,
        due_ms: int | None = None,
        delay_ms: int | None = None,
        if_due_ms: int | None = None,
        group: str = "",
        topic: str = "",
    ) -> Change:
        """Have a pending message due at another time, earlier or later. Its id stays valid.

        Args:
            due_ms: ms since the epoch, UTC; in the past: it is delivered at once.
            delay_ms: from the cluster's now; give one of the two.
            if_due_ms: only where it is due then, else the outcome is DUE_DIFFERS.
            group: it waits for its retry in this group: the retry is rescheduled.
            topic: with a group, where only the retry is kept: the message's topic.

        May be repeated: with ``due_ms`` the outcome is ALREADY_SO then. The client itself repeats a call
        whose answer was lost, so with ``delay_ms`` DUE_DIFFERS may mean that this very call has changed it;
        give ``due_ms`` to be certain. Raises InvalidTime, InvalidId, and Refused for a cluster of a level
        below 2, or a second without room.
        """
        options = {"due_ms": due_ms, "delay_ms": delay_ms, "if_due_ms": if_due_ms}
        return (await self.reschedule_many([message_id], **options, group=group, topic=topic))[0]

    async def reschedule_many(
        self,
        message_ids: Iterable[str],
        *,
        due_ms: Column | None = None,
        delay_ms: Column | None = None,
        if_due_ms: Column | None = None,
        group: str = "",
        topic: str = "",
    ) -> list[Change]:
        """Reschedule messages, each named once; times are one number for all, or one for each.

        An error may come after some were rescheduled: repeat the call. Raises ValueError, and as
        ``reschedule``.
        """
        done: list[Change] = []
        for request in reschedules(list(message_ids), due_ms, delay_ms, if_due_ms, group, topic):
            response = await self._calls.call(lambda node: node.producer.Reschedule, request)
            done += map(Change.of, request.ids, response.outcomes, response.due_ms)
        return done

    async def update(
        self,
        message_id: str,
        *,
        body: bytes | None = None,
        tags: Sequence[str] | None = None,
        keys: Sequence[str] | None = None,
        properties: Mapping[str, str] | None = None,
        if_due_ms: int | None = None,
        group: str = "",
        topic: str = "",
    ) -> Change:
        """Replace parts of a pending message; None leaves one as it is. Ordering and idempotency key stay.

        The other arguments are as of ``reschedule``. Raises TooLarge, Refused, ValueError.
        """
        request = update_request(
            message_id,
            body=body,
            tags=tags,
            keys=keys,
            properties=properties,
            if_due_ms=if_due_ms,
            group=group,
            topic=topic,
        )
        response = await self._calls.call(lambda node: node.producer.Update, request)
        return Change.of(message_id, response.outcome, response.due_ms)

    def transaction(
        self,
        topic: str,
        body: bytes = b"",
        *,
        name: str = "",
        due_ms: int | None = None,
        delay_ms: int | None = None,
        check_after_ms: int | None = None,
        tags: Sequence[str] = (),
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str = "",
    ) -> Transaction:
        """Return a transaction for ``with`` (``async with``): its end commits, an Exception rolls back.

        Its message is durable before the block begins, and given to nobody before the commit. Where the
        process dies in the block, the cluster asks a producer of the same group how it ended. The producer
        needs a ``group``; arguments are as of ``Transactions.prepare``, and so is what entering raises. It
        raises TransactionEnded, too, and the block does not run, where the transaction has ended before.
        The producer's selector chooses the ordering key of one that has none; what it raises is raised here.
        """
        if not self.group:
            raise InvalidTransaction(
                Reason.TRANSACTION_INVALID, "a transaction is of a producer group: producer(group=...)"
            )
        self._check_open()
        if self._selector is not None and not ordering_key:
            ordering_key = selected(self._selector, topic, body, tags, keys, properties)
        prepare = partial(
            self._transactions.prepare,
            self.group,
            topic,
            body,
            name=name or uuid.uuid4().hex,
            due_ms=due_ms,
            delay_ms=delay_ms,
            check_after_ms=check_after_ms,
            tags=tags,
            keys=keys,
            properties=properties,
            ordering_key=ordering_key,
        )
        return Transaction(self._transactions, self.group, prepare)

    async def get(self, message_id: str) -> StoredMessage:
        """Return a message as of now (linearizable). Raises NotFound, InvalidId, Damaged."""
        request = producer_pb.GetRequest(id=message_id)
        response = await self._calls.call(lambda node: node.producer.Get, request, changes=False)
        return StoredMessage.of(response)

    async def flush(self) -> None:
        """Return when every single message given so far has its answer."""
        await self._accumulator.drain()

    async def close(self) -> None:
        """Take no more, and return when what was given has its answer."""
        self._closed = True
        await self.flush()
        await self._streams.close()
        if self._checks is not None:
            await self._checks.close()
        if self._receipts is not None:
            await self._receipts.close()
        self._on_closed(self)

    async def __aenter__(self) -> Producer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("producer")

    def _put(
        self,
        topic: str,
        body: bytes,
        waiter: Waiter,
        *,
        due_ms: int | None = None,
        delay_ms: int | None = None,
        delay_level: int | None = None,
        jitter_ms: int = 0,
        tags: Sequence[str] = (),
        keys: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        ordering_key: str = "",
        selector: Selector | None = None,
        idempotency_key: str = "",
        durability: Durability | str = "",
    ) -> None:
        self._check_open()
        if delay_ms is not None and due_ms is None and delay_level is None:
            time, value = Time.DELAY_MS, delay_ms
        else:
            time, value = time_of(due_ms, delay_ms, delay_level)  # type: ignore[assignment]
        if not isinstance(value, int) or not time.lowest <= value <= time.highest:
            raise InvalidTime(
                Reason.DUE_INVALID, f"{time.name.lower()} must be an integer of its range, not {value!r}"
            )
        if jitter_ms:
            whole("jitter_ms", jitter_ms, InvalidTime, Reason.JITTER_TOO_LARGE)
        if not isinstance(topic, str) or not isinstance(body, bytes | bytearray | memoryview):
            raise TypeError("topic must be a str and body bytes")
        if not isinstance(idempotency_key, str):  # None would count as none given
            raise TypeError(f"idempotency_key must be a str, not {idempotency_key!r}")
        topic.encode()  # raises here, not in a request shared with others
        if self._accumulator.waiting >= self._settings.waiting_messages_max:
            raise Overloaded(
                "PRODUCER_FULL", f"{self._accumulator.waiting} messages wait for their answer", {}, 10
            )
        selector = selector or self._selector
        if selector is not None and not ordering_key:
            ordering_key = selected(selector, topic, bytes(body), tags, keys, properties)
        serialized = record(bytes(body), tags, keys, properties, ordering_key, idempotency_key)
        mask = tag_mask(tags, ordering_key) if tags else 0
        idempotent = bool(idempotency_key)
        synced = bool(durability) and _is_synced(durability)
        self._accumulator.put(
            time, topic, value, mask, jitter_ms, idempotent, serialized, waiter, synced=synced
        )

    def _ordering_keys(
        self,
        topic: str | Sequence[str],
        bodies: Sequence[bytes],
        tags: Sequence[Sequence[str]] | None,
        keys: Sequence[Sequence[str]] | None,
        properties: Sequence[Mapping[str, str] | None] | None,
        given: Sequence[str] | None,
        selector: Selector | None,
    ) -> Sequence[str] | None:
        """Return the ordering keys that are given, and what the selector chooses for messages without one."""
        selector = selector or self._selector
        counted = None if isinstance(topic, str) else topic, tags, keys, properties, given
        unequal = any(column is not None and len(column) != len(bodies) for column in counted)
        if selector is None or unequal:
            return given  # unequal columns are refused
        columns = (
            repeat(topic) if isinstance(topic, str) else topic,
            bodies,
            tags or repeat(()),
            keys or repeat(()),
            properties or repeat(None),
        )
        return [
            key or selected(selector, *message)
            for key, *message in zip(given or repeat(""), *columns, strict=False)
        ]

    async def _send(self, batch: Batch) -> producer_pb.ScheduleBatchResponse:
        sequence = await self._sequences.take()  # with idempotency keys, too: it bounds requests in flight
        try:
            request = batch.request(self.id, sequence, time_ns() // 1_000_000)
            response: producer_pb.ScheduleBatchResponse = await self._calls.call(
                self._streams.method, request
            )
        finally:
            self._sequences.answered(sequence)
        if self._receipts is not None:
            self._receipts.produced(batch.topics, batch.topic, response)
        return response

    async def _send_batch(self, batch: Batch) -> ScheduledBatch:
        cuts = list(batch.cuts(self._settings.batch_messages_max, self._settings.batch_bytes_max))
        if len(cuts) <= 1:
            return await self._send_piece(batch)
        pieces = await asyncio.gather(
            *(self._send_piece(batch.part(start, stop)) for start, stop in cuts), return_exceptions=True
        )
        return joined([start for start, _ in cuts], pieces)

    async def _send_piece(self, piece: Batch) -> ScheduledBatch:
        try:
            return ScheduledBatch.of(await self._send(piece))
        except TooLarge:
            if piece.bare is None:
                raise
        # Limits are the cluster's to know: what they leave no room for goes without trace context.
        return ScheduledBatch.of(await self._send(piece.without_context()))

    async def _send_shared(self, shared: SharedRequest) -> None:
        await self._send_to_waiters(shared.batch(), shared.waiters)

    async def _send_to_waiters(self, batch: Batch, waiters: list[Waiter]) -> None:
        try:
            response = await self._send(batch)
        except Refused as error:
            if len(batch) == 1:
                fail(waiters, error)
                return
            # These messages share a request by chance: the bad one must not take the others with it.
            await asyncio.gather(
                *(
                    self._send_to_waiters(batch.part(start, stop), waiters[start:stop])
                    for start, stop in parts_around(error, len(batch))
                )
            )
        except TarryError as error:
            fail(waiters, error)
        else:
            for waiter, scheduled in zip(waiters, rows_of(response), strict=True):
                if not waiter.done():
                    waiter.set_result(scheduled)


def _is_synced(durability: Durability | str) -> bool:
    """Return whether an answer waits for a majority's flush; empty: as the cluster's settings say."""
    return bool(durability) and Durability(durability) is Durability.SYNC
