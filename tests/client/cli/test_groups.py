"""What ``tarry group show`` prints."""

from __future__ import annotations

import json

import pytest

from tarry.client.cli.groups import CONSUMER_COLUMNS, _show
from tarry.client.cli.output import Output
from tarry.client.operators.group_policy import GroupDescription
from tarry.proto.tarry_operator_pb2 import BackOff, Consumer, DescribeGroupResponse, GroupPolicy, GroupStatus

CONSUMERS = [
    Consumer(
        consumer="streams",
        address="10.0.0.1:5000",
        since_ms=1_767_225_600_000,
        connected=True,
        credit=93,
        in_hand=7,
        lease_end_ms=1_767_225_630_500,
        tags=["a", "[b]"],
        filter="a = '[b]'",
    ),
    Consumer(consumer="calls", address="[::1]:6000", since_ms=1_767_225_600_001, polls=True, in_hand=1),
    Consumer(consumer="unknown", in_hand=2),
]
RESPONSE = DescribeGroupResponse(
    group=GroupStatus(group="g", backing_off=4_321),
    policy=GroupPolicy(back_off=BackOff(fixed_ms=1_234)),
    set_by={"back_off": "topic"},
    consumers=CONSUMERS,
    consumers_left_out=1_500,
)


def test_a_groups_consumers_are_rows_below_it(capsys: pytest.CaptureFixture[str]) -> None:
    _show("t", GroupDescription.of(RESPONSE), Output.TABLE)
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert any("backing_off" in line and "4321" in line for line in lines)
    assert any("back_off" in line and "1.234s (topic)" in line for line in lines)
    names = ("streams", "calls", "unknown")
    streams, calls, unknown = (next(line for line in lines if f" {name} " in line) for name in names)
    for text in ("10.0.0.1:5000", "stream", "yes", "93", "2026-01-01T00:00:00.000Z", ":30.500Z"):
        assert text in streams
    assert "a [b]" in streams
    assert "no" in calls
    assert "Z" not in unknown  # nothing is known of when
    assert "and 1,500 more consumers" in shown.err


def test_a_group_that_nobody_consumes_has_no_table(capsys: pytest.CaptureFixture[str]) -> None:
    group = DescribeGroupResponse(group=GroupStatus(group="g"))
    _show("t", GroupDescription.of(group), Output.TABLE)
    shown = capsys.readouterr()
    assert "address" not in shown.out
    assert "more" not in shown.err


def test_programs_are_told_all_of_each_consumer(capsys: pytest.CaptureFixture[str]) -> None:
    _show("t", GroupDescription.of(RESPONSE), Output.JSON)
    told = json.loads(capsys.readouterr().out)
    assert (told["backing_off"], told["consumers_left_out"]) == (4_321, 1_500)
    first = told["consumer_list"][0]
    assert (first["consumer"], first["address"], first["tags"]) == ("streams", "10.0.0.1:5000", ["a", "[b]"])
    assert first["filter"] == "a = '[b]'"
    assert {"in_hand", "credit", "connected"} <= first.keys() & set(CONSUMER_COLUMNS)
