"""Prometheus' text format, made in pieces, so that a page of 60,000 samples holds no turn up.

The lines are those of prometheus_client's ``generate_latest``, which knows only whole pages.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Final

from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4
PIECE_SAMPLES: Final = 200
"""Of one turn: 2 ms on a slow machine."""
FAMILY_SAMPLES: Final = 10
"""What the head of a family counts as, so that a turn has few families, too."""
SEPARATE_SUFFIXES: Final = ("_created", "_gcount", "_gsum")
"""Suffixes of samples that the format shows as gauges behind their family, in this order."""


async def render(families: Iterable[Metric], piece_samples: int = PIECE_SAMPLES) -> bytes:
    """Return the page of the families, in their order, with a turn for each piece.

    Their ``samples`` may be any iterable: if it makes them one by one, that is spread over the turns, too.
    """
    pieces, weight = [], 0
    for piece in _pieces(families, piece_samples):
        pieces.append(piece.text)
        weight += piece.samples + FAMILY_SAMPLES
        if weight >= piece_samples:
            weight = 0
            await asyncio.sleep(0)
    return b"".join(pieces)


@dataclass(frozen=True, slots=True)
class _Piece:
    """A part of the page, and how many samples went into it."""

    text: bytes
    samples: int


@dataclass(frozen=True, slots=True)
class _Registry:
    """A family in the shape that ``generate_latest`` wants to be given."""

    family: Metric

    def collect(self) -> Iterator[Metric]:
        yield self.family


def _pieces(families: Iterable[Metric], piece_samples: int) -> Iterator[_Piece]:
    for family in families:
        head = _text(family, [])
        yield _Piece(head, 0)
        apart: dict[str, list[Sample]] = {family.name + suffix: [] for suffix in SEPARATE_SUFFIXES}
        samples = iter(family.samples)
        while some := list(islice(samples, piece_samples)):
            for sample in some:
                if sample.name in apart:
                    apart[sample.name].append(sample)
            own = [sample for sample in some if sample.name not in apart]
            yield _Piece(_text(family, own)[len(head) :], len(some))
        for name, behind in apart.items():
            if behind:
                yield from _pieces([_gauge(family, name, behind)], piece_samples)


def _gauge(family: Metric, name: str, samples: list[Sample]) -> Metric:
    """Return what the format makes of a family's samples of such a name: a gauge of that name."""
    gauge = _with(family, samples)
    gauge.name, gauge.type = name, "gauge"
    return gauge


def _text(family: Metric, samples: list[Sample]) -> bytes:
    return generate_latest(_Registry(_with(family, samples)))


def _with(family: Metric, samples: list[Sample]) -> Metric:
    """Return the family with other samples; not made anew, since that would change some names."""
    other = copy.copy(family)
    other.samples = samples
    return other
