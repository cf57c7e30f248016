"""Topics, groups, dead letters, leases and starts, against real nodes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from tarry.client.aio import AckOutcome, Client, Message, connect
from tarry.client.cli import redrive
from tarry.client.cli.main import app
from tarry.client.cli.redrive import Fate
from tarry.client.consumers.consumer import Consumer
from tarry.client.errors import InvalidSetting, NotFound
from tarry.client.local.cluster import LocalCluster
from tarry.client.operators.cluster_operator import DeletedTopic, Redriven
from tarry.proto.message_id import MessageId
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside


@pytest.fixture
def servers(shared_cluster: LocalCluster) -> str:
    return shared_cluster.addresses


@pytest.fixture
async def client(servers: str) -> AsyncIterator[Client]:
    async with connect(servers) as connected:
        yield connected


async def take(consumer: Consumer, count: int) -> list[Message]:
    async with asyncio.timeout(15):
        return [await anext(consumer) for _ in range(count)]


async def released(client: Client, topic: str, bodies: list[bytes]) -> None:
    """Schedule messages that are due, and have one group see them all."""
    await client.producer().schedule_batch(topic, bodies, delay_ms=0)
    async with client.consumer(topic, "witness") as consumer:
        for message in await take(consumer, len(bodies)):
            message.ack_soon()


async def test_a_topic_is_made_described_changed_and_deleted(client: Client) -> None:
    operator = client.operator()
    made = await operator.create_topic("made", retention_ms=60_000)
    assert (made.status.topic, made.settings["retention_ms"], made.settings["body_bytes_max"]) == (
        "made",
        60_000,
        0,
    )
    changed = await operator.create_topic("made", body_bytes_max=100)
    assert changed.settings["body_bytes_max"] == 100
    await released(client, "made", [b"x"] * 3)
    described = await operator.describe_topic("made")
    assert described.status.released == 3
    assert [group.group for group in described.status.groups] == ["witness"]
    assert await operator.delete_topic("made") == DeletedTopic(released=3, groups=1, pending=0)
    with pytest.raises(NotFound):
        await operator.describe_topic("made")


async def test_a_setting_over_its_limit_is_refused(client: Client) -> None:
    with pytest.raises(InvalidSetting):
        await client.operator().create_topic("made", body_bytes_max=1 << 40)


async def test_a_group_starts_where_it_was_told_to(client: Client) -> None:
    await released(client, "starts", [b"before"])
    operator = client.operator()
    assert await operator.create_group("starts", "late", "latest") == 1
    assert await operator.create_group("starts", "early", "earliest") == 0
    await client.producer().schedule("starts", b"after", delay_ms=0)
    async with client.consumer("starts", "late") as late, client.consumer("starts", "early") as early:
        assert [message.body for message in await take(late, 1)] == [b"after"]
        assert [message.body for message in await take(early, 2)] == [b"before", b"after"]


async def test_a_group_starts_at_or_is_moved_to_a_time(client: Client) -> None:
    times = []
    operator, producer = client.operator(), client.producer()
    async with client.consumer("times", "witness") as witness:
        for body in (b"0", b"1", b"2"):
            await producer.schedule("times", body, delay_ms=0)
            (message,) = await take(witness, 1)
            times.append(message.released_ms)
            await message.ack()
            await asyncio.sleep(0.01)  # so that no two are released in one millisecond
    assert await operator.create_group("times", "from-1", times[1]) == 1
    assert await operator.create_group("times", "from-later", times[2] + 1) == 3
    counted = await operator.seek_group("times", "witness", times[1], dry_run=True)
    assert (counted.to_offset, counted.delivered_again, counted.skipped) == (1, 2, 0)
    counted = await operator.seek_group("times", "from-1", times[2], dry_run=True)
    assert (counted.to_offset, counted.delivered_again, counted.skipped) == (2, 0, 1)
    await operator.seek_group("times", "witness", times[1])
    async with client.consumer("times", "witness") as again:
        assert [message.body for message in await take(again, 2)] == [b"1", b"2"]


async def test_a_consumer_says_where_its_new_group_starts(client: Client) -> None:
    await released(client, "consumer-starts", [b"before"])
    async with client.consumer("consumer-starts", "g", start="latest") as consumer:
        await client.producer().schedule("consumer-starts", b"after", delay_ms=0)
        assert (await take(consumer, 1))[0].body == b"after"


async def test_a_group_moved_back_sees_messages_again_and_a_dry_run_only_counts(client: Client) -> None:
    await released(client, "seek", [b"0", b"1", b"2"])
    operator = client.operator()
    counted = await operator.seek_group("seek", "witness", "earliest", dry_run=True)
    assert (counted.from_offset, counted.to_offset, counted.delivered_again) == (3, 0, 3)
    assert (await operator.seek_group("seek", "witness", offset=1)).delivered_again == 2
    async with client.consumer("seek", "witness") as consumer:
        assert [message.body for message in await take(consumer, 2)] == [b"1", b"2"]
    with pytest.raises(InvalidSetting):
        await operator.seek_group("seek", "witness")
    with pytest.raises(NotFound):
        await operator.seek_group("seek", "nobody", "latest")


async def test_a_group_is_deleted_with_what_it_had_not_acked(client: Client) -> None:
    await released(client, "leave", [b"x"] * 2)
    operator = client.operator()
    await operator.create_group("leave", "lazy")
    assert await operator.delete_group("leave", "lazy") == 2
    with pytest.raises(NotFound):
        await operator.delete_group("leave", "lazy")


async def test_an_operator_gives_a_group_that_is_there_an_expiry_and_takes_it_back(client: Client) -> None:
    await released(client, "forgotten", [b"x"])
    operator = client.operator()
    for expiry_ms in (0, 86_400_000, 60_000, 0):  # the first makes it
        await operator.create_group("forgotten", "reports", expiry_ms=expiry_ms)
        described = await operator.describe_group("forgotten", "reports")
        assert described.status.expiry_ms == expiry_ms
    async with client.consumer("forgotten", "reports") as consumer:  # and consumers change nothing of it
        assert [message.body for message in await take(consumer, 1)] == [b"x"]
        assert (await operator.describe_group("forgotten", "reports")).status.expiry_ms == 0


async def test_broadcast_consumers_each_see_every_message(client: Client) -> None:
    async with (
        client.consumer("news", "g", broadcast=True, name="one") as one,
        client.consumer("news", "g", broadcast=True, name="two") as two,
    ):
        await client.producer().schedule_batch("news", [b"a", b"b"], delay_ms=0)
        for consumer in (one, two):
            messages = await take(consumer, 2)
            assert [message.body for message in messages] == [b"a", b"b"]
            assert [await message.ack() for message in messages] == [AckOutcome.OK] * 2


async def test_consumers_without_a_group_or_name_of_their_own_leave_nothing_behind(
    client: Client, servers: str
) -> None:
    await released(client, "passing", [b"a"])
    async with client.consumer("passing", "g", broadcast=True) as passing:
        await client.producer().schedule("passing", b"b", delay_ms=0)
        assert [message.body for message in await take(passing, 1)] == [b"b"]
    options = ["consume", "passing", "--max", "2", "-o", "json", "-s", servers]
    shown = await asyncio.to_thread(CliRunner().invoke, app, options)
    assert [json.loads(line)["body"] for line in shown.stdout.splitlines()] == ["a", "b"]
    described = await client.operator().describe_topic("passing")
    assert [group.group for group in described.status.groups] == ["witness"]


async def test_an_extended_lease_keeps_a_message_in_hand(client: Client) -> None:
    await client.producer().schedule_batch("leases", [b"extended", b"not"], delay_ms=0)
    async with client.consumer("leases", "g", lease_ms=4_000) as consumer:
        extended, not_extended = await take(consumer, 2)
        assert await extended.extend(60_000) is AckOutcome.OK
        (again,) = await take(consumer, 1)  # the lease of the other is over
        assert (again.id, again.attempt) == (not_extended.id, 2)
        assert await extended.ack() is AckOutcome.OK
        assert await again.ack() is AckOutcome.OK


async def test_messages_that_wait_in_the_client_are_not_delivered_elsewhere_meanwhile(client: Client) -> None:
    await client.producer().schedule_batch("prefetched", [b"%d" % n for n in range(20)], delay_ms=0)
    async with client.consumer("prefetched", "g", lease_ms=4_000) as consumer:
        first = await anext(consumer)
        assert await first.ack() is AckOutcome.OK
        await asyncio.sleep(9)  # the others wait here for more than two leases
        messages = await take(consumer, 19)
        assert {message.attempt for message in messages} == {1}
        outcomes = await asyncio.gather(*(message.ack() for message in messages))
        assert set(outcomes) == {AckOutcome.OK}
        assert consumer.lost == 0


async def test_messages_whose_lease_ended_in_the_client_are_not_handed_out(client: Client) -> None:
    await client.producer().schedule_batch("blocked", [b"%d" % n for n in range(5)], delay_ms=0)
    async with client.consumer("blocked", "g", lease_ms=4_000) as consumer:
        first = await anext(consumer)
        assert await first.ack() is AckOutcome.OK
        time.sleep(6)  # noqa: ASYNC251  a program that blocks its event loop: nothing is renewed
        messages = await take(consumer, 4)
        assert [message.attempt for message in messages] == [2] * 4
        assert await asyncio.gather(*(message.ack() for message in messages)) == [AckOutcome.OK] * 4
        assert consumer.lost == 4


async def test_a_lease_that_is_over_makes_extending_and_acking_stale(client: Client) -> None:
    await client.producer().schedule("stale", b"x", delay_ms=0)
    async with client.consumer("stale", "g", lease_ms=1_000) as consumer:
        (first,) = await take(consumer, 1)
        (again,) = await take(consumer, 1)  # by the back-off table: a second later
        assert (again.id, again.attempt) == (first.id, 2)
        assert await first.extend(1_000) is AckOutcome.STALE
        assert await first.ack() is AckOutcome.STALE
        assert await again.ack() is AckOutcome.OK


@pytest.fixture
def tarry(servers: str) -> Iterator[object]:
    def call(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, [*arguments, "-s", servers, "-o", "json"], input=stdin)

    yield call


def test_the_commands_make_show_move_and_delete(tarry: object) -> None:
    def done(*arguments: str) -> dict[str, object]:
        result: Result = tarry(*arguments)  # type: ignore[operator]
        assert result.exit_code == 0, result.output
        value: dict[str, object] = json.loads(result.stdout)
        return value

    assert done("topic", "create", "cli", "--retention", "1h")["retention_ms"] == 3_600_000
    assert done("group", "create", "cli", "readers", "--from", "latest")["offset"] == 0
    done("schedule", "cli", "x", "--delay", "0s")
    result: Result = tarry("consume", "cli", "-g", "readers", "--max", "1", "--timeout", "10s")  # type: ignore[operator]
    assert result.exit_code == 0
    assert done("group", "seek", "cli", "readers", "--to", "earliest", "--dry-run")["delivered_again"] == 1
    assert done("group", "seek", "cli", "readers", "--offset", "0", "--yes")["to_offset"] == 0
    shown = done("topic", "show", "cli")
    assert [group["floor"] for group in shown["groups"]] == [0]  # type: ignore[attr-defined]
    assert done("group", "delete", "cli", "readers", "-y")["unacknowledged"] == 1
    assert done("topic", "delete", "cli", "-y")["released"] == 1


def test_deleting_asks_first_and_a_no_changes_nothing(tarry: object) -> None:
    assert tarry("topic", "create", "asked").exit_code == 0  # type: ignore[operator]
    assert tarry("topic", "delete", "asked", stdin="n\n").exit_code == 1  # type: ignore[operator]
    assert tarry("topic", "show", "asked").exit_code == 0  # type: ignore[operator]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("topic", "show", "nowhere"), 1),
        (("group", "delete", "nowhere", "g", "-y"), 1),
        (("redrive", "nowhere"), 1),
        (("group", "seek", "t", "g", "-y"), 2),
        (("group", "create", "t", "g", "--from", "yesterday"), 2),
    ],
)
def test_what_is_not_there_is_refused_and_what_makes_no_sense_is_wrong_usage(
    tarry: object, arguments: tuple[str, ...], code: int
) -> None:
    result: Result = tarry(*arguments)  # type: ignore[operator]
    assert result.exit_code == code, result.output


async def made_up_for(client: Client, out: Path, lost: Message) -> redrive.Redriven:
    """Say what a redrive of a reconciliation makes of one missing message."""
    name = MessageId.parse(lost.id)
    row = {"topic": lost.topic, "groups": ["g"], "check": "missing", "shard": name.shard}
    (out / "missing").mkdir(parents=True)
    (out / "missing" / "_SUCCESS").touch()
    row |= {"hour": name.hour, "global_index": name.global_index}
    (out / "missing" / "part-0.json").write_text(json.dumps(row))
    (one,) = [one async for one in redrive.redrive(client, out, dry_run=False)]
    return one


async def test_dead_letters_are_given_back_to_their_group(tmp_path: Path) -> None:
    with Disposable(1, tmp_path, {"delivery": {"attempts_max": 1}}) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        async with connect(cluster.addresses) as client:
            await client.producer().schedule_batch("jobs", [b"0", b"1"], delay_ms=0, tags=[["red"], ["blue"]])
            async with client.consumer("jobs", "g") as consumer:
                for message in await take(consumer, 2):
                    assert await message.nack() is AckOutcome.OK
                async with client.consumer("dlq.g.jobs", "undertaker") as letters:
                    dead = await take(letters, 2)
                    assert sorted(letter.body for letter in dead) == [b"0", b"1"]
                assert (await made_up_for(client, tmp_path / "out", dead[0])).fate is Fate.DEAD_LETTER
                steps: list[Redriven] = []
                operator = client.operator()
                assert (await operator.redrive("dlq.g.jobs", dry_run=True)).redriven == 2
                for wanted, count in (
                    ({"tags": ["red"]}, 1),
                    ({"reason": "NACKED"}, 2),
                    ({"reason": "LEASE_EXPIRED"}, 0),
                    ({"messages_max": 1}, 1),
                ):
                    counted = await operator.redrive("dlq.g.jobs", dry_run=True, **wanted)
                    assert counted.redriven == count
                done = await operator.redrive("dlq.g.jobs", on_progress=steps.append)
                assert done.redriven == 2
                assert steps[-1] == done
                again = await take(consumer, 2)
                assert sorted(message.body for message in again) == [b"0", b"1"]
