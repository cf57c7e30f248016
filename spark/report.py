"""The report for people: one HTML file with everything in it, plots drawn from counts, never from single
messages.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go
from jinja2 import Environment, StrictUndefined
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from tarry.proto.ledger.schema import Kind
from tarry.spark.checks import timeline

STEPS_MAX: Final = 600
"""Steps on a time axis: longer spans get longer steps."""

BANDS_MS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000)
"""Where bands of lateness begin; below the first: early."""

ROWS_MAX: Final = 200
"""Rows of a table in the report; the Parquet tables have all."""


def _text(value: Any) -> str:
    if isinstance(value, bool | str) or value is None:
        return str(value)
    return f"{value:,}" if isinstance(value, int | float) else json.dumps(value, default=str)


_ENVIRONMENT: Final = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
_ENVIRONMENT.filters["text"] = _text
PAGE: Final = _ENVIRONMENT.from_string("""<!doctype html><html lang="en"><meta charset="utf-8">
<title>tarry: reconciliation</title><style>
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0}
td,th{padding:.2rem .8rem;border-bottom:1px solid #ddd;text-align:left}
.bad{color:#b00020;font-weight:600}
.good{color:#0a7a3d;font-weight:600}
</style>
{% macro table(rows) %}
{% if not rows %}<p>none</p>{% else %}
<table><tr>{% for name in rows[0] %}<th>{{ name }}</th>{% endfor %}</tr>
{% for row in rows %}
<tr>{% for value in row.values() %}<td>{{ value|text }}</td>{% endfor %}</tr>
{% endfor %}
</table>
{% endif %}
{% endmacro %}
<h1>Reconciliation</h1>
{% if kept %}<p class="good">every promise was kept</p>
{% else %}<p class="bad">promises were broken: {{ broken|join(", ") }}</p>{% endif %}
{{ table(summary) }}
{% for plot in plots %}{{ plot|safe }}{% endfor %}
<h2>Lateness by topic</h2>{{ table(topics) }}
<h2>Violations</h2><p>The first {{ most }}; all are in the table <code>violations</code>.</p>
{{ table(violations) }}</html>
""")


def page(counts: DataFrame, duplicates: DataFrame, violations: DataFrame, summary: Mapping[str, Any]) -> str:
    """Return the report as HTML.

    Args:
        counts: checks.timeline.timeline; duplicates, violations: as the job writes them; summary: of the job.
    """
    grain_ms = _grain_ms(counts)
    plots = [
        _lateness(counts, grain_ms),
        _pending(counts, grain_ms),
        _failovers(duplicates),
    ]
    by_topic = timeline.lateness(counts, "topic").orderBy("topic").limit(ROWS_MAX)
    some = violations.orderBy(F.desc("promise"), "check", "hour", "global_index").limit(ROWS_MAX)
    return PAGE.render(
        kept=summary["kept"],
        broken=summary["violations"],
        summary=[{"what": name, "figure": value} for name, value in summary.items()],
        plots=[
            plot.to_html(full_html=False, include_plotlyjs=number == 0) for number, plot in enumerate(plots)
        ],
        topics=[row.asDict() for row in by_topic.collect()],
        most=ROWS_MAX,
        violations=[row.asDict() for row in some.collect()],
    )


def _grain_ms(counts: DataFrame) -> int:
    least, most = counts.agg(F.min("from_ms"), F.max("from_ms")).collect()[0]
    span_ms = (most or 0) - (least or 0)
    return max(timeline.step_ms(span_ms), -(-span_ms // STEPS_MAX // 1_000) * 1_000)


def _stepped(grain_ms: int) -> Column:
    return (F.col("from_ms") - F.col("from_ms") % grain_ms).alias("step_ms")


def _times(rows: Sequence[Any]) -> Any:
    import numpy as np

    return np.array([row["step_ms"] for row in rows], dtype="datetime64[ms]")


def _lateness(counts: DataFrame, grain_ms: int) -> go.Figure:
    band = F.lit(-1)
    for number, begin_ms in enumerate(BANDS_MS):
        band = F.when(F.col("late_ms") >= begin_ms, number).otherwise(band)
    rows = (
        counts.where("late_ms is not null")
        .groupBy(_stepped(grain_ms), band.alias("band"))
        .agg(F.sum("rows").alias("rows"))
        .orderBy("step_ms")
        .collect()
    )
    names = ["early", *(f"{begin:,} ms" for begin in BANDS_MS)]
    heat = go.Histogram2d(
        x=_times(rows), y=[names[row["band"] + 1] for row in rows], z=[row["rows"] for row in rows],
        histfunc="sum", colorscale="Viridis", nbinsx=max(1, len({row["step_ms"] for row in rows})),
    )  # fmt: skip
    return _titled(
        go.Figure(heat), "Lateness over time: deliveries in each band", "late by at least"
    ).update_yaxes(categoryorder="array", categoryarray=names)


def _pending(counts: DataFrame, grain_ms: int) -> go.Figure:
    def of(*kinds: Kind) -> Column:
        wanted = F.col("kind").isin([kind.value for kind in kinds])
        if Kind.RELEASED in kinds:
            wanted &= F.col("group").isNull()  # not the copy of a retry
        return F.coalesce(F.sum(F.when(wanted, F.col("rows"))), F.lit(0))

    ended = of(Kind.RELEASED, Kind.CANCELLED, Kind.EXPIRED)
    steps = counts.groupBy(_stepped(grain_ms)).agg(
        of(Kind.RELEASED).alias("released"), (of(Kind.SCHEDULED) - ended).alias("more")
    )
    rows = (
        steps.withColumn("pending", F.sum("more").over(Window.orderBy("step_ms")))
        .orderBy("step_ms")
        .collect()
    )
    times = _times(rows)
    figure = go.Figure()
    figure.add_bar(x=times, y=[row["released"] for row in rows], name="released")
    figure.add_scatter(x=times, y=[row["pending"] for row in rows], name="pending", yaxis="y2")
    figure.update_layout(yaxis2={"overlaying": "y", "side": "right", "title": "pending"})
    return _titled(figure, f"Pending, and released in each {grain_ms // 1_000:,} s", "released")


def _failovers(duplicates: DataFrame) -> go.Figure:
    rows = (
        duplicates.where("term_after > term_before")
        .groupBy("term_before", "term_after", "cause", "beyond_bound")
        .count()
        .orderBy("term_before")
        .limit(STEPS_MAX)
        .collect()
    )
    figure = go.Figure()
    for cause, beyond in sorted({(row["cause"], row["beyond_bound"]) for row in rows}):
        some = [row for row in rows if (row["cause"], row["beyond_bound"]) == (cause, beyond)]
        figure.add_bar(
            x=[f"{row['term_before']} to {row['term_after']}" for row in some],
            y=[row["count"] for row in some],
            name=cause + (", beyond the bound" if beyond else ""),
        )
    return _titled(figure, "Duplicates at each failover, by the terms of the two leaders", "duplicates")


def _titled(figure: go.Figure, title: str, y: str) -> go.Figure:
    return figure.update_layout(title=title, yaxis_title=y, height=420, template="plotly_white")
