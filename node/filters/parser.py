"""Parser of filters: a text of the grammar in sql92.lark becomes a condition; errors name the place.

The parser is table-driven (LALR): its time grows with the length of the text, and nothing recurses with its
depth. Conditions are put together as it reads, so there is no tree in between.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedCharacters, UnexpectedEOF, UnexpectedInput, UnexpectedToken

from tarry.node.filters import conditions
from tarry.node.filters.conditions import Condition, Operand

GRAMMAR: Final = Path(__file__).with_name("sql92.lark")
INTEGER_MIN: Final = -(2**63)
INTEGER_MAX: Final = 2**63 - 1

NOT_THERE: Final = {
    "LIKE": "LIKE is not supported: use CONTAINS, STARTSWITH or ENDSWITH",
    "ESCAPE": "ESCAPE is not supported: use CONTAINS, STARTSWITH or ENDSWITH",
    "!": "write <> instead of !=",
    "'": "a text without its closing quote",
    '"': "a name that is empty or without its closing quote",
    "==": "write = instead of ==",
    "NULL": "NULL is compared with nothing: write IS NULL or IS NOT NULL",
}
"""Advice for what other dialects have, and for quotes that begin nothing."""
EXPECTED: Final = {
    "NAME": "a property",
    "INTEGER": "a number",
    "TEXT": "a text in single quotes",
    "TRUE": "TRUE or FALSE",
    "SIGN": "a comparison",
    "CONTAINS": "CONTAINS",
    "STARTSWITH": "STARTSWITH",
    "ENDSWITH": "ENDSWITH",
    "BETWEEN": "BETWEEN",
    "IN": "IN",
    "IS": "IS",
    "NOT": "NOT",
    "NULL": "NULL",
    "AND": "AND",
    "OR": "OR",
    "OPEN": "(",
    "RPAR": ")",
    "COMMA": "a comma",
    "$END": "the end",
}
"""Words for the kinds of tokens; those that are missing are said by another."""
FOUND_CHARS_MAX: Final = 40
"""Of the text that an error repeats."""


class FilterInvalid(Exception):
    """A text is no filter; its message names the place, counted in characters from 1."""


def parse(text: str) -> Condition:
    """Return the condition that a text states. Raises FilterInvalid."""
    try:
        condition: Condition = _parser().parse(text)
    except UnexpectedInput as error:
        raise FilterInvalid(_explained(error, text)) from None
    return condition


def prepare() -> None:
    """Build the parser's tables, which takes some 50 ms: not in a turn in which a filter comes."""
    _parser()


@cache
def _parser() -> Any:
    # The basic lexer reserves each keyword everywhere, as RocketMQ's: what is a name depends on no place.
    # ASCII, for in Unicode the keywords' letters have other cases: the i of CONTAINS is a capital with a dot.
    return Lark(
        GRAMMAR.read_text(), parser="lalr", lexer="basic", g_regex_flags=re.ASCII, transformer=_Conditions()
    )


def _at(place: int, said: str) -> FilterInvalid:
    return FilterInvalid(f"at character {place + 1}: {said}")


def _explained(error: UnexpectedInput, text: str) -> str:
    """Return the place of an error, what is there, and what could be."""
    if isinstance(error, UnexpectedCharacters):
        place = error.pos_in_stream or 0
        said = NOT_THERE.get(text[place])
        return str(_at(place, said or f"{text[place]!r} is no part of a filter"))
    expected = ""
    if isinstance(error, UnexpectedToken | UnexpectedEOF):
        *others, last = [word for kind, word in EXPECTED.items() if kind in error.expected] or ["another"]
        expected = f", where {', '.join(others)}{' or ' * bool(others)}{last} is expected"
    token = getattr(error, "token", None)
    if token is None or token.type == "$END":
        return str(_at(len(text), f"the filter ends{expected}"))
    place = token.start_pos or 0
    if text[max(0, place - 1) : place + 1] == "==":
        return str(_at(place - 1, NOT_THERE["=="]))
    if said := NOT_THERE.get(token.upper()):
        return str(_at(place, said))
    return str(_at(place, f"{str(token)[:FOUND_CHARS_MAX]!r} stands{expected}"))


def _text(token: Token) -> str:
    return token[1:-1].replace("''", "'")


@v_args(inline=True)
class _Conditions(Transformer[Token, Condition]):
    """Puts conditions together; each method has the name of its rule."""

    def property(self, name: Token) -> Operand:
        return Operand(name[1:-1] if name.type == "QUOTED_NAME" else str(name), place=_place(name))

    def literal(self, token: Token) -> Operand:
        if token.type == "INTEGER":
            number = int(token.rstrip("lL"))
            if not INTEGER_MIN <= number <= INTEGER_MAX:
                raise _at(_place(token), "a whole number of more than 64 bits")
            return Operand(value=number, place=_place(token))
        if token.type == "DECIMAL":
            decimal = float(token)
            if abs(decimal) == float("inf"):
                raise _at(_place(token), "a number that is out of range")
            return Operand(value=decimal, place=_place(token))
        value = _text(token) if token.type == "TEXT" else token.upper() == "TRUE"
        return Operand(value=value, place=_place(token))

    def any_of(self, *parts: Condition) -> Condition:
        return conditions.any_of(parts)

    def all_of(self, *parts: Condition) -> Condition:
        return conditions.all_of(parts)

    def negation(self, _: Token, part: Condition) -> Condition:
        return conditions.negation(part)

    def nested(self, _: Token, part: Condition) -> Condition:
        return part._replace(depth=part.depth + 1)

    def truth(self, token: Token) -> Condition:
        return conditions.constant(token.upper() == "TRUE")

    def comparison(self, left: Operand, sign: Token, right: Operand) -> Condition:
        if sign not in {"=", "<>"}:
            for operand in (left, right):
                _check_ordered(operand)
        return conditions.comparison(left, str(sign), right)

    def between(self, value: Operand, *rest: Token | Operand) -> Condition:
        low, high = (one for one in rest if isinstance(one, Operand))
        for operand in (value, low, high):
            _check_ordered(operand)
        lower, upper = low.value, high.value
        if not isinstance(lower, str) and not isinstance(upper, str) and lower > upper:
            raise _at(low.place, f"BETWEEN {lower} AND {upper} is empty: name the lower bound first")
        inside = conditions.between(value, low, high)
        return conditions.negation(inside) if len(rest) == 4 else inside

    def among(self, operand: Operand, *rest: Token) -> Condition:
        inside = conditions.among(operand.name, frozenset(_text(one) for one in rest if one.type == "TEXT"))
        return conditions.negation(inside) if rest[0].type == "NOT" else inside

    def search(self, operand: Operand, *rest: Token) -> Condition:
        word, token = rest[-2:]
        if not (text := _text(token)):
            raise _at(_place(token), f"{word.upper()} of an empty text matches nothing")
        return conditions.search(operand.name, word.upper(), text, negated=len(rest) == 3)

    def absence(self, operand: Operand, *negated: Token) -> Condition:
        return conditions.absence(operand.name, negated=bool(negated))


def _place(token: Token) -> int:
    return token.start_pos or 0


def _check_ordered(operand: Operand) -> None:
    """Raise FilterInvalid for a text or a truth value: only numbers have an order."""
    if not operand.name and type(operand.value) not in {int, float}:
        said = operand.value[:FOUND_CHARS_MAX] if isinstance(operand.value, str) else operand.value
        raise _at(operand.place, f"{said!r} is no number: only numbers are compared by order")
