"""Machines that lose their power: what a node had not flushed is lost, and the next boot id is another.

The library of `disks` notes up to where each file of a node was flushed. Of what lies behind that, a loss of
power leaves any sectors, and zeros in place of the others: segments of the journal are allocated beforehand.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tarry.chaos.faults import disks
from tarry.client.local.cluster import LocalNode

SECTOR_BYTES: Final = 512
LEFT: Final = 0.5
"""Share of the sectors behind the last flush that a loss of power leaves."""


def give_power(node: LocalNode) -> None:
    """Let the node's processes, from the next one on, run on a machine that `lose` can take the power of."""
    disks.give_disk(node)
    node.environment["TARRY_FLUSHED"] = str(_flushed(node))
    node.environment["TARRY_BOOT_ID_FILE"] = str(_boot(node))
    _boot(node).write_text(f"{node.name} 1")


def is_marked(node: LocalNode) -> bool:
    """Return whether the node has said that a loss of power may take something back."""
    return (node.folder / "journal" / "unflushed").exists()


def lose(node: LocalNode, chance: random.Random) -> int:
    """Take from a node that has been killed what it had not flushed; return how many bytes of it are gone."""
    flushed = flushed_ends(_flushed(node).read_text())
    _boot(node).write_text(f"{node.name} {chance.getrandbits(64):x}")
    return sum(_forget(path, flushed, chance) for path in sorted(node.folder.glob("journal/*.wal")))


def flushed_ends(notes: str) -> dict[int, int]:
    """Return up to where each file was flushed, by inode, of the library's notes in their order.

    Two syncs of a file may end in another order than they began; a file that is new begins from 0 again.
    """
    ends: dict[int, int] = {}
    for line in notes.splitlines():
        inode, end = map(int, line.split())
        ends[inode] = max(ends.get(inode, 0), end) if end else 0
    return ends


def _forget(path: Path, flushed: Mapping[int, int], chance: random.Random) -> int:
    with path.open("r+b") as file:
        end = flushed.get(os.fstat(file.fileno()).st_ino, 0)
        file.seek(end)
        before = file.read()
        left = unflushed_left(before, end, chance)
        file.seek(end)
        file.write(left)
    return left.count(0) - before.count(0)


def unflushed_left(data: bytes, begin: int, chance: random.Random) -> bytes:
    """Return what a loss of power leaves of unflushed bytes that begin at a place of their file."""
    written = len(data.rstrip(b"\0"))
    left, at = bytearray(data), 0
    while at < written:
        end = min(at + SECTOR_BYTES - (begin + at) % SECTOR_BYTES, len(data))
        if chance.random() >= LEFT:
            left[at:end] = bytes(end - at)
        at = end
    return bytes(left)


def _flushed(node: LocalNode) -> Path:
    return node.folder.with_name(f"{node.name}.flushed")


def _boot(node: LocalNode) -> Path:
    return node.folder.with_name(f"{node.name}.boot")
