"""All groups share what a turn of the event loop may take for deliveries: those that come later wait."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias

Work: TypeAlias = Callable[[], None]

LOW: Final = 0.5
"""Once so little of a turn is left, the next one begins with a whole: not before, for that costs a turn."""


class TurnShare:
    """Does work at once while something of the turn is left, and the rest in the next ones, in its order.

    Parts of a turn are estimated by the work itself, so that a replay of a simulation does the same.
    """

    def __init__(self) -> None:
        self.left = 1.0
        """Of the turn; what was used in the turns since it was a whole counts too."""
        self._waiting: OrderedDict[Work, None] = OrderedDict()
        """Each once; the first of a plain dict is found ever more slowly while its first are deleted."""
        self._renews = False

    def do(self, work: Work) -> None:
        """Do the work, now or in a later turn; once, where it waits already."""
        if self.left > 0:
            work()
        else:
            self._waiting[work] = None

    async def done(self, work: Work) -> None:
        """Return once the work is done."""
        over = asyncio.Event()

        def tell() -> None:
            work()
            over.set()

        self.do(tell)
        await over.wait()

    def spend(self, part: float) -> None:
        """Count work that takes so much of the turn."""
        self.left -= part
        if self.left < LOW and not self._renews:
            self._renews = True
            asyncio.get_running_loop().call_soon(self._renew)

    def _renew(self) -> None:
        self._renews = False
        self.left = 1.0
        while self._waiting and self.left > 0:
            work, _ = self._waiting.popitem(last=False)
            work()
