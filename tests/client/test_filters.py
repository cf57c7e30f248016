"""What a caller gives as a filter of messages: nothing that is empty, or no list, stands for all messages."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client.cli.main import app
from tarry.client.errors import InvalidQuery, InvalidSetting
from tarry.client.queries import forecast, listing
from tarry.client.queries.bulk_cancel import filter_of


@pytest.mark.parametrize(
    "only",
    [
        {"keys": []},
        {"tags": ()},
        {"tags": iter(())},
        {"keys": None},
        {"key_prefix": ""},
        {"key_prefix": None},
        {"due_to_ms": 0},
        {"tags": "abc"},
        {"keys": b"abc"},
        {"keys": [1]},
        {"key_prefix": 1},
    ],
)
def test_a_cancel_of_many_messages_is_refused_where_a_property_is_empty_or_no_list(only: Any) -> None:
    with pytest.raises(InvalidSetting):
        filter_of("t", only)


def test_without_properties_all_of_a_topic_is_meant_and_lists_of_any_kind_are_taken() -> None:
    assert not filter_of("t", {"due_from_ms": 0}).due_to_ms
    assert list(filter_of("t", {"keys": (key for key in "ab")}).keys) == ["a", "b"]


def test_a_listing_and_a_forecast_refuse_a_text_in_place_of_a_list() -> None:
    for only in ({"tags": "abc"}, {"keys": "abc"}):
        options: Any = only
        with pytest.raises(InvalidQuery):
            listing.request_of("t", 1, "", options)
    with pytest.raises(InvalidQuery):
        forecast.request_of({"topic": "t", "tags": "abc"})
    assert not listing.request_of("t", 1, "", {"tags": [], "keys": []}).filter.tags


@pytest.mark.parametrize("option", [("--key-prefix", ""), ("--due-to", "1970-01-01")])
def test_the_command_line_refuses_an_option_that_is_empty(option: tuple[str, str]) -> None:
    result = CliRunner().invoke(app, ["cancel", "--topic", "t", *option, "--yes", "-s", "127.0.0.1:1"])
    assert (result.exit_code, "empty" in result.output) == (2, True), result.output
