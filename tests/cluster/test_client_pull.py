"""Consuming call by call, with both clients and from the command line, against real nodes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tarry.client import aio, sync
from tarry.client.cli.main import app
from tarry.client.consumers.unsettled import Verdict
from tarry.client.errors import InvalidSubscription, NotFound
from tarry.client.local.cluster import LocalCluster

pytestmark = pytest.mark.beside


async def test_what_is_received_is_settled_one_by_one_each_with_its_outcome(
    shared_cluster: LocalCluster,
) -> None:
    async with aio.connect(shared_cluster.addresses) as client:
        await client.producer().schedule_batch("calls", [b"0", b"1", b"2"], delay_ms=50)
        puller = client.puller("calls", "g", lease_ms=60_000)
        messages = await puller.receive(2, wait_ms=10_000)
        while len(messages) < 3 and (more := await puller.receive(3 - len(messages), wait_ms=10_000)):
            messages += more
        assert sorted(message.body for message in messages) == [b"0", b"1", b"2"]
        done, again, kept = messages
        ok, stale = aio.AckOutcome.OK, aio.AckOutcome.STALE
        assert await puller.ack([done]) == [ok]
        assert await puller.nack([again], delay_ms=0) == [ok]
        assert await puller.extend([done, kept], 60_000) == [stale, ok]
        (repeated,) = await puller.receive(5, wait_ms=10_000)
        assert (repeated.id, repeated.attempt) == (again.id, 2)
        assert await puller.ack([kept, repeated, done]) == [ok, ok, stale]
        assert await client.puller("calls", "g").receive(5) == []


async def test_a_puller_that_asks_for_nothing_or_of_a_group_that_is_not_there_is_told_so(
    shared_cluster: LocalCluster,
) -> None:
    async with aio.connect(shared_cluster.addresses) as client:
        puller = client.puller("calls-wrong", "g")
        with pytest.raises(InvalidSubscription, match="from 1 to"):
            await puller.receive(0)
        with pytest.raises(InvalidSubscription, match="wait"):
            await puller.receive(1, wait_ms=30_001)
        with pytest.raises(NotFound):
            await puller.settle(Verdict(0), [0])


def test_the_blocking_puller_does_the_same(shared_cluster: LocalCluster) -> None:
    with sync.connect(shared_cluster.addresses) as client, client.producer() as producer:
        producer.schedule("calls-sync", b"x", delay_ms=0)
        puller = client.puller("calls-sync", "g", name="me")
        (message,) = puller.receive(1, wait_ms=10_000)
        assert (puller.name, message.body) == ("me", b"x")
        assert puller.extend([message], 60_000) == [sync.AckOutcome.OK]
        assert puller.nack([message], delay_ms=0) == [sync.AckOutcome.OK]
        (again,) = puller.receive(1, wait_ms=10_000)
        assert puller.ack([again]) == [sync.AckOutcome.OK]


def test_commands_receive_in_one_run_and_settle_in_the_next(shared_cluster: LocalCluster) -> None:
    def tarry(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, [*arguments, "-s", shared_cluster.addresses])
        return done.exit_code, done.stdout

    assert tarry("schedule", "calls-cli", "x", "--delay", "0s")[0] == 0
    received = json.loads(tarry("receive", "calls-cli", "--wait", "10s", "-o", "json")[1])
    handle = received["handle"]
    assert received["body"] == "x"
    kept, outcomes = tarry("extend", "calls-cli", handle, "--lease", "1m", "-o", "json")
    assert (kept, json.loads(outcomes)) == (0, [{"handle": handle, "outcome": "ok"}])
    assert tarry("nack", "calls-cli", handle, "--delay", "0s")[0] == 0
    assert tarry("ack", "calls-cli", handle)[0] == 1  # it is another's, or nobody's, by now
    shown = tarry("receive", "calls-cli", "--wait", "10s")[1]
    handle = shown.split()[0]
    assert "attempt 2" in shown
    assert tarry("ack", "calls-cli", handle)[0] == 0
    assert tarry("ack", "calls-cli", "nothing")[0] == 2
    assert tarry("schedule", "calls-cli", "y", "--delay", "0s")[0] == 0
    received = json.loads(tarry("receive", "calls-cli", "--wait", "10s", "-o", "json")[1])
    handle = received["handle"]
    assert tarry("nack", "calls-cli", handle, "--dead-letter")[0] == 0
    letters = tarry("receive", "dlq.console.calls-cli", "--wait", "10s", "-o", "json")[1]
    assert json.loads(letters)["body"] == "y"
