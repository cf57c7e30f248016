"""Settings: addresses and limits are checked when the client is made."""

from __future__ import annotations

import pytest

from tarry.client.aio import connect
from tarry.client.settings import parse_servers
from tarry.client.tracing import Tracing, tracing_of


def test_addresses_come_as_text_or_sequence_each_once_in_order() -> None:
    assert parse_servers("b:1, a:2,b:1") == ("b:1", "a:2")
    assert parse_servers(["a:2", "b:1"]) == ("a:2", "b:1")
    assert parse_servers("[::1]:7001") == ("[::1]:7001",)


@pytest.mark.parametrize("servers", ["", " , ", "host", "host:", ":7001", "host:x"])
def test_what_is_no_address_is_refused_by_name(servers: str) -> None:
    with pytest.raises(ValueError, match="server"):
        connect(servers)


@pytest.mark.parametrize(
    "setting",
    [
        {"in_flight_max": 33},
        {"in_flight_max": 0},
        {"batch_messages_max": 0},
        {"ack_linger_ms": -1},
        {"batch_bytes_max": 0},
    ],
)
def test_settings_outside_their_limits_are_refused(setting: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be"):
        connect("a:1", **setting)


def test_an_unknown_setting_is_refused() -> None:
    with pytest.raises(TypeError):
        connect("a:1", retries=3)


def test_tracing_is_asked_for_by_a_flag_or_by_options() -> None:
    assert tracing_of(False) is None
    assert tracing_of(True) == Tracing()
    assert tracing_of(Tracing(same_trace=True)) == Tracing(same_trace=True)
    with pytest.raises(TypeError, match="tracing"):
        connect("a:1", tracing="yes")
