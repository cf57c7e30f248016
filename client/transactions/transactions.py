"""Calls about transactions: prepares, ends and lists them."""

from __future__ import annotations

import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from time import time_ns
from typing import Final

from tarry.client.cluster.calls import Calls
from tarry.client.cluster.nodes import Nodes
from tarry.client.errors import InvalidQuery, InvalidTime, InvalidTransaction
from tarry.client.integers import INT64_MAX, UINT64_MAX, whole
from tarry.client.receipts import Receipts
from tarry.client.records import record
from tarry.client.transactions.half import TransactionInfo, TransactionPage
from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record

PAGE_MAX: Final = 1_000
"""Transactions that a node puts in a page at most."""


class Transactions:
    """Prepares, ends and lists transactions by name. Made by ``Client.transactions``.

    A producer does the first two with ``Producer.transaction``; this is for programs that keep the steps
    apart, and for operators. Who may produce to a transaction's topic may do all that is here with it. It
    needs a cluster of level 2: below, UpgradeRefused is raised.
    """

    def __init__(self, nodes: Nodes, receipts: Receipts | None = None) -> None:
        self._calls = Calls(nodes)
        self._receipts = receipts

    async def prepare(
        self,
        producer_group: str,
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
    ) -> TransactionInfo:
        """Prepare a message: durable, and given to nobody before its commit.

        Give exactly one of ``due_ms``, in ms since the epoch, and ``delay_ms``, from the commit. May be
        repeated with a name: then it returns the transaction as it is.

        Args:
            producer_group: whose producers are asked how it ended, where no word comes.
            name: of the transaction, unique in the producer group; empty: one is made up.
            check_after_ms: until the first check; None: as the cluster's configuration says.

        Raises InvalidTransaction, InvalidTime, InvalidName, TooLarge, NotPermitted, NoRoom; TransactionEnded
        where another message has the name.
        """
        request = pb.PrepareRequest(
            producer_group=producer_group,
            transaction=name or uuid.uuid4().hex,
            topic=topic,
            record=Record.FromString(record(body, tags, keys, properties, ordering_key)),
            born_ms=time_ns() // 1_000_000,
        )
        if (due_ms is None) == (delay_ms is None):
            raise InvalidTime(Reason.DUE_AMBIGUOUS, "give one of due_ms and delay_ms")
        if due_ms is not None:
            request.due_ms = whole("due_ms", due_ms, InvalidTime, Reason.DUE_INVALID, INT64_MAX)
        if delay_ms is not None:
            request.delay_ms = whole("delay_ms", delay_ms, InvalidTime, Reason.DELAY_NEGATIVE, INT64_MAX)
        if check_after_ms is not None:
            invalid = InvalidTransaction, Reason.TRANSACTION_INVALID
            request.check_after_ms = whole("check_after_ms", check_after_ms, *invalid, INT64_MAX, 1)
        answer = await self._calls.call(lambda node: node.producer.Prepare, request)
        return TransactionInfo.of(answer.transaction)

    async def commit(self, producer_group: str, name: str) -> TransactionInfo:
        """Make the message one that is delivered when it is due. Definite; may be repeated.

        Raises TransactionEnded where it was rolled back, NotFound, NotPermitted.
        """
        answer = await self._end(producer_group, name, pb.TRANSACTION_END_COMMIT)
        told = answer.transaction
        if self._receipts is not None:
            self._receipts.committed(told.topic, told.id, told.message_due_ms, repeated=answer.repeated)
        return TransactionInfo.of(told)

    async def rollback(self, producer_group: str, name: str) -> TransactionInfo:
        """Have the message never delivered. Definite; may be repeated.

        Raises TransactionEnded where it was committed, or is unresolved; NotFound, NotPermitted.
        """
        answer = await self._end(producer_group, name, pb.TRANSACTION_END_ROLLBACK)
        return TransactionInfo.of(answer.transaction)

    async def list_page(
        self,
        *,
        producer_group: str = "",
        topic: str = "",
        ended: bool = False,
        size: int = 100,
        after: int = 0,
    ) -> TransactionPage:
        """Return a page of transactions, ``size`` at most, up to 1,000; ``after``: of the page before.

        Args:
            producer_group, topic: only of these; empty: of all that the caller may produce to.
            ended: instead of the open ones, by number, the latest that have ended, in that order.

        Raises InvalidQuery, InvalidTransaction, NotPermitted.
        """
        request = pb.ListTransactionsRequest(
            producer_group=producer_group,
            topic=topic,
            ended=ended,
            after=whole("after", after, InvalidQuery, Reason.QUERY_INVALID, UINT64_MAX),
            page_size=whole("size", size, InvalidQuery, Reason.QUERY_INVALID, PAGE_MAX, 1),
        )
        answer = await self._calls.call(lambda node: node.producer.ListTransactions, request, changes=False)
        told = tuple(map(TransactionInfo.of, answer.transactions))
        return TransactionPage(told, answer.next_after, answer.open)

    async def list(
        self, *, producer_group: str = "", topic: str = "", ended: bool = False, limit: int | None = None
    ) -> AsyncGenerator[TransactionInfo, None]:
        """Yield transactions, ``limit`` at most, also across leaders. Arguments as of ``list_page``."""
        after, left = 0, limit
        while left is None or left > 0:
            size = PAGE_MAX if left is None else min(PAGE_MAX, left)
            page = await self.list_page(
                producer_group=producer_group, topic=topic, ended=ended, size=size, after=after
            )
            for one in page.transactions:
                yield one
            left = None if left is None else left - len(page.transactions)
            if not (after := page.next_after):
                return

    async def _end(self, producer_group: str, name: str, end: pb.TransactionEnd) -> pb.EndTransactionResponse:
        request = pb.EndTransactionRequest(producer_group=producer_group, transaction=name, end=end)
        return await self._calls.call(lambda node: node.producer.EndTransaction, request)
