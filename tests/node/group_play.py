"""Plays with a group in one process, on virtual time."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from tarry.node.delivery.consumer import Consumer
from tarry.node.filters.property_filter import PropertyFilter
from tests.node.group_in_process import GROUP, SETTINGS, TOPIC, Group
from tests.simulation import virtual_loop

MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None
Play = Callable[[Group], Awaitable[None]]


def play(steps: Play) -> None:
    async def whole() -> None:
        with tempfile.TemporaryDirectory(dir=MEMORY) as folder:
            group = Group(Path(folder))
            try:
                await steps(group)
            finally:
                await group.end()
                group.machine.close()

    virtual_loop.run(whole())


async def pass_ms(group: Group, ms: int) -> None:
    """Release what is due soon, and let time pass."""
    group.release()
    await asyncio.sleep(ms / 1_000)
    await group.settle()


async def rest(group: Group, *, clean: bool) -> None:
    """Let all streams end, and more than two leases pass, with a look after each."""
    for name in list(group.hands):
        group.leave(name, clean=clean)
    for _ in range(3):
        await pass_ms(group, SETTINGS.lease_ms + 100)
        await group.commit()
        group.delivery.look(group.time.now_ms())


def labels(group: Group) -> list[str]:
    return [one.label for one in group.given]


def poll(
    group: Group,
    name: str,
    lease_ms: int,
    credit: int = 5,
    tags: Iterable[str] = (),
    by_properties: str = "",
) -> None:
    """Let a consumer receive by a call what is due now."""
    wanted = PropertyFilter(by_properties) if by_properties else None
    consumer = Consumer(name, TOPIC, GROUP, lease_ms, credit, frozenset(tags), wanted, polls=True)
    group.group.attach(consumer)
    group.group.pump()
    group.group.leave(consumer, clean=False)
    group.receive(group.hands[name], consumer.take_all())
