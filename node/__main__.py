"""The command line ``tarry``: the client's commands, and those that run nodes."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from tarry.client.cli import main as console
from tarry.client.cli.output import Output, print_fields, words
from tarry.node.dev import dev
from tarry.proto.extras import require

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback(help="A replicated delayed-message service: give it a message and a due time.")
def tarry() -> None: ...


@app.command()
def node(
    config: Annotated[Path | None, typer.Option(help="TOML file; node/README.md has its keys.")] = None,
    name: Annotated[str | None, typer.Option("--node", help="This node's name.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder for the node's data.")] = None,
    listen: Annotated[str | None, typer.Option(help="host:port for clients and nodes' calls.")] = None,
    member: Annotated[
        list[str] | None, typer.Option(help="name=host:port of a node of the cluster; once for each.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    rejoin: Annotated[
        bool,
        typer.Option(help="The data was lost or is damaged: set it aside, take all anew from the others."),
    ] = False,
) -> None:
    """Run a node until SIGTERM. Flags win over the environment (TARRY_…), which wins over the file.

    It writes nothing but its log, to stderr: JSON, a line each, or with log_json = false for people. SIGHUP
    has it read certificates and tokens again.

    Exit codes: 0 ended as asked, 1 failed while running, 2 the configuration is wrong, or its port or folder
    in use, 3 the data is damaged.
    """
    require("node")
    from tarry.node.app import CannotListen
    from tarry.node.config import faults
    from tarry.node.config_source import ConfigSource
    from tarry.node.log import configure
    from tarry.node.process import DataDamaged, DataInUse, serve

    given: dict[str, Any] = {"node": name, "data": data, "listen": listen, "log_level": log_level}
    flags = {key: value for key, value in given.items() if value is not None}
    if member:
        flags["members"] = dict(_member(text) for text in member)
    source = ConfigSource(config, flags)
    try:
        settings = source.load()
    except (OSError, ValueError) as error:
        for fault in faults(error, config):
            typer.echo(fault, err=True)
        raise typer.Exit(2) from None
    configure(settings.node, settings.log_level, as_json=settings.log_json)
    if rejoin and len(settings.members) < 2:
        typer.echo("--rejoin: members names no other node to take the data from", err=True)
        raise typer.Exit(2)
    try:
        serve(settings, rejoin=rejoin, source=source)
    except (CannotListen, DataInUse) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except DataDamaged as damaged:
        typer.echo(str(damaged), err=True)
        raise typer.Exit(3) from None


@app.command()
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
    from tarry.node.process import keep_private
    from tarry.node.recovery.restore import Founder
    from tarry.node.recovery.restore import restore as restore_from
    from tarry.proto.backup_folder import BackupDamaged, BackupRefused, parts_of, stream_of
    from tarry.replication.state_machine.commands import AnotherVersion

    done = 0
    with words().status("restoring") as spinner:

        def progress(size_bytes: int) -> None:
            nonlocal done
            done += size_bytes
            spinner.update(f"restoring: {done / (1 << 20):,.0f} MiB")

        try:
            parts = stream_of(sys.stdin.buffer) if source == "-" else parts_of(Path(source))
            keep_private(data)
            founder = Founder(name, address, secrets.randbits(64) or 1, secrets.randbits(63) or 1)
            told = restore_from(parts, data, founder, progress)
        except (BackupRefused, OSError) as error:
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


def _member(text: str) -> tuple[str, str]:
    name, separator, address = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"{text!r} is not name=host:port", param_hint="--member")
    return name, address


app.command()(dev)
app.add_typer(console.app)


def main() -> None:
    """Run the command line."""
    app()


if __name__ == "__main__":
    main()
