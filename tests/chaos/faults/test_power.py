"""A loss of power takes what was not flushed, and nothing else."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tarry.chaos.faults import power
from tarry.chaos.faults.disks import no_compiler
from tarry.client.local.cluster import LocalNode

CHANCE = range(20)
WRITES = """
import os, pathlib, sys
folder = pathlib.Path(sys.argv[1]); folder.mkdir(parents=True)
fd = os.open(folder / "1.wal", os.O_RDWR | os.O_CREAT)
os.posix_fallocate(fd, 0, 1 << 16)
os.pwrite(fd, b"a" * 700, 0)
other = os.open(folder / "1.wal", os.O_RDWR)
os.fdatasync(other)
os.pwrite(fd, b"b" * 5000, 700)
"""


def test_ends_of_files_are_the_highest_since_they_were_new() -> None:
    assert power.flushed_ends("7 0\n7 100\n9 50\n7 300\n7 200\n") == {7: 300, 9: 50}
    assert power.flushed_ends("7 300\n7 0\n") == {7: 0}
    assert power.flushed_ends("7 300\n7 0\n7 64\n") == {7: 64}


@pytest.mark.parametrize("seed", CHANCE)
def test_of_what_was_not_flushed_any_sectors_are_left(seed: int) -> None:
    data = b"x" * 5_000 + bytes(1_000)
    left = power.unflushed_left(data, 700, random.Random(seed))
    assert len(left) == len(data)
    for begin, end in pairwise((700, *range(1_024, 5_700, 512), 5_700)):
        assert len(set(left[begin - 700 : end - 700])) == 1
    assert left[5_000:] == bytes(1_000)


def test_some_losses_take_something_and_some_leave_something() -> None:
    left = {power.unflushed_left(b"x" * 600, 0, random.Random(seed)) for seed in CHANCE}
    assert len(left) == 4  # two sectors, each left or not


@pytest.mark.skipif(bool(no_compiler()), reason=no_compiler())
def test_what_a_process_has_synced_stays_and_what_it_wrote_behind_that_may_go(tmp_path: Path) -> None:
    node = LocalNode("n1", "", "", tmp_path / "n1")
    power.give_power(node)
    boot = (tmp_path / "n1.boot").read_text()
    command = [sys.executable, "-c", WRITES, str(node.folder / "journal")]
    subprocess.run(command, check=True, env={**os.environ, **node.environment})
    lost_bytes = power.lose(node, random.Random(1))
    data = (node.folder / "journal" / "1.wal").read_bytes()
    assert data[:700] == b"a" * 700
    assert lost_bytes == data[700:5_700].count(0) > 0
    assert len(data) == 1 << 16
    assert (tmp_path / "n1.boot").read_text() != boot
