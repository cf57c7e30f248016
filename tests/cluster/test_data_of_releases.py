"""Data folders that releases left behind, opened by this version: all that was in them is found again."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.client.aio import Client, MessageState, connect
from tarry.client.local.cluster import LocalCluster
from tests.cluster.disposable import Disposable
from tests.cluster.released.make import GROUPS, SETTINGS, Contents

pytestmark = pytest.mark.beside

KEPT = Path(__file__).parent / "released"


@pytest.fixture(params=["0.1.0", "0.2.0"])
def release(request: pytest.FixtureRequest) -> str:
    version: str = request.param
    return version


@pytest.fixture
def contents(release: str) -> Contents:
    """What the release's client was answered."""
    return Contents(**json.loads((KEPT / f"{release}.json").read_text()))


@pytest.fixture
def cluster(release: str, tmp_path: Path) -> Iterator[LocalCluster]:
    """A node of this version on the data of the release."""
    with tarfile.open(KEPT / f"{release}.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    with Disposable(1, tmp_path, SETTINGS) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        yield cluster


async def test_all_that_a_release_stored_is_found_again(cluster: LocalCluster, contents: Contents) -> None:
    async with connect(cluster.addresses) as client:
        await _settings_are_kept(client, contents)
        await _far_messages_are_pending(client, contents)
        await _unsettled_messages_come(client, contents)
        assert await _delivered(client, "reminders", "desk", len(contents.near)) == contents.near
        for letters, bodies in (("billing.orders", contents.dead), ("misfired.parcels", contents.misfired)):
            found = await _delivered(client, f"dlq.{letters}", "finder", len(bodies))
            assert sorted(found) == sorted(bodies)


async def test_it_is_all_there_after_another_start_and_takes_new_messages(
    cluster: LocalCluster, contents: Contents
) -> None:
    async with connect(cluster.addresses) as client:
        await client.producer().schedule("reminders", b"new", due_ms=4_000_000_000_000)
        before = await client.operator().status(digest=True)
    for end in (cluster.stop, cluster.kill):
        end("n1")
        cluster.start()
        cluster.wait_until_serving()
    async with connect(cluster.addresses) as client:
        after = await client.operator().status(digest=True)
        assert after.pending == before.pending == len(contents.far) - len(contents.cancelled) + 1
        await _far_messages_are_pending(client, contents)


async def _settings_are_kept(client: Client, contents: Contents) -> None:
    for topic, settings in contents.topics.items():
        described = await client.operator().describe_topic(topic)
        assert {name: described.settings[name] for name in settings} == settings  # type: ignore[literal-required]
    topics = {topic.topic: topic for topic in (await client.operator().status()).topics}
    for topic, group in contents.groups.items():
        assert group in {each.group for each in topics[topic].groups}


async def _far_messages_are_pending(client: Client, contents: Contents) -> None:
    producer = client.producer()
    for message_id, (due_ms, body) in contents.far.items():
        found = await producer.get(message_id)
        gone = message_id in contents.cancelled
        assert found.state is (MessageState.CANCELLED if gone else MessageState.PENDING)
        assert gone or (found.topic, found.due_ms, found.body.decode()) == ("reminders", due_ms, body)


async def _unsettled_messages_come(client: Client, contents: Contents) -> None:
    """Orders that were not acknowledged come, those of one key in order, and no others."""
    wanted = [*contents.unsettled, *contents.ordered]
    found = await _delivered(client, "orders", GROUPS["orders"], len(wanted))
    assert sorted(found) == sorted(wanted)
    assert [body for body in found if body in contents.ordered] == contents.ordered
    status = await client.operator().status()
    (orders,) = (topic for topic in status.topics if topic.topic == "orders")
    assert [(group.floor, group.retrying) for group in orders.groups] == [(orders.released, 0)]


async def _delivered(client: Client, topic: str, group: str, count: int) -> list[str]:
    """Return the bodies of so many messages, each acknowledged."""
    bodies = []
    async with client.consumer(topic, group, start="earliest") as consumer:
        async for message in consumer:
            bodies.append(message.body.decode())
            await message.ack()
            if len(bodies) == count:
                break
    return bodies
