"""What goes wrong with whole nodes: all that does with consensus; clocks, disks, clients, operators."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

from google.protobuf.message import Message

from tarry.node.delivery.redrive import redrive
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import RedriveRequest
from tarry.replication.errors import ProposalRefused
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation import certain, faults, model_changer
from tests.simulation.rot import RECORDS, rot_once
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_world import HOUR_MS, WholeWorld
from tests.simulation.world import World

Fault = Callable[[WholeWorld], Awaitable[None]]

READINGS_UNSEEN = 8


async def jump_clock(world: WholeWorld) -> None:
    """Of the one node whose clock is wrong, where the others' are a majority."""
    node, rng = world.wrong, world.rng
    if not _may_go_wrong(world):
        return
    ahead_ms = rng.choice((-1, 1)) * rng.choice((0, 3_000, 60_000, 2 * HOUR_MS, rng.randrange(20_000)))
    node.wall.jump(ahead_ms, readings=rng.randrange(READINGS_UNSEEN))
    world.note(f"the clock of {node.name} is {node.wall.ahead_ms} ms ahead")
    await asyncio.sleep(rng.uniform(0.1, 3.0))


async def drift_clock(world: WholeWorld) -> None:
    """The same clock runs fast or slow, by 2 to 200 %, and stays where it came to."""
    node, rng = world.wrong, world.rng
    if world.drifts or not _may_go_wrong(world):
        return
    ms_per_s = rng.choice((-1, 1)) * 20 * 100 ** rng.random()
    world.note(f"the clock of {node.name} drifts by {ms_per_s:.0f} ms a second")
    world.counts["drifted away"] += 1
    world.drifts = True
    for _ in range(rng.randrange(5, 30)):
        node.wall.ahead_ms += round(ms_per_s / 10)
        await asyncio.sleep(0.1)
    world.drifts = False


def _may_go_wrong(world: WholeWorld) -> bool:
    """Whether one clock is one of three or more, and stays so."""
    leader = world.leader()
    if leader is None or world.changes_members or not all(node.is_whole() for node in world.nodes):
        return False
    return len(leader.driver.status().members) >= 3


async def sleep_for_hours(world: WholeWorld) -> None:
    """All that there is comes due, and its hours are passed: where little of one is kept, it is thinned."""
    if world.forgets_soon:
        world.note("sleep for three hours")
        world.asleep_ms += 3 * HOUR_MS
    world.counts["slept"] += 1


async def rot_by_itself(world: WholeWorld) -> None:
    """A bit of the state, with nothing else going on."""
    rot_once(world, RECORDS)


async def sleep_all(world: WholeWorld) -> None:
    """The machines are suspended and wake up together."""
    most_ms = 3 * HOUR_MS if world.forgets_soon else HOUR_MS
    asleep_ms = world.rng.choice((500, 5_000, 30_000, most_ms))
    world.note(f"sleep for {asleep_ms} ms")
    world.asleep_ms += asleep_ms
    world.counts["asleep_ms"] += asleep_ms


async def crash_while_it_writes(world: WholeWorld) -> None:
    """A checkpoint is under way."""
    node = cast(WholeNode, world.leader() or world.rng.choice(world.nodes))
    node.take_checkpoint()
    await asyncio.sleep(world.rng.uniform(0.0, 0.004))
    world.note(f"crash {node.name} in its checkpoint")
    node.crash()
    await asyncio.sleep(world.rng.uniform(0.0, 1.0))
    faults.restart(world, node)


async def fill_state_disk(world: WholeWorld) -> None:
    """Neither the state nor a checkpoint can be written; the journal can."""
    node = cast(WholeNode, world.rng.choice(world.nodes))
    world.note(f"the state of {node.name} cannot be written")
    node.state_fails = True
    if world.rng.random() < 0.5:
        node.take_checkpoint()
    await asyncio.sleep(world.rng.uniform(0.1, 2.0))
    node.state_fails = False
    faults.restart(world, node)


