"""Bundle of this program in one file: for `--py-files`, and for Spark Connect."""

from __future__ import annotations

from pathlib import Path
from typing import Final
from zipfile import ZIP_DEFLATED, ZipFile

PARTS: Final = ("spark", "proto")


def bundle(file: Path) -> Path:
    """Write the packages tarry.spark and tarry.proto as a zip file that Python can import; return it.

    Folders have entries of their own, without which a package that has no __init__ is not found in a zip.
    """
    here = Path(__file__).parent.parent
    with ZipFile(file, "w", ZIP_DEFLATED) as archive:
        archive.mkdir("tarry")
        for part in PARTS:
            root = here / part
            archive.mkdir(f"tarry/{part}")
            for path in sorted(root.rglob("*")):
                name = f"tarry/{part}/{path.relative_to(root).as_posix()}"
                if path.is_dir() and path.name != "__pycache__":
                    archive.mkdir(name)
                elif path.suffix in (".py", ".properties"):
                    archive.write(path, name)
    return file
