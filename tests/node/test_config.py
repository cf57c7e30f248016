"""The configuration of a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from tarry.node.config import load
from tarry.node.environment import OTHERS

WHOLE = {"node": "n1", "data": Path("data"), "listen": "127.0.0.1:1", "members": {"n1": "127.0.0.1:1"}}


def test_flags_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(
        'node = "n1"\ndata = "d"\nlisten = "127.0.0.1:1"\nmembers = {n1 = "127.0.0.1:1"}\n'
        "[limits]\nbody_bytes_max = 1\nkeys_max = 1\ntags_max = 1\n"
    )
    monkeypatch.setenv("TARRY_LIMITS__KEYS_MAX", "2")
    monkeypatch.setenv("TARRY_LISTEN", "127.0.0.1:2")
    config = load(file, {"listen": "127.0.0.1:3"})
    assert config.listen == "127.0.0.1:3"
    assert (config.limits.body_bytes_max, config.limits.keys_max, config.limits.tags_max) == (1, 2, 1)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"typo": 1}, "typo"),
        ({"limits": {"typo": 1}}, "typo"),
        ({"limits": {"body_bytes_max": 0}}, "body_bytes_max"),
        ({"limits": {"body_bytes_max": "much"}}, "body_bytes_max"),
        ({"members": {}}, "members"),
        ({"members": {"n2": "127.0.0.1:1"}}, "join"),
        ({"node": "N 1"}, "node"),
        ({"listen": "7001"}, "listen"),
        ({"listen": "127.0.0.1:65536"}, "65535"),
        ({"log_level": "verbose"}, "log_level"),
        ({"tls": {"certificate": "none.pem", "key": "none.pem"}}, "certificate"),
        ({"tokens": {"secret": {}}}, "peer_token"),
        ({"consensus": {"election_min_ms": 700}}, "election_min_ms < election_max_ms"),
        ({"consensus": {"fallback_ms": 400}}, "fallback_ms"),
        ({"consensus": {"heartbeat_ms": 150}}, "heartbeat_ms"),
        ({"consensus": {"quiet_heartbeat_ms": 49}}, "quiet_heartbeat_ms"),
    ],
)
def test_what_is_wrong_is_named(wrong: dict[str, object], what: str) -> None:
    with pytest.raises(ValidationError, match=what):
        load(None, {**WHOLE, **wrong})


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.toml"):
        load(tmp_path / "none.toml", {})


def test_a_newcomer_need_not_name_itself() -> None:
    load(None, {**WHOLE, "members": {"n2": "127.0.0.1:1"}, "join": True})


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("TARRY_LISEN", "TARRY_LISEN: no such setting; TARRY_LISTEN is one"),
        ("tarry_limit__body_bytes_max", "TARRY_LIMITS is one"),
        ("TARRY_ZZZZZZ", "no such setting$"),
    ],
)
def test_a_variable_that_no_program_reads_is_refused_with_the_one_that_was_meant(
    name: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(ValueError, match=said):
        load(None, dict(WHOLE))


def test_variables_of_clients_chaos_and_kubernetes_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*OTHERS, "TARRY_SERVICE_HOST", "TARRY_N1_SERVICE_PORT_GRPC", "TARRY_PORT_7001_TCP_ADDR"):
        monkeypatch.setenv(name, "x")
    load(None, dict(WHOLE))


def test_a_certificate_that_is_none_is_named(tmp_path: Path) -> None:
    pem = tmp_path / "node.pem"
    pem.write_text("no certificate")
    with pytest.raises(ValidationError, match="must be PEM"):
        load(None, {**WHOLE, "tls": {"certificate": pem, "key": pem}})
