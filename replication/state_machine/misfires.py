"""Misfires: what came due while the cluster was down or its clock behind, and is released too late."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tarry.proto.tarry_operator_pb2 import MisfirePolicy, TopicSettings


@dataclass(frozen=True, slots=True, eq=False)
class Parts:
    """Released units, divided by what is done with them."""

    kept: NDArray[np.void]
    dead: NDArray[np.void]
    dropped: NDArray[np.void]
    catching_up: int = 0
    """So many of those kept, the first, are released at the rate for catching up."""


def divide(units: NDArray[np.void], settings: TopicSettings, now_ms: int) -> Parts:
    """Divide ready units, released now, in the order of their due times, as their topic's settings say."""
    after_ms = settings.misfire_after_ms
    misfired = int(np.count_nonzero(now_ms - units["due_ms"] > after_ms)) if after_ms else 0
    none = units[:0]
    match settings.misfire if misfired else MisfirePolicy.MISFIRE_POLICY_UNSPECIFIED:
        case MisfirePolicy.MISFIRE_POLICY_DROP:
            return Parts(units[misfired:], none, units[:misfired])
        case MisfirePolicy.MISFIRE_POLICY_DEAD_LETTER:
            return Parts(units[misfired:], units[:misfired], none)
        case MisfirePolicy.MISFIRE_POLICY_CATCH_UP:
            return Parts(units, none, none, catching_up=misfired)
        case _:
            return Parts(units, none, none)
