"""The commands by idempotency keys: what they refuse, and what they print of the cluster's answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from tarry.client.cli.cancel import cancel
from tarry.client.cli.main import app
from tarry.client.cli.matching import Filter
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output
from tarry.client.errors import NotFound
from tarry.client.found import FoundMessage, FoundPage
from tarry.client.results import CancelOutcome, MessageState
from tests.client.stand_in import ClusterStandIn

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize(
    "arguments",
    [
        ("schedule", "orders", "x", "--delay", "1h", "--idempotency-key", ""),
        ("schedule", "orders", "x", "--delay", "1h", "--idempotency-key", "k", "--count", "2"),
        ("find", "orders"),
        ("find", "orders", "k", "--idempotency-key", "k"),
        ("cancel", "--idempotency-key", "k"),
        ("cancel", "--topic", "orders", "--idempotency-key", "", "--yes"),
        ("cancel", "--topic", "orders", "--idempotency-key", "k", "--key", "l"),
        ("cancel", "--topic", "orders", "--idempotency-key", "k", "--resume", "cursor"),
        ("cancel", "an-id", "--topic", "orders", "--idempotency-key", "k"),
        ("cluster", "set", "--idempotency-window", "soon"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_the_cluster_is_asked(arguments: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*arguments, "--server", NOWHERE, "--deadline", "100ms"])
    assert done.exit_code == 2, done.output


@pytest.mark.parametrize("output", ["table", "json"])
async def test_a_repeated_schedule_prints_the_first_id_and_that_it_is_repeated(
    cluster: ClusterStandIn, output: str
) -> None:
    arguments = ["schedule", "orders", "x", "--delay", "1h", "--idempotency-key", "k"]
    arguments += ["-o", output, "--server", cluster.addresses]
    first, second = [(await asyncio.to_thread(CliRunner().invoke, app, arguments)).stdout for _ in range(2)]
    if output == "json":
        one, other = json.loads(first), json.loads(second)
        assert (one["repeated"], other) == (False, {**one, "repeated": True})
    else:
        said = "repeated it was scheduled before"
        assert second.split() == first.split() + said.split()


class Holding:
    """Holds messages of one idempotency key, and cancels with these outcomes."""

    def __init__(self, *outcomes: CancelOutcome) -> None:
        self._outcomes = list(outcomes)
        self.unreadable = 0
        self.cancelled: list[str] = []

    def query(self) -> Holding:
        return self

    def producer(self) -> Holding:
        return self

    async def find(self, topic: str, *, idempotency_key: str, begin: str, **_: Any) -> FoundPage:
        """One a page."""
        assert (topic, idempotency_key) == ("orders", "k")
        at = int(begin or 0)
        found = [FoundMessage(f"m{at}", 1, MessageState.PENDING)] if at < len(self._outcomes) else []
        return FoundPage(tuple(found), str(at + 1) if at + 1 < len(self._outcomes) else "", self.unreadable)

    async def cancel_many(self, ids: list[str], *, remaining_groups: bool) -> list[CancelOutcome]:
        self.cancelled = ids
        return self._outcomes


async def cancelled(holding: Holding, *, dry_run: bool = False) -> None:
    client: Any = holding
    cluster = OnCluster(output=Output.JSON)
    only: Any = {"topic": "orders", "idempotency_key": "k", "matching": Filter()}
    await cancel(client, dry_run=dry_run, cluster=cluster, **only)


async def test_what_has_the_key_is_cancelled_and_printed(capsys: pytest.CaptureFixture[str]) -> None:
    holding = Holding(CancelOutcome.ALREADY_DONE, CancelOutcome.CANCELLED)
    await cancelled(holding)
    assert holding.cancelled == ["m0", "m1"]
    assert json.loads(capsys.readouterr().out) == [
        {"id": "m0", "outcome": "already_done"},
        {"id": "m1", "outcome": "cancelled"},
    ]


async def test_a_dry_run_names_what_would_be_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    holding = Holding(CancelOutcome.CANCELLED)
    await cancelled(holding, dry_run=True)
    assert holding.cancelled == []
    assert json.loads(capsys.readouterr().out) == [{"id": "m0"}]


async def test_where_none_was_cancelled_the_command_fails() -> None:
    with pytest.raises(typer.Exit):
        await cancelled(Holding(CancelOutcome.ALREADY_DONE))
    with pytest.raises(NotFound):
        await cancelled(Holding())


async def test_what_may_have_the_key_and_is_damaged_is_told_and_no_success(
    capsys: pytest.CaptureFixture[str],
) -> None:
    holding = Holding(CancelOutcome.CANCELLED)
    holding.unreadable = 2
    with pytest.raises(typer.Exit):
        await cancelled(holding)
    said = capsys.readouterr()
    assert json.loads(said.out) == [{"id": "m0", "outcome": "cancelled"}]
    assert "2 more may have the key" in said.err
