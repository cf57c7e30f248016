"""The rules by which Prometheus alerts: they parse, each fires when it should, and each is explained."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tarry.proto.reasons import Reason
from tests.node.monitoring.documented import (
    MONITORING,
    OF_PROMETHEUS,
    OWN_LABELS,
    ROOT,
    labels_in,
    metrics_in,
    rows,
    series,
)
from tests.node.monitoring.promtool import needs_promtool, promtool

FILE = MONITORING / "alerts.yml"
CASES = Path(__file__).with_name("alerts_test.yml")
OPERATING = (ROOT / "node" / "OPERATING.md").read_text()


def loaded() -> dict[str, Any]:
    parsed: dict[str, Any] = yaml.safe_load(FILE.read_text())
    return parsed


RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in loaded()["groups"] for rule in group["rules"]
}


def cases() -> list[dict[str, Any]]:
    parsed = yaml.safe_load(CASES.read_text())
    return [case for test in parsed["tests"] for case in test["alert_rule_test"]]


@needs_promtool
def test_prometheus_takes_the_rules() -> None:
    assert f"{len(RULES)} rules found" in promtool(MONITORING, "check", "rules", FILE.name)


@needs_promtool
def test_each_rule_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    write_for_cases(loaded(), tmp_path)
    promtool(tmp_path, "test", "rules", CASES.name)


@needs_promtool
def test_a_rule_with_another_bound_is_noticed(tmp_path: Path) -> None:
    rules = loaded()
    for rule in rules["groups"][0]["rules"]:
        rule["expr"] = rule["expr"].replace("> 0.1", "> 100")
    write_for_cases(rules, tmp_path)
    with pytest.raises(AssertionError, match="TarryClockOff"):
        promtool(tmp_path, "test", "rules", CASES.name)


def write_for_cases(rules: dict[str, Any], folder: Path) -> None:
    """Write rules and cases: promtool compares all annotations, and only the summary differs by alert."""
    for group in rules["groups"]:
        for rule in group["rules"]:
            rule["annotations"] = {"summary": rule["annotations"]["summary"]}
    (folder / FILE.name).write_text(yaml.safe_dump(rules))
    (folder / CASES.name).write_text(CASES.read_text())


def test_every_rule_has_a_case_that_fires_and_one_that_does_not() -> None:
    fires = {case["alertname"] for case in cases() if case.get("exp_alerts")}
    does_not = {case["alertname"] for case in cases() if not case.get("exp_alerts")}
    assert fires == does_not == RULES.keys()


def test_no_rule_fires_while_a_cluster_starts() -> None:
    fresh = yaml.safe_load(CASES.read_text())["tests"][0]
    assert "while a cluster starts" in fresh["name"]
    assert {case["alertname"] for case in fresh["alert_rule_test"]} == RULES.keys()
    assert not any(case.get("exp_alerts") for case in fresh["alert_rule_test"])


@pytest.mark.parametrize("name", RULES)
def test_a_rule_says_how_bad_it_is_for_how_long_and_what_to_do(name: str) -> None:
    rule = RULES[name]
    assert rule["labels"].keys() == {"severity"}
    assert rule["labels"]["severity"] in {"critical", "warning"}
    assert re.fullmatch(r"\d+[mh]", rule["for"])
    assert rule["annotations"].keys() == {"summary", "description", "runbook"}
    assert rule["annotations"]["description"].endswith(".")
    assert "{{" not in rule["annotations"]["description"] + rule["annotations"]["runbook"]
    shown = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    fired = [case["exp_alerts"] for case in cases() if case["alertname"] == name and case.get("exp_alerts")]
    assert all(shown <= alert["exp_labels"].keys() for alerts in fired for alert in alerts)


@pytest.mark.parametrize("name", RULES)
def test_a_rule_names_documented_metrics_and_their_labels_only(name: str) -> None:
    known = series()
    named = metrics_in(RULES[name]["expr"])
    assert named
    assert named - known.keys() - OF_PROMETHEUS == set()
    labels = {label for metric in named - OF_PROMETHEUS for label in known[metric]}
    assert labels_in(RULES[name]["expr"]) - OWN_LABELS <= labels


@pytest.mark.parametrize("name", RULES)
def test_an_alert_about_what_only_the_leader_tells_is_the_same_alert_under_the_next_leader(name: str) -> None:
    """With the node among its labels it would end and begin anew with every failover."""
    of_leader = {metric for metric, row in rows().items() if row.where == "leader"}
    if not any(metric.startswith(tuple(of_leader)) for metric in metrics_in(RULES[name]["expr"])):
        return
    fired = [alert for case in cases() if case["alertname"] == name for alert in case.get("exp_alerts", ())]
    assert fired
    assert all("instance" not in alert["exp_labels"] for alert in fired)


def test_the_refusals_that_are_told_are_reasons_that_the_page_explains() -> None:
    (named,) = re.findall(r'reason=~"([^"]+)"', RULES["TarryRefusals"]["expr"])
    reasons = named.split("|")
    assert set(reasons) <= {reason.value for reason in Reason}
    table = OPERATING.partition("\n## What is refused\n")[2].partition("\nAll other reasons")[0]
    assert [reason for reason in reasons if f"`{reason}`" not in table] == []


@pytest.mark.parametrize("name", RULES)
def test_what_to_do_about_an_alert_stands_in_a_section_of_its_own(name: str) -> None:
    page, _, anchor = RULES[name]["annotations"]["runbook"].partition("#")
    assert (page, anchor) == ("node/OPERATING.md", name.lower())
    assert f"\n### {name}\n" in OPERATING


def test_there_is_no_section_about_an_alert_that_there_is_not() -> None:
    _, _, section = OPERATING.partition("\n## What Prometheus alerts of\n")
    assert set(re.findall(r"^### (Tarry\w+)$", section.partition("\n## ")[0], re.MULTILINE)) == RULES.keys()


def test_metrics_and_labels_are_found_in_an_expression() -> None:
    told = 'sum by (job, le) (rate(a_total{topic=~"x|y_total"}[5m])) / on (job) b offset 5m > 10 * 1024 ^ 3'
    assert metrics_in(told) == {"a_total", "b"}
    assert labels_in(told) == {"job", "le", "topic"}
    assert metrics_in("rate(tarry_x[$__rate_interval]) and $group unknown_function(up)") == {
        *("tarry_x", "unknown_function", "up"),
    }
