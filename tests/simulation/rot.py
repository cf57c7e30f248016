"""Bytes that rot on one node's disk: what of its state is damaged, and whether anybody could know."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import QueueDamaged, ReadyQueue, UnitsDamaged
from tarry.wheel.state import WheelDamaged
from tests.simulation.checker import Violation
from tests.simulation.ledger import demand

if TYPE_CHECKING:
    from tests.simulation.whole_node import WholeNode
    from tests.simulation.whole_world import WholeWorld

RECORDS: Final = "hours/[0-9]*/delay.log"
INDICES: Final = "hours/[0-9]*/delay.index"
FAR_RECORDS: Final = "hours/far-*/delay.log"
FAR_INDICES: Final = "hours/far-*/delay.index"
READY: Final = "ready/*/*.ready"
KINDS: Final = (RECORDS, RECORDS, INDICES, READY, READY)
FAR_KINDS: Final = (FAR_RECORDS, FAR_INDICES)
"""One of them in a run: where a unit has rotted in both, nobody has it."""


async def rot(world: WholeWorld, until: float) -> None:
    """Now and then a bit of the one node whose disk rots, which may be stopped; the others have all whole."""
    loop, rng = asyncio.get_running_loop(), world.rng
    far, late = rng.choice(FAR_KINDS), (loop.time() + 2 * until) / 3
    while loop.time() < until:
        await asyncio.sleep(rng.uniform(0.1, 1.5 if world.seen("rotten") else 0.5))
        if world.changes_members or not (world.seen("members changed") or loop.time() > late):
            continue  # of three, none may go once something rots, and some has to
        # where there are two, there may be nobody to rejoin
        rot_once(world, far)


def rot_once(world: WholeWorld, far: str) -> None:
    """Turn a bit of the rotting node's, where the others have all whole. `far`: one of FAR_KINDS."""
    # where there are two, there may be nobody to rejoin
    kinds = (*KINDS, far, far) if len(world.nodes) > 2 else (RECORDS,)
    # a stopped node counts, too: it may be the only one that knows that another has been removed
    gone = any(len(other.driver.status().members) < len(world.nodes) for other in world.nodes)
    if len(world.nodes) > 1 and not gone and all(other.is_whole() for other in world.nodes):
        turn_bit_of_some(world, world.rotting, world.rng.choice(kinds))


def turn_bit_of_some(
    world: WholeWorld, node: WholeNode, kind: str, end_bytes: int | None = None
) -> Path | None:
    """Turn a bit in a file of a kind of a node's state; return the file, None where there is none.

    ``end_bytes``: the bit lies in so many first bytes.
    """
    rng = world.rng
    files = sorted(path for path in node.data.glob(f"state-*/{kind}") if path.stat().st_size)
    if not files:
        return None
    path = rng.choice(files)
    at = rng.randrange(min(path.stat().st_size, end_bytes or sys.maxsize))
    world.note(f"{path.relative_to(world.folder)} rots at {at}")
    world.counts["rotten"] += 1
    world.counts[f"rotten: {kind}"] += 1
    with path.open("r+b") as file:
        file.seek(at)
        (byte,) = file.read(1)
        file.seek(at)
        file.write(bytes((byte ^ 1 << rng.randrange(8),)))
    return path


def rotten_records(machine: Machine) -> set[tuple[int, int]]:
    """Return the hours and places of damaged records, which the scrub comes by.

    An index has the place -1, a segment of the far log -1 less its number for an hour.
    """
    wheel, found = machine.wheel, set[tuple[int, int]]()
    for state in filter(None, map(wheel.upkeep.hour_state, wheel.partitions())):
        try:
            for _, damaged in wheel.upkeep.walk(state):
                found.update((state.hour, place) for place in damaged.tolist())
        except WheelDamaged:
            found.add((state.hour, -1))
    for segment in wheel.upkeep.far_segments():  # rows that have moved to a partition do not count
        try:
            for _, damaged in wheel.upkeep.walk_far(segment):
                hours, places = wheel.upkeep.far_ids(segment.number, damaged)
                found.update(zip(hours.tolist(), places.tolist(), strict=True))
        except WheelDamaged:
            found.add((-1 - segment.number, -1))
    return found


def rotten_stretches(machine: Machine) -> int:
    """Return how many stretches of ready queues, as far as they are still wanted, are damaged."""
    return sum(_damaged(queue) for queue in machine.queues if not queue.deleted)


def _damaged(queue: ReadyQueue) -> int:
    try:
        queue.read(queue.first, queue.units - queue.first)  # what is in memory alone, too: schedules fire on
    except UnitsDamaged as damage:
        return len(damage.stretches)
    except QueueDamaged:
        return 1
    return 0


def rotten(machine: Machine) -> int:
    """Return how much of a machine's files is damaged."""
    return len(rotten_records(machine)) + rotten_stretches(machine)


def spread_records(machines: Sequence[Machine]) -> set[tuple[int, int]]:
    """Return which damaged records no replica has whole.

    A state that is sent takes them along before the scrub has come by (replication/DESIGN.md, "Snapshot").
    """
    every = [rotten_records(machine) for machine in machines]
    return {one for one in set.intersection(*every) if one[0] >= 0 and one[1] >= 0}


def demand_sound_indices(machine: Machine) -> None:
    """A state that has just come from a peer: of records some may be damaged, and are known to be."""
    wheel = machine.wheel
    try:
        for state in filter(None, map(wheel.upkeep.hour_state, wheel.partitions())):
            next(wheel.upkeep.walk(state), None)
        for segment in wheel.upkeep.far_segments():
            next(wheel.upkeep.walk_far(segment), None)
    except WheelDamaged as damage:
        if (
            Path(str(damage.path)).name == Path(INDICES).name
        ):  # a unit's copy in the far log is as a record is
            raise Violation(f"R1: a damaged state is used: {damage}") from damage
    demand(not rotten_stretches(machine), "R1: a state with a damaged ready queue is used")
