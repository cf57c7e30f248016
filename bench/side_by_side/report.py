"""One HTML file that needs nothing else: plots of every row, durability, machine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, StrictUndefined
from plotly.offline import get_plotlyjs

from tarry.bench.side_by_side.figures import OURS, lines
from tarry.bench.side_by_side.rows import Cost, Row

PAGE = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
    """<!doctype html><meta charset=utf-8><title>side by side</title><style>
body{font:15px sans-serif;max-width:70em;margin:2em auto}
td,th{text-align:left;padding:.2em .8em;vertical-align:top}
</style><script>{{ plotly|safe }}</script>
{% macro table(head, rows) %}
<table><tr>{% for each in head %}<th>{{ each }}</th>{% endfor %}</tr>
{% for row in rows %}
<tr>{% for each in row %}<td>{{ each }}</td>{% endfor %}</tr>
{% endfor %}
</table>
{% endmacro %}
<h1>tarry and its peers, side by side</h1>
{{ table(["on", ""], machine.items()) }}
<h2>Systems</h2>
{{ table(["system", "version", "copies", "fsync before the answer", "setting", "missing", "note", "lost",
          "early", "duplicates", "changed"], systems) }}
{% if skipped %}{{ table(["left out", "because"], skipped.items()) }}{% endif %}
<h2>Rows</h2><p>Bars are medians over the turns, tarry's red; whiskers reach from the least to the most.</p>
{% for plot in plots %}{{ plot|safe }}{% endfor %}
<h2>All figures</h2>
{{ table(["row", "system", "turns", "shortest turn, of a whole one", "seconds in all", "figure", "min",
          "median", "max", "failed"], figures) }}
"""
)
OF_SYSTEM = (
    "version", "copies", "synced", "setting", "mark", "note", "lost", "early", "duplicates", "changed",
)  # fmt: skip
COLOUR_OURS, COLOUR_PEER = "#d1495b", "#8d99ae"
NO_FIGURE = {"": {"min": "", "median": "", "max": ""}}


def page(found: Mapping[str, Any]) -> str:
    """Return the report as HTML."""
    return PAGE.render(
        plotly=get_plotlyjs(),
        machine=found["machine"],
        systems=[[name, *(each[key] for key in OF_SYSTEM)] for name, each in found["systems"].items()],
        skipped=found["skipped"],
        plots=[
            plot(row, found["rows"][row.name]).to_html(full_html=False, include_plotlyjs=False)
            for row, _ in lines(found)
        ],
        figures=[
            [row, name, cell["turns"], cell["share"], cell["seconds"], figure,
             *(spread[each] for each in ("min", "median", "max")), cell["failed"]]
            for row, cells in found["rows"].items()
            for name, cell in cells.items()
            for figure, spread in (cell["figures"] or NO_FIGURE).items()
        ],
    )  # fmt: skip


def plot(row: Row | Cost, cells: Mapping[str, Any]) -> go.Figure:
    """Return a bar for each system that has the row's figure, tarry's in a colour of its own."""
    spreads = {
        name: cell["figures"][row.figure] for name, cell in cells.items() if row.figure in cell["figures"]
    }
    medians = [each["median"] for each in spreads.values()]
    bar = go.Bar(
        x=list(spreads),
        y=medians,
        marker_color=[COLOUR_OURS if name == OURS else COLOUR_PEER for name in spreads],
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
