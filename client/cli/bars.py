"""Bars of text: a column for each of some counts, in eighths of a line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_BLOCKS: Final = " ▁▂▃▄▅▆▇█"
_EIGHTHS: Final = len(_BLOCKS) - 1


def bars(counts: Sequence[int], height: int) -> list[str]:
    """Return so many lines, the top one first.

    The greatest count fills its column; one that is not 0 is seen, however small it is beside that.
    """
    most = max(counts, default=0)
    heights = [max(1, round(count * height * _EIGHTHS / most)) if count else 0 for count in counts]
    return [
        "".join(_BLOCKS[min(max(of - _EIGHTHS * line, 0), _EIGHTHS)] for of in heights)
        for line in reversed(range(height))
    ]
