"""The help of the commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import typer

from tarry.node.command_line import app


def helps(command: Any, name: str = "tarry") -> Iterator[tuple[str, str]]:
    """Yield the names of a command and those below it, each with its help."""
    yield name, command.help or ""
    below: Mapping[str, Any] = getattr(command, "commands", {})
    for word, one in below.items():
        yield from helps(one, f"{name} {word}")


def test_no_paragraph_of_a_help_breaks_a_line_where_the_terminal_does_not() -> None:
    found = dict(helps(typer.main.get_command(app)))
    assert "tarry cluster durability" in found
    assert "tarry restore" in found
    broken = [name for name, text in found.items() for one in text.split("\n\n")[1:] if "\n" in one]
    assert not broken
