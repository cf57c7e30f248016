"""Plausibility of terms: those that elections can have led to.

A term only grows, is on disk, and is told to whoever speaks in a lower one. So one absurd term, from a bug or
a hostile peer, would go round the cluster for good, and no election could follow it.
"""

from __future__ import annotations

from typing import Final

from tarry.proto.tarry_peer_pb2 import PeerMessage

TERM_END: Final = 1 << 63
TERM_STEP_MAX: Final = 1 << 32
"""Elections at one a millisecond take 49 days for as many."""


def is_plausible(term: int, own: int) -> bool:
    """Return whether a replica of term `own` is to believe in `term`; one that has none yet learns any."""
    return term < TERM_END and (own == 0 or term <= own + TERM_STEP_MAX)


def highest(message: PeerMessage) -> int:
    """Return the highest term that a message names; 0: it names none."""
    kind = message.WhichOneof("body")
    body = getattr(message, kind) if kind is not None else message
    named = [getattr(body, name, 0) for name in ("term", "last_term", "prev_term")]
    named.extend(entry.term for entry in message.append.entries)
    return max(named)


def mended(last_term: int) -> int | None:
    """Return the term from which a replica goes on whose own one is absurd; None: so are its entries'.

    It is above every term in which anybody has voted, and so as good as any: no candidate of a term of before
    can win with this replica's vote. Who has committed in a term beyond `TERM_END` has entries of it.
    """
    return last_term + TERM_STEP_MAX // 2 if last_term < TERM_END // 2 else None
