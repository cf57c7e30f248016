"""Disks that are full, slow to sync, fail to sync, decay or are gone."""

from __future__ import annotations

import errno
import os
import random
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tarry.client.local.cluster import LocalNode

SOURCE = Path(__file__).with_name("fsync.c")
PIECE = 1 << 16


def not_root() -> str:
    """Return why no small disk can be mounted."""
    return "" if os.geteuid() == 0 else "a disk of its own for a node takes root, who may mount a tmpfs"


def no_compiler() -> str:
    """Return why the slow disk cannot be built."""
    return "" if shutil.which("gcc") else "a slow or failing fsync is a small C library, and there is no gcc"


# A disk of its own


def mount_small(node: LocalNode, size_bytes: int) -> None:
    """Give a node that does not run yet a small tmpfs for its data."""
    node.folder.mkdir(parents=True, exist_ok=True)
    options = ["-t", "tmpfs", "-o", f"size={size_bytes}", "tarry-chaos", str(node.folder)]
    subprocess.run(["mount", *options], check=True)


def unmount(node: LocalNode) -> None:
    """Take it away again, with all that is on it but the ledger, for whoever reads the run's folder."""
    ledger = node.folder / "ledger"
    with tempfile.TemporaryDirectory(dir=node.folder.parent) as beside:
        kept = Path(beside) / "ledger"
        if ledger.is_dir():
            shutil.copytree(ledger, kept)
        subprocess.run(["umount", "--lazy", str(node.folder)], check=False)
        if kept.is_dir() and not ledger.exists():
            kept.rename(ledger)


def fill(node: LocalNode) -> None:
    """Use up what is free."""
    with _filler(node).open("ab", buffering=0) as file:
        while True:
            try:
                file.write(b"\0" * PIECE)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                return


def free(node: LocalNode) -> None:
    """Give it back."""
    _filler(node).unlink(missing_ok=True)


def _filler(node: LocalNode) -> Path:
    return node.folder / "filler"


# fsync


@cache
def shim(folder: Path) -> Path:
    """Return the library to preload, built into a folder."""
    library = folder / "fsync.so"
    command = ["gcc", "-shared", "-fPIC", "-O2", "-o", str(library), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


def give_disk(node: LocalNode) -> None:
    """Let the node's next process have a disk whose syncs `set_disk` slows down or fails.

    Goes together with a clock of its own (libfaketime): both are preloaded.
    """
    set_disk(node)
    before = node.environment.get("LD_PRELOAD", "")
    library = str(shim(node.folder.parent))
    node.environment["LD_PRELOAD"] = f"{before}:{library}" if before else library
    node.environment["TARRY_FSYNC"] = str(_told(node))


def slow_syncs(folder: Path, delay_ms: int) -> dict[str, str]:
    """Return the environment of processes whose every sync takes `delay_ms` longer; the folder stays."""
    told = folder / "fsync"
    _tell(told, delay_ms, error=0)
    return {"LD_PRELOAD": str(shim(folder)), "TARRY_FSYNC": str(told)}


def set_disk(node: LocalNode, delay_ms: int = 0, error: int = 0) -> None:
    """Make every sync take `delay_ms` longer from now on, and fail with an errno, if any."""
    _tell(_told(node), delay_ms, error)


def _tell(told: Path, delay_ms: int, error: int) -> None:
    fresh = told.with_suffix(".fresh")
    fresh.write_text(f"{delay_ms} {error}\n")
    fresh.replace(told)


def _told(node: LocalNode) -> Path:
    return node.folder.with_name(f"{node.name}.fsync")


# While a node is down


def flip_bits(node: LocalNode, chance: random.Random, pattern: str, count: int) -> int:
    """Turn random bits in the files of a pattern; return how many were turned."""
    files = [path for path in sorted(node.folder.glob(pattern)) if path.stat().st_size]
    for _ in range(count if files else 0):
        path = chance.choice(files)
        with path.open("r+b") as file:
            place = chance.randrange(path.stat().st_size)
            file.seek(place)
            (byte,) = file.read(1)
            file.seek(place)
            file.write(bytes([byte ^ 1 << chance.randrange(8)]))
    return count if files else 0


def tear(node: LocalNode, chance: random.Random, pattern: str) -> int:
    """Cut a random number of bytes off the end of each file of a pattern; return how many files."""
    files = [path for path in sorted(node.folder.glob(pattern)) if path.stat().st_size]
    for path in files:
        os.truncate(path, chance.randrange(path.stat().st_size))
    return len(files)


def wipe(node: LocalNode) -> None:
    """Remove all data of a node that is down."""
    shutil.rmtree(node.folder)
