"""A transaction around a block of the application: prepared before it, ended by how it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType

from tarry.client.errors import TarryError, TransactionEnded
from tarry.client.transactions.half import TransactionInfo, TransactionState
from tarry.client.transactions.transactions import Transactions
from tarry.proto.reasons import Reason


class Transaction:
    """One transaction of a producer. Made by ``Producer.transaction``.

        async with producer.transaction("orders", b"...", name="order-17", delay_ms=900_000) as transaction:
            ...  # what the message stands for, in a database

    The block's end commits. An Exception out of the block rolls back, and is what is raised: where the
    rollback fails, a note of the exception says so, and a check finds out. Another BaseException, as a
    cancellation, leaves it open, for nobody knows what was done. ``commit``, ``rollback`` and ``leave`` do so
    earlier.
    """

    def __init__(
        self,
        transactions: Transactions,
        producer_group: str,
        prepare: Callable[[], Awaitable[TransactionInfo]],
    ) -> None:
        self.info: TransactionInfo | None = None
        """As the cluster last told of it; None: not prepared yet."""
        self._transactions, self._producer_group, self._prepare = transactions, producer_group, prepare
        self._left = False

    @property
    def name(self) -> str:
        """Its name; empty: it is not prepared."""
        return "" if self.info is None else self.info.name

    async def commit(self) -> TransactionInfo:
        """Commit now. Raises TransactionEnded, OutcomeUnknown: then a check finds out."""
        self._left = True
        self.info = await self._transactions.commit(self._producer_group, self.name)
        return self.info

    async def rollback(self) -> TransactionInfo:
        """Roll back now. Raises as ``commit``."""
        self._left = True
        self.info = await self._transactions.rollback(self._producer_group, self.name)
        return self.info

    def leave(self) -> None:
        """Leave it open at the block's end: a check finds out how it ended."""
        self._left = True

    async def __aenter__(self) -> Transaction:
        self.info = await self._prepare()
        if self.info.state is not TransactionState.OPEN:  # or the block would do what can end no more
            raise ended_before(self.info)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._left:
            return
        if error is None:
            await self.commit()
        elif isinstance(error, Exception):
            try:
                await self.rollback()
            except TarryError as failed:  # the application's error is the one to be told
                error.add_note(f"the rollback of transaction {self.name!r} failed: {failed}")


def ended_before(info: TransactionInfo) -> TransactionEnded:
    """Return the error of a block whose transaction ended before it: by a check, or in an earlier run."""
    state = info.state.upper()
    text = f"transaction {info.name!r} ended before its block began, which was not run: it is {state}"
    return TransactionEnded(Reason.TRANSACTION_ENDED, text, facts={"state": state})
