"""Grafana's dashboard: it is well formed, its expressions parse, and they name documented metrics only."""

from __future__ import annotations

import json
import re
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node.monitoring.documented import (
    MONITORING,
    OF_PROMETHEUS,
    OWN_LABELS,
    labels_in,
    metrics_in,
    series,
)
from tests.node.monitoring.promtool import needs_promtool, promtool

FILE = MONITORING / "dashboard.json"
BOARD: dict[str, Any] = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = BOARD["panels"]
TARGETS = {
    f"{panel['title']} {target['refId']}": target for panel in PANELS for target in panel.get("targets", ())
}
VARIABLES: dict[str, dict[str, Any]] = {one["name"]: one for one in BOARD["templating"]["list"]}
QUERIES = {name: one["definition"] for name, one in VARIABLES.items() if one["type"] == "query"}


def test_it_is_small_and_of_grafana_10() -> None:
    assert len(FILE.read_bytes()) < 60_000
    assert BOARD["schemaVersion"] >= 38
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)  # each target has a test of its own
    assert [panel["title"] for panel in PANELS if panel["type"] == "row"] == [
        *("Now", "Ahead", "Groups", "Raft", "Node"),
    ]


def test_every_panel_asks_the_source_that_is_chosen() -> None:
    assert VARIABLES["datasource"]["type"] == "datasource"
    source = {"type": "prometheus", "uid": "${datasource}"}
    assert all(panel["datasource"] == source for panel in PANELS if panel["type"] != "row")
    assert all(VARIABLES[name]["datasource"] == source for name in QUERIES)


def test_panels_do_not_overlap() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    assert all(at["x"] >= 0 and at["x"] + at["w"] <= 24 for at in (panel["gridPos"] for panel in PANELS))
    clashes = [
        (one["title"], other["title"])
        for one, other in combinations(PANELS, 2)
        if overlap(one["gridPos"], other["gridPos"])
    ]
    assert clashes == []


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


@pytest.mark.parametrize("name", TARGETS)
def test_an_expression_names_documented_metrics_and_their_labels_only(name: str) -> None:
    check(TARGETS[name]["expr"], set(re.findall(r"\{\{(\w+)\}\}", TARGETS[name]["legendFormat"])))


@pytest.mark.parametrize("name", QUERIES)
def test_a_variable_takes_the_values_of_a_label_that_there_is(name: str) -> None:
    found = re.fullmatch(r"label_values\((.+), (\w+)\)", QUERIES[name])
    assert found is not None
    check(found[1], {found[2]})
    assert VARIABLES[name]["query"]["query"] == QUERIES[name]


def check(expression: str, shown: set[str]) -> None:
    known = series()
    of_alerts = {"alertname", "alertstate"} if "ALERTS" in expression else set()
    named = metrics_in(expression)
    assert named
    assert named - known.keys() - OF_PROMETHEUS == set()
    labels = {label for metric in named - OF_PROMETHEUS for label in known[metric]}
    assert labels_in(expression) | shown <= labels | OWN_LABELS | of_alerts
    assert set(re.findall(r"\$\{?(\w+)", expression)) - {"__rate_interval"} <= VARIABLES.keys()


@needs_promtool
def test_every_expression_parses(tmp_path: Path) -> None:
    written = [target["expr"] for target in TARGETS.values()]
    rules = [
        {"record": f"panel:{number}", "expr": re.sub(r"\$__rate_interval", "5m", expression)}
        for number, expression in enumerate(written)
    ]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(written)} rules found" in promtool(tmp_path, "check", "rules", file.name)
    file.write_text(file.read_text().replace("histogram_quantile(", "histogram_quantile((", 1))
    with pytest.raises(AssertionError, match="could not parse expression"):
        promtool(tmp_path, "check", "rules", file.name)
