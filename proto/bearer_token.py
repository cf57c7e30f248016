"""Bearer tokens in the metadata of calls."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from typing import Any, Final

KEY: Final = "authorization"


def metadata(token: str | None, key: str = KEY) -> tuple[tuple[str, str], ...]:
    """Return the metadata of a call that shows a token; empty where there is none."""
    return ((key, f"Bearer {token}"),) if token else ()


def shown(pairs: Any, key: str = KEY) -> bytes:
    """Return the token that a call's metadata (pairs, or None) shows; empty: none."""
    value = dict(pairs or ()).get(key)
    return value.removeprefix("Bearer ").encode() if isinstance(value, str) else b""


class PeerTokens:
    """Tokens between nodes: the one that this node shows, and further ones that it takes from others."""

    def __init__(self, token: str = "", accepted: Iterable[str] = ()) -> None:
        self.renew(token, accepted)

    def renew(self, token: str, accepted: Iterable[str]) -> None:
        """Show and take others from now on; where there are none, none is asked for."""
        self._token = token
        self.metadata = metadata(token)
        """Of this node's calls to others."""
        self._taken = [each.encode() for each in (token, *accepted) if each]

    def metadata_as(self, key: str) -> tuple[tuple[str, str], ...]:
        """Return the metadata that shows the token beside another caller's."""
        return metadata(self._token, key)

    def take(self, pairs: Any, key: str = KEY) -> bool:
        """Return whether a call's metadata shows one of them; takes the same time for any."""
        given = shown(pairs, key)
        return not self._taken or sum(hmac.compare_digest(token, given) for token in self._taken) > 0
