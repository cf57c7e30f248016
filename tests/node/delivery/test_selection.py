"""What one batch may ask of a filter, and that it counts in the turn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tarry.node.config import Delivery
from tarry.node.delivery.selection import TURN_TESTED_BYTES_MAX, TURN_TESTS_MAX, Selection
from tarry.node.filters.property_filter import PropertyFilter
from tarry.proto.tarry_message_pb2 import Record
from tests.node.group_in_process import Group
from tests.node.group_play import labels, pass_ms, play
from tests.turns import bound_s, once_s

LIMITS = Delivery()


def selection(test: str, count: int) -> Selection:
    made = Selection(LIMITS, "g", {})
    made.use(frozenset(), PropertyFilter(" OR ".join([test] * count)))
    return made


def turn_ms() -> float:
    """Return the CPU time that is allowed of a turn of the event loop."""
    return 1_000 * bound_s(0.02)


def least_ms(made: Selection, record: bytes, count: int) -> float:
    """Return the least of several CPU times that one batch takes."""
    offsets, records = np.arange(count, dtype=np.uint64), [record] * count

    def once_ms(queue: int) -> float:
        select = made.of(queue)
        assert select is not None
        answers = list[np.ndarray[Any, Any]]()
        took_s = once_s(lambda: answers.append(select(offsets, records)))
        assert not answers[0].any()
        return 1_000 * took_s

    return min(map(once_ms, range(15)))


@pytest.mark.parametrize("digits", ["{0}x", ".{0}x", "{0}e9x", "1{0}", "1.{0}", "1{0}e-300"])
@pytest.mark.parametrize("chars", [30, 90])
def test_numbers_and_what_is_nearly_one_are_read_within_a_turn(digits: str, chars: int) -> None:
    digits = digits.format("7" * chars)
    made = selection("region < 0", 100)
    record = Record(properties={"region": digits}).SerializeToString()
    assert least_ms(made, record, made.messages_max) < 2 * turn_ms()  # 14 s where digits are read again


@pytest.mark.parametrize("tests", [1, 7, 100, 1_000])
def test_a_batch_asks_so_many_comparisons_and_no_more(tests: int) -> None:
    made = selection("region = 'x'", tests)
    assert 1 <= made.messages_max <= LIMITS.batch_messages_max
    assert made.messages_max * tests <= TURN_TESTS_MAX
    record = Record(properties={"region": "eu"}).SerializeToString()
    assert least_ms(made, record, made.messages_max) < turn_ms()


@pytest.mark.parametrize(
    ("test", "count"),
    [
        ("region CONTAINS 'ab'", 1),
        ("region CONTAINS 'ab'", 10),
        (f"region CONTAINS '{'a' * 50}b{'a' * 40}'", 4),
        (f"region CONTAINS '{'a' * 998}ba'", 1),
        (f"region CONTAINS '{'a' * 498}ba'", 2),
        (f"region CONTAINS '{'a' * 196}ba'", 4),
        ("region IN ('x', 'y')", 100),
        ("region = 5", 100),
        ("region ENDSWITH 'b'", 100),
    ],
)
@pytest.mark.parametrize("chars", [2_499, 29_000, 65_000])
def test_a_batch_is_asked_of_so_many_bytes_and_no_more(test: str, count: int, chars: int) -> None:
    made = selection(test, count)
    tests = made._tests
    assert 1 <= made.bytes_max <= LIMITS.batch_bytes_max
    assert made.bytes_max * tests <= TURN_TESTED_BYTES_MAX
    record = Record(properties={"region": "a" * chars}).SerializeToString()
    assert least_ms(made, record, max(1, made.bytes_max // len(record))) < turn_ms()


def test_each_batch_without_a_match_doubles_what_is_asked_next() -> None:
    made = selection("region = 'x'", 100)
    select = made.of(0)
    assert select is not None
    other, same = (Record(properties={"region": one}).SerializeToString() for one in "yx")
    asked = []
    for offset, record in enumerate([other, other, other, same, other]):
        asked.append(made.ahead(3))
        select(np.array([offset], dtype=np.uint64), [record])
    assert asked == [3, 6, 12, 24, 3]
    for offset in range(5, 25):
        select(np.array([offset], dtype=np.uint64), [other])
    assert made.ahead(3) == made.messages_max
    made.use(frozenset(), None)
    assert made.ahead(3) == 3


def test_what_is_asked_counts_in_the_turn() -> None:
    made = selection("region = 'x'", 100)
    assert made.share(made.messages_max, 0) == 1
    assert made.share(1, made.bytes_max) == pytest.approx(1, rel=1e-5)

    async def steps(group: Group) -> None:
        for _ in range(20):
            group.schedule("", 0, properties={"region": "x"})
        await pass_ms(group, 60)
        left = group.delivery._context.turn.left
        group.join("a", credit=100, by_properties=" OR ".join(["region = 'y'"] * 99 + ["region = 'x'"]))
        await group.settle()
        assert len(labels(group)) == 20
        assert left - group.delivery._context.turn.left > 20 * 100 / TURN_TESTS_MAX

    play(steps)


def test_without_a_filter_nothing_is_asked() -> None:
    made = Selection(LIMITS, "g", {})
    assert made.of(0) is None
    assert made.share(1_000, 1 << 20) == 0
    assert (made.messages_max, made.bytes_max) == (LIMITS.batch_messages_max, LIMITS.batch_bytes_max)


def test_a_record_that_does_not_parse_matches_nothing() -> None:
    made = selection("region IS NOT NULL", 1)
    select = made.of(0)
    assert select is not None
    assert select(np.array([0], dtype=np.uint64), [b"\xff"]).tolist() == [False]


def test_beside_a_record_that_does_not_parse_the_others_are_asked_as_ever() -> None:
    made = Selection(LIMITS, "g", {})
    made.use(frozenset({"a"}), PropertyFilter("region = 'x'"))
    select = made.of(0)
    assert select is not None
    right = Record(tags=["a"], properties={"region": "x"}).SerializeToString()
    untagged = Record(properties={"region": "x"}).SerializeToString()
    records = [right, b"\xff", untagged, right]
    assert select(np.arange(4, dtype=np.uint64), records).tolist() == [True, False, False, True]
