"""Imports into a node and exports from it: messages a second, beside the aims.

make bench-export            a million messages of 100 bytes over a week, one node; two minutes
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Final, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer

from tarry.client.local.cluster import LocalCluster
from tarry.client.sync import Client, Columns, Files, connect

AIMS_PER_S: Final = {"import": 80_000, "export": 300_000}
WEEK_MS: Final = 7 * 86_400_000
HOUR_MS: Final = 3_600_000
BODY_BYTES: Final = 100
EXPORTS: Final = 3
"""Of which the best counts: the first one reads what is not mapped yet."""

T = TypeVar("T")


def source(path: Path, messages: int, seed: int = 1) -> None:
    """Write made-up schedules."""
    rng = np.random.default_rng(seed)
    due_ms = time.time_ns() // 1_000_000 + HOUR_MS + rng.integers(0, WEEK_MS, messages)
    ends = np.arange(0, BODY_BYTES * (messages + 1), BODY_BYTES, dtype=np.int32)
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(os.urandom(BODY_BYTES * messages))]
    bodies = pa.Array.from_buffers(pa.binary(), messages, buffers)
    pq.write_table(pa.table({"id": list(map(str, range(messages))), "due": due_ms, "body": bodies}), path)


def last(states: Iterable[T]) -> T:
    """Return the last of the states."""
    *_, state = states
    return state


def measured(client: Client, folder: Path, messages: int) -> dict[str, float]:
    """Return messages a second, by what is done."""
    per_s: dict[str, float] = {}
    jobs = Files(folder / "jobs.parquet")
    begun = time.perf_counter()
    done = last(client.bulk().import_rows(jobs, folder / "progress", Columns(topic="t")))
    per_s["import"] = messages / (time.perf_counter() - begun)
    assert done.taken == messages
    for number in range(EXPORTS):
        begun = time.perf_counter()
        written = last(client.bulk().export(folder / f"out-{number}.parquet"))
        per_s["export"] = max(per_s.get("export", 0.0), messages / (time.perf_counter() - begun))
        assert written.messages == messages
    return per_s


def run(
    messages: Annotated[int, typer.Option(min=1)] = 1_000_000,
    output: Annotated[str, typer.Option("--output", "-o", help="table or json")] = "table",
) -> None:
    """Import and export, and print the figures beside the aims."""
    folder = Path(tempfile.mkdtemp(prefix="tarry-bench-"))
    try:
        source(folder / "jobs.parquet", messages)
        with LocalCluster(1, folder / "node") as cluster:
            cluster.start()
            cluster.wait_until_serving()
            with connect(cluster.addresses, deadline_ms=60_000) as client:
                per_s = measured(client, folder, messages)
    finally:
        shutil.rmtree(folder)
    if output == "json":
        typer.echo(json.dumps({name: round(value) for name, value in per_s.items()}))
        return
    for name, aim in AIMS_PER_S.items():
        share = per_s[name] / aim
        typer.echo(f"{name:7} {per_s[name]:10,.0f} a second   aim {aim:8,}   {share:6.0%}")
    typer.echo(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    typer.run(run)
