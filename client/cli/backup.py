"""``tarry backup``: the whole state of the cluster, in a folder or as a stream."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import REFUSED, Output, cell, print_fields, print_json, words
from tarry.client.cli.times import time_text
from tarry.client.operators.backup import source_of, steps
from tarry.client.operators.cluster_operator import Operator
from tarry.proto.backup_folder import BackupDamaged, BackupRefused, FolderWriter, StreamWriter
from tarry.proto.tarry_operator_pb2 import BackupManifest

STREAM = "-"
MIB = 1 << 20


async def backup(
    client: Client,
    to: Annotated[
        str, typer.Option(metavar="FOLDER", help="A folder, new or of earlier backups; - for stdout.")
    ],
    node: Annotated[
        str,
        typer.Option(
            metavar="NODE",
            help="The member to take it from, also while none leads; else the follower that has most.",
        ),
    ] = "",
    *,
    cluster: OnCluster,
) -> None:
    """Back up everything the cluster holds, while it runs, as of one entry of its log.

    It has all that was acknowledged before the command began, unless none led and --node was given. Into a
    folder with an earlier backup only what is new is sent; should it break off, the earlier one stays whole.
    tarry restore makes a node of it.
    """
    operator = client.operator()
    status = await operator.status()
    try:
        writer = StreamWriter(sys.stdout.buffer) if to == STREAM else FolderWriter(Path(to))
        try:
            manifest = await _copied(operator, source_of(status, node), status.applied_index, writer)
        finally:
            writer.close()
    except (BackupDamaged, BackupRefused) as error:
        _failed(str(error), cluster.output)
    except OSError as error:
        _failed(
            f"{error.filename or to}: {error.strerror}; the backup before it, if any, is whole",
            cluster.output,
        )
    told = _told(manifest, writer.bytes_written, to)
    if to == STREAM:
        sys.stderr.write(json.dumps(told, ensure_ascii=False) + "\n")  # stdout has the backup
    elif cluster.output is Output.JSON:
        print_json(told)
    else:
        print_fields({**told, "cluster_time": time_text(manifest.now_ms)}, cluster.output)


async def _copied(
    operator: Operator, address: str, index_min: int, writer: FolderWriter | StreamWriter
) -> BackupManifest:
    """Let the writer take a node's backup; return its manifest."""
    with words().status(f"backup of {address}: waiting for its checkpoint") as spinner:
        async for at in steps(operator, address, index_min, writer):
            done = f"file {min(at.file + 1, len(at.manifest.files)):,} of {len(at.manifest.files):,}"
            spinner.update(f"backup of {address}: {done}, {at.new_bytes / MIB:,.0f} MiB new")
    return at.manifest


def _told(manifest: BackupManifest, new_bytes: int, to: str) -> dict[str, object]:
    return {
        "to": to,
        "cluster": manifest.cluster,
        "node": manifest.node,
        "index": manifest.index,
        "cluster_time_ms": manifest.now_ms,
        "bytes": sum(file.size_bytes for file in manifest.files),
        "new_bytes": new_bytes,
        "files": len(manifest.files),
        "digest": manifest.digest.hex(),
    }


def _failed(text: str, output: Output) -> NoReturn:
    if output is Output.JSON:
        sys.stderr.write(json.dumps({"error": "BACKUP_FAILED", "text": text}, ensure_ascii=False) + "\n")
    else:
        words().print(f"[bold red]no backup:[/bold red] {cell(text)}", soft_wrap=True)
    raise typer.Exit(REFUSED)
