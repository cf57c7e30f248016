"""The command line ``tarry``: the client's commands, and those that run nodes."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from tarry.client.cli import main as client_commands
from tarry.client.cli.options import cluster_command, help_of
from tarry.client.cli.output import Output, print_fields, words
from tarry.console.command import console
from tarry.gateway.command import gateway_app
from tarry.node.command import node
from tarry.node.dev import dev
from tarry.proto.extras import require
from tarry.proto.version import VERSION

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _tell_version(wanted: bool) -> None:
    if wanted:
        typer.echo(VERSION)
        raise typer.Exit


@app.callback(help="A replicated delayed-message service: give it a message and a due time.")
def tarry(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_tell_version, help="Print the version, and end."),
    ] = False,
) -> None: ...


app.command()(node)


def restore(
    source: Annotated[
        str,
        typer.Option("--from", metavar="FOLDER", help="Folder of tarry backup; - for its stream on stdin."),
    ],
    data: Annotated[Path, typer.Option(help="Data folder of the node: empty, or new.")],
    name: Annotated[str, typer.Option(help="The node's name.")],
    address: Annotated[
        str, typer.Option(help="Where other nodes reach it; members of its configuration win.")
    ] = "127.0.0.1:7001",
    output: Annotated[
        Output, typer.Option("--output", "-o", help="For people, or for programs.")
    ] = Output.TABLE,
) -> None:
    """Make a node's data folder of a backup: the first node of a new cluster, which others then join.

    Ids stay valid, pending messages pending, and groups go on where they were. What was delivered or
    acknowledged after the backup is delivered again. Nodes of the old cluster are refused by the new one.

    Exit codes: 0 restored, 2 wrong usage, or the folder is not empty, 3 the backup is damaged, or of a newer
    version.
    """
    require("node")
    from tarry.node.process import DataInUse, hold
    from tarry.node.recovery.restore import Founder, fault
    from tarry.node.recovery.restore import restore as restore_from
    from tarry.proto.backup_folder import BackupDamaged, BackupRefused, parts_of, stream_of
    from tarry.replication.state_machine.levels import AnotherVersion

    if text := fault(name, address):
        typer.echo(f"not restored: {text}", err=True)
        raise typer.Exit(2)
    done = 0
    with words().status("restoring") as spinner:

        def progress(size_bytes: int) -> None:
            nonlocal done
            done += size_bytes
            spinner.update(f"restoring: {done / (1 << 20):,.0f} MiB")

        try:
            parts = stream_of(sys.stdin.buffer) if source == "-" else parts_of(Path(source))
            hold(data)  # no node may start on it meanwhile
            founder = Founder(name, address, secrets.randbits(64) or 1, secrets.randbits(63) or 1)
            told = restore_from(parts, data, founder, progress)
        except (BackupRefused, DataInUse, OSError) as error:
            typer.echo(f"not restored: {error}", err=True)
            raise typer.Exit(2) from None
        except (BackupDamaged, AnotherVersion) as error:
            typer.echo(f"not restored: {error}", err=True)
            raise typer.Exit(3) from None
    print_fields(
        {
            "data": str(data),
            "node": name,
            "cluster": told.cluster,
            "index": told.index,
            "cluster_time_ms": told.now_ms,
            "bytes": done,
            "shard": told.shard,
            "digest": told.digest.hex(),
        },
        output,
    )
    words().print(
        f"restored and checked; start {name} on it, then each other node once with --rejoin", soft_wrap=True
    )


app.command(help=help_of(restore))(restore)
app.command()(dev)
cluster_command(app, epilog="")(console)
app.add_typer(gateway_app, name="gateway")
app.add_typer(client_commands.app)
