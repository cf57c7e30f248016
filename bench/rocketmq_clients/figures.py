"""Figures of what a program told, and their comparison between the systems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

Figures: TypeAlias = dict[str, float]
UNITS = {
    "rate_per_s": "messages a second from all tasks",
    "single_p50_ms": "one message, p50, ms",
    "late_p50_ms": "late at a steady rate, p50, ms",
    "late_p99_ms": "late at a steady rate, p99, ms",
    "crowd_p50_ms": "late of a crowd, p50, ms",
    "crowd_last_ms": "late of a crowd, the last, ms",
    "failed": "refused, answered too late or not come",
}
"""What each figure is, in the order of the table."""


def figures(parts: Mapping[str, Sequence[Any]]) -> Figures:
    """Return the figures of the parts of `programs/measure.py`. Raises KeyError: a part is missing."""
    sent, failed, took_ms = parts["rate"]
    (singles_ms,) = parts["single"]
    late_failed, late_missing, late_ms = parts["late"]
    crowd_failed, crowd_missing, crowd_ms = parts["crowd"]
    return {
        "rate_per_s": sent / took_ms * 1_000,
        "single_p50_ms": _quantile(singles_ms, 0.5),
        "late_p50_ms": _quantile(late_ms, 0.5),
        "late_p99_ms": _quantile(late_ms, 0.99),
        "crowd_p50_ms": _quantile(crowd_ms, 0.5),
        "crowd_last_ms": _quantile(crowd_ms, 1.0),
        "failed": failed + late_failed + late_missing + crowd_failed + crowd_missing,
    }


def _quantile(values: Sequence[float], share: float) -> float:
    return float(np.quantile(values, share)) if values else float("nan")


def medians(turns: Sequence[Figures]) -> Figures:
    """Return each figure's median over the turns."""
    return {name: round(float(np.median([one[name] for one in turns])), 2) for name in UNITS}


def ratios(one: Sequence[Figures], other: Sequence[Figures]) -> Figures:
    """Return each figure's ratio of one system to the other within a pair of turns; the medians."""
    with np.errstate(all="ignore"):
        pairs = {name: [_ratio(a[name], b[name]) for a, b in zip(one, other, strict=True)] for name in UNITS}
    return {name: round(float(np.median(values)), 3) for name, values in pairs.items() if name != "failed"}


def _ratio(one: float, other: float) -> float:
    return one / other if other else float("nan")
