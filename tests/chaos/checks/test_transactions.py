"""Transactions: one that ends twice, otherwise or never is found, wrong messages too, and nothing else."""

from __future__ import annotations

import pytest

from tarry.chaos.checks import transactions as checks
from tarry.chaos.checks.transactions import Several
from tarry.chaos.history import HalfMessage, OpenRead, TransactionEnded, Transactions

CHECKS = (
    checks.contradicted,
    checks.open_again,
    checks.against_the_database,
    checks.without_end,
    checks.doubled,
    checks.lost,
    checks.of_none_committed,
    checks.early,
    checks.letters_wrong,
)
COMMITTED = TransactionEnded("placed", "committed", "m1", 1_000)
ROLLED_BACK = TransactionEnded("refused", "rolled_back", "", 1_200)
UNRESOLVED = TransactionEnded("gone", "unresolved", "", 3_000)


def sound() -> Transactions:
    """One that was committed, and came twice after a failover, one rolled back, and one that nobody ended."""
    return Transactions(
        prepared=["placed", "refused", "gone"],
        delays_ms={"placed": 500, "refused": 500, "gone": 0},
        unanswered=["gone"],
        database={"placed": True, "refused": False},
        ended=[COMMITTED, COMMITTED, ROLLED_BACK, UNRESOLVED],
        answered_s={"placed": 1.0, "refused": 1.2},
        open_reads=[
            OpenRead(1.0, frozenset(("placed", "refused", "gone"))),
            OpenRead(1.3, frozenset(("gone",))),
        ],
        messages=[HalfMessage("placed", "m1", 1_500, 1_502), HalfMessage("placed", "m1", 1_500, 2_100)],
        letters=[HalfMessage("gone", "d1", 3_000, 3_001)],
    )


@pytest.mark.parametrize("check", CHECKS)
def test_nothing_is_wrong_with_sound_transactions(check: object) -> None:
    assert check(sound()) == ()  # type: ignore[operator]


@pytest.mark.parametrize(
    "other",
    [
        COMMITTED._replace(state="rolled_back", id=""),
        COMMITTED._replace(id="m2"),
        COMMITTED._replace(ended_ms=1_001),
    ],
)
def test_two_answers_that_differ_are_found(other: TransactionEnded) -> None:
    seen = sound()
    seen.ended.append(other)
    assert checks.contradicted(seen) == (other,)


def test_a_list_that_shows_as_open_what_had_an_answered_end_before_it_is_found() -> None:
    seen = sound()
    seen.open_reads += [OpenRead(1.3, frozenset(("refused", "gone"))), OpenRead(1.1, frozenset(("refused",)))]
    assert checks.open_again(seen) == ("refused",)


@pytest.mark.parametrize(
    ("placed", "ended"),
    [
        (False, COMMITTED),
        (None, COMMITTED),
        (True, COMMITTED._replace(state="rolled_back", id="")),
        (True, COMMITTED._replace(state="unresolved", id="")),
    ],
)
def test_an_end_that_the_database_does_not_know_is_found(
    placed: bool | None, ended: TransactionEnded
) -> None:
    seen = sound()
    seen.ended = [ended]
    if placed is None:
        del seen.database["placed"]
    else:
        seen.database["placed"] = placed
    assert checks.against_the_database(seen) == (ended,)


def test_one_that_never_ends_is_found() -> None:
    seen = sound()
    seen.prepared.append("open")
    assert checks.without_end(seen) == ("open",)


def test_two_messages_of_one_transaction_are_found() -> None:
    seen = sound()
    seen.messages.append(HalfMessage("placed", "m2", 1_500, 1_503))
    assert checks.doubled(seen) == (Several("placed", ("m1", "m2")),)


def test_a_committed_one_whose_message_never_came_is_found() -> None:
    seen = sound()
    seen.messages = []
    assert checks.lost(seen) == (COMMITTED,)


@pytest.mark.parametrize("name", ["refused", "gone", "open"])
def test_a_message_of_one_that_was_not_committed_is_found(name: str) -> None:
    seen, wrong = sound(), HalfMessage(name, "m3", 1_500, 1_503)
    seen.messages.append(wrong)
    assert checks.of_none_committed(seen) == (wrong,)


@pytest.mark.parametrize(
    "wrong", [HalfMessage("placed", "m1", 1_499, 1_503), HalfMessage("placed", "m1", 1_500, 1_499)]
)
def test_a_message_whose_delay_is_not_counted_from_the_commit_is_early_and_so_is_one_before(
    wrong: HalfMessage,
) -> None:
    seen = sound()
    seen.messages.append(wrong)
    assert checks.early(seen) == (wrong,)


def test_letters_are_of_unresolved_ones_alone_one_of_each() -> None:
    seen = sound()
    seen.letters.append(HalfMessage("gone", "d2", 3_000, 3_001))
    seen.letters.append(HalfMessage("refused", "d3", 3_000, 3_001))
    assert checks.letters_wrong(seen) == (Several("gone", ("d1", "d2")), Several("refused", ("d3",)))
    seen.letters = []
    assert checks.letters_wrong(seen) == (Several("gone", ()),)
