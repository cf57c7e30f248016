"""A table of the console: sorted, filtered and in pages, as the query of its address says."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import urlencode

from markupsafe import Markup, escape

ROWS: Final = 50
"""Of a page."""
FILTER_CHARACTERS_MAX: Final = 200

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """A column. ``show`` makes a cell of a row; else it is the row's value."""

    name: str
    title: str
    number: bool = False
    show: Callable[[Row], object] | None = None

    def cell(self, row: Row) -> Markup:
        """Return a row's cell."""
        value = self.show(row) if self.show is not None else row[self.name]
        if isinstance(value, bool):
            return Markup("yes" if value else "no")
        return escape(f"{value:,}" if isinstance(value, int) else value)


@dataclass(frozen=True, slots=True)
class Query:
    """Choice of rows, and their order."""

    sort: str
    """A column's name."""
    descending: bool = False
    filter: str = ""
    page: int = 1

    @classmethod
    def of(
        cls, values: Mapping[str, str], columns: Sequence[Column], default: str, prefix: str = ""
    ) -> Query:
        """Return the query of an address; what makes no sense in it counts as if it were not there.

        ``default``: the column by which rows are sorted else, with ``-`` before it descending.
        """
        names = {column.name for column in columns}
        sort = values.get(f"{prefix}sort", default)
        if sort.removeprefix("-") not in names:
            sort = default
        page = values.get(f"{prefix}page", "1")
        return cls(
            sort.removeprefix("-"),
            sort.startswith("-"),
            values.get(f"{prefix}filter", "")[:FILTER_CHARACTERS_MAX],
            max(1, int(page)) if page.isascii() and page.isdecimal() and len(page) < 10 else 1,
        )

    def values(self) -> dict[str, str]:
        """Return it as an address has it."""
        found = {"sort": ("-" if self.descending else "") + self.sort}
        if self.filter:
            found["filter"] = self.filter
        if self.page > 1:
            found["page"] = str(self.page)
        return found


@dataclass(frozen=True, slots=True)
class Table:
    """A page of rows, and the addresses of the others."""

    name: str
    """Of the table on its page, for elements' ids."""
    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    query: Query
    pages: int
    found: int
    """Rows that the filter lets through."""
    of: int
    """Rows there are."""
    prefix: str
    others: Mapping[str, str]
    """Further values of the address, which links keep."""

    def address(self, **changes: Any) -> str:
        """Return the address of the page with another query."""
        mine = {self.prefix + name: value for name, value in replace(self.query, **changes).values().items()}
        return "?" + urlencode({**self.others, **mine})

    def row_id(self, row: Row) -> str:
        """Return the id of a row's element, so that it is known again.

        It has the row's ``key``, or what its first two columns have, where only one row can have that.
        """
        parts = [row["key"]] if "key" in row else [row[column.name] for column in self.columns[:2]]
        return re.sub(r"[^\w.-]", "_", "-".join((self.name, *map(str, parts))))

    def sorted_by(self, column: Column) -> str:
        """Return the address of the page sorted by a column; numbers begin with the highest."""
        same = column.name == self.query.sort
        descending = not self.query.descending if same else column.number
        return self.address(sort=column.name, descending=descending, page=1)

    def direction(self, column: Column) -> str:
        """Return how the column is sorted, as screen readers are told it."""
        if column.name != self.query.sort:
            return "none"
        return "descending" if self.query.descending else "ascending"


def table_of(
    name: str,
    title: str,
    columns: Sequence[Column],
    rows: Sequence[Row],
    values: Mapping[str, str],
    default: str,
    prefix: str = "",
) -> Table:
    """Return what an address asks to see of these rows.

    The filter is found anywhere in a row as it is shown, in upper or lower case. ``prefix``: of this table's
    values in the address, where a page has several.
    """
    query = Query.of(values, columns, default, prefix)
    wanted = query.filter.casefold()
    found = [row for row in rows if wanted in _text(row, columns)] if wanted else list(rows)
    found.sort(key=lambda row: _order(row[query.sort]), reverse=query.descending)
    pages = max(1, -(-len(found) // ROWS))
    query = replace(query, page=min(query.page, pages))
    start = (query.page - 1) * ROWS
    mine = {prefix + one for one in ("sort", "filter", "page")}
    others = {name: value for name, value in values.items() if name not in mine}
    shown = found[start : start + ROWS]
    return Table(name, title, columns, shown, query, pages, len(found), len(rows), prefix, others)


def _text(row: Row, columns: Sequence[Column]) -> str:
    shown = ("" if row[column.name] is None else column.cell(row).striptags() for column in columns)
    return "\n".join(shown).casefold()


def _order(value: object) -> tuple[int, Any]:
    """Return a key that sorts numbers before texts, and nothing first."""
    if value is None:
        return (0, 0)
    return (1, value) if isinstance(value, int | float) else (2, str(value))
