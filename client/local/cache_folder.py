"""The folder for what is fetched or built once on this machine: programs, other clients, releases."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return `tarry` in XDG's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tarry"
