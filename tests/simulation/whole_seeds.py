"""One seed of whole nodes, one run: producers, consumers, faults, healing, draining, checks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import traceback
from collections.abc import Iterator

import structlog

from tarry.node.delivery import feed, many_topics
from tarry.node.leader import pending_pages
from tarry.node.recovery import thinning
from tarry.node.services import bulk_cancel
from tarry.proto.tarry_operator_pb2 import MisfirePolicy
from tarry.wheel import far_log, placement
from tests.simulation import virtual_loop, whole_faults
from tests.simulation.certain import ASYNC, among_others, by_themselves, possible
from tests.simulation.delays import delays
from tests.simulation.durabilities import change_durability
from tests.simulation.model_producer import ModelProducer
from tests.simulation.outcome import Outcome, digest
from tests.simulation.rot import rot
from tests.simulation.seeds import ASYNC_SHARE
from tests.simulation.upgrade import until_raised, upgrade
from tests.simulation.whole_node import DISPATCH
from tests.simulation.whole_world import BROADCAST, GROUPS, SHAPED, WholeWorld
from tests.simulation.world import QUIET_AFTER_MS, SLOWNESS, draw_bandwidth

DRIFT_MS = 3
FAR_SHARE = 0.4
"""Of the worlds: producers schedule over many hours, too."""

ASYNC_UPGRADED_SHARE = 0.3
"""Of these: their upgrade goes on meanwhile, and they are sync until it ends."""
UPGRADED_SHARE = 0.4
"""Of the time with faults, after which the nodes have the later version: the rest has what its level has."""


@contextlib.contextmanager
def small_parts() -> Iterator[None]:
    """Let the far log have small segments, which hours leave early, any hour be worth thinning, a cancel of
    many take many calls, and a group's feed hold few messages of a crowd.
    """
    constants = (
        (far_log, "SEGMENT_UNITS", 512), (far_log, "_CLEANED_MIN", 16), (placement, "_FULL_UNITS", 8),
        (thinning, "GAIN_BYTES_MIN", 0), (bulk_cancel, "CHOSEN_MAX", 3), (pending_pages, "PAGE_UNITS", 100),
        (many_topics, "QUANTUM_MESSAGES", 3), (feed, "WINDOW", 16),
    )  # fmt: skip
    before = [getattr(module, name) for module, name, _ in constants]
    for module, name, value in constants:
        setattr(module, name, value)
    try:
        yield
    finally:
        for (module, name, _), value in zip(constants, before, strict=True):
            setattr(module, name, value)


def simulate_whole(seed: int, seconds: float = 15.0) -> Outcome:
    """`seconds`: how long there are faults."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    return virtual_loop.run(_simulate(seed, seconds))


async def _simulate(seed: int, seconds: float) -> Outcome:
    draw = random.Random(seed)
    names, skew_ms = draw.choice((1, 2, 3, 3, 3, 3, 4, 5)), draw.choice((0, 0, 20, 1_000))
    quiet_after_ms, slowness = draw.choice(QUIET_AFTER_MS), draw.choice(SLOWNESS)
    world = WholeWorld(
        seed,
        names,
        skew_ms=skew_ms,
        quiet_after_ms=quiet_after_ms,
        slowness=slowness,
        groups=draw.choice(
            (
                GROUPS,
                {**GROUPS, "b": [*GROUPS["b"], f"b/{BROADCAST}"]},
                {**GROUPS, SHAPED: [f"{SHAPED}/g1"]},
            )
        ),
        retention_ms=draw.choice((DISPATCH.retention_ms, 300)),
        drift_ms=DRIFT_MS,
    )
    policy = draw.choice(MisfirePolicy.values())
    world.network.bytes_per_s = draw_bandwidth(draw)
    world.schedules_far = draw.random() < FAR_SHARE
    world.rots = names > 1
    flush = random.Random(f"flush {seed}")
    world.flushes_late = flush.random() < ASYNC_SHARE
    world.upgrades = not world.flushes_late or flush.random() < ASYNC_UPGRADED_SHARE
    world.finish = "auto"
    asyncio.get_running_loop().set_exception_handler(world.on_error)
    failure: str | None = None
    try:
        with small_parts():
            await world.during(_run(world, seconds, policy))
    except Exception as error:  # noqa: BLE001 - a finding, to be told with its seed
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        failure = world.relative(f"{type(error).__name__}: {error}")
        world.history.extend(world.relative(traceback.format_exc()).splitlines())
    ledger = world.ledger
    outcome = Outcome(
        "node",
        seed,
        failure,
        len(ledger.told),
        len(ledger.missing()) if failure and failure.startswith("Violation: V4") else 0,
        asyncio.get_running_loop().time() + world.asleep_ms / 1000,
        digest([*world.history, sorted(ledger.told.items()), world.network.frames]),
        {
            **world.counted(),
            **ledger.counts,
            "cancelled": len(ledger.cancelled),
            "ordered": world.rows.order.delivered,
        },
        tuple(world.history) if failure else (),
    )
    await world.close()
    return outcome


async def _run(world: WholeWorld, seconds: float, policy: int) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + seconds
    if world.upgrades:
        for node in world.whole:
            node.applies = 1
    world.start()
    if world.flushes_late and not world.upgrades:
        await world.until_served()
        await until_raised(world)
        until = loop.time() + seconds
    consumers = [asyncio.ensure_future(consumer.run()) for consumer in world.consumers()]
    producers = [ModelProducer(world, f"p{n}") for n in range(3)]
    delaying = asyncio.ensure_future(delays(world))
    try:
        async with asyncio.TaskGroup() as writing:
            if world.rots:
                writing.create_task(rot(world, until))
            if world.upgrades:
                writing.create_task(upgrade(world, loop.time() + seconds * UPGRADED_SHARE))
            if world.flushes_late:
                writing.create_task(change_durability(world, until))
            if SHAPED in world.groups:
                writing.create_task(world.shape(policy))
            for producer in producers:
                writing.create_task(producer.run(until))
            writing.create_task(world.changes.run(until))
            writing.create_task(world.recurring.run(until))
            writing.create_task(world.transactions.run(until))
            plays = {**whole_faults.CERTAIN, **(ASYNC if world.flushes_late else {})}
            certain = possible(world, plays)
            plagues = (whole_faults.plague(world, until) for _ in range(2))
            await asyncio.gather(*plagues, among_others(world, until, certain))
            await world.mend()
        await by_themselves(world, possible(world, whole_faults.LAST))
        delaying.cancel()
        await world.recurring.settle()
        await world.transactions.settle()
        await world.drain()
        await world.changes.judge()
        world.recurring.judge()
        world.transactions.judge()
        if world.upgrades:
            await until_raised(world)
    finally:
        for task in (*consumers, delaying, *world.transactions.answering):
            task.cancel()
    world.counts["without room"] += sum(producer.without_room for producer in producers)
    world.counts.update(world.changes.counts)
    world.counts.update({f"recurring {name}": count for name, count in world.recurring.counts.items()})
    world.counts.update({f"transactions {name}": count for name, count in world.transactions.counts.items()})
    world.counts["repeated"] += sum(producer.repeated for producer in producers)
