"""Figures of what a program told, and their comparison between the systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Figures: TypeAlias = dict[str, float | None]
"""By name; None: nothing came of which it could be told."""
UNITS = {
    "rate_per_s": "messages a second from all tasks",
    "single_p50_ms": "one message, p50, ms",
    "late_p50_ms": "late at a steady rate, p50, ms",
    "late_p99_ms": "late at a steady rate, p99, ms",
    "crowd_p50_ms": "late of a crowd, p50, ms",
    "crowd_last_ms": "late of a crowd, the last, ms",
    "early": "came before it was due",
    "failed": "refused, answered too late or not come",
}
"""What each figure is, in the order of the table."""
COUNTS = {"early", "failed"}
"""Figures that have no ratio: they should be 0."""


def figures(parts: Mapping[str, Sequence[Any]]) -> Figures:
    """Return the figures of the parts of `programs/measure.py`; what came early was not late.

    Raises KeyError: a part is missing.
    """
    sent, failed, took_ms = parts["rate"]
    single_failed, singles_ms = parts["single"]
    late_failed, late_missing, late_ms = parts["late"]
    crowd_failed, crowd_missing, crowd_ms = parts["crowd"]
    return {
        "rate_per_s": sent / took_ms * 1_000,
        "single_p50_ms": _quantile(singles_ms, 0.5),
        "late_p50_ms": _quantile(_late(late_ms), 0.5),
        "late_p99_ms": _quantile(_late(late_ms), 0.99),
        "crowd_p50_ms": _quantile(_late(crowd_ms), 0.5),
        "crowd_last_ms": _quantile(_late(crowd_ms), 1.0),
        "early": sum(late < 0 for late in [*late_ms, *crowd_ms]),
        "failed": failed + single_failed + late_failed + late_missing + crowd_failed + crowd_missing,
    }


def _late(signed_ms: Sequence[float]) -> list[float]:
    return [max(each, 0.0) for each in signed_ms]


def _quantile(values: Sequence[float], share: float) -> float | None:
    return float(np.quantile(values, share)) if values else None


def medians(turns: Sequence[Figures]) -> Figures:
    """Return each figure's median over the turns that have it."""
    return {name: _median([one[name] for one in turns], 2) for name in UNITS}


def ratios(one: Sequence[Figures], other: Sequence[Figures]) -> Figures:
    """Return each figure's ratio of one system to the other within a pair of turns; the medians.

    A pair of which only one turn was measured has none.
    """
    pairs = list(zip(one, other, strict=False))
    return {
        name: _median([_ratio(a[name], b[name]) for a, b in pairs], 3) for name in UNITS if name not in COUNTS
    }


def _median(values: Sequence[float | None], decimals: int) -> float | None:
    there = [value for value in values if value is not None]
    return round(float(np.median(there)), decimals) if there else None


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one is not None and other else None
