"""What goes wrong in a run: drawn from one random source, a few things at a time, with calm between."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tarry.replication.errors import MembershipRefused, NotLeader, TransferRefused, Unknown
from tests.simulation import hostile
from tests.simulation.checker import Violation
from tests.simulation.network import Weather
from tests.simulation.world import SimNode, World

Fault = Callable[[World], Awaitable[None]]


async def crash(world: World) -> None:
    node = world.rng.choice(world.nodes)
    world.note(f"crash {node.name}")
    node.crash()
    await asyncio.sleep(world.rng.uniform(0.0, 2.0))
    restart(world, node)


async def crash_leader(world: World) -> None:
    node = world.leader() or world.rng.choice(world.nodes)
    world.note(f"crash the leader {node.name}")
    node.crash()
    await asyncio.sleep(world.rng.uniform(0.0, 2.0))
    restart(world, node)


async def crash_all(world: World) -> None:
    world.note("crash all")
    for node in world.nodes:
        node.crash()
    await asyncio.sleep(world.rng.uniform(0.0, 0.5))
    for node in world.nodes:
        await asyncio.sleep(world.rng.uniform(0.0, 0.3))
        restart(world, node)


async def pause(world: World) -> None:
    leader = world.leader()
    node = leader if leader and world.rng.random() < 0.5 else world.rng.choice(world.nodes)
    world.note(f"pause {node.name}")
    node.running.clear()
    await asyncio.sleep(world.rng.uniform(0.05, 2.0))
    node.running.set()


async def isolate(world: World) -> None:
    node, noticed = world.rng.choice(world.nodes), world.rng.random() < 0.5
    world.note(f"isolate {node.name}, {noticed=}")
    for other in world.nodes:
        if other is not node:
            world.network.cut(node.name, other.name, noticed=noticed)
            world.network.cut(other.name, node.name, noticed=noticed)
    await asyncio.sleep(world.rng.uniform(0.1, 3.0))
    world.network.heal()


async def cut_one_way(world: World) -> None:
    if len(world.nodes) < 2:
        return
    sender, receiver = world.rng.sample(world.nodes, 2)
    world.note(f"cut {sender.name} to {receiver.name}")
    world.network.cut(sender.name, receiver.name, noticed=False)
    await asyncio.sleep(world.rng.uniform(0.1, 3.0))
    world.network.heal()


async def flap(world: World) -> None:
    if len(world.nodes) < 2:
        return
    one, other = world.rng.sample(world.nodes, 2)
    world.note(f"flap {one.name} and {other.name}")
    for _ in range(world.rng.randrange(3, 15)):
        world.network.cut(one.name, other.name, noticed=True)
        await asyncio.sleep(world.rng.uniform(0.01, 0.1))
        world.network.heal()
        await asyncio.sleep(world.rng.uniform(0.01, 0.1))


async def storm(world: World) -> None:
    rng = world.rng
    world.network.weather = Weather(
        delay_max=rng.choice([0.002, 0.02, 0.06]),
        loss=rng.choice([0.0, 0.01, 0.1, 0.3]),
        duplicate=rng.choice([0.0, 0.05, 0.3]),
        duplicate_delay=rng.choice([0.3, 3.0]),
        overtake=rng.choice([0.0, 0.05]),
        bulk_delay=rng.choice([0.0, 0.05, 0.5]),
    )
    world.note(f"{world.network.weather}")
    await asyncio.sleep(rng.uniform(0.5, 3.0))
    world.network.weather = Weather()


async def slow_disk(world: World) -> None:
    node = world.rng.choice(world.nodes)
    node.sync_s = world.rng.choice([0.005, 0.05, 0.3])
    world.note(f"syncs of {node.name} take {node.sync_s} s")
    await asyncio.sleep(world.rng.uniform(0.2, 2.0))
    node.sync_s = 0.0005


async def fail_disk(world: World) -> None:
    node = world.rng.choice(world.nodes)
    world.note(f"the disk of {node.name} fails")
    node.disk.fails = True
    await asyncio.sleep(world.rng.uniform(0.1, 1.0))
    node.disk.fails = False
    restart(world, node)


async def lose_power(world: World) -> None:
    """A machine, as soon as its node may have something that waits for its flush."""
    node = world.leader() if world.rng.random() < 0.5 else world.rng.choice(world.nodes)
    for _ in range(20):
        if node is not None and node.alive and node.disk.is_at_risk and world.may_do_without_one():
            world.note(f"the machine of {node.name} loses its power")
            node.lose_power()
            await asyncio.sleep(world.rng.uniform(0.0, 1.0))
            restart(world, node)
            return
        await asyncio.sleep(0.02)


async def fill_disk(world: World) -> None:
    node = world.rng.choice(world.nodes)
    node.disk.room_bytes = world.rng.randrange(5_000)
    world.note(f"the disk of {node.name} has {node.disk.room_bytes} bytes left")
    if world.rng.random() < 0.3:  # it starts on a full disk
        node.disk.room_bytes = 0
        node.crash()
        restart(world, node)
    await asyncio.sleep(world.rng.uniform(0.1, 2.0))
    node.disk.room_bytes = None
    restart(world, node)


async def transfer(world: World) -> None:
    leader = world.leader()
    if leader is None:
        return
    target = world.rng.choice([None, *(node.name for node in world.nodes if node is not leader)])
    world.note(f"transfer from {leader.name} to {target}")
    try:
        done = await leader.driver.transfer(target, world.rng.choice([50, 500, 3000]))
        world.note(f"transferred: {done}")
        world.checker.sometimes["transferred"] += 1
    except TransferRefused as refused:
        world.note(f"transfer refused: {refused}")
        world.checker.sometimes["transfer refused"] += 1


async def change_members(world: World) -> None:
    """A member goes, or one that has gone comes back."""
    leader = world.leader()
    if leader is None:
        return
    away = [node.name for node in world.nodes if node.name not in leader.driver.status().members]
    others = [node.name for node in world.nodes if node is not leader]
    change: Awaitable[None]
    if world.changes_members or not all(node.is_whole() for node in world.nodes):
        return
    if away:
        world.note(f"add {away[0]}")
        change = leader.driver.add(away[0], world.members[away[0]], 2000)
    elif not others or not world.may_remove(len(leader.driver.status().members)):
        return
    else:
        gone = world.rng.choice(others)
        world.note(f"remove {gone}")
        change = leader.driver.remove(gone)
    world.changes_members = True
    try:
        await asyncio.wait_for(change, 3.0)
        world.checker.sometimes["members changed"] += 1
    except (MembershipRefused, NotLeader, Unknown, TimeoutError) as refused:
        world.note(f"members not changed: {refused!r}")
        world.checker.sometimes["members not changed"] += 1
    finally:
        world.changes_members = False


async def empty(world: World) -> None:
    """A disk is lost and replaced, now and then while one of the others lacks what that disk had."""
    rng = world.rng
    if not world.may_empty():
        return
    behind, node, *others = rng.sample(world.nodes, len(world.nodes))
    alone = bool(others) and rng.random() < 0.7
    if alone:
        for other in world.nodes:
            world.network.cut(behind.name, other.name, noticed=True)
            world.network.cut(other.name, behind.name, noticed=True)
        await asyncio.sleep(rng.uniform(0.05, 0.5))
    if world.may_empty():
        world.note(f"the disk of {node.name} is lost, {alone=}")
        world.checker.sometimes["emptied"] += 1
        node.lose_disk()
    if alone:
        for other in others:
            other.crash()
        world.network.heal()
        restart(world, node)
    await asyncio.sleep(rng.uniform(0.0, 2.0))
    for other in (node, *others):
        restart(world, other)


async def rot_journal(world: World) -> None:
    """A bit of a journal turns while its node is down; the others have all that it had.

    The last frame is spared: where its body has a sector of zeros, it is taken for a write that never ended.
    """
    if len(world.nodes) < 3 or not world.may_empty():  # of two the other leads nobody
        return
    node = world.rng.choice(world.nodes)
    world.note(f"the journal of {node.name} rots")
    (node.kill if node.disk.is_at_risk else node.crash)()
    turned = node.disk.turn_bit()
    if not node.disk.is_refused():
        raise Violation(f"R2: the journal of {node.name} is opened though it has rotted: {turned}")
    world.counts["rotten journals"] += 1
    node.lose_disk()
    world.rejoin(node)  # as with damaged_data = "rejoin"


async def compact(world: World) -> None:
    for node in world.nodes:
        if world.rng.random() < 0.7:
            node.take_checkpoint()


async def strangers(world: World) -> None:
    """Somebody who is no member gets a stream, and a member says what no sound one would."""
    world.note("a stranger speaks")
    for node in world.nodes:
        if node.name in world.network.ends and node.running.is_set():
            for frame in hostile.frames(world, node, world.rng):
                if world.network.ends.get(node.name) is not node.transport:  # it has crashed meanwhile
                    break
                node.processor.context.run(node.transport.arrive, frame)
                if world.rng.random() < 0.2:
                    await asyncio.sleep(world.rng.uniform(0.0, 0.01))
    speaker = world.rng.choice(world.nodes)
    if speaker.name in world.network.ends:
        hostile.speak_absurdly(world, speaker, world.rng)


FAULTS: tuple[Fault, ...] = (
    crash,
    crash,
    crash_leader,
    crash_leader,
    crash_all,
    pause,
    pause,
    isolate,
    isolate,
    cut_one_way,
    flap,
    storm,
    storm,
    slow_disk,
    fail_disk,
    fill_disk,
    empty,
    empty,
    rot_journal,
    transfer,
    transfer,
    change_members,
    change_members,
    compact,
    compact,
    compact,
    strangers,
)


def restart(world: World, node: SimNode) -> None:
    if not node.alive:
        node.start(world.members)


async def plague(world: World, until: float) -> None:
    """One stream of faults; several may run at once."""
    loop = asyncio.get_running_loop()
    while loop.time() < until:
        await asyncio.sleep(world.rng.uniform(0.05, 1.0))
        if world.rng.random() < 0.75:
            world.counts["faults"] += 1
            await world.rng.choice(FAULTS)(world)
