import json
from pathlib import Path

import pytest

from tarry.bench.readme import MEASURED, PAGES, TABLES, with_tables
from tarry.bench.side_by_side.figures import KEYS, RATIOS


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_pages_say_what_was_measured(page: Path) -> None:
    text = page.read_text()
    assert with_tables(text, PAGES[page]) == text, "run make bench-readme"


def test_a_readme_without_a_place_for_a_table_is_refused() -> None:
    with pytest.raises(ValueError, match="side_by_side"):
        with_tables("no places", TABLES)


def test_what_was_measured_side_by_side_has_every_key_and_lost_nothing() -> None:
    found = json.loads((MEASURED / "side_by_side.json").read_text())
    assert (KEYS.keys() | RATIOS.keys()) - {"mass_1m_s"} <= found.keys()
    assert (found["lost"], found["early"], found["duplicates"]) == (0, 0, 0)


def test_every_table_has_its_figures() -> None:
    assert {file.stem for file in MEASURED.iterdir()} == set(TABLES)
