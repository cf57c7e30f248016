"""What the simulation's losses of power may leave of files."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulation.synced_files import SyncedFiles
from tests.simulation.torn_files import tear_all


def write(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sync_names(folder: Path) -> None:
    folder_fd = os.open(folder, os.O_RDONLY)
    os.fsync(folder_fd)
    os.close(folder_fd)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def synced(tmp_path: Path) -> Iterator[SyncedFiles]:
    """What listens to the syncs of a node, whose folder is ``n1``."""
    (tmp_path / "n1").mkdir()
    watching = SyncedFiles(tmp_path)
    watching.watch()
    yield watching
    watching.unwatch()


@pytest.mark.parametrize("seed", range(20))
def test_what_was_renamed_to_a_synced_name_is_there_however_often_the_power_is_lost(
    tmp_path: Path, synced: SyncedFiles, seed: int
) -> None:
    """The name is of one file or the other, and of the same from then on, though nothing is synced again."""
    folder, rng = tmp_path / "n1", random.Random(seed)
    write(folder / "index", b"old")
    sync_names(folder)
    write(folder / "new", b"new")
    (folder / "new").replace(folder / "index")
    tear_all(folder, synced, rng)
    left = (folder / "index").read_bytes()
    assert left in {b"old", b"new"}
    for _ in range(3):
        tear_all(folder, synced, rng)
        assert (folder / "index").read_bytes() == left


def test_what_was_renamed_to_a_name_that_was_never_synced_may_leave_neither_file(
    tmp_path: Path, synced: SyncedFiles
) -> None:
    folder, left = tmp_path / "n1", set()
    for seed in range(200):
        write(folder / "index", b"old")
        write(folder / "new", b"new")
        (folder / "new").replace(folder / "index")
        tear_all(folder, synced, random.Random(seed))
        left.add(tuple(sorted(contents(folder).items())))
        for path in folder.iterdir():
            path.unlink()
        sync_names(folder)
    old, new, whole = ("index", b"old"), ("new", b"new"), ("index", b"new")
    assert left == {(), (old,), (new,), (old, new), (whole,)}


@pytest.mark.parametrize("seed", range(20))
def test_a_loss_of_power_takes_nothing_that_an_earlier_one_has_left(
    tmp_path: Path, synced: SyncedFiles, seed: int
) -> None:
    """Nothing is written between them: what is there is on the disk, synced or not."""
    folder, rng = tmp_path / "n1", random.Random(seed)
    for number in range(5):
        (folder / f"never-synced-{number}").write_bytes(bytes(1_000))
        write(folder / f"grown-{number}", b"synced")
    sync_names(folder)
    for number in range(5):
        with (folder / f"grown-{number}").open("ab") as file:
            file.write(bytes(1_000))
        write(folder / f"made-{number}", b"synced")
        (folder / f"made-{number}").rename(folder / f"named-{number}")
    tear_all(folder, synced, rng)
    left = contents(folder)
    for _ in range(3):
        tear_all(folder, synced, rng)
        assert contents(folder) == left
