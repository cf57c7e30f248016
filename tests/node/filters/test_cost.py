"""What a filter costs a message: the record is parsed once, and each property is looked up once."""

from __future__ import annotations

import time
from collections.abc import Callable

from tarry.node.filters.property_filter import PropertyFilter
from tarry.proto.tarry_message_pb2 import Record

RECORD = Record(body=bytes(100), tags=["a"], properties={"amount": "120", "region": "eu"}).SerializeToString()


def least_us(work: Callable[[], object], rounds: int = 40, count: int = 1_000) -> float:
    """Return the shortest of several rounds: what else runs only makes them longer."""
    took = []
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(count):
            work()
        took.append(time.perf_counter() - began)
    return min(took) / count * 1e6


def test_a_message_costs_three_microseconds() -> None:
    wanted = PropertyFilter("amount > 100 AND region IN ('eu','us')")
    assert wanted.matches(Record.FromString(RECORD).properties)
    assert least_us(lambda: wanted.matches(Record.FromString(RECORD).properties)) <= 3


def test_the_hundredth_comparison_costs_no_more_than_the_first() -> None:
    properties = Record.FromString(RECORD).properties
    many = PropertyFilter(" AND ".join(["amount > 100"] * 100))
    one = PropertyFilter("amount > 100")
    assert least_us(lambda: many.matches(properties), count=100) < 110 * least_us(
        lambda: one.matches(properties)
    )
