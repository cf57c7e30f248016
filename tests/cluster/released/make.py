"""Makes the data folder of a release, with that release's own code, and writes down what is in it.

    python -m tests.cluster.released.make 0.2.0

leaves `0.2.0.tar.xz` and `0.2.0.json` beside this file: made once, when the release is, and never again.
The node is given a clock that shows the beginning of 2025, so that any machine's clock is ahead of the data.
It is stopped, started again and killed, so that there is a checkpoint and a journal to play on top of it.
"""

from __future__ import annotations

import asyncio
import io
import json
import lzma
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tarry.chaos.cluster import releases
from tarry.chaos.cluster.cluster import now_ms
from tarry.chaos.faults.clocks import give_clock
from tarry.client.aio import Client, Misfire, connect
from tarry.client.local.cluster import LocalCluster, Setting
from tarry.client.operators.topic_settings import TopicOptions

HERE = Path(__file__).parent
BEGUN_MS = 1_735_689_600_000  # 2025-01-01T00:00:00Z
YEAR_2090_MS, MONTH_MS, HOUR_MS = 3_786_912_000_000, 2_629_800_000, 3_600_000
LONG_MS = 90 * 12 * MONTH_MS
SETTINGS: dict[str, Setting] = {
    "ledger": {"enabled": False},
    "delivery": {"attempts_max": 3},
    "dispatch": {"checkpoint_ms": HOUR_MS},
}
TOPICS: dict[str, TopicOptions] = {
    "orders": {"retention_ms": LONG_MS, "body_bytes_max": 5_000},
    "reminders": {"retention_ms": LONG_MS, "release_per_s_max": 10_000, "pending_max": 1_000_000},
    "parcels": {"misfire": Misfire.DEAD_LETTER, "misfire_after_ms": 60_000},
}
GROUPS = {"orders": "billing", "reminders": "desk", "parcels": "carriers"}


ACKED, NACKED, KEPT, DOOMED, ORDERED = range(20), range(20, 28), range(28, 34), range(34, 40), range(40, 44)
ORDERS = ORDERED.stop


@dataclass(slots=True)
class Contents:
    """What a data folder holds, by the answers that its release gave."""

    topics: dict[str, TopicOptions] = field(default_factory=lambda: TOPICS)
    groups: dict[str, str] = field(default_factory=lambda: GROUPS)
    far: dict[str, tuple[int, str]] = field(default_factory=dict)
    """Due time and body of what is pending until after 2090, by id; in the topic reminders."""
    cancelled: list[str] = field(default_factory=list)
    """Their ids."""
    near: list[str] = field(default_factory=list)
    """Bodies of what came due in reminders while there was no node, by due time."""
    unsettled: list[str] = field(default_factory=list)
    """Bodies in orders that were nacked, or delivered and neither acked nor nacked."""
    ordered: list[str] = field(default_factory=list)
    """Bodies of one ordering key; the first was nacked."""
    acked: list[str] = field(default_factory=list)
    dead: list[str] = field(default_factory=list)
    """Bodies of orders that were nacked at every attempt."""
    misfired: list[str] = field(default_factory=list)
    """Bodies of what came due in parcels while there was no node."""


async def make(version: str, folder: Path) -> Contents:
    """Fill the folder of node n1."""
    with LocalCluster(1, folder, SETTINGS) as cluster:
        node = cluster.nodes["n1"]
        give_clock(node, BEGUN_MS - now_ms())
        releases.release(version).put_on(node)
        contents = Contents()
        for fill, end in ((_first_life, cluster.stop), (_second_life, cluster.kill)):
            cluster.start()
            cluster.wait_until_serving()
            async with connect(cluster.addresses) as client:
                await fill(client, contents)
            end("n1")
    return contents


