"""Sets of numbers as roaring bitmaps, asked and given as arrays."""

from __future__ import annotations

from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap, BitMap64

from tarry.wheel.state import Flags, Numbers

_SEARCHED: Final = 16  # a bitmap of up to so many members for each that is looked up is unpacked and searched


@overload
def members(bitmap: BitMap) -> Numbers: ...
@overload
def members(bitmap: BitMap64) -> NDArray[np.uint64]: ...
def members(bitmap: BitMap | BitMap64) -> NDArray[Any]:
    """Return the members, ascending."""
    listed = bitmap.to_array()
    return np.frombuffer(listed, listed.typecode)


def contains(bitmap: BitMap | BitMap64, numbers: NDArray[Any]) -> Flags:
    """Flag the numbers, shape (n,), that are members."""
    if not bitmap:
        return np.zeros(len(numbers), np.bool_)
    if len(bitmap) > _SEARCHED * len(numbers):
        return np.fromiter(map(bitmap.__contains__, numbers.tolist()), np.bool_, len(numbers))
    ascending = members(bitmap)
    found: Flags = ascending.take(np.searchsorted(ascending, numbers), mode="clip") == numbers
    return found


def loaded(serialized: bytes) -> BitMap:
    """Return the set that `serialized` gave; no bytes are the empty one."""
    return BitMap.deserialize(serialized) if serialized else BitMap()


def serialized(bitmap: BitMap) -> bytes:
    """Return the set as bytes; none where it is empty."""
    return bytes(bitmap.serialize()) if bitmap else b""
