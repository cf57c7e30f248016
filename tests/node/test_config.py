"""The configuration of a node."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from tarry.client.local.cluster import LocalCluster
from tarry.client.settings import Settings, Tls
from tarry.node.command_line import app
from tarry.node.config import OTHERS, Token, load

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
        ({"listen": "127.0.0.1:65535"}, 'no port follows that of listen: set peer_listen = "HOST:PORT"'),
        (
            {"members": {"n1": "a:7001", "n2": "a:7002"}, "listen": "0.0.0.0:7001"},
            "a:7002, is n2's: set peer",
        ),
        (
            {"members": {"n1": "a:1", "n2": "a:9"}, "peer_listen": "0.0.0.0:9"},
            "port of peer_listen, a:9, is n2's",
        ),
        ({"peer_listen": "127.0.0.1:1"}, "is n1's"),
        (
            {"audit": {"file": "a"}, "tokens": {"x": {"operate": True}}, "peer_token": "p"},
            "give every token with operate = true a name",
        ),
        ({"audit": {"file_bytes_max": 1_000}}, "file_bytes_max"),
        ({"metrics": {"listen": "9464"}}, "metrics.listen"),
        ({"metrics": {"listen": "127.0.0.1:65536"}}, "65535"),
        ({"metrics": {"connections_max": 0}}, "connections_max"),
        ({"gateway": {"rocketmq": "8081"}}, "gateway.rocketmq"),
        ({"gateway": {"rocketmq": "127.0.0.1:65536"}}, "65535"),
        ({"gateway": {"rocketmq_file": "none.toml"}}, "rocketmq_file"),
        ({"gateway": {"rocketmq_advertise": ["10.0.0.1"]}}, "each is host:port"),
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


@pytest.mark.parametrize(
    ("given", "at"),
    [
        ({"listen": "10.0.0.1:7001"}, ("10.0.0.1", 7002)),
        ({"listen": "10.0.0.1:65534"}, ("10.0.0.1", 65535)),
        ({"listen": "[::1]:7001"}, ("[::1]", 7002)),
        ({"listen": "10.0.0.1:0"}, ("10.0.0.1", 0)),
        ({"listen": "10.0.0.1:7001", "peer_listen": "10.1.0.1:0"}, ("10.1.0.1", 0)),
        ({"listen": "10.0.0.1:65535", "peer_listen": "10.1.0.1:9"}, ("10.1.0.1", 9)),
    ],
)
def test_the_port_for_nodes_is_the_one_after_that_for_clients_or_as_it_is_set(
    given: dict[str, str], at: tuple[str, int]
) -> None:
    assert load(None, {**WHOLE, **given}).peer_address == at


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


SECRET = "S3CR3T-TOKEN"
HEAD = 'node = "n1"\ndata = "d"\nlisten = "127.0.0.1:1"\nmembers = {n1 = "127.0.0.1:1"}\n'
WRONG_FILES = {
    "no list of patterns": f'[tokens."{SECRET}"]\nproduce = "orders"',
    "a pattern that is none": f'[tokens."{SECRET}"]\nproduce = [1]',
    "an unknown right": f'[tokens."{SECRET}"]\nread = ["orders"]',
    "no table": f'[tokens]\n"{SECRET}" = ["orders"]',
    "a token with a dot, and no quotes": f"[tokens.old.{SECRET}]\nproduce = []",
    "a table of its own": f'["{SECRET}"]\nproduce = ["orders"]',
    "a list": f'tokens = ["{SECRET}"]',
    "a text": f'tokens = "{SECRET}"',
    "twice": f'[tokens."{SECRET}"]\n[tokens."{SECRET}"]',
    "twice in line": f'tokens = {{"{SECRET}" = {{}}, "{SECRET}" = {{}}}}',
    "no right side": f'tokens."{SECRET}"',
    "a peer's token that is no text": f'peer_token = ["{SECRET}"]',
    "no peer's token": f'[tokens."{SECRET}"]\noperate = true',
}


@pytest.mark.parametrize("lines", WRONG_FILES.values(), ids=WRONG_FILES)
def test_what_is_wrong_with_a_token_is_said_without_it(lines: str, tmp_path: Path) -> None:
    file = tmp_path / "node.toml"
    file.write_text(HEAD + lines)
    said = CliRunner().invoke(app, ["node", "--config", str(file)])
    assert said.exit_code == 2
    assert "token" in said.output or str(file) in said.output
    assert SECRET.lower() not in said.output.lower()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (f"TARRY_TOKENS__{SECRET}__PRODUCE", "orders"),
        (f"TARRY_TOKENS__{SECRET}__PRODUCE", "5"),
        (f"TARRY_TOKENS__{SECRET}", "orders"),
        (f"TARRY_TOKENS_{SECRET}", "{}"),
        (f"TARRY_TOKEN__{SECRET}__PRODUCE", "[]"),
        ("TARRY_TOKENS", f'{{"{SECRET}"'),
        ("TARRY_TOKENS", f'{{"{SECRET}": 5}}'),
        ("TARRY_TOKENS", f'["{SECRET}"]'),
    ],
)
def test_nor_is_a_token_of_the_environment_said(
    name: str, value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "node.toml"
    file.write_text(HEAD)
    monkeypatch.setenv(name, value)
    said = CliRunner().invoke(app, ["node", "--config", str(file)])
    assert said.exit_code == 2
    assert "token" in said.output.lower()
    assert SECRET.lower() not in said.output.lower()


def test_settings_are_shown_without_their_secrets(tmp_path: Path) -> None:
    tokens = {SECRET: Token(operate=True)}
    config = load(None, {**WHOLE, "tokens": tokens, "peer_token": SECRET})
    pem = f"-----BEGIN {SECRET}".encode()
    tls = Tls(certificate=pem.replace(SECRET.encode(), b""), private_key=pem)
    client = Settings(servers=("127.0.0.1:1",), token=SECRET, tls=tls)
    cluster = LocalCluster(1, tmp_path, {"tokens": {SECRET: {}}}, token=SECRET)
    for shown in (repr(config), str(config), repr(client), repr(cluster)):
        assert SECRET not in shown
    with pytest.raises(ValidationError) as caught:
        load(None, {**WHOLE, "tokens": {"t": SECRET}, "peer_token": [SECRET]})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("command", [["status"], ["schedule"], ["consume"], ["node"], ["dev"]])
def test_help_does_not_show_the_token_of_the_environment(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARRY_TOKEN", SECRET)
    monkeypatch.setenv("TARRY_PEER_TOKEN", SECRET)
    said = CliRunner().invoke(app, [*command, "--help"])
    assert said.exit_code == 0
    assert SECRET not in said.output