async def _first_life(client: Client, contents: Contents) -> None:
    operator, producer = client.operator(), client.producer()
    for topic, options in TOPICS.items():
        await operator.create_topic(topic, **options)
        await operator.create_group(topic, GROUPS[topic])
    for number in range(ORDERS):
        await producer.schedule(
            "orders",
            f"order {number}".encode(),
            delay_ms=0,
            tags=("paid",),
            keys=(f"o{number}",),
            properties={"trace": f"{number:08x}"},
            ordering_key="customer 1" if number in ORDERED else "",
        )
    await _settle(client, contents)
    await _far(client, contents, range(60), "far")
    due = [BEGUN_MS + 10 * 60_000 + number * 7_001 for number in range(30)]
    contents.near = [f"near {number}" for number in range(30)]
    await producer.schedule_batch("reminders", [body.encode() for body in contents.near], due_ms=due)
    for name, apart_ms in (("crowd", HOUR_MS // 200), ("scattered", HOUR_MS)):
        due = [YEAR_2090_MS + number * apart_ms for number in range(200)]
        bodies = [f"{name} {number}" for number in range(200)]
        made = await producer.schedule_batch("reminders", [body.encode() for body in bodies], due_ms=due)
        contents.far.update(zip(made.ids, zip(due, bodies, strict=True), strict=True))
    contents.misfired = ["parcel 0", "parcel 1", "parcel 2"]
    for body in contents.misfired:
        await producer.schedule("parcels", body.encode(), delay_ms=HOUR_MS)


async def _second_life(client: Client, contents: Contents) -> None:
    """Do what is in the journal alone, the node being killed behind it."""
    await _far(client, contents, range(60, 80), "late")
    late = list(contents.far)[-3:]
    await client.producer().cancel_many(late)
    contents.cancelled += late


async def _far(client: Client, contents: Contents, numbers: Iterable[int], name: str) -> None:
    """Schedule a message a month, and cancel the first of them."""
    producer = client.producer()
    made = []
    for number in numbers:
        due_ms, body = YEAR_2090_MS + number * MONTH_MS, f"{name} {number}"
        made.append((await producer.schedule("reminders", body.encode(), due_ms=due_ms)).id)
        contents.far[made[-1]] = (due_ms, body)
    await producer.cancel(made[0])
    contents.cancelled.append(made[0])


async def _settle(client: Client, contents: Contents) -> None:
    """Take all orders: ack some, keep some, nack some for an hour and some at every attempt."""
    puller = client.puller("orders", "billing", name="till", lease_ms=HOUR_MS)
    contents.unsettled = [f"order {number}" for number in (*KEPT, *NACKED)]
    contents.ordered = [f"order {number}" for number in ORDERED]
    contents.acked = [f"order {number}" for number in ACKED]
    contents.dead = [f"order {number}" for number in DOOMED]
    left = {
        *range(ORDERS),
        *range(DOOMED[0] + 100, DOOMED[-1] + 101),
        *range(DOOMED[0] + 200, DOOMED[-1] + 201),
    }
    left -= set(ORDERED[1:])  # they wait for the first, which is nacked
    while left:
        for message in await puller.receive(ORDERS, wait_ms=1_000):
            number = int(message.body.split()[1])
            left.remove(number + 100 * (message.attempt - 1))
            if number in ACKED:
                await puller.ack([message])
            elif number not in KEPT:
                await puller.nack([message], 0 if number in DOOMED else HOUR_MS)


def packed(folder: Path) -> bytes:
    """Return the folder as a tar, compressed; without what a run of the node leaves beside its data."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        archive.add(folder, arcname=folder.name)
    return lzma.compress(made.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def main(version: str) -> None:
    """Leave the data folder of this release, and what is in it, beside this file."""
    with tempfile.TemporaryDirectory() as folder:
        contents = asyncio.run(make(version, Path(folder)))
        (HERE / f"{version}.tar.xz").write_bytes(packed(Path(folder) / "n1"))
    (HERE / f"{version}.json").write_text(json.dumps(asdict(contents)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
