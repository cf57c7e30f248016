"""Schedules that recur, in whole clusters: no fire is doubled or left out, whatever happens to the leader."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from itertools import takewhile

import pytest

from tarry.node.recurring.plan import AHEAD_MS
from tarry.node.recurring.timing import timing_of
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.errors import TransferRefused
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation import faults
from tests.simulation.edge import StreamEnded
from tests.simulation.model_producer import ModelProducer
from tests.simulation.model_recurring import CHANGING, STEADY, TOPIC, Recurring
from tests.simulation.upgrade import until_raised
from tests.simulation.whole_node import WholeNode
from tests.simulation.whole_scenario import scenario
from tests.simulation.whole_world import WholeWorld

EARLIEST = consumer_pb.GroupStart(at=consumer_pb.START_AT_EARLIEST)
EVERY_S = pb.RecurringSpec(interval_ms=1_000)


def played(play: Callable[[WholeWorld, Recurring], Awaitable[None]], *, steady: bool = True) -> WholeWorld:
    """With the steady schedules there; judged at the end."""

    async def run(world: WholeWorld, _: ModelProducer) -> None:
        recurring = world.recurring
        if steady:
            for name, spec in STEADY.items():
                await recurring.put(name, spec)
        await play(world, recurring)
        await world.mend()
        await recurring.settle()
        recurring.judge()

    async def begin(world: WholeWorld) -> None:
        world.finish = "auto"
        world.start()
        await world.until_served()
        await until_raised(world)

    return scenario(run, consumers=False, begin=begin)


async def kill(world: WholeWorld) -> None:
    leader = await world.until_served()
    leader.crash()
    await asyncio.sleep(world.rng.uniform(0.0, 0.6))
    faults.restart(world, leader)


async def transfer(world: WholeWorld) -> None:
    """Transfer leadership; again where a node is out of reach yet, or another was elected meanwhile."""
    for _ in range(20):
        leader = await world.until_served()
        heir = world.rng.choice([node for node in world.whole if node is not leader])
        try:
            await leader.driver.transfer(heir.name, 2_000)
        except TransferRefused:
            await asyncio.sleep(0.1)
        else:
            world.counts["transferred"] += 1
            return


def test_fifty_kills_and_fifty_transfers_double_no_fire_and_leave_none_out() -> None:
    async def play(world: WholeWorld, _: Recurring) -> None:
        for _ in range(50):
            for change in (kill, transfer):
                await asyncio.sleep(world.rng.uniform(0.05, 0.7))
                await change(world)

    world = played(play)
    assert world.recurring.counts["missed"] == 0  # no leader was away for so long
    assert world.recurring.counts["fired"] > 150
    assert world.counts["transferred"] == 50


GROUP = "held"
HOLDS_S = 1.5
"""For which a message is in hand: the next fire of its schedule comes meanwhile."""


class Holder:
    """A consumer that has each message in hand for a while."""

    def __init__(self, world: WholeWorld) -> None:
        self._world = world
        self._acking = set[asyncio.Task[None]]()
        self._in_hand: dict[bytes, tuple[int, int]] = {}
        self.received = set[tuple[int, int]]()
        self.beside = list[bytes]()
        """Schedules of which a message came while the one before was in hand."""

    async def run(self) -> None:
        """Receive until cancelled."""
        while True:
            node = self._world.likely_leader(self._world.rng, GROUP)
            if node is not None:
                with contextlib.suppress(StreamEnded, TimeoutError):
                    await asyncio.wait_for(self._receive(node), 2.0)
            await asyncio.sleep(0.05)

    async def _receive(self, node: WholeNode) -> None:
        names = {"topic": TOPIC, "group": GROUP, "consumer": GROUP}
        request = consumer_pb.ReceiveRequest(
            **names, messages_max=10, wait_ms=200, lease_ms=10_000, start=EARLIEST
        )
        raw = await node.edge.receive(request.SerializeToString())
        if not isinstance(raw, bytes):
            return
        answer = consumer_pb.ReceiveResponse.FromString(raw)
        for batch in answer.deliveries:
            for n, offset in enumerate(batch.offset):
                schedule, message = (
                    Record.FromString(batch.records[n]).body,
                    (batch.hour[n], batch.global_index[n]),
                )
                if self._in_hand.get(schedule, message) != message:
                    self.beside.append(schedule)
                self.received.add(message)
                self._in_hand[schedule] = message
                ack = consumer_pb.AckRequest(
                    **names, queue=batch.queue, offset=[offset], incarnation=answer.incarnation
                )
                task = asyncio.ensure_future(self._ack(schedule, message, ack))
                self._acking.add(task)
                task.add_done_callback(self._acking.discard)

    async def _ack(self, schedule: bytes, message: tuple[int, int], ack: consumer_pb.AckRequest) -> None:
        await asyncio.sleep(HOLDS_S)
        if self._in_hand.get(schedule) == message:
            del self._in_hand[schedule]
        while True:  # or it would come again only once its lease is over
            node = self._world.likely_leader(self._world.rng, GROUP)
            if node is not None:
                with contextlib.suppress(StreamEnded, TimeoutError):
                    if isinstance(await asyncio.wait_for(node.edge.ack(ack.SerializeToString()), 2.0), bytes):
                        return
            await asyncio.sleep(0.05)


def test_no_fire_overlaps_the_message_of_the_one_before_whatever_happens_to_the_leader() -> None:
    holders = list[Holder]()

    async def play(world: WholeWorld, recurring: Recurring) -> None:
        holder = Holder(world)
        holders.append(holder)
        receiving = asyncio.ensure_future(holder.run())
        await asyncio.sleep(0.5)
        for name in ("skipping", "queueing"):
            await recurring.put(name, STEADY[name])
        for _ in range(12):
            for change in (kill, transfer):
                await asyncio.sleep(world.rng.uniform(0.5, 2.0))
                await change(world)
        await asyncio.sleep(3)
        receiving.cancel()

    world = played(play, steady=False)
    (holder,) = holders
    skipping, queueing = (world.recurring.last[name] for name in ("skipping", "queueing"))
    assert holder.beside == []
    assert len(holder.received) > 20
    assert skipping.skipped > 5
    assert pb.FIRE_OUTCOME_QUEUED in {fire.outcome for fire in queueing.history}


@pytest.mark.parametrize("ahead_ms", [-60_000, 700, 2 * 3_600_000])
def test_a_clock_that_jumps_during_a_fire_neither_doubles_it_nor_moves_it(ahead_ms: int) -> None:
    async def play(world: WholeWorld, _: Recurring) -> None:
        for before_ms in (0, 40, 80, 120, 160, AHEAD_MS - 40, AHEAD_MS, AHEAD_MS + 40):
            leader = await world.until_served()
            world.wrong = leader
            await asyncio.sleep((2_000 - world.true_ms() % 2_000 - before_ms) % 2_000 / 1_000)  # of "cron"
            leader.wall.ahead_ms = ahead_ms
            await asyncio.sleep(world.rng.uniform(0.5, 3.0))
            leader.wall.ahead_ms = 0
            await asyncio.sleep(1.0)
            for node in world.whole:
                for entry in node.core.machine.recurring:
                    assert entry.state().decided_ms < world.true_ms() + 1_000

    played(play)


SURE_MS = 50
"""By so much a fire is clearly before a change, or behind it: nodes read clocks that differ a little."""


def test_a_pause_that_races_a_fire_lets_it_through_once_or_not_at_all() -> None:
    active, paused = list[range](), list[range]()
    times: Iterator[int] = iter(())

    async def play(world: WholeWorld, recurring: Recurring) -> None:
        nonlocal times
        made = await recurring.put(CHANGING, EVERY_S)
        assert not isinstance(made, Refusal)
        times = timing_of(made.recurring.spec, made.recurring.created_ms).fires(made.recurring.created_ms)
        resumed_ms = world.true_ms()
        for number in range(60):
            await asyncio.sleep(0.05)  # the next fire is worked out
            entry = (await world.until_served()).core.machine.recurring.named(CHANGING)
            assert entry is not None
            wait_ms = max(entry.next_ms, world.true_ms()) - world.true_ms() - 600 + 10 * number
            await asyncio.sleep(max(0, wait_ms) / 1_000)
            active.append(range(resumed_ms + SURE_MS, world.true_ms() - SURE_MS))
            await recurring.change("Pause")
            paused_ms = world.true_ms()
            if number % 3:
                await asyncio.sleep(world.rng.uniform(0.0, 1.4))
            paused.append(range(paused_ms + SURE_MS, world.true_ms() - SURE_MS))
            await recurring.change("Resume")
            resumed_ms = world.true_ms()

    world = played(play, steady=False)
    assert world.recurring.counts["fired"] > 10
    cancelled = world.rows.messages[TOPIC, Kind.CANCELLED]
    assert len(cancelled) > 5
    kept = {fire.fire_ms for fire, message in world.rows.fires if message not in cancelled}
    expected = list(takewhile(lambda fire_ms: fire_ms < paused[-1].stop, times))
    due = {fire_ms for fire_ms in expected if any(fire_ms in span for span in active)}
    over = {fire_ms for fire_ms in expected if any(fire_ms in span for span in paused)}
    assert len(due) > 10 and len(over) > 5
    assert due - kept == set()
    assert over & kept == set()


def test_a_paused_schedule_does_not_fire() -> None:
    async def play(world: WholeWorld, recurring: Recurring) -> None:
        await recurring.put(CHANGING, EVERY_S)
        await asyncio.sleep(2.2)
        await recurring.change("Pause")
        paused_ms, before = world.true_ms(), len(world.rows.fires)
        await asyncio.sleep(0.1)
        assert before >= 2
        await kill(world)
        await asyncio.sleep(5)
        assert len(world.rows.fires) == before
        await recurring.change("Resume")
        await asyncio.sleep(2.5)
        later = [fire.fire_ms or 0 for fire, _ in world.rows.fires[before:]]
        assert later
        assert min(later) > paused_ms + 5_000

    played(play, steady=False)


def test_what_a_cluster_sleeps_over_follows_its_policy() -> None:
    async def play(world: WholeWorld, _: Recurring) -> None:
        await asyncio.sleep(1.5)
        world.asleep_ms += 100_000
        await asyncio.sleep(4)

    world = played(play)
    assert world.recurring.counts["missed"] > 60
    assert world.recurring.last["all"].missed == 0
    assert world.recurring.last["all"].fired >= 7


def test_a_fire_is_not_early_and_not_late_where_nothing_is_wrong() -> None:
    async def play(world: WholeWorld, recurring: Recurring) -> None:
        await recurring.put(CHANGING, EVERY_S)
        await asyncio.sleep(10)

    world = played(play, steady=False)
    released = world.rows.released[TOPIC]
    late_ms = [
        released[message][1] - (fire.fire_ms or 0)
        for fire, message in world.rows.fires
        if message in released
    ]
    assert len(late_ms) >= 9
    assert max(late_ms) <= 0  # each was released before it was due
