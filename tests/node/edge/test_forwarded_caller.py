"""Callers' addresses as operators are shown them."""

from __future__ import annotations

import pytest

from tarry.node.edge.forwarded_caller import SHOWN_CHARS_MAX, shown_address


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("ipv4:10.0.0.1:5000", "10.0.0.1:5000"),
        ("ipv6:%5B::1%5D:5000", "[::1]:5000"),
        ("ipv6:%5Bfe80::1%25eth0%5D:5000", "[fe80::1%eth0]:5000"),
        ("unix:/run/tarry", "unix:/run/tarry"),
        ("", ""),
        ("\x1b[31mred\n\x00", "?[31mred??"),
        ("ipv4:%1b]0;title%07", "?]0?title?"),
        ("[bold]\N{SNOWMAN}\N{RIGHT-TO-LEFT OVERRIDE}<a href=", "[bold]???a?href?"),
    ],
)
def test_an_address_is_shown_without_what_no_address_has(given: str, shown: str) -> None:
    assert shown_address(given) == shown


def test_an_address_is_cut_however_long_it_is() -> None:
    assert shown_address("ipv4:" + "1" * 1_000_000) == "1" * SHOWN_CHARS_MAX
