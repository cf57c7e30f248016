"""What a node writes is for its own user alone, whatever the umask that it was started with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tarry.client.local.cluster import LocalCluster
from tests.cluster.streams import Consuming, schedule, subscribe
from tests.cluster.wire import wire

pytestmark = pytest.mark.beside


def test_nobody_else_may_read_a_file_of_a_node(tmp_path: Path) -> None:
    before = os.umask(0o000)
    try:
        with LocalCluster(1, tmp_path / "cluster") as cluster:
            cluster.start()
            (node,) = cluster.nodes.values()
            cluster.wait_until_serving()
            with wire(node.address) as stubs:
                schedule(stubs, "t", messages=3)
                consuming = Consuming(stubs, subscribe("t"))
                consuming.next()
                consuming.take(3)
                consuming.end()
            cluster.stop(node.name)
    finally:
        os.umask(before)
    written = [tmp_path / "cluster", *(tmp_path / "cluster").rglob("*")]
    kinds = {path.name for path in written} | {path.suffix for path in written}
    expected = {
        "n1.toml",
        "n1.log",
        ".wal",
        "data.mdb",
        "lock.mdb",
        "delay.log",
        "delay.index",
        ".parquet",
        ".json",
    }
    assert expected <= kinds
    wide = {str(path): f"{path.stat().st_mode & 0o777:o}" for path in written if path.stat().st_mode & 0o077}
    assert not wide
