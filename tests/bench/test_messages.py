import numpy as np
import pytest

from tarry.bench.side_by_side.messages import BODY_BYTES_MAX, HEADER, Account, Verdict

DUE = np.array([1_000, 2_000, 3_000])


def sent(size: int = 100, first_id: int = 1 << 32) -> tuple[Account, list[bytes]]:
    account = Account(first_id, size)
    return account, account.send(DUE)


def test_what_comes_once_unchanged_and_due_is_well() -> None:
    account, bodies = sent()
    account.complete = True
    assert not account.take(bodies[:2], 2_000.0)
    assert account.take(bodies[2:], 3_000.5)
    assert account.verdict() == Verdict()
    assert account.lateness_ms().tolist() == [1_000.0, 0.0, 0.5]


def test_not_everything_has_come_before_everything_is_sent() -> None:
    account, bodies = sent()
    assert not account.take(bodies, 9_000.0)


def test_a_body_that_never_comes_is_lost() -> None:
    account, bodies = sent()
    account.take(bodies[1:], 9_000.0)
    assert account.verdict() == Verdict(lost=1)
    assert account.verdict(all_came=False) == Verdict()


def test_a_repeated_body_is_a_duplicate_and_does_not_stand_for_a_lost_one() -> None:
    account, bodies = sent()
    account.complete = True
    assert not account.take([bodies[0], bodies[0], bodies[1]], 9_000.0)
    assert account.verdict() == Verdict(lost=1, duplicates=1)


def test_a_body_before_its_due_time_is_early() -> None:
    account, bodies = sent()
    account.take(bodies, 2_999.9)
    assert account.verdict() == Verdict(early=1)


@pytest.mark.parametrize("position", [8, 16, 99])
def test_one_changed_byte_after_the_id_is_found(position: int) -> None:
    account, bodies = sent()
    wrong = bytearray(bodies[0])
    wrong[position] ^= 1
    account.take([bytes(wrong), *bodies[1:]], 9_000.0)
    assert account.verdict() == Verdict(changed=1)


def test_bodies_of_another_size_or_of_an_unknown_id_are_changed() -> None:
    account, bodies = sent()
    stranger = Account(1, 100).send(DUE[:1])
    account.take([*bodies, bodies[0][:-1], *stranger], 9_000.0)
    assert account.verdict() == Verdict(changed=2)


def test_messages_taken_back_are_not_missed() -> None:
    account, bodies = sent()
    account.take_back(1)
    account.complete = True
    assert account.take(bodies[:2], 9_000.0)
    assert account.verdict() == Verdict()


def test_bodies_differ_and_hold_to_their_sizes() -> None:
    assert len(set(sent(size=HEADER.itemsize)[1])) == 3
    assert len(sent(size=BODY_BYTES_MAX)[1][0]) == BODY_BYTES_MAX
    for size in (HEADER.itemsize - 1, BODY_BYTES_MAX + 1):
        with pytest.raises(ValueError, match="bytes"):
            sent(size=size)
