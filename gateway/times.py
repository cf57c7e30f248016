"""Times as HTTP clients write them: milliseconds since the epoch, or ISO 8601 with a zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CUT: Final = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
"""A fraction with digits that datetime cuts off: those behind the microseconds."""


def time_ms(text: str) -> int:
    """Return the milliseconds of an ISO 8601 time, rounded up: never early. Raises ValueError."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text[:60]!r} is no time such as 2026-12-01T09:00:00Z") from None
    if time.tzinfo is None:
        raise ValueError(f"{text[:60]!r} has no zone: end it with Z for UTC, or with +01:00")
    more = timedelta(microseconds=1 if _CUT.search(text) else 0)
    return -((_EPOCH - time - more) // timedelta(milliseconds=1))
