"""Mark of a journal that a loss of power may take something back from.

    journal/unflushed   the boot id of the machine, from before the first such frame until all are flushed

What a process has written outlives the process, not the machine. So a journal with this mark is whole under
the boot id in it; under another one its last frames may be gone, and what they had promised with them. So
may they be where a sync of them has failed: then the mark has no machine's boot id.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

from tarry.proto.files import replace_file, sync_path

MARK: Final = "unflushed"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
BOOT_ID_CHARACTERS_MAX: Final = 200
UNKNOWN_BOOT: Final = ""
"""Where a system tells no boot id: nothing is deferred there."""
_CONDEMNED: Final = b"\n"
"""In the mark: no boot id, for of these no white space is kept."""


class PowerLost(Exception):
    """The journal may lack what it had acknowledged: the node must neither vote nor count with it."""


def boot_id(file: Path = BOOT_ID) -> str:
    """Return what tells this start of the machine from every other; empty: ``file`` does not tell.

    So where it has more than ``BOOT_ID_CHARACTERS_MAX``: cut, the texts of two starts might be the same.
    """
    with suppress(OSError, UnicodeDecodeError), file.open(encoding="ascii") as opened:
        text = opened.read(BOOT_ID_CHARACTERS_MAX + 1)
        return text.strip() if len(text) <= BOOT_ID_CHARACTERS_MAX else UNKNOWN_BOOT
    return UNKNOWN_BOOT


def is_lost(journal: Path, boot: str) -> bool:
    """Return whether a journal's folder has the mark of another boot id than ``boot``."""
    try:
        return (journal / MARK).read_bytes() != boot.encode() or boot == UNKNOWN_BOOT
    except FileNotFoundError:
        return False


class UnflushedMark:
    """The mark of one journal's folder, under one boot id."""

    def __init__(self, journal: Path, boot: str) -> None:
        self._path = journal / MARK
        self._boot = boot
        self.is_set = self._path.exists()

    @property
    def may_be_set(self) -> bool:
        return self._boot != UNKNOWN_BOOT

    def set(self) -> None:
        """Make the mark durable: what is written without a sync from now on may be lost with the power."""
        if not self.is_set:
            replace_file(self._path, self._boot.encode())
            self.is_set = True

    def condemn(self) -> None:
        """Let the journal count as one that a loss of power took something from, durably."""
        replace_file(self._path, _CONDEMNED)
        self.is_set = True

    def clear(self) -> None:
        """Remove the mark durably: everything is flushed."""
        if self.is_set:
            self._path.unlink(missing_ok=True)
            sync_path(self._path.parent)
            self.is_set = False
