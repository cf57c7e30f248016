"""The commands, run as a person runs them, against real nodes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from tarry.client.cli.main import app
from tarry.client.cli.times import duration_text, parse_duration_ms, parse_time_ms, time_text
from tarry.client.local.cluster import LocalCluster
from tarry.client.local.free_ports import free_ports

pytestmark = pytest.mark.beside


@pytest.fixture
def servers(shared_cluster: LocalCluster) -> str:
    return shared_cluster.addresses


@pytest.fixture
def tarry(servers: str) -> Any:
    def call(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [*arguments, "-s", servers], input=stdin)

    return call


def ok(result: Result) -> Any:
    """Return the JSON of a command that went well."""
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_message_is_scheduled_shown_cancelled_and_shown_again(tarry: Any) -> None:
    options = ("--delay", "1h", "--tag", "paid", "--key", "k7", "-p", "colour=red", "-o", "json")
    scheduled = ok(tarry("schedule", "shop", "hello", *options))
    shown = ok(tarry("get", scheduled["id"], "-o", "json"))
    assert shown == {
        "id": scheduled["id"],
        "topic": "shop",
        "state": "pending",
        "due_ms": scheduled["due_ms"],
        "tags": ["paid"],
        "keys": ["k7"],
        "properties": {"colour": "red"},
        "ordering_key": "",
        "idempotency_key": "",
        "body": "hello",
    }
    assert ok(tarry("cancel", scheduled["id"], "-o", "json")) == [
        {"id": scheduled["id"], "outcome": "cancelled"}
    ]
    assert ok(tarry("get", scheduled["id"], "-o", "json"))["state"] == "cancelled"


def test_due_messages_are_consumed_one_json_object_a_line(tarry: Any) -> None:
    ids = [ok(tarry("schedule", "lines", f"b{n}", "--delay", "0s", "-o", "json"))["id"] for n in range(3)]
    consume = ("consume", "lines", "--group", "lines", "-o", "json")
    consumed = tarry(*consume, "--max", "3", "--timeout", "10s")
    assert consumed.exit_code == 0
    messages = [json.loads(line) for line in consumed.stdout.splitlines()]
    assert {message["id"]: message["body"] for message in messages} == dict(
        zip(ids, ("b0", "b1", "b2"), strict=True)
    )
    again = tarry(*consume, "--timeout", "100ms")
    assert (again.exit_code, again.stdout) == (0, "")  # all were acknowledged


def test_messages_consumed_without_ack_come_again(tarry: Any) -> None:
    tarry("schedule", "kept", "once more", "--delay", "0s")
    first = tarry("consume", "kept", "--max", "1", "--no-ack", "--timeout", "10s", "-o", "json")
    second = tarry("consume", "kept", "--max", "1", "--timeout", "10s", "-o", "json")
    assert json.loads(first.stdout)["id"] == json.loads(second.stdout)["id"]


def test_a_table_shows_what_people_look_for(tarry: Any) -> None:
    tarry("schedule", "people", "dear [reader]", "--delay", "0s", "--tag", "x")
    consumed = tarry("consume", "people", "--max", "1", "--timeout", "10s")
    assert "dear [reader]" in consumed.stdout
    assert "#x" in consumed.stdout
    assert "1 messages" in consumed.stderr


def test_many_are_scheduled_in_bulk_with_due_times_spread(tarry: Any) -> None:
    done = ok(
        tarry("schedule", "bulk", "b", "--count", "2500", "--delay", "1h", "--spread", "1m", "-o", "json")
    )
    assert (done["scheduled"], done["overdue"]) == (2_500, 0)
    first, last = (ok(tarry("get", done[name], "-o", "json"))["due_ms"] for name in ("first_id", "last_id"))
    assert 50_000 < last - first < 70_000


def test_a_body_comes_from_stdin_or_a_file_byte_for_byte(tarry: Any, tmp_path: Path) -> None:
    piped = ok(tarry("schedule", "bodies", "-", "--delay", "1h", "-o", "json", stdin="from a pipe\n"))
    assert ok(tarry("get", piped["id"], "-o", "json"))["body"] == "from a pipe\n"
    file = tmp_path / "body"
    file.write_bytes(b"\xff\x00")
    binary = ok(tarry("schedule", "bodies", "--file", str(file), "--delay", "1h", "-o", "json"))
    assert ok(tarry("get", binary["id"], "-o", "json"))["body_base64"] == "/wA="


def test_status_shows_every_node_and_topic(tarry: Any, servers: str) -> None:
    tarry("schedule", "seen", "", "--delay", "0s")
    tarry("consume", "seen", "-g", "readers", "--max", "1", "--timeout", "10s")
    answers = ok(tarry("status", "-o", "json"))
    assert sorted(answers) == sorted(servers.split(","))
    assert sum(answer["lease"] for answer in answers.values()) == 1
    table = tarry("status")
    assert table.exit_code == 0
    assert "leader" in table.stdout
    assert "readers" in table.stdout
    assert "pending" in table.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("schedule", "t", "b"),
        ("schedule", "t", "b", "--delay", "1s", "--due", "2030-01-01T00:00:00Z"),
        ("schedule", "t", "b", "--delay", "10"),
        ("schedule", "t", "b", "--delay", "-1s"),
        ("schedule", "t", "b", "--due", "tomorrow"),
        ("schedule", "t", "b", "--delay", "1s", "-p", "novalue"),
        ("schedule", "t", "b", "--delay", "1s", "--spread", "1s"),
        ("schedule", "t", "b", "--delay", "1s", "--count", "0"),
        ("consume",),
        ("cancel",),
        ("get", "x", "-o", "yaml"),
        ("get", "x", "--token", "t", "--tls-key", __file__),
    ],
)
def test_wrong_usage_ends_with_two_and_a_word_about_it(tarry: Any, arguments: tuple[str, ...]) -> None:
    result = tarry(*arguments)
    assert result.exit_code == 2
    assert result.stderr


def test_a_server_that_is_no_address_is_wrong_usage() -> None:
    result = CliRunner().invoke(app, ["status", "-s", "nowhere"])
    assert result.exit_code == 2
    assert "host:port" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("schedule", "bad topic!", "b", "--delay", "1s"), "TOPIC_INVALID"),
        (("schedule", "t", "b", "--due", "99999999999999999"), "DUE_TOO_FAR"),
        (("schedule", "t", "b", "--level", "99"), "DELAY_LEVEL_UNKNOWN"),
        (("get", "nonsense"), "ID_MALFORMED"),
        (("get", "0" * 19), "MESSAGE_NOT_FOUND"),
        (("consume", "t", "-g", "bad group!"), "GROUP_INVALID"),
        (("transfer", "--to", "n9"), "TRANSFER_REFUSED"),
    ],
)
def test_a_refusal_ends_with_one_and_says_why_and_what_to_do(
    tarry: Any, arguments: tuple[str, ...], reason: str
) -> None:
    for_people = tarry(*arguments)
    assert for_people.exit_code == 1
    assert f"refused: {reason}" in for_people.stderr
    assert len(for_people.stderr.splitlines()) >= 3
    for_programs = tarry(*arguments, "-o", "json")
    assert for_programs.exit_code == 1
    told = json.loads(for_programs.stderr)
    assert told["error"] == reason
    assert told["text"]
    assert told["advice"]


def test_a_message_is_cancelled_once_it_is_released_and_what_is_not_cancelled_ends_with_one(
    tarry: Any,
) -> None:
    assert tarry("upgrade", "finish").exit_code == 0
    scheduled = ok(tarry("schedule", "gone", "", "--due", "2020-01-01T00:00:00Z", "-o", "json"))
    assert scheduled["overdue"]
    (cancelled,) = ok(tarry("cancel", scheduled["id"], "--remaining-groups", "-o", "json"))
    assert cancelled == {"id": scheduled["id"], "outcome": "cancelled"}
    assert ok(tarry("get", scheduled["id"], "-o", "json"))["state"] == "cancelled"
    result = tarry("cancel", scheduled["id"])
    assert result.exit_code == 1
    assert "already_cancelled" in result.stdout


@pytest.mark.parametrize("command", [("status",), ("schedule", "t", "b", "--delay", "1s"), ("consume", "t")])
def test_no_answer_ends_with_three(command: tuple[str, ...]) -> None:
    (port,) = free_ports(1)
    result = CliRunner().invoke(app, [*command, "-s", f"127.0.0.1:{port}", "--deadline", "300ms"])
    assert result.exit_code == 3
    assert "failed:" in result.stderr


def test_the_environment_names_server_and_token(servers: str) -> None:
    result = CliRunner().invoke(
        app, ["status", "-o", "json"], env={"TARRY_SERVER": servers, "TARRY_TOKEN": "t"}
    )
    assert sorted(ok(result)) == sorted(servers.split(","))


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Who runs tests in the background has interrupts ignored, and processes inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_ends_consume_in_good_order(servers: str) -> None:
    command = [sys.executable, "-m", "tarry.node", "consume", "interrupted", "-o", "json"]
    runner = CliRunner()
    runner.invoke(app, ["schedule", "interrupted", "first", "--delay", "0s", "-s", servers])
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={**os.environ, "TARRY_SERVER": servers}
    ) as process:
        assert process.stdout is not None
        assert b"first" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    assert process.returncode == 0, errors
    assert b"Traceback" not in errors


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("0s", 0),
        ("250ms", 250),
        ("10s", 10_000),
        ("1m30s", 90_000),
        ("1.5h", 5_400_000),
        ("1d1ms", 86_400_001),
    ],
)
def test_durations_read_as_written(text: str, expected_ms: int) -> None:
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "10", "s", "1x", "-1s", "1s ", "1.0005s", "1e3s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01T00:00:01", 1_000),
        ("1970-01-01T01:00:00.250+01:00", 250),
        ("2026-11-21", 1_795_219_200_000),
        ("1795219200123", 1_795_219_200_123),
    ],
)
def test_times_read_as_written_in_utc_unless_they_say_otherwise(text: str, expected_ms: int) -> None:
    assert parse_time_ms(text) == expected_ms


@given(st.integers(0, 4_000_000_000_000))
def test_a_time_reads_back_as_it_was_shown(time_ms: int) -> None:
    assert parse_time_ms(time_text(time_ms)) == time_ms


def test_times_beyond_the_calendar_are_shown_as_milliseconds() -> None:
    assert time_text(10**17) == str(10**17)


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [
        (0, "0ms"),
        (850, "850ms"),
        (-3, "-3ms"),
        (1_250, "1.250s"),
        (90_000, "1m30s"),
        (7_205_000, "2h"),
        (90_061_000, "1d1h"),
    ],
)
def test_durations_are_shown_in_their_two_largest_units(duration_ms: int, text: str) -> None:
    assert duration_text(duration_ms) == text
