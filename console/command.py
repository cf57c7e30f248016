"""``tarry console``: the cluster in a browser."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output, print_json, words
from tarry.proto import grpc_loop
from tarry.proto.extras import require


def console(
    listen: Annotated[
        str, typer.Option(help="host:port of the pages; port 0: any free one.")
    ] = "127.0.0.1:8070",
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Name under which browsers reach it, as through a proxy; once for each."),
    ] = None,
    backups: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Folder for backups, of which each has one of its own.",
        ),
    ] = None,
    reports: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            exists=True,
            file_okay=False,
            help="Folder of runs of tarry reconcile, of which each has one of its own.",
        ),
    ] = None,
    *,
    cluster: OnCluster,
) -> None:
    """Serve pages on the cluster until Ctrl-C: what is pending, late, waiting; and changes, each asked about.

    Where the cluster asks for tokens, visitors sign in with theirs, and may do what these may: --token is
    not lent to them. Pages are HTTP: on other addresses than loopback, put a proxy with TLS before them.

    Exit codes: 0 ended as asked, 2 wrong usage, or the address is in use.
    """
    require("console")
    from tarry.console.folders import Folders
    from tarry.console.server import serve

    settings = cluster.client().settings
    try:
        listener = _listener(listen)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot listen on {listen}: {error}", param_hint="--listen") from None
    bound, port = listener.getsockname()[:2]
    url = f"http://{f'[{bound}]' if ':' in bound else bound}:{port}"
    if cluster.output is Output.JSON:
        print_json({"url": url})
    else:
        words().print(f"console: {url} (Ctrl-C ends it)", soft_wrap=True)
    grpc_loop.run(
        serve(settings, listener, (*(host or ()), listen.rpartition(":")[0]), Folders(backups, reports))
    )


def _listener(listen: str) -> socket.socket:
    """Return the socket of ``host:port``. Raises ValueError, OSError."""
    name, separator, port = listen.rpartition(":")
    if not separator or not name or not port.isdecimal() or int(port) > 65_535:
        raise ValueError("expected host:port, such as 127.0.0.1:8070")
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    return socket.create_server((name.strip("[]"), int(port)), family=family)
