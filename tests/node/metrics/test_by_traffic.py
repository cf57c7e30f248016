"""The busiest names have values of their own, and no value ever falls."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from tarry.node.metrics.by_traffic import LEAD, SWAPS_MAX, ByTraffic


@dataclass
class Count:
    messages: int = 0


def by_traffic(names_max: int = 3, known_max: int = 100) -> ByTraffic[str, Count]:
    return ByTraffic(names_max, known_max, "other", Count)


def note(values: ByTraffic[str, Count], name: str, messages: int = 1) -> None:
    values.of(name, messages).messages += messages


def told(values: ByTraffic[str, Count]) -> dict[str, int]:
    return {name: count.messages for name, count in values}


def test_up_to_the_bound_each_name_has_a_value_and_one_more_is_with_the_others() -> None:
    values = by_traffic()
    for name in "ab":
        note(values, name)
    assert told(values) == {"a": 1, "b": 1}
    for name in "cde":
        note(values, name)
    assert told(values) == {"a": 1, "b": 1, "c": 1, "other": 2}


def test_a_busy_name_takes_the_place_of_an_idle_one_and_begins_anew() -> None:
    values = by_traffic()
    for name in "abcd":
        note(values, name, 10)
    note(values, "d", 100)
    values.renew()
    note(values, "d", 5)
    assert told(values) | {"d": 5, "other": 110} == told(values)
    assert len(told(values)) == 4


def test_names_that_are_about_as_busy_do_not_swap() -> None:
    values = by_traffic(names_max=1)
    note(values, "a", 10)
    note(values, "b", int(10 * LEAD))
    values.renew()
    assert "a" in values
    note(values, "b", 1)
    values.renew()
    assert "b" in values


def test_a_name_that_was_busy_long_ago_gives_way() -> None:
    values = by_traffic(names_max=1)
    note(values, "a", 1_000)
    for _ in range(12):
        note(values, "b", 10)
        values.renew()
    assert "b" in values


def test_a_topic_with_the_name_of_the_others_is_one_of_them() -> None:
    values = by_traffic()
    note(values, "other", 7)
    assert told(values) == {"other": 7}
    for name in "abc":
        note(values, name)
    assert told(values)["other"] == 7


def test_ever_new_names_take_no_more_memory_and_one_renewal_swaps_some_only() -> None:
    values = by_traffic(names_max=1_000, known_max=5_000)
    for number in range(20_000):
        note(values, str(number), number)
    assert len(values._traffic) == 5_000
    before = set(told(values))
    values.renew()
    assert len(before - set(told(values))) == SWAPS_MAX


@given(
    st.lists(st.one_of(st.none(), st.tuples(st.sampled_from("abcdefg"), st.integers(1, 50))), max_size=60),
    st.integers(1, 4),
)
def test_no_value_falls_and_together_they_have_all_but_what_left_with_a_name(
    steps: list[tuple[str, int] | None], names_max: int
) -> None:
    values, before, noted = by_traffic(names_max), Counter[str](), 0
    for step in steps:
        if step is None:
            values.renew()
        else:
            note(values, *step)
            noted += step[1]
        now = told(values)
        assert all(now[name] >= before[name] for name in now if name in before and step is not None)
        assert now.get("other", 0) >= before["other"]
        assert len(now) <= names_max + 1
        before = Counter(now)
    assert sum(before.values()) <= noted
