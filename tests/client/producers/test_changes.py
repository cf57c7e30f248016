"""Requests that change pending messages."""

from __future__ import annotations

import numpy as np
import pytest

from tarry.client.errors import InvalidTime
from tarry.client.producers.changes import REQUEST_IDS, reschedules, update_request
from tarry.client.results import Change, ChangeOutcome
from tarry.node.config import Limits


def test_many_messages_become_requests_that_a_node_takes_each_with_its_own_times() -> None:
    ids = [f"id{number}" for number in range(REQUEST_IDS + 2)]
    due_ms = np.arange(len(ids))
    first, last = reschedules(ids, due_ms, None, 7, "g", "t")
    assert Limits().reschedule_ids_max == REQUEST_IDS == len(first.ids)
    assert (list(last.ids), list(last.due_ms), list(last.if_due_ms)) == (
        ids[-2:],
        due_ms[-2:].tolist(),
        [7],
    )
    assert (last.group, last.topic, list(last.delay_ms)) == ("g", "t", [])


@pytest.mark.parametrize(
    ("due_ms", "delay_ms", "error"),
    [
        (None, None, InvalidTime),
        (1, 1, InvalidTime),
        (-1, None, InvalidTime),
        ("1", None, ValueError),
        (2**63, None, InvalidTime),
        ([1, 2], None, ValueError),
        (None, 1.5, TypeError),
    ],
)
def test_times_that_no_request_can_have_are_refused(
    due_ms: object, delay_ms: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        list(reschedules(["a", "b", "c"], due_ms, delay_ms, None, "", ""))  # type: ignore[arg-type]


def test_an_update_says_of_each_part_whether_it_is_replaced() -> None:
    parts = {"if_due_ms": None, "group": "", "topic": ""}
    request = update_request("id", body=b"", tags=[], keys=None, properties={}, **parts)
    set_parts = [
        name for name in ("body", "tags", "keys", "properties", "if_due_ms") if request.HasField(name)
    ]
    assert set_parts == ["body", "tags", "properties"]
    with pytest.raises(ValueError, match="give a body"):
        update_request("id", body=None, tags=None, keys=None, properties=None, **parts)
    with pytest.raises(TypeError):
        update_request("id", body=None, tags="red", keys=None, properties=None, **parts)


def test_an_outcome_of_a_later_version_is_told_as_unspecified() -> None:
    assert Change.of("a", 99, 0) == Change("a", ChangeOutcome.UNSPECIFIED, None)
    assert Change.of("a", 1, 5) == Change("a", ChangeOutcome.CHANGED, 5)
