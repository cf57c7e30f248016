"""Backups in a folder, as their manifests tell of them."""

from __future__ import annotations

from typing import Final

from tarry.console.views import cells
from tarry.console.views.json_values import number_of, object_of, text_of
from tarry.console.views.table import Column, Row

COLUMNS: Final = (
    Column("name", "Folder"),
    Column("cluster", "Cluster"),
    Column("at_ms", "As of", show=lambda row: cells.time(row["at_ms"] or 0)),
    Column("index", "Entry", number=True),
    Column("node", "Of node"),
    Column("bytes", "Size", number=True, show=lambda row: cells.size(row["bytes"]) if row["bytes"] else ""),
    Column("files", "Files", number=True),
    Column("state", "State", show=lambda row: cells.badge(row["state"], row["kind"])),
)


def backup_row(name: str, manifest: bytes | None) -> Row:
    """Return the row of a sub-folder; ``manifest``: of its last whole backup, None: it cannot be read."""
    row: dict[str, object] = {
        "name": name,
        "cluster": "",
        "node": "",
        "state": "no whole backup",
        "kind": "warn",
    }
    row |= dict.fromkeys(("at_ms", "index", "bytes", "files"))
    told = object_of(manifest) or {}
    fields = {"at_ms": "cluster_time_ms", "index": "index", "bytes": "bytes"}
    numbers = {name: number_of(told.get(field)) for name, field in fields.items()}
    files = told.get("files")
    if None in numbers.values() or not isinstance(files, list):
        return row
    return row | {
        **numbers,
        "files": len(files),
        "cluster": text_of(told.get("cluster")),
        "node": text_of(told.get("node")),
        "state": "whole",
        "kind": "good",
    }
