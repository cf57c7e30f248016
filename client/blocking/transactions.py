"""The blocking transactions: calls about them, and one around a block of the application."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import TypeAlias

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import blocking, iterating
from tarry.client.transactions import check_stream
from tarry.client.transactions.half import Half, TransactionEnd, TransactionInfo
from tarry.client.transactions.transaction import Transaction as AsyncTransaction
from tarry.client.transactions.transactions import Transactions as AsyncTransactions

CheckHandler: TypeAlias = Callable[[Half], TransactionEnd]


class Transactions:
    """Prepares, ends and lists transactions by name. Made by ``Client.transactions``.

    A producer does the first two with ``Producer.transaction``; this is for programs that keep the steps
    apart, and for operators. Who may produce to a transaction's topic may do all that is here with it. It
    needs a cluster of level 2: below, UpgradeRefused is raised.
    """

    def __init__(self, transactions: AsyncTransactions, thread: LoopThread) -> None:
        self._twin = transactions
        self._thread = thread

    prepare = blocking(AsyncTransactions.prepare)
    commit = blocking(AsyncTransactions.commit)
    rollback = blocking(AsyncTransactions.rollback)
    list_page = blocking(AsyncTransactions.list_page)

    list = iterating(AsyncTransactions.list)


class Transaction:
    """One transaction of a producer. Made by ``Producer.transaction``, for ``with``.

    The block's end commits. An Exception out of the block rolls back, and is what is raised: where the
    rollback fails, a note of the exception says so, and a check finds out. Another BaseException, as an
    interrupt, leaves it open, for nobody knows what was done.
    """

    def __init__(self, transaction: AsyncTransaction, thread: LoopThread) -> None:
        self._twin = transaction
        self._thread = thread

    @property
    def info(self) -> TransactionInfo | None:
        """As the cluster last told of it; None: not prepared yet."""
        return self._twin.info

    @property
    def name(self) -> str:
        """Its name; empty: it is not prepared."""
        return self._twin.name

    commit = blocking(AsyncTransaction.commit)
    rollback = blocking(AsyncTransaction.rollback)

    def leave(self) -> None:
        """Leave it open at the block's end: a check finds out how it ended."""
        self._twin.leave()

    def __enter__(self) -> Transaction:
        self._thread.run(self._twin.__aenter__())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._thread.run(self._twin.__aexit__(kind, error, traceback))


def in_thread(handler: CheckHandler) -> check_stream.CheckHandler:
    """Return a handler that calls this one in a thread, since it may wait for a database."""

    async def called(half: Half) -> TransactionEnd:
        return await asyncio.to_thread(handler, half)

    return called
