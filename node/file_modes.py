"""Modes of a node's files: messages, log, checkpoints and ledger are for its own user alone."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import structlog

log = structlog.get_logger()

UMASK: Final = 0o077
OWN_FOLDERS: Final = ("journal", "state-*", "ledger", "damaged-*")
"""Of the data folder. It itself may be one that others need, such as a mounted volume."""


def keep_private(data: Path) -> None:
    """Let nobody else read what this process and its children create, nor the data that is there."""
    os.umask(UMASK)
    for pattern in OWN_FOLDERS:
        for folder in data.glob(pattern):
            _close(folder)


def _close(folder: Path) -> None:
    mode = folder.stat().st_mode & 0o777
    if not mode & UMASK:
        return
    try:
        folder.chmod(mode & ~UMASK)
    except PermissionError:
        log.warning("others may read this folder: chmod go= it", folder=str(folder), mode=f"{mode:o}")
