"""Options that say which messages of a topic are meant."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Final, cast

import typer

from tarry.client.cli.times import time_option
from tarry.client.queries.matching import Matching

PANEL: Final = "All that match"


@dataclass(frozen=True, slots=True)
class Filter:
    """Options that say which messages match; names are those of `Matching`."""

    tags: Annotated[
        list[str] | None,
        typer.Option("--tag", help="Only those with any of these; may be repeated.", rich_help_panel=PANEL),
    ] = None
    keys: Annotated[
        list[str] | None,
        typer.Option("--key", help="Only those with any of these; may be repeated.", rich_help_panel=PANEL),
    ] = None
    key_prefix: Annotated[
        str | None, typer.Option(help="Only those with a key that begins so.", rich_help_panel=PANEL)
    ] = None
    due_from_ms: Annotated[
        int | None, time_option("--due-from", help="Only those due then or later.", rich_help_panel=PANEL)
    ] = None
    due_to_ms: Annotated[
        int | None, time_option("--due-to", help="Only those due before.", rich_help_panel=PANEL)
    ] = None

    @property
    def only(self) -> Matching:
        """The options, as far as they are given. Raises typer.BadParameter."""
        if self.key_prefix == "" or self.due_to_ms == 0:  # as of a variable of the shell that is not set
            raise typer.BadParameter("--key-prefix and --due-to must not be empty: leave them out")
        given = {name: value for name, value in asdict(self).items() if value is not None and value != []}
        return cast(Matching, given)
