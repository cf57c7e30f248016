"""``tarry node``: run a node, or make the only survivor a cluster by itself.

What it needs is imported once it runs, and none of the client's commands: a node starts a third of a second
sooner without them.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tarry.proto.extras import require

if TYPE_CHECKING:
    from tarry.node.config import NodeConfig
    from tarry.node.recovery.recover_alone import Survey


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
    recover_alone: Annotated[
        bool,
        typer.Option(
            "--recover-alone",
            help="A majority is lost for good: make this node a cluster by itself, and end; then start it.",
        ),
    ] = False,
    confirm: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="With --recover-alone: its name, in place of typing it."),
    ] = None,
) -> None:
    """Run a node until SIGTERM. Flags win over the environment (TARRY_…), which wins over the file.

    It writes nothing but its log, to stderr: JSON, a line each, or with log_json = false for people.

    SIGHUP has it read certificates and tokens again.

    Exit codes: 0 ended, 1 failed, 2 the configuration is wrong, or port or folder in use, 3 damaged data.
    """
    require("node")
    gc.disable()  # a tenth of a start: what is imported stays, and is looked through a dozen times
    from tarry.node.app import CannotListen
    from tarry.node.config import faults
    from tarry.node.config_source import ConfigSource
    from tarry.node.log import configure
    from tarry.node.process import DataDamaged, DataInUse, serve
    from tarry.node.recovery.recover_alone import RecoveryRefused

    gc.enable()
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
    if settings.gateway.rocketmq_file is not None:
        _check_gateway(settings.gateway.rocketmq_file)
    configure(settings.node, settings.log_level, as_json=settings.log_json)
    if rejoin and len(settings.members) < 2:
        typer.echo("--rejoin: members names no other node to take the data from", err=True)
        raise typer.Exit(2)
    if rejoin and recover_alone:
        typer.echo("--recover-alone keeps the data that --rejoin sets aside: give one of them", err=True)
        raise typer.Exit(2)
    try:
        if recover_alone:
            _recover_alone(settings, confirm)
        else:
            serve(settings, rejoin=rejoin, source=source)
    except (CannotListen, DataInUse, RecoveryRefused) as error:
        typer.echo(str(error), err=True)
        raise typer.Exit(2) from None
    except DataDamaged as damaged:
        typer.echo(str(damaged), err=True)
        raise typer.Exit(3) from None


def _check_gateway(file: Path) -> None:
    """End with 2 where the gateway beside the node would not start with its file."""
    from tarry.gateway.rocketmq.config import load

    try:
        load(file)
    except (OSError, ValueError) as error:
        for fault in str(error).splitlines():
            typer.echo(f"{file}: {fault}", err=True)
        raise typer.Exit(2) from None


def _recover_alone(settings: NodeConfig, confirm: str | None) -> None:
    """Say what the survivor has and what may be missing, ask, and make it a cluster by itself."""
    from tarry.node.process import go_alone

    def agreed(found: Survey) -> bool:
        typer.echo(_surveyed(found), err=True)
        typed = confirm
        if typed is None:
            typer.echo(f"Type {found.node} to go on: ", err=True, nl=False)
            typed = sys.stdin.readline().strip()
        return typed == found.node

    if go_alone(settings, agreed) is None:
        typer.echo(f"nothing was changed: {settings.node} was not typed", err=True)
        raise typer.Exit(2)
    typer.echo(f"done: start {settings.node} as usual; the others only with --rejoin, once each", err=True)


def _surveyed(found: Survey) -> str:
    if found.lost_power:
        return _surveyed_without_power(found)
    others, last = ", ".join(found.others), found.last_index
    more = (
        f"It keeps entries {found.commit_index + 1} to {last} ({_time(found.last_ms)}) as well, of which it "
        "does not know whether they were acknowledged."
    )
    return "\n".join(
        (
            f"{found.node} has everything up to entry {found.commit_index} ({_time(found.commit_ms)}).",
            more if last > found.commit_index else "It has nothing behind that.",
            f"Its last entry is of term {found.last_term}: of several nodes the highest term has most.",
            f"What {others} acknowledged without it behind entry {last} is lost.",
            "It goes on alone, as another incarnation of the cluster.",
            f"{others} come back only with --rejoin, which sets their data aside.",
            f"If {others} can still start with their data as a majority, do not go on.",
        )
    )


def _surveyed_without_power(found: Survey) -> str:
    others, last = ", ".join(found.others), found.last_index
    alone = (
        f"The machine of {found.node} lost its power before everything was flushed: what is left ends with "
        f"entry {last} of term {found.last_term} ({_time(found.last_ms)}).",
        "What was acknowledged behind that, within flush_ms before the loss, is lost if no node has it.",
    )
    if not found.others:
        return "\n".join((*alone, "It goes on with that, as another incarnation of the cluster."))
    return "\n".join(
        (
            *alone,
            f"Look first what {others} have, by the same command: go on with the one whose last entry is of "
            "the highest term, and of these with the highest entry.",
            f"It goes on alone, as another incarnation of the cluster. Of {others}, those that lost their "
            "power come back by themselves, and the others with --rejoin.",
            f"If {others} can still start with their data as a majority, do not go on.",
        )
    )


def _time(at_ms: int) -> str:
    from tarry.client.cli.times import time_text

    return time_text(at_ms) if at_ms else "time unknown"


def _member(text: str) -> tuple[str, str]:
    name, separator, address = text.partition("=")
    if not separator:
        raise typer.BadParameter(f"{text!r} is not name=host:port", param_hint="--member")
    return name, address