async def cut_clients(world: WholeWorld) -> None:
    """Some clients do not reach some nodes, which reach one another."""
    groups = [name.replace("/", "-") for names in world.groups.values() for name in names]
    consumers = [f"{group}-{temper}" for group in groups for temper in ("steady", "odd")]
    for client in ("p0", "p1", "p2", *model_changer.NAMES, *consumers):
        for node in world.nodes:
            if world.rng.random() < 0.4:
                world.cuts.add((client, node.name))
    world.note(f"{len(world.cuts)} ways from clients to nodes are cut")
    await asyncio.sleep(world.rng.uniform(0.2, 2.0))
    world.cuts.clear()


async def seek(world: WholeWorld) -> None:
    """A group goes back to its topic's beginning."""
    leader = cast(WholeNode | None, world.leader())
    topic, group = world.rng.choice(
        [tuple(name.split("/")) for names in world.groups.values() for name in names]
    )
    if leader is None:
        return
    world.note(f"{group} of {topic} is moved back")
    world.ledger.sought.add(f"{topic}/{group}")
    queue, now_ms = leader.core.machine.queues.find(topic), leader.core.time.now_ms()
    offset = 0 if queue is None else queue.first
    await _administer(leader, log_pb.SeekCommand(topic=topic, group=group, offset=offset, now_ms=now_ms))


async def give_back(world: WholeWorld) -> None:
    """Dead letters go back to the group that gave them up."""
    leader = cast(WholeNode | None, world.leader())
    if leader is None:
        return
    machine, damage, now_ms = leader.core.machine, leader.core.damage, leader.core.time.now_ms
    topic = world.rng.choice(("dlq.g1.a", "dlq.g1.b", "dlq.g2.a", "dlq.misfired.c"))
    world.note(f"dead letters of {topic} go back")

    async def propose(payload: Message) -> object:
        return await leader.driver.propose(encode(payload))

    async def give() -> None:
        async for progress in redrive(machine, damage, propose, now_ms, RedriveRequest(topic=topic), 1 << 20):
            if isinstance(progress, Refusal):
                return

    context = leader.processor.context
    try:
        await asyncio.wait_for(asyncio.get_running_loop().create_task(give(), context=context), 2.0)
    except (ProposalRefused, TimeoutError) as refused:
        world.note(f"not all: {refused!r}")


async def delete_topic(world: WholeWorld) -> None:
    """One that nobody else uses is made, filled and deleted, its messages pending."""
    leader = cast(WholeNode | None, world.leader())
    if leader is None:
        return
    now_ms = leader.core.time.now_ms()
    for n in range(10):
        await _administer(leader, log_pb.TopicCommand(topic=f"other-{n % 2}", now_ms=now_ms))
    await asyncio.sleep(world.rng.uniform(0.0, 0.2))
    await _administer(leader, log_pb.DeleteTopicCommand(topic="other-0", now_ms=now_ms))


async def _administer(leader: WholeNode, command: Message) -> None:
    try:
        await asyncio.wait_for(leader.driver.propose(encode(command)), 2.0)
    except (ProposalRefused, TimeoutError) as refused:
        leader.world.note(f"not done: {refused!r}")


FAULTS: tuple[Callable[[World], Awaitable[None]] | Fault, ...] = (
    *faults.FAULTS,
    faults.empty,
    faults.empty,
    jump_clock,
    jump_clock,
    jump_clock,
    drift_clock,
    sleep_all,
    fill_state_disk,
    cut_clients,
    cut_clients,
    seek,
    give_back,
    give_back,
    delete_topic,
    crash_while_it_writes,
    crash_while_it_writes,
)


CERTAIN: Mapping[str, Callable[[WholeWorld], Awaitable[None]]] = {
    **certain.CERTAIN,
    "state disks full": fill_state_disk,
    "drifted away": drift_clock,
    "slept": sleep_for_hours,
}
LAST: Mapping[str, Callable[[WholeWorld], Awaitable[None]]] = {**CERTAIN, "rotten": rot_by_itself}


async def plague(world: WholeWorld, until: float) -> None:
    """One stream of faults; several may run at once."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await asyncio.sleep(world.rng.uniform(0.05, 1.0))
        if world.rng.random() < 0.75:
            world.counts["faults"] += 1
            await world.rng.choice(FAULTS)(world)
