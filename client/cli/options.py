"""Options that all commands share, and how a command runs against a cluster."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, get_type_hints

import typer

from tarry.client.aio import Client, connect
from tarry.client.cli.output import Output, fail
from tarry.client.cli.times import duration_option, duration_text
from tarry.client.errors import TarryError
from tarry.client.settings import Tls

DEFAULT_SERVERS: Final = "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003"
EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 refused by the cluster, 2 wrong usage, 3 no answer from the cluster."
)

_PANEL: Final = "Cluster"

_shared = functools.partial(typer.Option, rich_help_panel=_PANEL)
_pem = functools.partial(_shared, exists=True, dir_okay=False)

Server: TypeAlias = Annotated[
    str, _shared("--server", "-s", envvar="TARRY_SERVER", help="host:port of a node, or several.")
]
Token: TypeAlias = Annotated[str | None, _shared(envvar="TARRY_TOKEN", help="Bearer token.")]
Ca: TypeAlias = Annotated[
    Path | None, _pem("--tls-ca", envvar="TARRY_TLS_CA", help="PEM file of the authority; turns TLS on.")
]
Certificate: TypeAlias = Annotated[
    Path | None,
    _pem("--tls-certificate", envvar="TARRY_TLS_CERTIFICATE", help="PEM file of this client's certificate."),
]
Key: TypeAlias = Annotated[
    Path | None, _pem("--tls-key", envvar="TARRY_TLS_KEY", help="PEM file of its private key.")
]
Form: TypeAlias = Annotated[Output, _shared("--output", "-o", help="For people, or for programs.")]


def _deadline(default_ms: int) -> Any:
    option = duration_option(
        "--deadline",
        help="How long to try before giving up.",
        show_default=duration_text(default_ms),
        rich_help_panel=_PANEL,
    )
    return Annotated[int, option]


@dataclass(frozen=True, slots=True)
class OnCluster:
    """What a command was told of the cluster, and how to show what it answers."""

    output: Form
    server: Server
    token: Token
    ca: Ca
    certificate: Certificate
    key: Key
    deadline_ms: int

    def run(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Connect, do the work, close. An error of the cluster ends the program with its exit code."""
        try:
            client = connect(self.server, token=self.token, tls=self._tls(), deadline_ms=self.deadline_ms)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

        async def connected() -> None:
            async with client:
                await work(client)

        try:
            asyncio.run(connected())
        except TarryError as error:
            fail(error, self.output)
        except OSError as error:
            if error.filename is None:
                raise
            raise typer.BadParameter(str(error)) from None  # a file or folder that the command names

    def _tls(self) -> Tls | None:
        if self.ca is None:
            if self.certificate is not None or self.key is not None:
                raise typer.BadParameter("also give --tls-ca, which turns TLS on")
            return None
        return Tls(
            authorities=self.ca.read_bytes(),
            certificate=self.certificate.read_bytes() if self.certificate else None,
            private_key=self.key.read_bytes() if self.key else None,
        )


def on_cluster(*, deadline_ms: int = 15_000) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Put the options that all commands share behind a command's own; it gets them as ``cluster``."""
    shared = {
        "output": (Form, Output.TABLE),
        "server": (Server, DEFAULT_SERVERS),
        "token": (Token, None),
        "ca": (Ca, None),
        "certificate": (Certificate, None),
        "key": (Key, None),
        "deadline_ms": (_deadline(deadline_ms), deadline_ms),
    }

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_options(**given: Any) -> None:
            _refuse_what_is_no_text(given)
            cluster = OnCluster(**{name: given.pop(name) for name in shared})
            command(**given, cluster=cluster)

        hints = get_type_hints(command, include_extras=True)
        own = [
            parameter.replace(annotation=hints[name], kind=Parameter.KEYWORD_ONLY)
            for name, parameter in inspect.signature(command).parameters.items()
            if name != "cluster"
        ]
        of_cluster = [
            Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            for name, (hint, default) in shared.items()
        ]
        signature = inspect.Signature([*own, *of_cluster])
        with_options.__signature__ = signature  # type: ignore[attr-defined]
        with_options.__annotations__ = {p.name: p.annotation for p in signature.parameters.values()}
        return with_options

    return decorate


def _refuse_what_is_no_text(given: Mapping[str, object]) -> None:
    for value in given.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError:
                    raise typer.BadParameter(f"{text!r} is not UTF-8") from None
