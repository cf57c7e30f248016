"""The blocking exports and imports."""

from __future__ import annotations

from tarry.client.blocking.loop_thread import LoopThread
from tarry.client.blocking.twin import iterating
from tarry.client.bulk.bulk import Bulk as AsyncBulk


class Bulk:
    """Exports what is pending to Parquet, and imports it and foreign schedules. Made by ``Client.bulk``."""

    def __init__(self, bulk: AsyncBulk, thread: LoopThread) -> None:
        self._twin = bulk
        self._thread = thread

    export = iterating(AsyncBulk.export)

    dry_run = iterating(AsyncBulk.dry_run)

    import_rows = iterating(AsyncBulk.import_rows)
