"""The real command line, asked whether it would understand something."""

from __future__ import annotations

import typer

from tarry.node.__main__ import app

NAME = "tarry"


def parsed_command(arguments: list[str]) -> str:
    """Parse arguments as the command line would and return the command; raises click's UsageError."""
    group = typer.main.get_command(app)
    context = group.make_context(NAME, list(arguments))
    rest = [*context._protected_args, *context.args]
    name, command, rest = group.resolve_command(context, rest)  # type: ignore[attr-defined]
    command.make_context(name, rest, parent=context)
    return str(name)
