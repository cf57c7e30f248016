"""Sources of a node's configuration, and whether these files have changed since they were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from tarry.node.config import NodeConfig, load

Stamps: TypeAlias = tuple[object, ...]


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """A file, if any, and flags; the environment is the process's."""

    path: Path | None
    flags: Mapping[str, Any]

    def load(self) -> NodeConfig:
        """Return the configuration as it is now. Raises ValueError, OSError."""
        return load(self.path, dict(self.flags))

    def stamps(self, config: NodeConfig) -> Stamps:
        """Return a value that changes with the files that hold secrets, or are replaced by others.

        It is by name that they are looked at, through links: secrets that are mounted change by one link
        that leads elsewhere, which a watch of the file itself does not notice.
        """
        return tuple(map(_stamp, self._files(config)))

    def _files(self, config: NodeConfig) -> Iterator[Path]:
        tls = config.tls
        named = (self.path, config.tokens_file, *((tls.certificate, tls.key, tls.authority) if tls else ()))
        return filter(None, named)


def _stamp(file: Path) -> object:
    try:
        found = file.stat()
    except OSError as error:
        return file, error.errno
    return file, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
