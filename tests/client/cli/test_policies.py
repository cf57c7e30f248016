"""A group's policy as people write and read it."""

from __future__ import annotations

import pytest
import typer

from tarry.client.cli.policies import json_of, parse_back_off, texts_of
from tarry.client.operators.group_policy import BackOff, Exponential


@pytest.mark.parametrize(
    ("text", "back_off"),
    [
        ("5s", 5_000),
        ("1s,5s,1m30s", (1_000, 5_000, 90_000)),
        ("1s..1h", Exponential(1_000, 3_600_000)),
        ("1s..1h:1.5", Exponential(1_000, 3_600_000, 1.5)),
        ("1.500s..2h:3", Exponential(1_500, 7_200_000, 3)),
    ],
)
def test_a_back_off_is_shown_as_it_was_written(text: str, back_off: BackOff) -> None:
    assert parse_back_off(text) == back_off
    assert texts_of({"back_off": back_off}) == {"back_off": text}


@pytest.mark.parametrize(
    "text", ["", "5", "1s,", "1s..", "..1h", "1s..1h:", "1s..1h:x", "1s..1m..1h", "1s,1s..1h"]
)
def test_what_is_no_back_off_is_wrong_usage(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is no duration"):
        parse_back_off(text)


def test_programs_get_numbers_and_people_units() -> None:
    policy = {"attempts_max": 16, "back_off": Exponential(1_000, 60_000), "lease_ms": 30_000}
    growing = {"first_ms": 1_000, "max_ms": 60_000, "factor": 2}
    assert json_of(policy) == {"attempts_max": 16, "back_off": growing, "lease_ms": 30_000}  # type: ignore[arg-type]
    assert texts_of(policy) == {"attempts_max": "16", "back_off": "1s..1m", "lease_ms": "30s"}  # type: ignore[arg-type]
