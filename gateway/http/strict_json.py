"""JSON that cannot be misread: UTF-8, no name twice in an object, no NaN, a bounded depth."""

from __future__ import annotations

import json
import re
import sys
from itertools import pairwise
from typing import Any, Final, NoReturn

import numpy as np

DEPTH_MAX: Final = 32
"""Arrays and objects in one another."""

_TEXT: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)
"""A text; one without an end goes to the end, so that no second look begins within it."""
_STEPS: Final = np.zeros(256, dtype=np.int32)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


class _Misread(ValueError):
    """JSON that another program might read otherwise."""


def parse(raw: bytes) -> Any:
    """Return the value. Raises ValueError, whose text says what is wrong."""
    if _depth(raw) > DEPTH_MAX:  # looked at first: the parser calls itself for each level
        raise ValueError(f"arrays and objects are nested more than {DEPTH_MAX} deep")
    try:
        return json.loads(
            raw.decode(), object_pairs_hook=_object, parse_constant=_no_constant, parse_float=_decimal
        )
    except UnicodeDecodeError as error:
        raise ValueError(f"byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at line {error.lineno}, column {error.colno}") from None
    except _Misread:
        raise
    except ValueError:  # of int(), which is quadratic
        raise ValueError(f"a number has more than {sys.get_int_max_str_digits():,} digits") from None


def serialize(value: Any) -> bytes:
    """Return a value as compact JSON. Raises ValueError for texts that are not Unicode."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        raise ValueError("a text has half of a surrogate pair, which is no character") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        names = sorted(name for name, _ in pairs)
        twice = next(name for name, other in pairwise(names) if name == other)
        raise _Misread(f"the name {twice[:100]!r} is twice in one object")
    return made


def _no_constant(name: str) -> NoReturn:
    raise _Misread(f"{name} is no JSON")


def _decimal(digits: str) -> float:
    number = float(digits)
    if number - number != 0.0:
        raise _Misread(f"the number {digits[:40]} is out of range")
    return number


def _depth(raw: bytes) -> int:
    """Return the depth of JSON; of what is none, any number."""
    structure = np.frombuffer(_TEXT.sub(b"", raw), dtype=np.uint8)
    return int(np.cumsum(_STEPS[structure], dtype=np.int32).max(initial=0))
