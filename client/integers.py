"""Numbers on their way into a request's field, which holds no others."""

from __future__ import annotations

from operator import index
from typing import Final

from tarry.client.errors import Refused

UINT32_MAX: Final = (1 << 32) - 1
INT64_MAX: Final = (1 << 63) - 1
UINT64_MAX: Final = (1 << 64) - 1


def whole(
    name: str, value: int, refusal: type[Refused], reason: str, highest: int = UINT32_MAX, lowest: int = 0
) -> int:
    """Return the number; raises the refusal for anything but a whole number of ``lowest`` to ``highest``."""
    try:
        number = index(value)
    except TypeError:
        number = lowest - 1
    if not lowest <= number <= highest:
        raise refusal(reason, f"{name} must be a whole number from {lowest} to {highest}, not {value!r}")
    return number
