"""Conditions of a filter as closures: each takes a message's properties and returns True, False or None.

None is SQL's unknown: a property that a comparison needs is missing, or is no number where one is needed.
Properties are texts. Compared with a number they are read as one, with TRUE or FALSE as one of these.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

Properties: TypeAlias = Mapping[str, str]
Truth: TypeAlias = bool | None
Test: TypeAlias = Callable[[Properties], Truth]
Value: TypeAlias = str | int | float | bool
Compare: TypeAlias = Callable[[Value, Value], bool]

SIGNS: Final[Mapping[str, Compare]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
TURNED: Final = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""Signs as they are where the operands change sides."""
# Each run of digits is read once, whatever follows it: 99 digits and a letter would else take a millisecond.
NUMBER: Final = re.compile(r"[+-]?(?:[0-9]++(\.[0-9]*+)?|(\.[0-9]++))([eE][+-]?[0-9]++)?", re.ASCII)
DIGITS_MAX: Final = 18
"""Of a text of digits that is read as a number at once."""
NUMBER_CHARS_MAX: Final = 40
"""Of a number; a longer text is none, so that reading it costs little whatever it is."""


CONTAINS_TESTS: Final = 10
"""Comparisons as which CONTAINS counts: to search 64 KB for what is nearly there takes up to some ms."""
CONTAINS_CHARS: Final = 8
"""Of its text, which count as another one: in up to some KB each place is compared with all of the text."""


class Operand(NamedTuple):
    """A side of a comparison: a property where it has a name, else a value."""

    name: str = ""
    value: Value = ""
    place: int = 0


class Condition(NamedTuple):
    """A condition and what it costs."""

    test: Test
    tests: int = 1
    """Number of comparisons that it may take."""
    depth: int = 0
    """Levels of parentheses and NOT."""


def number(text: str) -> int | float | None:
    """Return the number that a property is, None where it is none; a whole number is exact."""
    if len(text) <= DIGITS_MAX and text.isdigit() and text.isascii():
        return int(text)
    if len(text) > NUMBER_CHARS_MAX:
        return None
    if (found := NUMBER.fullmatch(text)) is None:
        return None
    return int(text) if found.lastindex is None else float(text)


def truth(text: str) -> bool:
    """Return the truth value that a property is: any text but "true", in any case, is FALSE."""
    return len(text) == 4 and text.lower() == "true"


def constant(value: Truth) -> Condition:
    """Return a condition that is always the same."""
    return Condition(lambda _: value)


def any_of(parts: Sequence[Condition]) -> Condition:
    """Return OR of the parts: TRUE where one is, else unknown where one is, else FALSE."""
    return _joined(parts, decisive=True)


def all_of(parts: Sequence[Condition]) -> Condition:
    """Return AND of the parts: FALSE where one is, else unknown where one is, else TRUE."""
    return _joined(parts, decisive=False)


def _joined(parts: Sequence[Condition], *, decisive: bool) -> Condition:
    """Return what is decisive where one part is, else unknown where one is, else the opposite."""
    if len(parts) == 1:
        return parts[0]
    tests, opposite = tuple(part.test for part in parts), not decisive
    cost = sum(part.tests for part in parts), max(part.depth for part in parts)
    if len(tests) == 2:
        return Condition(_of_two(*tests, decisive), *cost)

    def test(properties: Properties) -> Truth:
        answer: Truth = opposite
        for one in tests:
            if (said := one(properties)) is decisive:
                return decisive
            if said is None:
                answer = None
        return answer

    return Condition(test, *cost)


def _of_two(first: Test, second: Test, decisive: bool) -> Test:
    """Return the same of two parts, which most filters are, at half the cost."""
    opposite = not decisive

    def test(properties: Properties) -> Truth:
        if (one := first(properties)) is decisive or (other := second(properties)) is decisive:
            return decisive
        return None if one is None or other is None else opposite

    return test


def negation(part: Condition) -> Condition:
    """Return NOT of a condition: unknown stays unknown."""
    inner = part.test

    def test(properties: Properties) -> Truth:
        return None if (said := inner(properties)) is None else not said

    return Condition(test, part.tests, part.depth + 1)


def comparison(left: Operand, sign: str, right: Operand) -> Condition:
    """Return a comparison of two operands."""
    if not left.name:
        if not right.name:
            return constant(_of_values(left.value, sign, right.value))
        left, sign, right = right, TURNED[sign], left
    if right.name:
        return _of_properties(left.name, sign, right.name)
    return _of_property(left.name, sign, right.value)


def _of_values(left: Value, sign: str, right: Value) -> Truth:
    if isinstance(left, bool) is not isinstance(right, bool):
        return sign == "<>"
    if isinstance(left, str) and not isinstance(right, str):
        return None if (read := number(left)) is None else SIGNS[sign](read, right)
    if isinstance(right, str) and not isinstance(left, str):
        return None if (read := number(right)) is None else SIGNS[sign](left, read)
    return SIGNS[sign](left, right)


def _of_property(name: str, sign: str, value: Value) -> Condition:
    if isinstance(value, str):
        return _of_text(name, value, same=sign == "=")  # or <>: the parser lets nothing else compare texts
    compare = SIGNS[sign]
    read: Callable[[str], Value | None] = truth if isinstance(value, bool) else number

    def test(properties: Properties) -> Truth:
        if (text := properties.get(name)) is None or (found := read(text)) is None:
            return None
        return compare(found, value)

    return Condition(test)


def _of_text(name: str, value: str, *, same: bool) -> Condition:
    def test(properties: Properties) -> Truth:
        return None if (found := properties.get(name)) is None else (found == value) is same

    return Condition(test)


def between(value: Operand, low: Operand, high: Operand) -> Condition:
    """Return whether an operand is neither below one nor above another; a property is read once."""
    least, most = low.value, high.value
    if not value.name or low.name or high.name or isinstance(least, str) or isinstance(most, str):
        return all_of([comparison(value, ">=", low), comparison(value, "<=", high)])
    name = value.name

    def test(properties: Properties) -> Truth:
        if (text := properties.get(name)) is None or (found := number(text)) is None:
            return None
        return least <= found <= most

    return Condition(test, 2)


def _of_properties(left: str, sign: str, right: str) -> Condition:
    compare = SIGNS[sign]
    read: Callable[[str], Value | None] = str if sign in {"=", "<>"} else number

    def test(properties: Properties) -> Truth:
        one, other = properties.get(left), properties.get(right)
        if one is None or other is None:
            return None
        first, second = read(one), read(other)
        return None if first is None or second is None else compare(first, second)

    return Condition(test)


def among(name: str, texts: frozenset[str]) -> Condition:
    """Return whether a property is one of the texts."""

    def test(properties: Properties) -> Truth:
        return None if (found := properties.get(name)) is None else found in texts

    return Condition(test)


SEARCHES: Final[Mapping[str, Callable[[str, str], bool]]] = {
    "CONTAINS": str.__contains__,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def search(name: str, word: str, text: str, *, negated: bool) -> Condition:
    """Return whether a property has the text in it, or at one of its ends.

    FALSE where the property is missing, also negated by ``NOT CONTAINS``: as in RocketMQ, never unknown.
    """
    find = SEARCHES[word]

    def test(properties: Properties) -> Truth:
        return (found := properties.get(name)) is not None and find(found, text) is not negated

    return Condition(test, CONTAINS_TESTS + len(text) // CONTAINS_CHARS if word == "CONTAINS" else 1)


def absence(name: str, *, negated: bool) -> Condition:
    """Return whether a property is missing, or negated: whether it is there; never unknown."""
    return Condition(lambda properties: (name in properties) is negated)
