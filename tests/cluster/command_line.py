"""The real command line, asked whether it would understand something."""

from __future__ import annotations

import typer

from tarry.node.command_line import app

NAME = "tarry"


def parsed_command(arguments: list[str]) -> str:
    """Parse arguments as the command line would, those of a command's own commands too.

    Return the first command; raise click's UsageError.
    """
    command = typer.main.get_command(app)
    context = command.make_context(NAME, list(arguments))
    names: list[str] = []
    while hasattr(command, "resolve_command"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
        names.append(str(name))
    return names[0]
