"""Memory that the node has freed, and what gives it back to the system.

glibc keeps freed pieces of less than 32 MiB for later ones. A node with 10 million pending messages makes
larger arrays for a moment than one with 100,000, and held some 20 MiB more ever after. Smaller thresholds
(mallopt(3)) give such pieces back at once, and cost large batches 5 to 20 % of their processor's time; two
arenas instead of eight a processor leave less between pieces that stay, and cost single messages 9 %.
malloc_trim(3) now and then costs the page faults of what is used again.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final

from tarry.replication.blocking import in_thread
from tarry.replication.durations import Durations

KEPT_BYTES: Final = 1 << 20
"""What stays at the heap's end for the next pieces."""


def trim() -> Callable[[], None]:
    """Return what gives back the pages of all that is free; where the C library cannot, it does nothing."""
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is None:
        return lambda: None
    return lambda: malloc_trim(ctypes.c_size_t(KEPT_BYTES))


async def run(checkpoints: Durations, every_ms: int) -> None:
    """Give back, in a thread, what is free after checkpoints: what came since has been written by then.

    `every_ms`: how often is looked whether there was one.
    """
    give_back, seen_s = trim(), checkpoints.sum_s
    while True:
        await asyncio.sleep(every_ms / 1000)
        if checkpoints.sum_s != seen_s:
            seen_s = checkpoints.sum_s
            await in_thread(give_back)
