"""Groups that nobody comes back to, beside a topic that is busy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from tarry.chaos.cluster.cluster import now_ms
from tarry.chaos.cluster.footprint import disk_bytes
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.client.errors import TarryError
from tarry.client.operators.cluster_status import GroupStatus

RARE, FORGOTTEN, RARE_MESSAGES, RARE_BYTES = "rare", "forgotten", 300, 1_000
AGED, SLOW, AGED_MESSAGES = "aged", "slow", 200
BUSY_MESSAGES = 20_000
"""Of a group that acknowledges them at once: 640 KB of units."""
READY_BYTES_MAX: Final = 320 << 10
"""Of all ready queues of a node: half of the busy topic's units alone, which are trimmed."""
HELD_BYTES_MAX = RARE_MESSAGES * (RARE_BYTES + 200)
EXPIRY_MS, RETENTION_MAX_MS, LEASE_MS = 40_000, 4_000, 5_000
LASTS_MS_MAX = LEASE_MS + EXPIRY_MS * 9 // 8
"""From the end of the last stream: a group is kept open for a lease, and its use known to an eighth."""
PATIENCE_S = 30.0
SETTINGS = {
    "dispatch": {
        "checkpoint_ms": 300, "retention_check_ms": 500, "retention_ms": 500, "group_expiry_ms": EXPIRY_MS
    },
    "delivery": {"lease_ms": LEASE_MS},
}  # fmt: skip


@scenario(settings=SETTINGS, rough=False, loads=("light", "singles"))
async def forgotten_group(run: Run) -> None:
    """A group is away, its topic's neighbour busy, the leader killed: it returns, leaves, and expires."""
    await _made(run)
    await run.crash(await run.leader())
    await run.serving()
    await run.fill(BUSY_MESSAGES, delay_ms=1_000, delivered=True)
    await _expect_aged_expired(run)
    await _expect_little_kept(run)
    await _expect_all_delivered(run)
    await _expect_expiry(run)


async def _made(run: Run) -> None:
    """Make both groups, which nobody uses then, and their messages."""
    await run.client.operator().create_topic(AGED, retention_max_ms=RETENTION_MAX_MS)
    async with run.client.producer() as producer:
        for topic, group, count in ((RARE, FORGOTTEN, RARE_MESSAGES), (AGED, SLOW, AGED_MESSAGES)):
            async with run.client.consumer(topic, group):
                pass
            bodies = [b"%d" % number + bytes(RARE_BYTES) for number in range(count)]
            await producer.schedule_batch(topic, bodies, due_ms=[now_ms() + 500] * count)


async def _expect_aged_expired(run: Run) -> None:
    """Expect that retention goes past the slow group, counts that, and tells every ledger."""
    told = 0

    async def expired() -> bool:
        nonlocal told
        group = await _group(run, AGED, SLOW)
        told = group.expired if group is not None else -1
        return told == AGED_MESSAGES

    kept = await _within(PATIENCE_S, expired)
    run.expect(kept, f"of {AGED_MESSAGES} messages too old for {SLOW}, {told} are counted as expired")
    operator = run.client.operator()
    await operator.status()
    for address in operator.addresses():
        rows = 0

        async def written(address: str = address) -> bool:
            nonlocal rows
            parts = operator.export_ledger(address, kinds=("expired",), open=True)
            rows = sum([part.count async for part in parts])
            return rows == AGED_MESSAGES

        kept = await _within(PATIENCE_S, written)
        run.expect(kept, f"the ledger at {address} has {rows} rows of expired messages, not {AGED_MESSAGES}")


async def _expect_little_kept(run: Run) -> None:
    """Expect that the forgotten group keeps its own messages on disk, and none of the busy topic's."""

    async def small() -> bool:
        group = await _group(run, RARE, FORGOTTEN)
        return (
            group is not None
            and 0 < group.held_bytes <= HELD_BYTES_MAX
            and max(_ready(run)) <= READY_BYTES_MAX
        )

    kept = await _within(PATIENCE_S, small)
    run.say(f"ready queues take {max(_ready(run)):,} bytes")
    run.expect(
        kept, f"{await _group(run, RARE, FORGOTTEN)} is forgotten, and ready queues take {_ready(run)}"
    )


def _ready(run: Run) -> list[int]:
    """Return the disk space of each node's ready queues."""
    folders = [node.folder for node in run.cluster.local.nodes.values()]
    return [sum(map(disk_bytes, folder.glob("state-*/ready"))) for folder in folders]


async def _expect_all_delivered(run: Run) -> None:
    """Expect that the forgotten group, once it is back, is given all that waited for it."""
    seen = set[bytes]()

    async def take() -> None:
        async with run.client.consumer(RARE, FORGOTTEN) as consumer:
            async for message in consumer:
                seen.add(message.body)
                message.ack_soon()
                if len(seen) == RARE_MESSAGES:
                    return

    with suppress(TimeoutError):
        await asyncio.wait_for(take(), 2 * PATIENCE_S)
    run.expect(len(seen) == RARE_MESSAGES, f"of {RARE_MESSAGES} messages, {FORGOTTEN} is given {len(seen)}")


async def _expect_expiry(run: Run) -> None:
    """Expect that the group is there until its expiry, and gone when it is over."""
    left_s = time.monotonic()

    async def gone() -> bool:
        return await _group(run, RARE, FORGOTTEN) is None

    expired = await _within(LASTS_MS_MAX / 1_000 + PATIENCE_S, gone)
    lasted_s = time.monotonic() - left_s
    run.say(f"{FORGOTTEN} is gone {lasted_s:.1f} s after its last use")
    run.expect(expired, f"{FORGOTTEN} has not expired {lasted_s:.0f} s after its last use")
    run.expect(lasted_s >= EXPIRY_MS / 1_000, f"{FORGOTTEN} expired {lasted_s:.1f} s after its last use")


async def _group(run: Run, topic: str, group: str) -> GroupStatus | None:
    """Return a group as the leader knows it; None where it is not there."""
    for one in (await run.client.operator().status()).topics:
        if one.topic == topic:
            return next((each for each in one.groups if each.group == group), None)
    return None


async def _within(seconds: float, holds: Callable[[], Awaitable[bool]]) -> bool:
    """Return whether something comes to hold within a time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            if await holds():
                return True
        except TarryError:
            pass  # a node was just started
        await asyncio.sleep(0.2)
    return False
