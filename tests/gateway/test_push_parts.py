"""Parts of pushes: which addresses are public, what a signature proves, what a receiver may ask for."""

from __future__ import annotations

import hashlib
import hmac
from email.utils import formatdate
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.gateway.http.config import Config, load
from tarry.gateway.push.addresses import is_public
from tarry.gateway.push.post import Delivery, Posted, retry_after_ms
from tarry.gateway.push.pushes import AGAIN_S_MAX, SETTLE_MS, SETTLE_MS_MIN, Pusher, _pause_s, lease_ms
from tarry.gateway.push.settings import Push
from tarry.gateway.push.signature import AGE_S_MAX, sign, verify

SECRET = "a secret of sixteen"
PUSH = {"name": "p", "topic": "t", "group": "g", "url": "https://example.com/hook", "secrets": [SECRET]}


@pytest.mark.parametrize("address", ["93.184.216.34", "8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8"])
def test_addresses_of_the_internet_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::1",
        "::",
        "fe80::1",
        "fe80::1%eth0",
        "fc00::1",
        "fd12::1",
        "fec0::1",
        "feff::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "2002:7f00:1::",
        "2001:db8::1",
        "192.0.0.8",
        "192.88.99.1",
        "3fff::1",
    ],
)
def test_addresses_of_this_host_or_network_are_not(address: str) -> None:
    assert not is_public(address)


@given(st.binary(), st.integers(1, 2**36))
def test_a_signature_is_verified_by_either_secret_and_by_no_other(body: bytes, now_s: int) -> None:
    header = sign(body, "id", now_s, [SECRET, "the next secret"])
    assert verify(header, body, "id", now_s, SECRET)
    assert verify(header, body, "id", now_s + AGE_S_MAX, "the next secret")
    assert not verify(header, body, "id", now_s, "another secret")
    assert not verify(header, body + b"x", "id", now_s, SECRET)
    assert not verify(header, body, "other", now_s, SECRET)
    assert not verify(header, body, "id", now_s + AGE_S_MAX + 1, SECRET)


def test_a_signature_is_made_as_documented() -> None:
    expected = hmac.new(SECRET.encode(), b"1790000000.id.body", hashlib.sha256).hexdigest()
    assert sign(b"body", "id", 1_790_000_000, [SECRET]) == f"t=1790000000,v1={expected}"


@pytest.mark.parametrize("header", ["", "t=1", "v1=00", "t=x,v1=00", "t=1,t=1,v1=00", "t=1,v1=é", "t=²,v1=0"])
def test_what_is_no_signature_is_not_verified(header: str) -> None:
    assert not verify(header, b"", "id", 1, SECRET)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", 0),
        ("120", 120_000),
        (formatdate(1_060, usegmt=True), 60_000),
        (formatdate(10, usegmt=True), 0),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("1.5", None),
        ("²", None),
        ("9" * 400, 9_999_999_999_000),
    ],
)
def test_retry_after_is_seconds_or_a_date(text: str, expected: int | None) -> None:
    assert retry_after_ms(text, 1_000.0) == expected


@pytest.mark.parametrize(("asked_ms", "waits_ms"), [(None, None), (0, None), (500, 500), (90_000, 60_000)])
def test_what_a_receiver_asks_for_is_bounded(asked_ms: int | None, waits_ms: int | None) -> None:
    pusher: Any = SimpleNamespace(push=SimpleNamespace(retry_after_ms_max=60_000))
    assert Pusher._delay_ms(pusher, Posted(503, "", asked_ms)) == waits_ms


@pytest.mark.parametrize("timeout_ms", [1, 10_000, 25_000, 60_000, 300_000])
def test_a_lease_lasts_for_a_post_also_where_its_message_has_waited_in_hand(timeout_ms: int) -> None:
    """The consumer renews, each eighth of a lease, what has used a quarter of its own."""
    assert lease_ms(timeout_ms) >= timeout_ms + SETTLE_MS
    assert lease_ms(timeout_ms) * (1 - 1 / 4 - 1 / 8) >= timeout_ms + SETTLE_MS_MIN - 1


def test_a_push_tells_the_times_that_are_known() -> None:
    known = Delivery("i", "t", "g", 1, 1, False, {}, b"", born_ms=5, stored_ms=6, delivered_ms=7).headers("x")
    assert (known["Tarry-Born-Ms"], known["Tarry-Stored-Ms"], known["Tarry-Delivered-Ms"]) == ("5", "6", "7")
    unknown = Delivery("i", "t", "g", 1, 1, False, {}, b"").headers("x")
    assert known.keys() - unknown.keys() == {"Tarry-Born-Ms", "Tarry-Stored-Ms", "Tarry-Delivered-Ms"}


