"""Refusals: the answers that say no, as values.

Inside the server a refusal is returned, never raised; the gRPC edge turns it
into a status with google.rpc.ErrorInfo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from tarry.proto.reasons import Reason


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of a request: a reason, a text that says what to do, and facts that a program can use."""

    reason: Reason
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)
    retry_ms: int | None = None

    def of_rows(self, rows: NDArray[np.intp]) -> Refusal:
        """Return the refusal of some rows of a request, with the position that a row of them has in it."""
        if "position" not in self.facts:
            return self
        position = str(rows[int(self.facts["position"])])
        return replace(self, facts={**self.facts, "position": position})
