"""Wrong wall clocks for real nodes, by libfaketime: set at any time, each node its own.

Only the wall clock is moved; the monotonic one, on which leases rest, stays right, as it does when an
operator or a bad time server sets a machine's clock.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from tarry.chaos.cluster.cluster import now_ms
from tarry.client.local.cluster import LocalNode

HOUR_MS = 3_600_000
START_MS = 13_000
INEXACT_MS = 50
"""Error of cluster time under a leader whose clock is wrong: it rests on round trips."""


class NoFakeTime(RuntimeError):
    """This machine has no libfaketime that fits; the package is there for Linux on x86-64 only."""


def library() -> Path:
    """Return the library to preload; raises NoFakeTime."""
    spec = find_spec("libfaketime")
    if spec is None or spec.origin is None:
        raise NoFakeTime("libfaketime is not installed")
    found = Path(spec.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"
    if not found.exists():
        raise NoFakeTime(f"libfaketime is installed without {found.name}")
    return found


def lacking() -> str:
    """Return why clocks cannot be set here; empty: they can."""
    try:
        library()
    except NoFakeTime as reason:
        return str(reason)
    return ""


def to_the_next_hour_ms() -> int:
    """Return how far to set clocks ahead so that the hour changes some seconds after a start."""
    return HOUR_MS - (now_ms() + START_MS) % HOUR_MS


def give_clock(node: LocalNode, ahead_ms: int = 0) -> None:
    """Let the node's next process have a wall clock of its own, set as told."""
    set_clock(node, ahead_ms)
    node.environment.update(
        {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(_file(node)),
            "FAKETIME_CACHE_DURATION": "1",  # seconds until the file is read again
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "DONT_FAKE_MONOTONIC": "1",  # its older name
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",  # the fix delays gRPC's own waits by seconds
        }
    )


def set_clock(node: LocalNode, ahead_ms: int, rate: float = 1.0) -> None:
    """Set the wall clock of a node that was given one: so much ahead of the right time, or behind.

    `rate`: seconds that it goes on by in a second.
    """
    fresh = _file(node).with_suffix(".fresh")
    fresh.write_text(f"{ahead_ms / 1000:+.3f}" + (f" x{rate:.4f}" if rate != 1.0 else ""))
    fresh.replace(_file(node))  # whole or not at all: the node reads it any time


def _file(node: LocalNode) -> Path:
    return node.folder.with_name(f"{node.name}.clock")
