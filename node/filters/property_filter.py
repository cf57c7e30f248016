"""A group's filter by properties: checked against its limits, compiled once, and shared by its consumers."""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from tarry.node.filters.conditions import CONTAINS_CHARS, CONTAINS_TESTS, Test
from tarry.node.filters.parser import FilterInvalid, parse

CACHED: Final = 256
"""Filters compiled last: all of a group's consumers, and each of its calls, ask for the same."""


class PropertyFilter:
    """A filter as its text, and as a closure over a message's properties."""

    __slots__ = ("depth", "test", "tests", "text")

    def __init__(self, text: str) -> None:
        """Compile the text. Raises FilterInvalid."""
        condition = parse(text)
        self.text = text
        self.tests = condition.tests
        """Number of comparisons that a message may take; CONTAINS counts as several."""
        self.depth = condition.depth
        self.test: Test = condition.test
        """Asked of a message's properties: one of which it is not True does not match."""


def property_filter(text: str, chars_max: int, tests_max: int, depth_max: int) -> PropertyFilter:
    """Return the filter that a text states. Raises FilterInvalid, which names the limit it is over."""
    if len(text) > chars_max:
        raise FilterInvalid(f"the filter has {len(text)} characters, more than {chars_max}: shorten it")
    return _compiled(text, tests_max, depth_max)


@lru_cache(maxsize=CACHED)
def _compiled(text: str, tests_max: int, depth_max: int) -> PropertyFilter:
    found = PropertyFilter(text)
    if found.tests > tests_max:
        text = f"the filter makes {found.tests} comparisons, more than {tests_max}: simplify it"
        contains = f"CONTAINS counts as {CONTAINS_TESTS}, and one more for each {CONTAINS_CHARS} characters"
        raise FilterInvalid(f"{text} ({contains} of its text)")
    if found.depth > depth_max:
        raise FilterInvalid(f"the filter is {found.depth} levels deep, more than {depth_max}: simplify it")
    return found
