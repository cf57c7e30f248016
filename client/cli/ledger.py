"""``tarry ledger``: copies of the nodes' ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster, cluster_command
from tarry.client.cli.output import print_rows, words
from tarry.client.cli.times import time_option
from tarry.client.errors import OutcomeUnknown, TarryError, Unavailable
from tarry.client.operators.ledger_export import LedgerPart
from tarry.proto.extras import require

if TYPE_CHECKING:
    from tarry.proto.ledger.segment import OpenSegment

ledger_app = typer.Typer(no_args_is_help=True, help="Take out what the nodes wrote down.")
COLUMNS = ("node", "address", "segments", "rows", "first_index", "last_index", "error")


@cluster_command(ledger_app, "export")
async def export(
    client: Client,
    to: Annotated[Path, typer.Option(metavar="DIR", help="Folder for the copies.")],
    from_: Annotated[int | None, time_option("--from", help="Only rows of then or later.")] = None,
    until: Annotated[int | None, time_option("--until", help="Only rows before.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only rows of these kinds.")] = None,
    closed: Annotated[bool, typer.Option("--closed", help="Leave out the open segment.")] = False,
    *,
    cluster: OnCluster,
) -> None:
    """Copy every node's ledger into a folder, a folder for each node, with manifests of its own.

    A node that does not answer is left out and named; the exit code is then 3. A copy of only some rows is
    marked so, and tarry reconcile refuses it.
    """
    require("node", "pyarrow")
    operator = client.operator()
    await operator.status()  # also learns the addresses of all members
    rows: list[dict[str, object]] = []
    unreached: TarryError | None = None
    with words().status("exporting") as spinner:
        for address in operator.addresses():
            copy = Copy(to, filtered=bool(from_ or until or kind))
            parts = operator.export_ledger(
                address, from_ms=from_ or 0, to_ms=until or 0, kinds=kind or (), open=not closed
            )
            try:
                async for part in parts:
                    copy.add(part)
                    spinner.update(f"exporting {address}: {copy.rows:,} rows")
            except (Unavailable, OutcomeUnknown) as error:
                unreached = error
                rows.append({"address": address, "error": error.text})
                continue
            copy.close()
            rows.append({"address": address, **copy.row()})
    print_rows(rows, COLUMNS, cluster.output)
    if unreached is not None:
        raise unreached


class Copy:
    """Writer of the parts of one node's export, as closed segments."""

    def __init__(self, folder: Path, *, filtered: bool = False) -> None:
        self.rows = 0
        self._filtered = filtered
        self._folder = folder
        self._open: OpenSegment | None = None
        self._segments = 0
        self._first: LedgerPart | None = None
        self._last: LedgerPart | None = None

    def add(self, part: LedgerPart) -> None:
        """Write a part. Raises OSError."""
        from tarry.proto.ledger.segment import OpenSegment

        told = part.segment
        if self._open is None or self._open.segment != told["segment"]:
            self.close()
            ledger = self._folder / told["source"]
            left = OpenSegment(
                ledger, told["source"], told["run"], told["segment"], told["first_index"],
                filtered=self._filtered,
            )  # fmt: skip
            left.path.unlink(missing_ok=True)  # of an export that was cut off
            self._open = left
            self._segments += 1
        self._open.append(part.rows, part.count, told["last_index"])
        self._first, self._last = self._first or part, part
        self.rows += part.count

    def close(self) -> None:
        """Close the last segment. Raises OSError."""
        from tarry.proto.ledger.parquet import close

        if self._open is not None:
            close(self._open, 0)
            self._open = None

    def row(self) -> dict[str, object]:
        """Return the row of the table: node, segments, rows and indices."""
        if self._first is None or self._last is None:
            return {"segments": 0, "rows": 0}
        return {
            "node": self._last.segment["source"],
            "segments": self._segments,
            "rows": self.rows,
            "first_index": self._first.segment["first_index"],
            "last_index": self._last.segment["last_index"],
        }
