"""Options that all commands share, and how a command runs against a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated, Final, TypeAlias

import typer

from tarry.client.aio import Client, connect
from tarry.client.console_output import Output, fail
from tarry.client.console_times import parse_duration_ms
from tarry.client.errors import TarryError
from tarry.client.settings import Tls

DEFAULT_SERVERS: Final = "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003"
EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 refused by the cluster, 2 wrong usage, 3 no answer from the cluster."
)

_PANEL: Final = "Cluster"

Server: TypeAlias = Annotated[
    str,
    typer.Option(
        "--server",
        "-s",
        envvar="TARRY_SERVER",
        help="host:port of a node, or several.",
        rich_help_panel=_PANEL,
    ),
]
Token: TypeAlias = Annotated[
    str | None, typer.Option(envvar="TARRY_TOKEN", help="Bearer token.", rich_help_panel=_PANEL)
]
Ca: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--tls-ca",
        envvar="TARRY_TLS_CA",
        exists=True,
        dir_okay=False,
        help="PEM file of the authority; turns TLS on.",
        rich_help_panel=_PANEL,
    ),
]
Certificate: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--tls-certificate",
        envvar="TARRY_TLS_CERTIFICATE",
        exists=True,
        dir_okay=False,
        help="PEM file of this client's certificate.",
        rich_help_panel=_PANEL,
    ),
]
Key: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        envvar="TARRY_TLS_KEY",
        exists=True,
        dir_okay=False,
        help="PEM file of its private key.",
        rich_help_panel=_PANEL,
    ),
]
Deadline: TypeAlias = Annotated[
    int,
    typer.Option(
        "--deadline",
        parser=parse_duration_ms,
        metavar="DURATION",
        help="How long to try before giving up.",
        show_default="15s",
        rich_help_panel=_PANEL,
    ),
]
Form: TypeAlias = Annotated[
    Output, typer.Option("--output", "-o", help="For people, or for programs.", rich_help_panel=_PANEL)
]


def run(
    work: Callable[[Client], Awaitable[None]],
    output: Output,
    server: str,
    token: str | None,
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    deadline_ms: int,
) -> None:
    """Connect, do the work, close. An error of the cluster ends the program with its exit code."""
    tls = None
    if ca is not None:
        tls = Tls(
            authorities=ca.read_bytes(),
            certificate=certificate.read_bytes() if certificate else None,
            private_key=key.read_bytes() if key else None,
        )
    elif certificate is not None or key is not None:
        raise typer.BadParameter("also give --tls-ca, which turns TLS on")
    try:
        client = connect(server, token=token, tls=tls, deadline_ms=deadline_ms)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--server") from None

    async def connected() -> None:
        async with client:
            await work(client)

    try:
        asyncio.run(connected())
    except TarryError as error:
        fail(error, output)
