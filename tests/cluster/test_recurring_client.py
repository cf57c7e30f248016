"""Schedules that recur, as clients and the command line use them on a real cluster."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from tarry.client.aio import (
    CancelOutcome,
    Client,
    Cron,
    FireOutcome,
    Interval,
    MessageState,
    Overlap,
    connect,
)
from tarry.client.cli.main import app
from tarry.client.errors import (
    InvalidName,
    InvalidQuery,
    InvalidSchedule,
    NotFound,
    NotPermitted,
    RevisionDiffers,
    UpgradeRefused,
)
from tarry.client.local.cluster import LocalCluster, Setting
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside

DAY_MS = 86_400_000
TOKENS: dict[str, Setting] = {
    "root": {"name": "ops", "produce": ["*"], "consume": ["*"], "operate": True},
    "shop": {"name": "shop", "produce": ["orders"], "consume": ["orders"]},
}
LATE_MS = 5_000
"""By which a fire may be decided late on a busy machine: its message is due then."""
DAILY = Cron("0 2 * * *", "Europe/Berlin")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    settings: dict[str, Setting] = {"tokens": TOKENS, "peer_token": "between-nodes"}
    with Disposable(3, tmp_path_factory.mktemp("recurring"), settings, token="root") as started:
        started.start()
        started.wait_until_serving()
        asyncio.run(_finish_upgrade(started))
        yield started


async def _finish_upgrade(cluster: LocalCluster) -> None:
    async with connect(cluster.addresses, token="root") as client:
        await client.operator().finish_upgrade()


@pytest.fixture
async def client(cluster: LocalCluster) -> Any:
    async with connect(cluster.addresses, token="root") as connected:
        yield connected


async def test_fires_come_each_second_at_their_times_and_the_history_tells_their_ids(client: Client) -> None:
    recurring, topic = client.recurring(), "seconds"
    await client.operator().create_topic(topic)
    await client.operator().create_group(topic, "g")
    start_ms = time.time_ns() // 1_000_000 + 1_000
    made = await recurring.put(
        "each-second", topic, b"tick", timing=Interval(1_000), start_ms=start_ms, tags=["t"], keys=["k"]
    )
    assert (made.revision, made.paused, made.ended, made.fired) == (1, False, False, 0)
    came = []
    async with asyncio.timeout(30), client.consumer(topic, "g") as consumer:
        async for message in consumer:
            came.append(message)
            assert message.received_ms >= message.due_ms
            message.ack_soon()
            if len(came) == 3:
                break
    assert [one.due_ms for one in came] == [start_ms, start_ms + 1_000, start_ms + 2_000]
    assert {(one.body, *one.tags, *one.keys) for one in came} == {(b"tick", "t", "k")}
    history = {one.id: one for one in await recurring.history("each-second")}
    for one in came:
        fire = history[one.id]
        assert (fire.outcome, fire.fire_ms, fire.due_ms) == (FireOutcome.FIRED, one.due_ms, one.due_ms)
    await recurring.delete("each-second")
    with pytest.raises(NotFound):
        await recurring.get("each-second")


async def test_fires_with_jitter_come_once_each_later_by_no_more_than_that(client: Client) -> None:
    recurring, topic, jitter_ms = client.recurring(), "jittered", 900
    await client.operator().create_topic(topic)
    await client.operator().create_group(topic, "g")
    start_ms = time.time_ns() // 1_000_000 + 1_000
    await recurring.put(
        "jittered", topic, b"tick", timing=Interval(1_000), start_ms=start_ms, jitter_ms=jitter_ms
    )
    came: dict[str, int] = {}
    async with asyncio.timeout(30), client.consumer(topic, "g") as consumer:
        async for message in consumer:
            came[message.id] = message.due_ms
            message.ack_soon()
            if len(came) == 6:
                break
    later: dict[int, int] = {}
    for fire in await recurring.history("jittered"):
        if fire.id in came:
            assert (fire.fire_ms - start_ms) % 1_000 == 0
            assert fire.due_ms == came[fire.id]
            later[fire.fire_ms] = fire.due_ms - fire.fire_ms
    await recurring.delete("jittered")
    assert len(later) == 6
    assert all(0 <= each <= jitter_ms + LATE_MS for each in later.values())
    assert len(set(later.values())) > 1


async def test_a_put_may_be_repeated_and_a_change_may_ask_for_a_revision(client: Client) -> None:
    recurring = client.recurring()
    first = await recurring.put("kept", "reports", b"a", timing=DAILY, if_revision=0, paused=True)
    assert (first.revision, first.paused, first.state) == (1, True, "paused")
    same = await recurring.put("kept", "reports", b"a", timing=DAILY, paused=True)
    assert (same.revision, same.changed_ms) == (1, first.changed_ms)
    other = await recurring.put("kept", "reports", b"b", timing=DAILY, if_revision=1)
    assert (other.revision, other.number, other.paused) == (2, first.number, True)
    assert other.spec.body == b"b"
    with pytest.raises(RevisionDiffers) as differs:
        await recurring.put("kept", "reports", b"c", timing=DAILY, if_revision=1)
    assert differs.value.revision == 2
    resumed = await recurring.resume("kept", if_revision=2)
    assert (resumed.revision, resumed.state) == (3, "active")
    assert (await recurring.resume("kept")).revision == 3
    for call in (recurring.pause, recurring.resume, recurring.delete):
        with pytest.raises(RevisionDiffers):
            await call("kept", if_revision=1)
    paused = await recurring.pause("kept", if_revision=3)
    assert (paused.revision, paused.paused) == (4, True)
    await recurring.delete("kept", if_revision=4)
    again = await recurring.put("kept", "reports", timing=DAILY)
    assert (again.revision, again.number > first.number) == (1, True)
    await recurring.delete("kept")


async def test_a_pause_takes_back_the_message_that_is_not_due_yet(client: Client) -> None:
    recurring, producer = client.recurring(), client.producer()
    start_ms = time.time_ns() // 1_000_000 + 1_500
    await recurring.put("taken", "back", timing=Interval(DAY_MS), start_ms=start_ms)
    async with asyncio.timeout(10):
        while not (history := await recurring.history("taken")):  # noqa: ASYNC110  of another process
            await asyncio.sleep(0.02)
    [fire] = history
    assert fire.fire_ms == start_ms
    paused = await recurring.pause("taken")
    state = (await producer.get(fire.id)).state
    if paused.history[0].outcome is FireOutcome.CANCELLED:
        assert state is MessageState.CANCELLED
    else:  # this machine took longer than the half second before it was due
        assert time.time_ns() // 1_000_000 >= start_ms
    await recurring.delete("taken")


async def test_a_trigger_fires_once_and_moves_no_other_fire(client: Client) -> None:
    recurring = client.recurring()
    before = await recurring.put("asked", "triggers", b"now", timing=DAILY, paused=True)
    made = await recurring.trigger("asked")
    assert made.triggered == 1
    with pytest.raises(RevisionDiffers):
        await recurring.trigger("asked", if_triggered=0)
    again = await recurring.trigger("asked", if_triggered=1)
    assert (again.triggered, again.id != made.id) == (2, True)
    after = await recurring.get("asked")
    assert (after.next_ms, after.fired, after.triggered) == (before.next_ms, 0, 2)
    assert [one.outcome for one in after.history] == [FireOutcome.TRIGGERED] * 2
    assert [one.id for one in after.history] == [again.id, made.id]
    assert (await client.producer().get(made.id)).body == b"now"
    assert await client.producer().cancel(made.id) in CancelOutcome
    await recurring.delete("asked")


async def test_schedules_are_listed_by_name_in_pages_of_a_topic_or_of_what_names_begin_with(
    client: Client,
) -> None:
    recurring = client.recurring()
    names = [f"listed-{number:02d}" for number in range(7)]
    for number, name in enumerate(names):
        await recurring.put(name, f"topic-{number % 2}", b"body", timing=Interval(DAY_MS), tags=["t"])
    page = await recurring.list_page(prefix="listed-", size=4)
    assert [one.name for one in page.schedules] == names[:4]
    assert page.total >= 7
    rest = await recurring.list_page(prefix="listed-", size=4, cursor=page.cursor)
    assert ([one.name for one in rest.schedules], rest.cursor) == (names[4:], "")
    assert [one.name async for one in recurring.list(prefix="listed-")] == names
    assert [one.name async for one in recurring.list(prefix="listed-", limit=3)] == names[:3]
    assert [one.name async for one in recurring.list("topic-1", prefix="listed-")] == names[1::2]
    listed = [one async for one in recurring.list("topic-0", prefix="listed-0")]
    assert {(one.spec.body, one.spec.tags) for one in listed} == {(b"", ("t",))}, "bodies are not listed"
    for name in names:
        await recurring.delete(name)
    assert [one async for one in recurring.list(prefix="listed-")] == []


async def test_next_fires_are_told_of_what_is_stored_and_of_what_is_tried(client: Client) -> None:
    recurring = client.recurring()
    tried = await recurring.next_fires(timing=Cron("0 0 29 2 *"), after_ms=1_767_225_600_000, count=2)
    assert tried.local == ("2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00")
    assert tried.times_ms == (1_835_395_200_000, 1_961_625_600_000)
    bounded = await recurring.next_fires(timing=Interval(1_000), start_ms=5_000, end_ms=7_500, after_ms=1)
    assert (bounded.times_ms, bounded.ended) == ((5_000, 6_000, 7_000), True)
    await recurring.put("daily", "reports", timing=DAILY)
    stored = await recurring.next_fires("daily", count=3)
    assert stored.times_ms[0] == (await recurring.get("daily")).next_ms
    assert all(local[10:16] == "T02:00" or local[10:16] == "T03:00" for local in stored.local)
    await recurring.delete("daily")
    for arguments in ({}, {"name": "daily", "timing": DAILY}):
        with pytest.raises(InvalidQuery):
            await recurring.next_fires(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("timing", "options"),
    [
        (Cron("61 * * * *"), {}),
        (Cron("0 0 30 2 *"), {}),  # never
        (Cron("* * * * *", "Europe/Atlantis"), {}),
        (Interval(999), {}),
        (Interval(DAY_MS), {"end_ms": 1}),
    ],
)
async def test_what_never_fires_or_cannot_be_read_is_refused(
    client: Client, timing: Any, options: Any
) -> None:
    with pytest.raises(InvalidSchedule) as refused:
        await client.recurring().put("refused", "reports", timing=timing, **options)
    assert refused.value.text
    with pytest.raises(NotFound):
        await client.recurring().get("refused")


async def test_a_name_or_topic_that_cannot_be_is_refused(client: Client) -> None:
    for name, topic in (("", "t"), ("a b", "t"), ("n", ""), ("n", "dlq.g.t")):
        with pytest.raises((InvalidName, InvalidSchedule)):
            await client.recurring().put(name, topic, timing=DAILY)


async def test_who_may_not_produce_to_a_topic_knows_nothing_of_its_schedules(cluster: LocalCluster) -> None:
    async with (
        connect(cluster.addresses, token="root") as root,
        connect(cluster.addresses, token="shop") as shop,
    ):
        await root.recurring().put("secret", "secret", timing=DAILY)
        await shop.recurring().put("own", "orders", timing=DAILY)
        assert [one.name async for one in shop.recurring().list()] == ["own"]
        with pytest.raises(NotFound):
            await shop.recurring().get("secret")
        for call in (shop.recurring().pause, shop.recurring().delete, shop.recurring().trigger):
            with pytest.raises(NotFound):
                await call("secret")
        with pytest.raises(NotPermitted):
            await shop.recurring().put("mine", "secret", timing=DAILY)
        with pytest.raises(NotPermitted):
            await shop.recurring().put("secret", "orders", timing=DAILY)
        for name in ("secret", "own"):
            await root.recurring().delete(name)


async def test_below_level_2_a_schedule_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with Disposable(1, tmp_path, {"upgrade": {"finish": "manual"}}) as old:
        old.start()
        old.wait_until_serving()
        async with connect(old.addresses) as client:
            assert [one async for one in client.recurring().list()] == []
            assert (await client.recurring().next_fires(timing=DAILY, count=1)).times_ms
            with pytest.raises(UpgradeRefused) as refused:
                await client.recurring().put("early", "reports", timing=DAILY)
            assert refused.value.reason == "LEVEL_TOO_LOW"
            await client.operator().finish_upgrade()
            assert (await client.recurring().put("early", "reports", timing=DAILY)).revision == 1


def run(cluster: LocalCluster, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["recurring", *arguments, "-s", cluster.addresses, "--token", "root"])
    assert result.exit_code == code, result.output
    return result


def told(cluster: LocalCluster, *arguments: str) -> Any:
    return json.loads(run(cluster, *arguments, "-o", "json").stdout)


def test_the_command_line_keeps_a_schedule(cluster: LocalCluster, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"from a file")
    timing = ("--cron", "0 2 * * *", "--zone", "Europe/Berlin")
    put = ("put", "nightly", "reports", *timing, "--overlap", "skip", "--file", str(tmp_path / "body"))
    made = told(cluster, *put)
    assert (made["revision"], made["state"], made["spec"]["body"]) == (1, "active", "from a file")
    assert told(cluster, *put)["revision"] == 1
    assert "Europe/Berlin" in run(cluster, "show", "nightly").stdout
    [listed] = [json.loads(line) for line in run(cluster, "list", "-o", "json").stdout.splitlines()]
    assert (listed["name"], listed["spec"]["overlap"]) == ("nightly", "skip")
    assert "body" not in listed["spec"]
    table = run(cluster, "list", "--topic", "reports")
    assert "nightly" in table.stdout
    assert "1 schedules" in table.stderr
    fires = told(cluster, "next", "nightly", "--count", "2")
    assert len(fires["times_ms"]) == len(fires["local"]) == 2
    assert fires["times_ms"][0] == made["next_ms"]
    tried = told(cluster, "next", *timing, "--count", "1")
    assert tried["times_ms"] == fires["times_ms"][:1]
    assert told(cluster, "pause", "nightly")["state"] == "paused"
    assert told(cluster, "resume", "nightly", "--if-revision", "2")["state"] == "active"
    triggered = told(cluster, "trigger", "nightly")
    assert triggered["triggered"] == 1
    assert told(cluster, "show", "nightly")["history"][0]["id"] == triggered["id"]
    refused = run(cluster, "delete", "nightly", "--yes", "--if-revision", "1", code=1)
    assert "RECURRING_CHANGED" in refused.stderr
    run(cluster, "delete", "nightly", code=1)  # nobody answers the question
    assert told(cluster, "delete", "nightly", "--yes") == {"name": "nightly", "deleted": True}
    assert "RECURRING_UNKNOWN" in run(cluster, "show", "nightly", code=1).stderr


async def test_a_schedule_with_an_overlap_policy_leaves_fires_out_while_a_message_is_in_hand(
    client: Client,
) -> None:
    recurring, topic = client.recurring(), "slow"
    await client.operator().create_topic(topic)
    await client.operator().create_group(topic, "g")
    await recurring.put("slow", topic, timing=Interval(1_000), overlap=Overlap.SKIP)
    async with asyncio.timeout(60), client.consumer(topic, "g", lease_ms=30_000) as consumer:
        message = await anext(consumer)
        while (await recurring.get("slow")).skipped < 2:  # noqa: ASYNC110  of other processes
            await asyncio.sleep(0.1)
        told_first = await recurring.get("slow")
        assert told_first.fired == 1
        await message.ack()
        following = await anext(consumer)
        assert (following.due_ms - message.due_ms) % 1_000 == 0
        assert following.due_ms - message.due_ms >= 3_000
        await following.ack()
    await recurring.delete("slow")
