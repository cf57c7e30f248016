"""Backups in a folder, as their manifests tell of them."""

from __future__ import annotations

import json
from typing import Final

from tarry.console.views import cells
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
    try:
        told = json.loads(manifest) if manifest is not None else {}
        numbers = {
            "at_ms": int(told["cluster_time_ms"]),
            "index": int(told["index"]),
            "bytes": int(told["bytes"]),
            "files": len(told["files"]),
        }
        return (
            row
            | numbers
            | {
                "cluster": str(told["cluster"]),
                "node": str(told["node"]),
                "state": "whole",
                "kind": "good",
            }
        )
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        return row
