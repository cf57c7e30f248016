"""JSON that cannot be misread: UTF-8, no name twice in an object, no NaN, a bounded depth."""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

DEPTH_MAX: Final = 32
"""Arrays and objects in one another."""
DIGITS_MAX: Final = 400
"""Of a number: more are none that any field, or any other program, can hold."""


def parse(raw: bytes) -> Any:
    """Return the value. Raises ValueError, whose text says what is wrong."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    try:
        value = json.loads(
            text,
            object_pairs_hook=_object,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_decimal,
        )
    except RecursionError:
        raise ValueError(_too_deep()) from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    _check_depth(value)
    return value


def serialize(value: Any) -> bytes:
    """Return a value as compact JSON. Raises ValueError for texts that are not Unicode."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair, which is no character") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise ValueError(f"the name {twice[:100]!r} is twice in one object")
    return made


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _integer(digits: str) -> int:
    if len(digits) > DIGITS_MAX:
        raise ValueError(f"a number has more than {DIGITS_MAX} digits")
    return int(digits)


def _decimal(digits: str) -> float:
    number = float(digits)
    if number in (float("inf"), float("-inf")) or len(digits) > DIGITS_MAX:
        raise ValueError(f"the number {digits[:40]} is out of range")
    return number


def _check_depth(value: Any) -> None:
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        level = [
            inner
            for each in level
            if isinstance(each, dict | list)
            for inner in (each.values() if isinstance(each, dict) else each)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return
    raise ValueError(_too_deep())


def _too_deep() -> str:
    return f"arrays and objects are nested more than {DEPTH_MAX} deep"
