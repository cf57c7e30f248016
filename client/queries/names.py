"""Tags and keys that a query names: a text alone is not taken for the list of its characters."""

from __future__ import annotations

from collections.abc import Iterable

from tarry.client.errors import Refused
from tarry.proto.reasons import Reason


def named(what: str, values: Iterable[str], refusal: type[Refused]) -> list[str]:
    """Return them as a list. Raises the refusal for what is no list of texts."""
    is_list = isinstance(values, Iterable) and not isinstance(values, str | bytes)
    names = list(values) if is_list else []
    if not is_list or not all(isinstance(name, str) for name in names):
        raise refusal(Reason.QUERY_INVALID, f"{what} must be a list of texts, not {values!r}")
    return names
