"""The pages against one another and against the code: links lead somewhere, tables have what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tarry.chaos.__main__ import SCENARIOS

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("[a-z]*/*.md"), *ROOT.glob("examples/*/*.md")])
CHAOS = (ROOT / "chaos" / "README.md").read_text()


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_a_page_points_to_is_there(page: Path) -> None:
    text = page.read_text()
    for path, _, anchor in (link.partition("#") for link in re.findall(r"\]\((?!http)([^)]+)\)", text)):
        target = page.parent / path if path else page
        assert target.exists(), path
        assert not anchor or anchor in anchors(target), f"{path}#{anchor}"
    files = re.findall(r"`((?:tests|chaos|bench|node|replication)/[\w/.-]+\.(?:py|md))`", text)
    assert [file for file in files if not (ROOT / file).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_tests_that_a_page_names_are_there(page: Path) -> None:
    """A name may be cut, then its beginning counts; one without a file is of the one before."""
    file = ""
    for given, name in re.findall(r"(?:\b([\w/]*test_\w+\.py))?::(test_\w+)", page.read_text()):
        file = given or file
        found = [path for path in (ROOT / "tests").rglob(Path(file).name) if str(path).endswith(file)]
        assert any(f"def {name}" in path.read_text() for path in found), f"{file}::{name}"


@pytest.mark.parametrize("folder", ["client", "console", "node"])
def test_no_table_has_a_row_twice(folder: str) -> None:
    twice = list[str]()
    for page in (ROOT / folder).glob("*.md"):
        for table in re.findall(r"^\|[ :|-]+\|\n((?:\|.*\n)+)", page.read_text(), re.MULTILINE):
            firsts = re.findall(r"^\|(.+?) \|", table, re.MULTILINE)
            twice += {f"{page.name}:{first}" for first in firsts if first.strip() and firsts.count(first) > 1}
    assert twice == []


def test_the_table_of_scenarios_has_each_with_what_is_done() -> None:
    row = r"^\| ([a-z-]+) \| (.+?) \| (?:light|singles|bulk|) ?\| (?:yes|\*\*no\*\*|not played) \|"
    shown = re.findall(row, CHAOS, re.MULTILINE)
    assert dict(shown) == {name: scenario.what for name, scenario in SCENARIOS.items()}


def test_the_readme_counts_the_scenarios_and_the_bugs_that_are_in_the_tables() -> None:
    page = (ROOT / "README.md").read_text()
    assert f"plays {len(SCENARIOS)} named scenarios" in page
    bugs = CHAOS.partition("## Bugs found")[2]
    rows = len(re.findall(r"^\| ", bugs, re.MULTILINE)) - 2
    assert f"{rows} bugs" in page


def test_the_client_s_design_has_every_module() -> None:
    table = (
        (ROOT / "client" / "DESIGN.md").read_text().partition("| module | purpose |")[2].partition("\n\n")[0]
    )
    named = set(re.findall(r"^\| `([\w/]+)` \|", table, re.MULTILINE))
    folder = ROOT / "client"
    assert {path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.py")} == named
