"""What a caller gives as a filter of messages: nothing that is empty, or no list, stands for all messages."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client.cli.main import app
from tarry.client.errors import InvalidQuery
from tarry.client.queries import forecast, listing
from tarry.client.queries.matching import filter_of


@pytest.mark.parametrize(
    "only",
    [
        {"keys": []},
        {"tags": ()},
        {"tags": ""},
        {"keys": None},
        {"key_prefix": ""},
        {"key_prefix": None},
        {"due_to_ms": 0},
        {"tags": "abc"},
        {"keys": b"abc"},
        {"keys": [1]},
        {"key_prefix": 1},
        {"due_from_ms": None},
        {"due_to_ms": 1 << 63},
    ],
)
def test_a_filter_is_refused_where_a_property_is_empty_or_no_list(only: Any) -> None:
    with pytest.raises(InvalidQuery):
        filter_of("t", only)
    with pytest.raises(InvalidQuery):
        listing.request_of("t", 1, "", only)


def test_a_property_that_there_is_not_is_refused_and_not_left_out() -> None:
    for only in ({"tag": ["a"]}, {"tags": ["a"], "Keys": ["b"]}, {"states": ["pending"]}, {"group": "g"}):
        with pytest.raises(InvalidQuery, match="there is no property"):  # left out, all would match
            filter_of("t", only)
    of_listing: Any = {"states": ["pending"], "group": "g", "bodies": True}
    assert listing.request_of("t", 1, "", of_listing).group == "g"
    of_listing["tag"] = ["a"]
    with pytest.raises(InvalidQuery, match="there is no property 'tag'"):
        listing.request_of("t", 1, "", of_listing)


def test_without_properties_all_of_a_topic_is_meant_and_lists_of_any_kind_are_taken() -> None:
    assert not filter_of("t", {"due_from_ms": 0}).due_to_ms
    assert list(filter_of("t", {"keys": (key for key in "ab")}).keys) == ["a", "b"]


def test_a_forecast_refuses_a_text_in_place_of_a_list() -> None:
    with pytest.raises(InvalidQuery):
        forecast.request_of({"topic": "t", "tags": "abc"})


@pytest.mark.parametrize("command", [("cancel", "--yes", "--topic", "t"), ("list", "t")])
@pytest.mark.parametrize("option", [("--key-prefix", ""), ("--due-to", "1970-01-01")])
def test_the_command_line_refuses_an_option_that_is_empty(
    command: tuple[str, ...], option: tuple[str, str]
) -> None:
    result = CliRunner().invoke(app, [*command, *option, "-s", "127.0.0.1:1"])
    assert (result.exit_code, "empty" in result.output) == (2, True), result.output
