"""Texts that are no filters are refused with their place; what a filter may cost is bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.filters import property_filter as property_filter_module
from tarry.node.filters.conditions import NUMBER_CHARS_MAX, number
from tarry.node.filters.parser import FilterInvalid, parse
from tarry.node.filters.property_filter import PropertyFilter, property_filter

WRONG = [
    ("", 1, "the filter ends"),
    ("   ", 4, "the filter ends"),
    ("a", 2, "the filter ends, where a comparison"),
    ("a =", 4, "where a property, a number, a text in single quotes or TRUE or FALSE is expected"),
    ("a = 1 AND", 10, "the filter ends"),
    ("(a = 1", 7, "where ) is expected"),
    ("a = 1)", 6, "')' stands"),
    ("a LIKE 'x%'", 3, "LIKE is not supported: use CONTAINS, STARTSWITH or ENDSWITH"),
    ("a NOT LIKE 'x%'", 7, "LIKE is not supported"),
    ("b = 1 AND a like 'x'", 13, "LIKE is not supported"),
    ("a != 1", 3, "write <> instead of !="),
    ("a == 1", 3, "write = instead of =="),
    ("a = NULL", 5, "write IS NULL"),
    ("NULL", 1, "write IS NULL"),
    ("a < 'x'", 5, "only numbers are compared by order"),
    ("'x' > a", 1, "only numbers are compared by order"),
    ("a >= TRUE", 6, "only numbers are compared by order"),
    ("a BETWEEN 'a' AND 'b'", 11, "only numbers are compared by order"),
    ("a BETWEEN 5 AND 1", 11, "BETWEEN 5 AND 1 is empty"),
    ("a NOT BETWEEN 5 AND 1", 15, "BETWEEN 5 AND 1 is empty"),
    ("a BETWEEN 1", 12, "the filter ends"),
    ("a IN ()", 7, "')' stands, where a text in single quotes is expected"),
    ("a IN (1)", 7, "'1' stands, where a text in single quotes is expected"),
    ("a IN 'x'", 6, "where ( is expected"),
    ("5 IN ('x')", 3, "'IN' stands"),
    ("5 IS NULL", 3, "'IS' stands"),
    ("a CONTAINS ''", 12, "an empty text"),
    ("a CONTAINS b", 12, "'b' stands"),
    ("a = 'x", 5, "without its closing quote"),
    ('"a = 1', 1, "without its closing quote"),
    ("a % 2 = 0", 3, "'%' is no part of a filter"),
    ("a + 1 = 2", 3, "'+' is no part of a filter"),
    ("trace-id = 1", 6, "is no part of a filter"),
    ("a = 9223372036854775808", 5, "more than 64 bits"),
    ("a = -9223372036854775809", 5, "more than 64 bits"),
    ("a = 1e999", 5, "out of range"),
    ("a = 1 b = 2", 7, "'b' stands"),
    ("and = 1", 1, "'and' stands"),
    ("a CONTA\u0130NS 'x'", 3, "'CONTA' stands"),
    ("a \u0131S NULL", 3, "is no part of a filter"),
    ("a = FAL\u017fE", 8, "is no part of a filter"),
    ("\u212a = 1", 1, "is no part of a filter"),
    (f"a > '{'x' * 300}'", 5, f"'{'x' * 40}' is no number"),
    ('"" = 1', 1, "a name that is empty or without its closing quote"),
    ("a = 1 -- (", 11, None),
    ("a = 1 /* (", 7, "is no part of a filter"),
]


@pytest.mark.parametrize(("text", "place", "says"), WRONG)
def test_an_error_names_its_place(text: str, place: int, says: str | None) -> None:
    if says is None:
        parse(text)
        return
    with pytest.raises(FilterInvalid) as refused:
        parse(text)
    assert str(refused.value).startswith(f"at character {place}: ")
    assert says in str(refused.value)


@given(st.text(max_size=60) | st.lists(st.sampled_from(
    ["a", "NOT", "AND", "OR", "(", ")", "=", "<", "'x'", "1", "1.5", "BETWEEN", "IN", ",", "IS", "NULL",
     "CONTAINS", "TRUE", "LIKE", "-", "!", "--", "/*", "*/", '"b"', "\0", "'"]
), max_size=14).map(" ".join))  # fmt: skip
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        condition = parse(text)
    except FilterInvalid as refused:
        assert str(refused).startswith("at character ")
        assert len(str(refused)) < 500
    else:
        for properties in ({}, {"a": "1", "b": "x"}, {"a": "true"}, {"a": "9" * 5_000}):
            assert condition.test(properties) in {True, False, None}


def limited(text: str, chars_max: int = 2_048, tests_max: int = 100, depth_max: int = 32) -> PropertyFilter:
    return property_filter(text, chars_max, tests_max, depth_max)


def test_a_filter_is_as_long_as_its_limit_and_no_longer() -> None:
    text = "a = 1".ljust(40)
    assert limited(text, chars_max=40).text == text
    with pytest.raises(FilterInvalid, match="41 characters, more than 40"):
        limited(text + " ", chars_max=40)


@pytest.mark.parametrize("test", ["a = 1", "a <> 'x'", "a IN ('x','y')", "a ENDSWITH 'x'", "a IS NULL"])
def test_a_filter_has_as_many_tests_as_its_limit_and_no_more(test: str) -> None:
    assert limited(" AND ".join([test] * 7), tests_max=7).tests == 7
    with pytest.raises(FilterInvalid, match="8 comparisons, more than 7"):
        limited(" OR ".join([test] * 8), tests_max=7)


def test_contains_counts_as_ten_comparisons() -> None:
    assert limited(" AND ".join(["a NOT CONTAINS 'x'"] * 10)).tests == 100
    with pytest.raises(FilterInvalid, match=r"101 comparisons, more than 100.*CONTAINS counts as 10"):
        limited("a = 1 OR " + " OR ".join(["a CONTAINS 'x'"] * 10))


def test_the_text_that_contains_searches_for_counts_by_its_length() -> None:
    assert limited(f"a CONTAINS '{'x' * 7}'").tests == 10
    assert limited(f"a CONTAINS '{'x' * 727}'").tests == 100
    with pytest.raises(FilterInvalid, match="101 comparisons, more than 100"):
        limited(f"a CONTAINS '{'x' * 728}'")
    assert limited(f"a ENDSWITH '{'x' * 728}'").tests == 1


def test_between_counts_as_the_two_comparisons_that_it_is() -> None:
    assert limited("a BETWEEN 1 AND 2").tests == limited("a NOT BETWEEN 1 AND 2").tests == 2


@pytest.mark.parametrize(("before", "behind"), [("(", ")"), ("NOT ", "")])
def test_a_filter_is_as_deep_as_its_limit_and_no_deeper(before: str, behind: str) -> None:
    assert limited(before * 5 + "a = 1" + behind * 5, depth_max=5).depth == 5
    with pytest.raises(FilterInvalid, match="6 levels deep, more than 5"):
        limited(before * 6 + "a = 1" + behind * 6, depth_max=5)
    with pytest.raises(FilterInvalid, match="4000 levels deep"):
        limited(before * 4_000 + "a = 1" + behind * 4_000, chars_max=100_000)


def test_the_deepest_filter_that_may_be_configured_is_answered() -> None:
    inner = "a = 1 OR b = 1 AND c = 1"
    deep = limited("NOT (" * 50 + inner + ")" * 50, depth_max=100)
    assert deep.test({"a": "1"})
    assert not deep.test({"a": "2"})


def test_a_long_text_is_no_number_and_costs_nothing_to_read() -> None:
    assert number("1" * NUMBER_CHARS_MAX) is not None
    assert number("1" * (NUMBER_CHARS_MAX + 1)) is None


def test_the_same_text_is_compiled_once() -> None:
    assert limited("a = 1 OR b = 3") is limited("a = 1 OR b = 3")


@pytest.mark.parametrize("text", [" OR ".join(["a = 1"] * 101), "NOT " * 33 + "a = 1"])
def test_what_is_over_a_limit_is_not_kept(text: str) -> None:
    property_filter_module._compiled.cache_clear()
    with pytest.raises(FilterInvalid):
        limited(text)
    assert property_filter_module._compiled.cache_info().currsize == 0
