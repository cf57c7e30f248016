"""Division of a refused batch into parts, and union of the answers to parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from tarry.client.errors import OutcomeUnknown, PartlyScheduled, Refused, TarryError
from tarry.client.results import ScheduledBatch


def parts_around(error: Refused, count: int) -> list[tuple[int, int]]:
    """Return the parts in which to send a refused batch again: halves, and the bad message alone if named."""
    named = error.facts.get("position", "")
    bad = int(named) if named.isdecimal() and int(named) < count else 0
    cuts = sorted({0, bad, bad + 1, count // 2, count})
    return list(pairwise(cuts))


def joined(starts: list[int], pieces: Sequence[ScheduledBatch | BaseException]) -> ScheduledBatch:
    """Return the union of the answers to parts of one batch that begin at ``starts``.

    Raises PartlyScheduled where some parts failed, and the first error where no message was scheduled.
    """
    taken = [piece for piece in pieces if isinstance(piece, ScheduledBatch)]
    if len(taken) == len(pieces):
        return ScheduledBatch.joined(taken)
    errors = [piece for piece in pieces if isinstance(piece, BaseException)]
    fault = next((error for error in errors if not isinstance(error, TarryError)), None)
    if fault is not None:
        raise fault
    if not taken and not any(isinstance(error, OutcomeUnknown) for error in errors):
        raise errors[0]
    text = f"{len(taken)} of {len(pieces)} pieces were taken; the first error: {errors[0]}"
    raise PartlyScheduled(text, starts, list(pieces)) from errors[0]