@pytest.mark.parametrize(
    ("named", "sent"),
    [
        ("application/json", "application/json"),
        ("", "text/x"),
        ("a\r\nEvil: 1", "text/x"),
        ("ä", "text/x"),
        ("x" * 2_000, "text/x"),
        ("   ", "text/x"),
    ],
)
def test_a_property_names_the_content_type_unless_it_is_no_header(named: str, sent: str) -> None:
    delivery = Delivery("i", "t", "g", 1, 1, False, {"content-type": named}, b"")
    assert delivery.headers("text/x")["Content-Type"] == sent


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"url": "http://example.com/"}, "readable on its way"),
        ({"url": "ftp://example.com/"}, "https or http"),
        ({"url": "https:///x"}, "a host"),
        ({"url": "https://user:pass@example.com/"}, "no user"),
        ({"url": "https://example.com/#x"}, "fragment"),
        ({"url": "https://example.com:99999/"}, "out of range|[Pp]ort"),
        ({"url": "https://exämple.com/"}, "ASCII"),
        ({"secrets": []}, "secrets"),
        ({"secrets": ["short"]}, "16 characters"),
        ({"secret": "x"}, "secret: "),
        ({"token": "tökén"}, "token: only printable"),
        ({"token": ""}, "token: only printable"),
        ({"in_flight_max": 0}, "in_flight_max"),
        ({"in_flight_max": "4"}, "in_flight_max"),
        ({"timeout_ms": 600_001}, "timeout_ms"),
        ({"start": "noon"}, "start"),
        ({"content_type": "a\r\nb: c"}, "content_type"),
    ],
)
def test_a_fault_in_the_file_is_named_and_no_secret_is_shown(
    changed: dict[str, object], said: str, tmp_path: Path
) -> None:
    lines = [f"{name} = {_toml(value)}" for name, value in {**PUSH, **changed}.items()]
    file = tmp_path / "gateway.toml"
    file.write_text("[[push]]\n" + "\n".join(lines))
    with pytest.raises(ValueError, match=said) as refused:
        load(file)
    assert SECRET not in str(refused.value)


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, str):
        text = value.replace("\r", "\\r").replace("\n", "\\n")
        return f'"{text}"'
    return str(value).lower()


def test_a_file_is_read_with_its_defaults(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(
        "[limits]\npolls_max = 3\n[[push]]\n" + "\n".join(f"{n} = {_toml(v)}" for n, v in PUSH.items())
    )
    config = load(file)
    assert config.limits.polls_max == 3
    assert config.limits.calls_max == 200
    assert config.push == [Push(**PUSH)]  # type: ignore[arg-type]
    assert SECRET not in repr(config)
    file.write_text("[[push]]\n[[push]]\n")
    with pytest.raises(ValueError, match=r"push\.0\.name"):
        load(file)
    file.write_text("= nonsense")
    with pytest.raises(ValueError, match="no TOML"):
        load(file)


def test_an_authority_has_to_be_a_pem_file(tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    lines = [f"{name} = {_toml(value)}" for name, value in {**PUSH, "authority_file": __file__}.items()]
    file.write_text("[[push]]\n" + "\n".join(lines))
    with pytest.raises(ValueError, match="no PEM file"):
        load(file)
    file.write_text(file.read_text().replace(__file__, str(tmp_path / "missing.pem")))
    with pytest.raises(OSError, match="No such file"):
        load(file)


def test_a_pause_is_no_longer_than_the_readme_says() -> None:
    pauses_s = [_pause_s(failures) for failures in range(30) for _ in range(30)]
    assert 0.1 < min(pauses_s) <= max(pauses_s) <= AGAIN_S_MAX == 30.0


def test_two_pushes_have_two_names() -> None:
    with pytest.raises(ValueError, match="one name"):
        Config(push=[Push(**PUSH), Push(**PUSH)])  # type: ignore[arg-type]


def test_a_start_is_read_as_the_client_takes_it() -> None:
    starts = ("earliest", "latest", "1970-01-01T00:00:01Z")
    assert [Push(**PUSH, start=start).begin for start in starts] == ["earliest", "latest", 1_000]  # type: ignore[arg-type]
    assert Push(**PUSH).begin is None  # type: ignore[arg-type]
