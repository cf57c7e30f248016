"""Forks of processes that have used a client. gRPC keeps a thread for all its channels, and a fork has none.

So in a child of a process that has made a channel, open or closed since, no call comes to its end.
"""

from __future__ import annotations

import os
from typing import Final

FORKED: Final = (
    "this process was forked from one that had used a client of tarry, which gRPC does not survive: "
    "fork before the first use of a client, or start processes with 'spawn'"
)


class Process:
    """This process, without asking the system each time."""

    id = os.getpid()
    has_channels = False
    """It has made some."""
    lost_channels = False
    """The one that it was forked from had."""


def _forked() -> None:
    Process.id = os.getpid()
    Process.lost_channels |= Process.has_channels


if hasattr(os, "register_at_fork"):  # where a system has forks
    os.register_at_fork(after_in_child=_forked)


def begin_channels() -> None:
    """Note that this process makes channels. Raises RuntimeError where it cannot use any."""
    if Process.lost_channels:
        raise RuntimeError(FORKED)
    Process.has_channels = True
