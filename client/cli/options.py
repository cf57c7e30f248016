"""Options that all commands share, and the registration of functions as commands."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from inspect import Parameter
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar, get_type_hints

import typer

from tarry.client.aio import Client, connect
from tarry.client.cli.output import Output, fail
from tarry.client.cli.times import duration_option, duration_text
from tarry.client.errors import TarryError
from tarry.client.settings import Tls

EXIT_CODES: Final = (
    "Exit codes: 0 done, 1 refused by the cluster, 2 wrong usage, 3 no answer from the cluster."
)
DEADLINE_MS: Final = 15_000
_PANEL: Final = "Cluster"

_shared = functools.partial(typer.Option, rich_help_panel=_PANEL)
_pem = functools.partial(_shared, exists=True, dir_okay=False)

CommandT = TypeVar("CommandT", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class OnCluster:
    """The options that all commands share: which cluster, and the form of the output."""

    output: Annotated[Output, _shared("--output", "-o", help="For people, or for programs.")] = Output.TABLE
    server: Annotated[
        str, _shared("--server", "-s", envvar="TARRY_SERVER", help="host:port of a node, or several.")
    ] = "127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003"
    token: Annotated[str | None, _shared(envvar="TARRY_TOKEN", help="Bearer token.")] = None
    ca: Annotated[
        Path | None, _pem("--tls-ca", envvar="TARRY_TLS_CA", help="PEM file of the authority; turns TLS on.")
    ] = None
    certificate: Annotated[
        Path | None,
        _pem(
            "--tls-certificate", envvar="TARRY_TLS_CERTIFICATE", help="PEM file of this client's certificate."
        ),
    ] = None
    key: Annotated[
        Path | None, _pem("--tls-key", envvar="TARRY_TLS_KEY", help="PEM file of its private key.")
    ] = None
    deadline_ms: Annotated[
        int, duration_option("--deadline", help="How long to try before giving up.", rich_help_panel=_PANEL)
    ] = DEADLINE_MS

    def run(self, work: Callable[[Client], Awaitable[None]]) -> None:
        """Connect, do the work, close. An error of the cluster ends the program with its exit code."""
        client = self.client()

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

    def client(self) -> Client:
        """Return a client that these options describe. Raises typer.BadParameter."""
        try:
            return connect(self.server, token=self.token, tls=self._tls(), deadline_ms=self.deadline_ms)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

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


def cluster_command(
    app: typer.Typer, name: str | None = None, *, epilog: str = EXIT_CODES, deadline_ms: int = DEADLINE_MS
) -> Callable[[CommandT], CommandT]:
    """Return a decorator that adds a function to the app as a command, and returns the function.

    A parameter that is a dataclass stands for one option a field; one is ``cluster: OnCluster``.
    A coroutine function runs with a connected ``client``, its first parameter.
    """

    def add(function: CommandT) -> CommandT:
        groups: dict[str, type[Any]] = {}
        options: list[Parameter] = []
        for parameter in _parameters(function):
            hint: type[Any] = parameter.annotation
            if is_dataclass(hint):
                groups[parameter.name] = hint
                options += _parameters(hint)
            elif parameter.name != "client":
                options.append(parameter)
        deadline = duration_text(deadline_ms)  # a text, so that the help shows it as it would be given
        options = [each.replace(default=deadline) if each.name == "deadline_ms" else each for each in options]

        @functools.wraps(function)
        def command(**given: Any) -> None:
            _refuse_what_is_no_text(given)
            for key, group in groups.items():
                given[key] = group(**{field.name: given.pop(field.name) for field in fields(group)})
            if inspect.iscoroutinefunction(function):
                given["cluster"].run(functools.partial(function, **given))
            else:
                function(**given)

        command.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in options}
        app.command(name, epilog=epilog, help=help_of(function))(command)
        return function

    return add


def help_of(function: Callable[..., Any]) -> str:
    """Return a docstring as a command's help: a paragraph is one line, which the terminal breaks."""
    paragraphs = (inspect.getdoc(function) or "").split("\n\n")
    return "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def _parameters(made: Callable[..., Any]) -> list[Parameter]:
    """Return the parameters of a function or a dataclass as options are made of them."""
    hints = get_type_hints(made, include_extras=True)
    given = inspect.signature(made).parameters.values()
    return [each.replace(annotation=hints[each.name], kind=Parameter.KEYWORD_ONLY) for each in given]


def _refuse_what_is_no_text(given: Mapping[str, object]) -> None:
    for value in given.values():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and not text.isascii():
                try:
                    text.encode()
                except UnicodeEncodeError:
                    raise typer.BadParameter(f"{text!r} is not UTF-8") from None
