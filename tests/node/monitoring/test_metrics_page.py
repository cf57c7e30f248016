"""The tables of node/METRICS.md: complete, and with names of other systems that have the form of theirs."""

from __future__ import annotations

import re

import pytest

from tests.node.monitoring.documented import PAGE, rows

ROWS = rows()


def test_each_metric_has_one_row() -> None:
    names = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert len(names) == len(set(names))
    assert set(names) == ROWS.keys()


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_complete_and_its_name_fits_its_type(name: str) -> None:
    row = ROWS[name]
    assert row.kind in {"counter", "gauge", "histogram"}
    assert row.where in {"leader", "each"}
    assert name.endswith("_total") == (row.kind == "counter")
    assert row.kind != "histogram" or name.endswith("_seconds")
    assert re.fullmatch(r"(`rocketmq_\w+`(, `rocketmq_\w+`)*)?", row.rocketmq)
    assert re.fullmatch(r"(`(etcd|process|os)_\w+`)?", row.etcd)
