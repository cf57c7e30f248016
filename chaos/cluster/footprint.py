"""Memory, files and disk of a running node, as the kernel counts them (Linux)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BLOCK_BYTES = 512  # of st_blocks, whatever the file system's own are


@dataclass(frozen=True, slots=True)
class Footprint:
    """One look at a node. Bytes, but for `open_files`; those of a disk are what it has allocated."""

    rss: int  # of these: what is its own, and what is mapped from files
    anonymous: int
    mapped_files: int
    open_files: int
    journal: int
    hours: int
    ready: int
    ledger: int
    checkpoint: int


def footprint(pid: int, data: Path) -> Footprint:
    """Return what a node's process and data folder take now. Raises OSError if the process has ended."""
    status = Path(f"/proc/{pid}/status").read_text()
    kib = {line.partition(":")[0]: line.split()[1] for line in status.splitlines() if line.endswith(" kB")}
    return Footprint(
        rss=int(kib["VmRSS"]) << 10,
        anonymous=int(kib["RssAnon"]) << 10,
        mapped_files=(int(kib["RssFile"]) + int(kib["RssShmem"])) << 10,
        open_files=sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir()),
        journal=disk_bytes(data / "journal"),
        hours=sum(map(disk_bytes, data.glob("state-*/hours"))),
        ready=sum(map(disk_bytes, data.glob("state-*/ready"))),
        ledger=disk_bytes(data / "ledger"),
        checkpoint=sum(map(disk_bytes, data.glob("state-*/checkpoint"))),
    )


def disk_bytes(folder: Path) -> int:
    """Return what the files below a folder take of the disk; those that vanish meanwhile take nothing."""
    return sum(stat.st_blocks * BLOCK_BYTES for stat in _files(folder))


def _files(folder: Path) -> Iterator[os.stat_result]:
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    yield from _files(Path(entry))
                else:
                    yield entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return
