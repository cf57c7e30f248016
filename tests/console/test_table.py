"""Tables of the console: rows sorted, filtered and in pages, as their address says."""

from __future__ import annotations

from urllib.parse import parse_qs

import pytest

from tarry.console.views.table import FILTER_CHARACTERS_MAX, ROWS, Column, Table, table_of

COLUMNS = (Column("name", "Name"), Column("size", "Size", number=True))
ROWS_THERE = [{"name": f"t{at:03d}", "size": at % 7} for at in range(120)]


def shown(values: dict[str, str], prefix: str = "") -> Table:
    return table_of("things", "Things", COLUMNS, ROWS_THERE, values, "-size", prefix)


def names(table: Table) -> list[str]:
    return [row["name"] for row in table.rows]


def test_rows_are_sorted_by_the_default_and_come_in_pages() -> None:
    first = shown({})
    assert [row["size"] for row in first.rows][:17] == [6] * 17
    assert (len(first.rows), first.pages, first.found, first.of) == (ROWS, 3, 120, 120)
    pages = [name for page in (1, 2, 3) for name in names(shown({"page": str(page)}))]
    assert sorted(pages) == [row["name"] for row in ROWS_THERE]


def test_a_page_beyond_the_last_is_the_last() -> None:
    assert names(shown({"page": "99"})) == names(shown({"page": "3"}))
    assert shown({"page": "99"}).query.page == 3


@pytest.mark.parametrize("page", ["0", "-1", "x", "", "²", "9" * 30])
def test_a_page_that_is_none_is_the_first(page: str) -> None:
    assert names(shown({"page": page})) == names(shown({}))


@pytest.mark.parametrize("sort", ["", "-", "nothing", "--size", "<b>"])
def test_a_column_that_is_none_is_the_default(sort: str) -> None:
    assert names(shown({"sort": sort})) == names(shown({}))


def test_the_filter_finds_texts_in_upper_and_lower_case() -> None:
    assert shown({"filter": "6"}).found > 17  # numbers, too
    table = shown({"filter": "T01", "sort": "name"})
    assert names(table) == [f"t01{at}" for at in range(10)]
    assert (table.found, table.of, table.pages) == (10, 120, 1)
    assert shown({"filter": "nowhere"}).rows == []
    assert len(shown({"filter": "x" * 1_000}).query.filter) == FILTER_CHARACTERS_MAX


def test_links_keep_the_rest_of_the_address() -> None:
    table = shown({"a-sort": "name", "a-filter": "t0", "a-page": "2", "span": "60"}, "a-")
    assert parse_qs(table.address(page=1)[1:]) == {"span": ["60"], "a-sort": ["name"], "a-filter": ["t0"]}
    by_size = parse_qs(table.sorted_by(COLUMNS[1])[1:])
    assert by_size == {"span": ["60"], "a-sort": ["-size"], "a-filter": ["t0"]}
    assert parse_qs(table.sorted_by(COLUMNS[0])[1:])["a-sort"] == ["-name"]
    assert [table.direction(column) for column in COLUMNS] == ["ascending", "none"]


def test_what_has_no_value_comes_before_what_has_one() -> None:
    rows = [{"name": "a", "size": 3}, {"name": "b", "size": None}, {"name": "c", "size": 1.5}]
    table = table_of("things", "Things", COLUMNS, rows, {"sort": "size"}, "name")
    assert names(table) == ["b", "c", "a"]


def test_cells_are_escaped_and_numbers_have_commas() -> None:
    row = {"name": "<b>&", "size": 1_234_567}
    assert [column.cell(row) for column in COLUMNS] == ["&lt;b&gt;&amp;", "1,234,567"]
