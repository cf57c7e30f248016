"""Bearer tokens in the metadata of calls."""

from __future__ import annotations

import hmac
from typing import Any, Final

KEY: Final = "authorization"


def metadata(token: str | None) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that shows a token; empty where there is none."""
    return ((KEY, f"Bearer {token}"),) if token else ()


def shown(pairs: Any) -> bytes:
    """Return the token that a call's metadata (pairs, or None) shows; empty: none."""
    value = dict(pairs or ()).get(KEY)
    return value.removeprefix("Bearer ").encode() if isinstance(value, str) else b""


def is_shown(token: str, pairs: Any) -> bool:
    """Return whether a call's metadata shows the token; takes the same time for any."""
    return hmac.compare_digest(token.encode(), shown(pairs))
