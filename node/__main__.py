"""Start of the command line ``tarry``."""

from __future__ import annotations

import sys

import typer


def main() -> None:
    """Run a command; ``tarry node`` without loading the others."""
    if sys.argv[1:2] == ["node"]:
        from tarry.node.command import node

        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        app.callback()(lambda: None)  # else the only command has no name
        app.command()(node)
    else:
        from tarry.node.command_line import app
    app()


if __name__ == "__main__":
    main()
