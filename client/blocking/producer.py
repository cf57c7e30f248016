"""The blocking producer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Unpack

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.transactions import Transaction
from tarry.client.blocking.twin import blocking
from tarry.client.errors import Closed, Overloaded
from tarry.client.producers.completions import OneWay, OneWayErrors
from tarry.client.producers.message_options import MessageOptions, check_options
from tarry.client.producers.producer import Producer as AsyncProducer
from tarry.client.results import Scheduled
from tarry.client.settings import Settings


class _Room:
    """Places for messages that wait for their answers. Without a lock that a signal's handler could meet."""

    def __init__(self, most: int) -> None:
        self._fresh = iter(range(most))
        self._freed: SimpleQueue[None] = SimpleQueue()

    def acquire(self, *, blocking: bool) -> bool:
        if next(self._fresh, None) is not None:
            return True
        try:
            self._freed.get(block=blocking)
        except Empty:
            return False
        return True

    def release(self) -> None:
        self._freed.put(None)


class Producer(OneWayErrors):
    """Schedules messages. May be shared by any number of threads."""

    def __init__(self, producer: AsyncProducer, thread: LoopThread, settings: Settings) -> None:
        self._twin = producer
        self._thread = thread
        self._soon = thread.soon_in_context if settings.tracing else thread.soon
        self._room = _Room(settings.waiting_messages_max)
        self._one_way = OneWay()

    @property
    def id(self) -> str:
        """The producer's id, by which the cluster knows its retries."""
        return self._twin.id

    @property
    def group(self) -> str:
        """The producer group of its transactions."""
        return self._twin.group

    schedule = blocking(AsyncProducer.schedule)
    schedule_batch = blocking(AsyncProducer.schedule_batch)
    schedule_many = blocking(AsyncProducer.schedule_many)
    cancel = blocking(AsyncProducer.cancel)
    cancel_many = blocking(AsyncProducer.cancel_many)
    cancel_by_key = blocking(AsyncProducer.cancel_by_key)
    reschedule = blocking(AsyncProducer.reschedule)
    reschedule_many = blocking(AsyncProducer.reschedule_many)
    update = blocking(AsyncProducer.update)
    get = blocking(AsyncProducer.get)

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
        made = self._twin.transaction(
            topic,
            body,
            name=name,
            due_ms=due_ms,
            delay_ms=delay_ms,
            check_after_ms=check_after_ms,
            tags=tags,
            keys=keys,
            properties=properties,
            ordering_key=ordering_key,
        )
        return Transaction(made, self._thread)

    def schedule_soon(
        self,
        topic: str,
        body: bytes = b"",
        *,
        on_done: Callable[[Scheduled | BaseException], None],
        **options: Unpack[MessageOptions],
    ) -> None:
        """Schedule one message without waiting.

        ``on_done`` gets the answer or the error, in the client's thread.
        Blocks while ``waiting_messages_max`` messages wait for their answer (in
        a callback it raises Overloaded instead).
        """
        check_options(options)
        if not self._room.acquire(blocking=not self._thread.inside):
            raise Overloaded("PRODUCER_FULL", "too many messages wait for their answer", {}, 10)

        def done(outcome: Scheduled | BaseException) -> None:
            self._room.release()
            on_done(outcome)

        def put() -> None:
            try:
                self._twin.schedule_soon(topic, body, on_done=done, **options)
            except Exception as error:  # noqa: BLE001 - a selector may raise any
                done(error)  # not raised: the caller has gone on, and the loop has more to do

        try:
            self._soon(put)
        except BaseException:
            self._room.release()
            raise

    def schedule_one_way(self, topic: str, body: bytes = b"", **options: Unpack[MessageOptions]) -> None:
        """Schedule one message without an answer: errors are only counted, in ``one_way_errors``."""
        self.schedule_soon(topic, body, on_done=self._one_way_done, **options)

    def flush(self) -> None:
        """Return when every single message given so far has its answer."""
        self._thread.run(self._flush())

    def close(self) -> None:
        """Take no more, and return when what was given has its answer."""
        with suppress(Closed):  # the client has been closed, and with it this
            self._thread.run(self._close())

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _flush(self) -> None:
        self._thread.drain()
        await self._twin.flush()

    async def _close(self) -> None:
        await self._flush()
        await self._twin.close()

    def _one_way_done(self, outcome: Scheduled | BaseException) -> None:
        if isinstance(outcome, BaseException):
            self._one_way.set_exception(outcome)
