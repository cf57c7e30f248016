"""``tarry completion``: scripts by which a shell completes commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer
from typer._completion_classes import completion_init
from typer.completion import shell_complete

VARIABLE = "_TARRY_COMPLETE"
"""Of the environment, by which such a script asks the program."""

completion_init()  # else the program would answer the scripts of click, which are others


class Shell(StrEnum):
    """Shells with completion."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    context: typer.Context, shell: Annotated[Shell, typer.Argument(help="For which shell.")]
) -> None:
    """Print a script that completes commands and options.

    bash: `source <(tarry completion bash)` in ~/.bashrc. zsh: the same in ~/.zshrc, behind compinit.

    fish: `tarry completion fish | source` in ~/.config/fish/config.fish.
    """
    raise typer.Exit(shell_complete(context.find_root().command, {}, "tarry", VARIABLE, f"source_{shell}"))
