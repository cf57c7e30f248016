"""The metrics that node/METRICS.md documents, and those that a PromQL expression names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[3]
MONITORING: Final = ROOT / "node" / "monitoring"
PAGE: Final = (ROOT / "node" / "METRICS.md").read_text()

SUFFIXES: Final = {"histogram": ("_bucket", "_sum", "_count")}
OF_PROMETHEUS: Final = {"up", "ALERTS"}
"""What Prometheus adds of its own."""
OWN_LABELS: Final = {"job", "instance", "le"}
WORDS: Final = {
    *("by", "without", "on", "ignoring", "group_left", "group_right", "and", "or", "unless", "offset"),
    *("sum", "min", "max", "count", "avg", "topk", "abs", "rate", "increase", "changes", "clamp_min"),
    *("histogram_quantile", "predict_linear", "label_values", "time"),
}
"""What is written in expressions and is no name of a metric."""


class Row(NamedTuple):
    """A metric, as the page has it."""

    labels: set[str]
    kind: str
    where: str
    rocketmq: str
    etcd: str


def rows() -> dict[str, Row]:
    """Return the metrics of the page's tables."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\| `(?:tarry|process)_.*\|$", PAGE, re.MULTILINE)
    ]
    return {
        name.strip("`"): Row(set(re.findall(r"`(\w+)`", labels)), kind, where, rocketmq, etcd)
        for name, labels, kind, where, _, rocketmq, etcd in cells
    }


def series() -> dict[str, set[str]]:
    """Return the labels of each documented name that a scrape has, buckets and sums of histograms too."""
    return {
        name + suffix: row.labels for name, row in rows().items() for suffix in SUFFIXES.get(row.kind, ("",))
    }


def bare(expression: str) -> str:
    """Return an expression without its texts, comments, ranges and variables."""
    without = re.sub(r"#[^\n]*", " ", re.sub(r'"[^"]*"', " ", expression))
    return re.sub(r"\[[^\]]*\]", " ", re.sub(r"\$\{?\w+(?::\w+)?\}?", " ", without))


def metrics_in(expression: str) -> set[str]:
    """Return the names of metrics in an expression; with them whatever it has that is not known."""
    kept = re.sub(r"\{[^}]*\}", " ", bare(expression))
    kept = re.sub(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", kept)
    return set(re.findall(r"\b[a-zA-Z_]\w*", kept)) - WORDS


def labels_in(expression: str) -> set[str]:
    """Return the labels by which an expression selects and groups."""
    text = bare(expression)
    selected = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", " ".join(re.findall(r"\{[^}]*\}", text)))
    grouped = re.findall(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)", text)
    return {*selected, *(label for some in grouped for label in re.findall(r"\w+", some))}
