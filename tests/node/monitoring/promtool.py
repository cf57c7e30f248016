"""Prometheus' own checker, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

PATH: Final = shutil.which("promtool") or ""
needs_promtool: Final = pytest.mark.skipif(
    not PATH, reason="no promtool on the PATH: install Debian's package prometheus, or Prometheus itself"
)


def promtool(folder: Path, *arguments: str) -> str:
    """Run it in a folder and return what it says. Raises AssertionError with that where it finds a fault."""
    done = subprocess.run(
        [PATH, *arguments], cwd=folder, check=False, capture_output=True, text=True, timeout=120
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    return said
