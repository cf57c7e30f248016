"""``tarry gateway``: ways to the cluster for programs that do not speak gRPC."""

from __future__ import annotations

import os
import socket
import ssl
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from tarry.client.cli.options import OnCluster, cluster_command
from tarry.client.cli.output import Output, print_json, words
from tarry.proto import grpc_loop
from tarry.proto.extras import require

gateway_app = typer.Typer(
    no_args_is_help=True, help="Ways to the cluster for programs without tarry's client."
)
Whole = TypeVar("Whole")
EPILOG = "Exit codes: 0 ended as asked, 2 wrong usage, a fault in the file, or the address is in use."


@cluster_command(gateway_app, epilog=EPILOG)
def http(
    listen: Annotated[
        str, typer.Option(help="host:port of the operations; port 0: any free one.")
    ] = "127.0.0.1:8090",
    config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="TOML file with limits and pushes; gateway/README.md has its keys.",
        ),
    ] = None,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="Name under which programs reach it, as through a proxy; once for each."),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            "--origin", help="Web site whose pages may call it, as https://shop.example; once for each."
        ),
    ] = None,
    own_certificate: Annotated[
        Path | None,
        typer.Option("--certificate", exists=True, dir_okay=False, help="PEM file: serve HTTPS with it."),
    ] = None,
    own_key: Annotated[
        Path | None, typer.Option("--key", exists=True, dir_okay=False, help="PEM file of its private key.")
    ] = None,
    *,
    cluster: OnCluster,
) -> None:
    """Serve HTTP and JSON until Ctrl-C: schedule, change, find, receive, settle; post to URLs what is due.

    Callers bear their own tokens: --token is not lent to them, but pushes of the file consume with it. The
    page / shows all operations, /openapi.json is for programs.
    """
    require("http")
    from tarry.gateway.http.config import DEFAULT, load
    from tarry.gateway.http.guard import host_name
    from tarry.gateway.http.server import Certificate, serve

    files = _certificate(own_certificate, own_key)
    for name in origin or ():
        if not name.startswith(("https://", "http://")) or name.count("/") != 2:
            text = f"{name!r} is no origin: write scheme://host or scheme://host:port"
            raise typer.BadParameter(text, param_hint="--origin")
    for name in host or ():
        bare = name.removeprefix("[").removesuffix("]")
        if not bare or host_name(f"[{bare}]" if ":" in bare else bare) != bare.lower():
            raise typer.BadParameter(f"{name!r} is no name: leave out scheme and port", param_hint="--host")
    settings = cluster.client().settings
    read = DEFAULT if config is None else _loaded(load, config)
    pair = None if files is None else Certificate(*files)
    try:
        listener = _listener(listen)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"cannot listen on {listen}: {error}", param_hint="--listen") from None
    bound, port = listener.getsockname()[:2]
    url = f"{'https' if pair else 'http'}://{f'[{bound}]' if ':' in bound else bound}:{port}"
    if cluster.output is Output.JSON:
        print_json({"url": url})
    else:
        words().print(f"gateway: {url} (Ctrl-C ends it)", soft_wrap=True)
    names = (*(host or ()), listen.rpartition(":")[0])
    grpc_loop.run(serve(settings, read, listener, names, origin or (), pair))


@cluster_command(gateway_app, epilog=EPILOG)
def rocketmq(
    listen: Annotated[str, typer.Option(help="host:port of the service; port 0: any free one.")] = (
        "127.0.0.1:8081"
    ),
    config: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="TOML file with limits, access keys and secrets; gateway/ROCKETMQ.md has its keys.",
        ),
    ] = None,
    advertise: Annotated[
        list[str] | None,
        typer.Option(
            help="host:port that clients are told to call, once for each gateway; else the one they called."
        ),
    ] = None,
    own_certificate: Annotated[
        Path | None,
        typer.Option("--certificate", exists=True, dir_okay=False, help="PEM file: serve TLS with it."),
    ] = None,
    own_key: Annotated[
        Path | None, typer.Option("--key", exists=True, dir_okay=False, help="PEM file of its private key.")
    ] = None,
    end_with_input: Annotated[
        bool,
        typer.Option(
            "--end-with-input",
            help="End once standard input, a pipe, ends: with the process that has started this one.",
        ),
    ] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Serve RocketMQ 5's own clients until Ctrl-C: send now, later or in transactions, receive, settle.

    Clients' access keys stand for tokens, by the file; --token is not lent to them, but asks for
    groups' policies. Any number of gateways may run: a client may come to another one at any time.
    """
    from tarry.gateway.rocketmq.config import DEFAULT, load
    from tarry.gateway.rocketmq.server import Certificate, serve

    files = _certificate(own_certificate, own_key)
    settings = cluster.client().settings
    read = DEFAULT if config is None else _loaded(load, config)
    try:
        place = _place(listen)
        told = [_place(each) for each in advertise or ()]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--listen or --advertise") from None
    pair = None if files is None else Certificate(*(file.read_bytes() for file in files))

    def on_listening(port: int) -> None:
        host = place[0]
        address = f"{f'[{host}]' if ':' in host else host}:{port}"
        if cluster.output is Output.JSON:
            print_json({"address": address})
        else:
            words().print(f"gateway for RocketMQ's clients: {address} (Ctrl-C ends it)", soft_wrap=True)

    if end_with_input and not stat.S_ISFIFO(os.fstat(0).st_mode):
        raise typer.BadParameter("standard input is no pipe", param_hint="--end-with-input")
    try:
        grpc_loop.run(serve(settings, read, place, told, pair, on_listening, end_with_input=end_with_input))
    except OSError as error:
        raise typer.BadParameter(f"cannot listen on {listen}: {error}", param_hint="--listen") from None


def _certificate(certificate: Path | None, key: Path | None) -> tuple[Path, Path] | None:
    """Return the files of TLS, which go together and have been read; None: there is none."""
    if (certificate is None) != (key is None):
        raise typer.BadParameter("--certificate and --key go together")
    if certificate is None or key is None:
        return None
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise typer.BadParameter(f"{certificate}: {error}", param_hint="--certificate") from None
    return certificate, key


def _loaded(load: Callable[[Path], Whole], config: Path) -> Whole:
    """Return what is in the gateway's file."""
    try:
        return load(config)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(f"{config}: {error}", param_hint="--config") from None


def _place(text: str) -> tuple[str, int]:
    """Return host and port of ``host:port``. Raises ValueError."""
    name, separator, port = text.rpartition(":")
    if not separator or not name or not port.isdecimal() or int(port) > 65_535:
        raise ValueError("expected host:port, such as 127.0.0.1:8090")
    return name.strip("[]"), int(port)


def _listener(listen: str) -> socket.socket:
    """Return the socket of ``host:port``. Raises ValueError, OSError."""
    name, port = _place(listen)
    family = socket.AF_INET6 if ":" in name else socket.AF_INET
    return socket.create_server((name, port), family=family, backlog=512)
