"""A ledger in which a manifest says nothing: the node starts, leaves the segment alone, and goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tarry.proto.ledger.segment import closed
from tests.node.ledger.test_ledger import make, segments
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, schedule

__all__ = ["make"]


def without(manifest: bytes, name: str) -> bytes:
    told = json.loads(manifest)
    del told[name]
    return json.dumps(told).encode()


def another(manifest: bytes, **values: Any) -> bytes:
    return json.dumps({**json.loads(manifest), **values}).encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda manifest: b"",
        lambda manifest: manifest[:40],
        lambda manifest: bytes(len(manifest)),
        lambda manifest: b"[" * 100_000,
        lambda manifest: b"[1]",
        lambda manifest: without(manifest, "source"),
        lambda manifest: without(manifest, "last_at_ms"),
        lambda manifest: another(manifest, bytes=None),
        lambda manifest: another(manifest, segment="1"),
        lambda manifest: another(manifest, version=2),
    ],
)
async def test_a_node_leaves_a_segment_alone_whose_manifest_is_damaged(
    make: Callable[..., Replica], damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    replica = make()
    replica.apply(schedule([NOW_MS + 1]))
    await replica.ledger.close()
    ((parquet, manifest),) = closed(replica.ledger.folder)
    rows, path = parquet.read_bytes(), parquet.with_suffix(".json")
    path.write_bytes(damage(path.read_bytes()))
    again = make()
    again.apply(schedule([NOW_MS + 2]))
    await again.ledger.close()
    assert [one["segment"] for one, _ in segments(again)] == [manifest["segment"] + 1]
    assert parquet.read_bytes() == rows
    assert "a segment of the ledger has a damaged manifest" in capsys.readouterr().out


async def test_files_of_others_in_a_ledger_s_folders_are_nothing_to_it(
    make: Callable[..., Replica], tmp_path: Path
) -> None:
    replica = make()
    replica.apply(schedule([NOW_MS + 1]))
    await replica.ledger.close()
    for name in ("notes.rows", "a-b-c.rows", "n1-1-x.rows"):
        (replica.ledger.folder / "open" / name).write_bytes(b"")
    again = make()
    again.apply(schedule([NOW_MS + 2]))
    await again.ledger.close()
    assert [one["segment"] for one, _ in segments(again)] == [1, 2]
