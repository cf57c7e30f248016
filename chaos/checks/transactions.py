"""Transactions: each ends once, as the database says; its message comes once if it was committed, else never.

What ended how is told by answers to ends and by lists, again and again; the database tells what the program
did, and the consumers what came.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from tarry.chaos.history import HalfMessage, TransactionEnded, Transactions

COMMITTED, ROLLED_BACK, UNRESOLVED = "committed", "rolled_back", "unresolved"


class Several(NamedTuple):
    """A transaction, and the ids of its messages."""

    transaction: str
    ids: tuple[str, ...]


def contradicted(seen: Transactions) -> tuple[TransactionEnded, ...]:
    """Return answers of which another one about the same transaction says something else."""
    first: dict[str, TransactionEnded] = {}
    return tuple(one for one in sorted(seen.ended) if first.setdefault(one.transaction, one) != one)


def open_again(seen: Transactions) -> tuple[str, ...]:
    """Return transactions shown as open by a list that was asked for behind the answer to their end."""
    found = {
        name
        for read in seen.open_reads
        for name in read.transactions
        if seen.answered_s.get(name, read.begun_s) < read.begun_s
    }
    return tuple(sorted(found))


def against_the_database(seen: Transactions) -> tuple[TransactionEnded, ...]:
    """Return ends other than the database's; where nobody answers checks, unresolved is right."""
    wanted = {name: COMMITTED if placed else ROLLED_BACK for name, placed in seen.database.items()}
    return tuple(
        one
        for one in sorted(seen.ended)
        if one.state != wanted.get(one.transaction)
        and not (one.state == UNRESOLVED and one.transaction in seen.unanswered)
    )


def without_end(seen: Transactions) -> tuple[str, ...]:
    """Return the transactions that were prepared, and have not ended."""
    return tuple(sorted(set(seen.prepared) - {one.transaction for one in seen.ended}))


def doubled(seen: Transactions) -> tuple[Several, ...]:
    """Return the transactions of which several messages came."""
    return tuple(Several(*one) for one in sorted(_came(seen.messages).items()) if len(one[1]) > 1)


def lost(seen: Transactions) -> tuple[TransactionEnded, ...]:
    """Return the committed transactions whose message never came."""
    came = {one.id for one in seen.messages}
    ended = {one.transaction: one for one in sorted(seen.ended)}
    return tuple(one for one in ended.values() if one.state == COMMITTED and one.id not in came)


def of_none_committed(seen: Transactions) -> tuple[HalfMessage, ...]:
    """Return the messages that came of transactions that were not committed."""
    ids = {one.id for one in seen.ended if one.state == COMMITTED}
    return tuple(one for one in seen.messages if one.id not in ids)


def early(seen: Transactions, tolerance_ms: int = 0) -> tuple[HalfMessage, ...]:
    """Return the messages that came before their delay after the commit had passed, or were due before."""
    due_ms = {
        one.id: one.ended_ms + seen.delays_ms.get(one.transaction, 0)
        for one in seen.ended
        if one.state == COMMITTED
    }
    return tuple(
        one
        for one in seen.messages
        if one.due_ms < due_ms.get(one.id, 0) or one.received_ms < one.due_ms - tolerance_ms
    )


def letters_wrong(seen: Transactions) -> tuple[Several, ...]:
    """Return the unresolved transactions with other than one dead letter, and all others with any."""
    came = _came(seen.letters)
    unresolved = {one.transaction for one in seen.ended if one.state == UNRESOLVED}
    wrong = dict.fromkeys(unresolved - came.keys(), ()) | {
        name: ids for name, ids in came.items() if len(ids) > 1 or name not in unresolved
    }
    return tuple(Several(*one) for one in sorted(wrong.items()))


def _came(messages: list[HalfMessage]) -> dict[str, tuple[str, ...]]:
    """Return the ids of what came of each transaction."""
    ids: defaultdict[str, set[str]] = defaultdict(set)
    for one in messages:
        ids[one.transaction].add(one.id)
    return {name: tuple(sorted(each)) for name, each in ids.items()}
