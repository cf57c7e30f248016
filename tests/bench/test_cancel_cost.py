"""The costs of ids at two sizes: how messages are drawn, and what becomes of the turns."""

from __future__ import annotations

import numpy as np
import pytest

from tarry.bench.cancel_cost import Pending, compared, figures
from tarry.proto.message_id import MessageId


def pending(count: int) -> Pending:
    made = Pending()
    numbers = np.arange(count, dtype=np.uint32)
    made.add(numbers % 24, numbers // 24)
    return made


def test_messages_are_drawn_once_each_until_none_is_left() -> None:
    some, random = pending(1_000), np.random.default_rng(1)
    drawn = some.draw(random, 600) + some.draw(random, 400)
    assert set(drawn) == {str(MessageId(0, number % 24, number // 24)) for number in range(1_000)}
    assert (len(drawn), len(some)) == (1_000, 0)


def test_messages_that_are_only_looked_at_stay() -> None:
    some, random = pending(1_000), np.random.default_rng(1)
    assert len(set(some.draw(random, 1_000, kept=True))) == len(some) == 1_000


def test_messages_are_drawn_from_all_over() -> None:
    drawn = pending(100_000).draw(np.random.default_rng(1), 1_000)
    places = [MessageId.parse(one).global_index for one in drawn]
    assert np.histogram(places, 4, (0, 100_000 // 24))[0].min() > 200


def test_single_calls_have_percentiles_and_calls_of_many_a_rate() -> None:
    single = figures([0.001] * 99 + [0.101], ids=1, used_s=0.5)
    assert single == pytest.approx({"p50_ms": 1.0, "p99_ms": 2.0, "cpu_s_per_100k": 500.0})
    many = figures([0.01, 0.03], ids=1_000, used_s=0.02)
    assert many == pytest.approx({"per_s": 50_000.0, "cpu_s_per_100k": 1.0})


def test_ratios_are_of_turns_of_one_pair() -> None:
    """The machine became ten times slower between the pairs."""
    found = compared([({"ms": 1.0}, {"ms": 1.1}), ({"ms": 10.0}, {"ms": 9.0}), ({"ms": 10.0}, {"ms": 10.0})])
    assert found["ms"] == pytest.approx(
        {"small": 10.0, "large": 9.0, "ratio": 1.0, "ratio_q1": 0.95, "ratio_q3": 1.05}
    )
