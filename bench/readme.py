"""Figures in the documents, from what the benches wrote.

    make bench-readme       python -m tarry.bench.readme [--out out]

A whole run of `make bench` or `make bench-wheel` leaves its figures in `out/NAME.json`. They are kept as
`bench/measured/NAME.json`. Their tables go between `<!-- NAME -->` and `<!-- /NAME -->` of bench/NOTES.md,
some rows and columns also of README.md. A test holds that the pages say what is kept.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import typer

from tarry.bench import wheel_nodes
from tarry.bench.side_by_side import figures

ROOT: Final = Path(__file__).resolve().parents[1]
MEASURED: Final = ROOT / "bench" / "measured"
Tables: TypeAlias = Mapping[str, Callable[[Mapping[str, Any]], str]]

TABLES: Final[Tables] = {
    "side_by_side": figures.markdown,
    "wheel_nodes": wheel_nodes.markdown,
}
PAGES: Final[Mapping[Path, Tables]] = {
    ROOT / "README.md": {
        "side_by_side": partial(figures.markdown, only=figures.HIGHLIGHTS, without=figures.NOT_HIGHLIGHTED)
    },
    ROOT / "bench" / "NOTES.md": TABLES,
}


def with_tables(page: str, tables: Tables) -> str:
    """Return the page with the tables of the figures that are kept. Raises ValueError without a place."""
    for name, table in tables.items():
        kept = MEASURED / f"{name}.json"
        text = table(json.loads(kept.read_text()))
        page, places = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
            lambda place, text=text: f"{place[1]}{text}\n{place[2]}",  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
        if places != 1:
            raise ValueError(f"the page has {places} places <!-- {name} -->; it needs one")
    return page


def main(
    out: Annotated[Path, typer.Option(help="where the benches left their figures")] = Path("out"),
) -> None:
    """Keep the newest figures, and write their tables into the pages."""
    for name in TABLES:
        if (found := out / f"{name}.json").exists():
            shutil.copyfile(found, MEASURED / found.name)
            print(f"taken: {found}")
    for page, tables in PAGES.items():
        page.write_text(with_tables(page.read_text(), tables))


if __name__ == "__main__":
    typer.run(main)
