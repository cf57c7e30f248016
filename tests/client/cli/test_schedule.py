"""``tarry schedule``: many messages, of which a failure leaves some."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client.aio import Producer
from tarry.client.cli.main import app
from tarry.client.errors import Unavailable
from tests.client.stand_in import ClusterStandIn


async def test_a_failure_midway_tells_what_was_scheduled(
    cluster: ClusterStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who takes it for nothing done would schedule those again."""
    schedule_batch, calls = Producer.schedule_batch, list[int]()

    async def fails(self: Producer, topic: Any, bodies: Any, **options: Any) -> Any:
        calls.append(len(bodies))
        if len(calls) == 3:
            raise Unavailable("UNREACHABLE", "no node answers any more")
        return await schedule_batch(self, topic, bodies, **options)

    monkeypatch.setattr(Producer, "schedule_batch", fails)
    arguments = ["schedule", "orders", "x", "--delay", "1h", "--count", "2500", "-o", "json"]
    done = await asyncio.to_thread(CliRunner().invoke, app, [*arguments, "--server", cluster.addresses])
    assert (done.exit_code, calls) == (3, [1_000, 1_000, 500])
    told = json.loads(done.stderr.splitlines()[-1])
    assert told["error"] == "PARTLY_SCHEDULED"
    assert told["text"].startswith("2,000 of 2,500 are scheduled, ")
    assert "no node answers any more" in told["text"]
