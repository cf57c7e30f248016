"""The README's figures, from what the benches wrote.

    make bench-readme       python -m tarry.bench.readme [--out out]

A whole run of `make bench` or `make bench-wheel` leaves its figures in `out/NAME.json`. They are kept as
`bench/measured/NAME.json`, and their table goes between `<!-- NAME -->` and `<!-- /NAME -->` of the README. A
test holds that the README says what is kept.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from tarry.bench import wheel_nodes
from tarry.bench.side_by_side import figures

ROOT: Final = Path(__file__).resolve().parents[1]
MEASURED: Final = ROOT / "bench" / "measured"
TABLES: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "side_by_side": figures.markdown,
    "wheel_nodes": wheel_nodes.markdown,
}


def with_tables(page: str) -> str:
    """Return the README with the tables of the figures that are kept. Raises ValueError without a place."""
    for name, table in TABLES.items():
        kept = MEASURED / f"{name}.json"
        text = table(json.loads(kept.read_text()))
        page, places = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)",
            lambda place, text=text: f"{place[1]}{text}\n{place[2]}",  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
        if places != 1:
            raise ValueError(f"README.md has {places} places <!-- {name} -->; it needs one")
    return page


def main(
    out: Annotated[Path, typer.Option(help="where the benches left their figures")] = Path("out"),
) -> None:
    """Keep the newest figures, and lay their tables into the README."""
    for name in TABLES:
        if (found := out / f"{name}.json").exists():
            shutil.copyfile(found, MEASURED / found.name)
            print(f"taken: {found}")
    readme = ROOT / "README.md"
    readme.write_text(with_tables(readme.read_text()))


if __name__ == "__main__":
    typer.run(main)
