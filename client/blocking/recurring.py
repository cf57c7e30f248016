"""The blocking keeper of schedules that recur."""

from __future__ import annotations

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import blocking, iterating
from tarry.client.recurring.recurring import Recurring as AsyncRecurring


class Recurring:
    """Keeps schedules that recur. Made by ``Client.recurring``.

    Who may produce to a schedule's topic may do all that is here with the schedule. It needs a cluster of
    level 2: below there are no schedules, and ``put`` raises UpgradeRefused.
    """

    def __init__(self, recurring: AsyncRecurring, thread: LoopThread) -> None:
        self._twin = recurring
        self._thread = thread

    put = blocking(AsyncRecurring.put)
    get = blocking(AsyncRecurring.get)
    history = blocking(AsyncRecurring.history)
    list_page = blocking(AsyncRecurring.list_page)
    pause = blocking(AsyncRecurring.pause)
    resume = blocking(AsyncRecurring.resume)
    trigger = blocking(AsyncRecurring.trigger)
    delete = blocking(AsyncRecurring.delete)
    next_fires = blocking(AsyncRecurring.next_fires)

    list = iterating(AsyncRecurring.list)
