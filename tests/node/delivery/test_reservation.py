"""A feed delivers as far as a majority has answered, and what was told is never taken back."""

from __future__ import annotations

import math

from tarry.node.delivery.reservation import Reservation


def test_nothing_is_delivered_before_a_majority_has_answered() -> None:
    reserve = Reservation()
    assert reserve.extend(1.0, 100) == 100
    reserve.confirm(0.9)
    assert reserve.limit == 0
    reserve.confirm(1.0)
    assert reserve.limit == 100


def test_the_limit_is_that_of_the_latest_heartbeat_answered() -> None:
    reserve = Reservation()
    for sent_s, limit in ((1.0, 100), (2.0, 200), (3.0, 300)):
        reserve.extend(sent_s, limit)
    reserve.confirm(2.5)
    assert reserve.limit == 200


def test_who_may_be_told_less_is_told_what_was_told_before() -> None:
    """What is below may have been delivered: a new leader has to know."""
    reserve = Reservation()
    reserve.extend(1.0, 100)
    assert reserve.extend(2.0, 60) == 100
    reserve.confirm(2.0)
    assert reserve.limit == 100


def test_after_it_is_told_that_no_more_is_delivered_nothing_is_until_the_next_answer() -> None:
    reserve = Reservation()
    reserve.extend(1.0, 100)
    reserve.confirm(1.0)
    reserve.revoke()
    reserve.confirm(1.0)
    assert reserve.limit == 0
    assert reserve.extend(2.0, 70) == 70
    reserve.confirm(2.0)
    assert reserve.limit == 70


def test_a_lone_node_has_nobody_to_tell() -> None:
    reserve = Reservation()
    reserve.confirm(math.inf)
    assert reserve.limit is None


def test_more_is_reserved_once_less_than_half_is_left() -> None:
    reserve = Reservation()
    assert reserve.is_low(0, 100, 100)
    reserve.extend(1.0, 100)
    assert not reserve.is_low(50, 100, 150)
    assert reserve.is_low(51, 100, 151)
    assert not reserve.is_low(51, 100, 100)  # a delay keeps the rest on disk
