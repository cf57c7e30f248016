"""One HTML file that needs nothing else: plots of every row, durability, machine."""

from __future__ import annotations

import html
from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
from plotly.offline import get_plotlyjs

from tarry.bench.side_by_side.figures import lines
from tarry.bench.side_by_side.rows import Row

STYLE = (
    "body{font:15px sans-serif;max-width:70em;margin:2em auto}"
    "td,th{text-align:left;padding:.2em .8em;vertical-align:top}"
)

NO_FIGURE = {"": {"min": "", "median": "", "max": ""}}


def page(found: Mapping[str, Any]) -> str:
    """Return the report as HTML."""
    plots = [
        plot(row, found["rows"][row.name]).to_html(full_html=False, include_plotlyjs=False)
        for row, _ in lines(found)
    ]
    parts = [
        f"<!doctype html><meta charset=utf-8><title>side by side</title><style>{STYLE}</style>",
        f"<script>{get_plotlyjs()}</script>",
        "<h1>tarry and its peers, side by side</h1>",
        _table(["on", ""], [[key, value] for key, value in found["machine"].items()]),
        "<h2>Systems</h2>",
        _table(
            ["system", "version", "copies", "fsync before the answer", "setting", "missing", "note", "lost",
             "early", "duplicates", "changed"],
            [[name, *(each[key] for key in ("version", "copies", "synced", "setting", "mark", "note", "lost",
                                            "early", "duplicates", "changed"))]
             for name, each in found["systems"].items()],
        ),
        *([_table(["left out", "because"], list(found["skipped"].items()))] if found["skipped"] else []),
        "<h2>Rows</h2><p>Bars are medians over the turns; whiskers reach from the least to the most.</p>",
        *plots,
        "<h2>All figures</h2>",
        _table(
            ["row", "system", "turns", "shortest turn, of a whole one", "seconds in all", "figure", "min",
             "median", "max", "failed"],
            [[row, name, cell["turns"], cell["share"], cell["seconds"], figure,
              *(spread[each] for each in ("min", "median", "max")), cell["failed"]]
             for row, cells in found["rows"].items()
             for name, cell in cells.items()
             for figure, spread in (cell["figures"] or NO_FIGURE).items()],
        ),
    ]  # fmt: skip
    return "\n".join(parts)


def plot(row: Row, cells: Mapping[str, Any]) -> go.Figure:
    """Return a bar for each system that has the row's figure."""
    spreads = {
        name: cell["figures"][row.figure] for name, cell in cells.items() if row.figure in cell["figures"]
    }
    medians = [each["median"] for each in spreads.values()]
    bar = go.Bar(
        x=list(spreads),
        y=medians,
        error_y={
            "type": "data",
            "array": [each["max"] - each["median"] for each in spreads.values()],
            "arrayminus": [each["median"] - each["min"] for each in spreads.values()],
        },
    )
    better = "more is better" if row.more_is_better else "less is better"
    figure = go.Figure(bar)
    figure.update_layout(title=f"{row.title} ({better})", yaxis_title=row.unit, height=360)
    if medians and min(medians) > 0 and max(medians) / min(medians) > 50:
        figure.update_yaxes(type="log")
    return figure


def _table(head: list[str], body: list[list[Any]] | list[tuple[str, str]]) -> str:
    cells = "".join(f"<th>{html.escape(each)}</th>" for each in head)
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(str(each))}</td>" for each in row) + "</tr>" for row in body
    )
    return f"<table><tr>{cells}</tr>{rows}</table>"
