"""Scans of the wheel that wait for the next page of their listing, so that it need not look again."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from typing import Final, NamedTuple, TypeAlias

from tarry.wheel.due_scan import DueScan
from tarry.wheel.state import Cut
from tarry.wheel.wheel import Wheel

SCANS_MAX: Final = 8
"""Of some 0.8 MB each."""
IDLE_S: Final = 30.0
"""After which a scan that no page asked for is dropped."""

Key: TypeAlias = tuple[int, Hashable]
"""Term of the leadership, and the listing, with all that chooses its messages: numbers can be guessed."""


class _Kept(NamedTuple):
    key: Key
    wheel: Wheel
    scan: DueScan
    since: Cut
    """It still has what it found behind this."""
    kept_s: float


class DueScans:
    """The scans of listings that go on, by number: a page takes its listing's, and keeps it for the next.

    A cursor names its scan, which has seen all that was there when its listing began. A listing whose scan is
    in use, dropped, or with another leader goes on with a new one.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._made = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, number: int, key: Key, wheel: Wheel, after: Cut) -> DueScan | None:
        """Return a listing's scan with what it has found behind a position; None: it has gone."""
        kept = self._kept.get(number)
        if kept is None or kept.key != key or kept.wheel is not wheel:
            return None
        if not kept.since <= after <= kept.scan.seen:
            return None
        del self._kept[number]
        kept.scan.forget(after)
        return kept.scan

    def keep(self, number: int, key: Key, wheel: Wheel, scan: DueScan, since: Cut) -> int:
        """Keep a scan under its number, 0: a new one; return that. Of too many the one kept first goes."""
        if not number:
            self._made += 1
            number = (key[0] << 32 | self._made) & 0xFFFF_FFFF_FFFF_FFFF
        loop = asyncio.get_running_loop()
        self._kept[number] = _Kept(key, wheel, scan, since, loop.time())
        if len(self._kept) > SCANS_MAX:
            self._kept.popitem(last=False)
        if self._timer is None:
            self._timer = loop.call_later(IDLE_S, self.drop_idle)
        return number

    def drop_idle(self) -> None:
        """Drop those that have been kept for IDLE_S, now and as long as there are others."""
        loop = asyncio.get_running_loop()
        before_s = loop.time() - IDLE_S
        for number in [number for number, kept in self._kept.items() if kept.kept_s <= before_s]:
            del self._kept[number]
        self._timer = loop.call_later(IDLE_S, self.drop_idle) if self._kept else None
