"""What ``tarry transaction`` prints, and what it asks."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tarry.client.cli.main import app
from tarry.client.cli.output import Output
from tarry.client.cli.transaction import show
from tarry.client.transactions.half import TransactionInfo
from tarry.proto import tarry_transaction_pb2 as pb

NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
TOLD = pb.Transaction(
    number=7,
    producer_group="shop",
    transaction="order-17",
    topic="orders",
    state=pb.TRANSACTION_STATE_COMMITTED,
    prepared_ms=NEW_YEAR_MS,
    delay_ms=90_000,
    checks=2,
    ended_ms=NEW_YEAR_MS + 1,
    id="0c1",
    message_due_ms=NEW_YEAR_MS + 90_001,
)


def test_a_transaction_is_shown_with_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    show(TransactionInfo.of(TOLD), Output.TABLE)
    fields = dict(line.strip().split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (fields["name"], fields["state"], fields["id"]) == ("order-17", "committed", "0c1")
    assert fields["due"] == "1m30s after the commit"
    assert fields["message_due"] == "2026-01-01T00:01:30.001Z"
    assert "next_check" not in fields


def test_as_json_it_has_all_that_the_client_knows(capsys: pytest.CaptureFixture[str]) -> None:
    show(TransactionInfo.of(TOLD), Output.JSON)
    told = json.loads(capsys.readouterr().out)
    assert (told["delay_ms"], told["due_ms"], told["state"]) == (90_000, None, "committed")


@pytest.mark.parametrize("command", ["commit", "rollback"])
def test_what_cannot_be_taken_back_is_asked_before_it_is_done(command: str) -> None:
    done = CliRunner().invoke(app, ["transaction", command, "shop", "order-17"], input="n\n")
    assert done.exit_code == 1
    assert "order-17 of shop?" in done.stderr
