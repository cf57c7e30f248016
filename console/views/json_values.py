"""Values of a file of JSON that anybody may have written: each is checked for its kind, and cut."""

from __future__ import annotations

import json
from typing import Any, Final

TEXT_CHARACTERS_MAX: Final = 500
NUMBER_MAX: Final = 2**63


def object_of(text: bytes | None) -> dict[str, Any] | None:
    """Return the object that a file is; None: it is none, or there is no file."""
    try:
        told = json.loads(text) if text is not None else None
    except (ValueError, RecursionError):
        return None
    return told if isinstance(told, dict) else None


def number_of(value: object) -> int | None:
    """Return a whole number of 64 bits; None: it is none."""
    is_one = isinstance(value, int) and not isinstance(value, bool) and abs(value) < NUMBER_MAX
    return value if is_one else None  # type: ignore[return-value]


def text_of(value: object) -> str:
    """Return a text as UTF-8 has it, for JSON may name half a character; empty: it is none."""
    if not isinstance(value, str):
        return ""
    return value[:TEXT_CHARACTERS_MAX].encode(errors="replace").decode()
