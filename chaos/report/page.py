"""One HTML page for a set of runs, complete in itself: the verdict on each, and its timeline.

A timeline has the faults as bands, the leader of each moment and its term as a line, the lateness of every
delivery as a dot, duplicates as crosses; seconds from the start of the run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import plotly.graph_objects as go
from jinja2 import Environment, StrictUndefined
from plotly.offline import get_plotlyjs
from plotly.subplots import make_subplots

from tarry.chaos.history import History, Sent
from tarry.chaos.run import Run
from tarry.chaos.scenario import Scenario
from tarry.chaos.traffic.consumers import BRISK
from tarry.chaos.verdict import Verdict

DOTS_MAX = 3_000
COLUMNS = (
    "traffic", "acknowledged", "delivered", "lost", "early", "after_cancel", "duplicates",
    "duplicates_beyond_bound", "unmarked", "stuck", "diverged", "not_judged", "unavailable_ms",
    "lateness_p50_ms", "lateness_p99_ms", "seconds",
)  # fmt: skip
PAGE = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True).from_string(
    """<!doctype html><meta charset="utf-8"><title>{{ title }}</title><style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em; color: #222 }
table { border-collapse: collapse }
td, th { padding: .15em .6em; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } .broken { color: #b00020 } .skipped { color: #888 }
h2 { margin-top: 2em } pre { white-space: pre-wrap }
</style><script>{{ plotly|safe }}</script><h1>{{ title }}</h1>
<table><tr><th>scenario</th>
{% for column in columns %}<th>{{ column|replace("_", " ") }}</th>{% endfor %}<th>failovers ms</th></tr>
{% for verdict, _, _ in runs %}
{% if verdict.skipped %}
<tr class="skipped"><td>{{ verdict.scenario }}</td>
<td colspan="{{ columns|length + 1 }}">not played: {{ verdict.skipped.splitlines()[0] }}</td></tr>
{% else %}
<tr{% if not verdict.passed %} class="broken"{% endif %}>
<td><a href="#{{ verdict.scenario }}-{{ verdict.seed }}">{{ verdict.scenario }}</a></td>
{% for column in columns %}<td>{{ verdict[column] }}</td>{% endfor %}
<td>{{ verdict.failovers_ms|join(", ") }}
{%- for each in verdict.failovers_from_majority_ms %}, {{ each }} from a majority{% endfor %}</td></tr>
{% endif %}
{% endfor %}
</table>
{% for verdict, what, timeline in runs if not verdict.skipped %}
{% set name = verdict.scenario ~ "-" ~ verdict.seed %}
<h2 id="{{ name }}">{{ name }}</h2><p>{{ what }}</p>
{% if verdict.left_out %}<p>Without {{ verdict.left_out|join(", ") }}.</p>{% endif %}
{% for each in verdict.broken %}<pre class="broken">{{ each }}</pre>{% endfor %}
{% for each in verdict.unjudged %}<pre>not judged: {{ each }}</pre>{% endfor %}
{{ timeline|safe }}
{% endfor %}
"""
)


class Report:
    """Collects runs; `write` makes the page."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._runs: list[tuple[Verdict, str, str]] = []

    def skipped(self, verdict: Verdict) -> None:
        """Name a scenario that was not played, and the reason."""
        self._runs.append((verdict, "", ""))

    def add(self, scenario: Scenario, verdict: Verdict, run: Run) -> None:
        """Add one run."""
        drawn = timeline(run.history).to_html(full_html=False, include_plotlyjs=False)
        self._runs.append((verdict, scenario.what, drawn))

    def write(self, path: Path) -> None:
        """Write the page."""
        path.parent.mkdir(parents=True, exist_ok=True)
        page = PAGE.render(title=self._title, columns=COLUMNS, runs=self._runs, plotly=get_plotlyjs())
        path.write_text(page, encoding="utf-8")


def timeline(history: History) -> go.Figure:
    """Return one run as a figure."""
    start_ms = min((sent.sent_mono_ms for sent in history.sent), default=0)

    def seconds(at_mono_ms: int) -> float:
        return (at_mono_ms - start_ms) / 1_000

    figure = make_subplots(
        rows=2, shared_xaxes=True, row_heights=[0.75, 0.25], vertical_spacing=0.04,
        subplot_titles=("lateness of deliveries, ms", "who led, in which term"),
    )  # fmt: skip
    sent = {one.token: one for one in history.acknowledged()}
    first = history.first_deliveries()
    for group in sorted({group for group, _ in first}):
        late = [
            (seconds(one.received_mono_ms), max(0.1, one.received_ms - _due_ms(sent[token])))
            for (in_group, token), one in first.items()
            if in_group == group and token in sent
        ]
        late = late[:: max(1, len(late) // DOTS_MAX)]
        xs, ys = zip(*late, strict=True) if late else ((), ())
        figure.add_scattergl(x=xs, y=ys, mode="markers", marker={"size": 3}, name=f"group {group}")
    again = [one for one in history.later_deliveries() if one.group == BRISK]
    figure.add_scatter(
        x=[seconds(one.received_mono_ms) for one in again], y=[1] * len(again), mode="markers",
        marker={"symbol": "x", "color": "crimson", "size": 9}, name="duplicates",
    )  # fmt: skip
    _add_leaders(figure, history, seconds)
    _add_faults(figure, history, seconds)
    figure.update_yaxes(type="log", row=1, col=1)
    figure.update_xaxes(title_text="s", row=2, col=1)
    figure.update_layout(height=460, margin={"t": 40, "b": 40}, legend={"orientation": "h", "y": -0.2})
    return figure


def _due_ms(message: Sent) -> int:
    return max(message.acknowledged_due_ms, message.answered_ms)


def _add_leaders(figure: go.Figure, history: History, seconds: Callable[[int], float]) -> None:
    for node in sorted({one.node for one in history.delivered}):
        led = sorted((one.received_mono_ms, one.term) for one in history.delivered if one.node == node)
        led = led[:: max(1, len(led) // DOTS_MAX)]
        figure.add_scattergl(
            x=[seconds(at_ms) for at_ms, _ in led], y=[term for _, term in led], mode="markers",
            marker={"size": 5}, name=f"{node} leads", row=2, col=1,
        )  # fmt: skip


def _add_faults(figure: go.Figure, history: History, seconds: Callable[[int], float]) -> None:
    for place, event in enumerate(history.events):
        closing = f"end of {event.name}"
        end = next(
            (one for one in history.events[place:] if (one.name, one.node) == (closing, event.node)), None
        )
        if end is not None:
            figure.add_vrect(
                x0=seconds(event.at_mono_ms), x1=seconds(end.at_mono_ms), fillcolor="orange", opacity=0.15,
                line_width=0, annotation_text=f"{event.name} {event.node}", annotation_position="top left",
            )  # fmt: skip
        elif event.name in {"kill", "transfer", "restart"}:
            figure.add_vline(
                x=seconds(event.at_mono_ms), line_color="crimson" if event.name == "kill" else "steelblue",
                line_width=1,
            )  # fmt: skip
