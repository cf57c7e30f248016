"""What the simulation's losses of power may leave of files."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.simulation.synced_files import SyncedFiles
from tests.simulation.torn_files import tear_all


def write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@pytest.mark.parametrize("seed", range(20))
def test_what_was_renamed_to_a_synced_name_is_there_however_often_the_power_is_lost(
    tmp_path: Path, seed: int
) -> None:
    """The name is of one file or the other, and of the same from then on, though nothing is synced again."""
    folder, synced, rng = tmp_path / "n1", SyncedFiles(tmp_path), random.Random(seed)
    folder.mkdir()
    synced.watch()
    try:
        write(folder / "index", b"old")
        folder_fd = os.open(folder, os.O_RDONLY)
        os.fsync(folder_fd)
        os.close(folder_fd)
        write(folder / "new", b"new")
        (folder / "new").replace(folder / "index")
        tear_all(folder, synced, rng)
        left = (folder / "index").read_bytes()
        assert left in {b"old", b"new"}
        for _ in range(3):
            tear_all(folder, synced, rng)
            assert (folder / "index").read_bytes() == left
    finally:
        synced.unwatch()
