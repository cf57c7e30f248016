"""Audit of the engine's source by hash: the guards rest on its details, so no other is run."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

VERSION = "0.3.17"
AUDITED: Mapping[str, str] = {
    "syncobj.py": "e8bdf06797085d734df86e24ab4802fe87893dff77268565ec036f7ad4a1cfe4",
    "journal.py": "9cf1eaf6acc704581a4cf7d3de330a404403913107adc91c929778b7e3f35edf",
    "serializer.py": "4d39fde2f15000ad8f507ec229ebd4f6a86371b6f84d4dc1439a9cccd52857ee",
    "transport.py": "0c9d89f9c4781ec9772df8011d7975a1a4a1a5f541357e12eae85a813e92b50b",
    "node.py": "e4a3f027cd8291f558334bb9c977e952f6b6989e7e1fa1588d3005ef0b990e2c",
    "config.py": "fbbc7ff9f18e4d15a7fd563376e42f5bd192956879d4b810b056d5248b955698",
    "fast_queue.py": "8477fe5fdf36d9766df933310d3d66ee953d1afc195b1e6482b3a1498fc517bd",
    "version.py": "0b8426a8b52ecf874193897d26c4214acbd85335145ea9ff17e27a22b1132943",
    "monotonic.py": "d116df70e1f81bcab1fb89191fe2fe18486bc25187401d73fd6101cfe686e0a3",
}


class NotAudited(Exception):
    """Files of pysyncobj differ from the audited ones. Install exactly the version named."""


def check(folder: Path, audited: Mapping[str, str] = AUDITED) -> None:
    """Compare the files in the folder with the digests.

    Raises:
        NotAudited: a file differs, or is missing.
    """
    differing = [name for name, digest in audited.items() if sha256(folder / name) != digest]
    if differing:
        raise NotAudited(f"pysyncobj {VERSION}: {', '.join(differing)}")


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
