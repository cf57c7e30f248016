"""Power that is lost at a call of the disk, any of them in turn, and what that leaves of the files.

What was synced stays. Of the rest anything may be left: bytes, names, and renames, in their order.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tarry.proto import files
from tests.simulation.disk import unsynced
from tests.simulation.synced_files import SyncedFiles
from tests.simulation.torn_files import tear_all

CALLS: Final = (
    "write", "pwrite", "writev", "pwritev", "fsync", "fdatasync", "truncate", "ftruncate", "rename",
    "replace", "unlink", "rmdir", "mkdir", "posix_fallocate",
)  # fmt: skip
LOSSES_MAX: Final = 500


class PowerLost(BaseException):
    """Nothing goes on: no handler of errors does its work any more."""


class Power:
    """Goes at one call, and stays away."""

    def __init__(self, at: int) -> None:
        self._left = at
        self.is_lost = False

    def use(self) -> None:
        """Count a call, or any other step. Raises PowerLost."""
        self._left -= 1
        if self._left < 0:
            self.is_lost = True
        if self.is_lost:
            raise PowerLost

    @contextmanager
    def supplied(self) -> Iterator[None]:
        """Let each call of the disk need it."""

        def needing(call: Callable[..., Any]) -> Callable[..., Any]:
            def run(*arguments: Any, **named: Any) -> Any:
                self.use()
                return call(*arguments, **named)

            return run

        with pytest.MonkeyPatch.context() as patched:
            for name in CALLS:
                patched.setattr(os, name, needing(getattr(os, name)))
            patched.setattr(files, "_fallocate", needing(files._fallocate or (lambda *_: 0)))
            yield


def losses(
    folder: Path, begin: Callable[[Path], None], play: Callable[[Path, Power], None]
) -> Iterator[tuple[Path, bool]]:
    """Play with the power lost at each call in turn; yield the folder as it is then, and whether it was lost.

    Each play has a folder that `begin` has made, all of it synced. Yields twice for each call: with the least
    that may be left, which is what was synced, and with some of the rest. The last play ends by itself.
    """
    for at in range(LOSSES_MAX):
        for chance in (None, random.Random(at)):
            disk = folder / f"{at} {'least' if chance is None else 'some'}"
            data = disk / "node"
            synced, power = SyncedFiles(disk), Power(at)
            with unsynced():
                begin(data)
                synced.watch()
                try:
                    for path in (data, *data.rglob("*")):
                        files.sync_path(path)
                    with suppress(PowerLost), power.supplied():
                        play(data, power)
                    if power.is_lost:
                        tear_all(data, synced, chance or Least())
                finally:
                    synced.unwatch()
            yield data, power.is_lost
            if not power.is_lost:
                return
    raise AssertionError(f"more than {LOSSES_MAX} calls")


class Least(random.Random):
    """Draws what leaves nothing but what was synced."""

    def random(self) -> float:
        return 0.0

    def choice(self, seq: Any) -> Any:
        return seq[0]

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        return start if stop is not None else 0
