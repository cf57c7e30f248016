"""Async durability: a kill loses nothing, and a machine without power is one without its disk."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tarry.node.recovery.recover_alone import go_alone, survey
from tarry.proto.tarry_peer_pb2 import HeartbeatReply, PeerMessage
from tarry.replication.driver import driver
from tarry.replication.journal.journal import Journal
from tarry.replication.raft.membership import Membership
from tarry.replication.status import Dropped
from tests.simulation.lost_majority import recover, until
from tests.simulation.playing import EVERY_COMMAND_AN_ENTRY, followers, scenario, write
from tests.simulation.world import SimNode, World

FLUSH_MS = 200
SEEDS = range(6)


async def load(world: World, count: int) -> None:
    """Schedule without pause, so that what is written waits for its flush."""
    for _ in range(count):
        leader = world.leader()
        if leader is not None:
            await world.propose(leader)
        await asyncio.sleep(0.001)


def waits(node: SimNode) -> bool:
    return node.journal.flushed_index < node.journal.durable_index


@pytest.mark.parametrize("seed", SEEDS)
def test_async_power_loss_minority(seed: int) -> None:
    """One machine of three loses its power: it has no vote until it is taken in anew, and nothing is lost."""

    async def play(world: World) -> None:
        draw = random.Random(seed)
        world.flush_ms = FLUSH_MS
        for round_ in range(3):
            loading = asyncio.ensure_future(load(world, 150))
            leader = await world.until_led()
            node = leader if (seed + round_) % 2 else draw.choice(followers(world, leader))
            await until(lambda node=node: waits(node))
            await asyncio.sleep(draw.random() * 0.1)
            node.lose_power()
            await asyncio.sleep(draw.random())
            node.start(world.members)
            await loading
            await until(node.is_whole)
        assert world.checker.sometimes["power lost"] >= 1
        assert world.checker.sometimes["rejoined"] == world.checker.sometimes["power lost"]

    scenario(play)


def test_every_process_killed_at_once_loses_nothing() -> None:
    async def play(world: World) -> None:
        world.flush_ms = FLUSH_MS
        for _ in range(5):
            await load(world, 30)
            await until(lambda: all(waits(node) for node in world.nodes) or world.leader() is None)
            for node in world.nodes:
                node.kill()
            for node in world.nodes:
                node.start(world.members)
            await world.until_led()
        assert not world.checker.sometimes["power lost"]
        assert not world.checker.lost(world.nodes)

    scenario(play)


def test_what_is_flushed_or_at_rest_costs_no_rejoin() -> None:
    async def play(world: World) -> None:
        world.flush_ms = FLUSH_MS
        await load(world, 30)
        await asyncio.sleep(5)  # a lull: everything is flushed, and no mark is left
        for node in world.nodes:
            node.lose_power()
        for node in world.nodes:
            node.start(world.members)
        await write(world, 3)
        assert not world.checker.sometimes["power lost"]

    scenario(play)


@pytest.mark.parametrize("seed", SEEDS)
def test_async_power_loss_majority(seed: int) -> None:
    """All machines lose their power: nothing runs by itself, and the best log lacks `flush_ms` at most."""

    async def play(world: World) -> None:
        loop, draw = asyncio.get_running_loop(), random.Random(seed)
        world.flush_ms = FLUSH_MS
        told_s: dict[int, float] = {}

        async def schedule() -> None:
            while leader := world.leader():
                if await world.propose(leader):
                    told_s[world.checker.most_acknowledged] = loop.time()

        scheduling = asyncio.ensure_future(schedule())
        await asyncio.sleep(0.5 + draw.random())
        await until(lambda: all(map(waits, world.nodes)))
        for node in world.nodes:
            node.lose_power()
        went_s = loop.time()
        await scheduling
        for node in world.nodes:
            node.start(world.members)
        await asyncio.sleep(5)
        assert world.leader() is None
        assert not any(node.alive for node in world.nodes)
        assert world.checker.sometimes["power lost"] == 3
        last = await recover(world)
        assert min(told_s) <= last
        assert all(went_s - at_s <= FLUSH_MS / 1000 for index, at_s in told_s.items() if index > last)

    scenario(play)


@pytest.mark.parametrize("leads", [False, True])
def test_of_two_members_the_one_that_kept_its_power_has_all_and_goes_on_when_told(leads: bool) -> None:
    """Their majority is both: nobody is elected without the other, and nothing is acknowledged without it."""

    async def play(world: World) -> None:
        world.flush_ms = FLUSH_MS
        loading = asyncio.ensure_future(load(world, 150))
        leader = await world.until_led()
        (follower,) = followers(world, leader)
        lost, kept = (leader, follower) if leads else (follower, leader)
        await until(lambda: waits(lost))
        lost.lose_power()
        await loading
        await asyncio.sleep(2)  # a machine takes longer than a lease to start: nobody leads any more
        lost.start(world.members)
        await asyncio.sleep(5)
        assert world.leader() is None
        assert not lost.alive
        kept.kill()
        journal = Journal(kept.disk, incarnation=1)
        assert journal.last_index >= world.checker.most_acknowledged
        go_alone(journal, survey(kept.name, Membership(journal, world.members), journal), 0)
        kept.disk.reopen()
        kept.start(world.members)
        await until(lost.is_whole)
        assert not world.checker.lost(world.nodes)

    scenario(play, names=2)


def test_a_request_may_ask_for_a_flush_and_waits_for_a_majority_of_them() -> None:
    async def play(world: World) -> None:
        world.flush_ms = 10_000
        await load(world, 20)
        leader = await world.until_led()
        for node in world.nodes:
            node.sync_s = 0.05
        index = await leader.driver.propose(b"flushed", flushed=True)
        assert sum(node.journal.flushed_index >= index for node in world.nodes) >= 2
        later = await leader.driver.propose(b"written")
        assert not any(node.journal.flushed_index >= later for node in world.nodes)

    scenario(play)


def test_what_was_sent_while_async_is_answered_in_sync_once_a_majority_has_flushed_it() -> None:
    async def play(world: World) -> None:
        world.flush_ms = 10_000
        await load(world, 20)
        leader = await world.until_led()
        before = leader.journal.last_index
        scheduling = asyncio.ensure_future(leader.driver.propose(b"across"))
        while leader.journal.last_index == before:  # noqa: ASYNC110 the very turn
            await asyncio.sleep(0)
        leader.driver._replica.flush_ms = lambda: 0  # it has applied the change, the others have not yet
        await asyncio.sleep(0.2)
        assert not scheduling.done()
        world.flush_ms = 0
        index = await scheduling
        assert sum(node.journal.flushed_index >= index for node in world.nodes) >= 2

    scenario(play)


def test_who_asks_for_a_flush_while_sync_has_it_where_async_comes_first() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        world.flush_ms = 10_000
        await load(world, 20)
        world.flush_ms = 0
        await write(world, 1)
        for node in world.nodes:
            node.sync_s = 0.05
        leader = await world.until_led()
        scheduling = asyncio.ensure_future(leader.driver.propose(b"flushed", flushed=True))
        await asyncio.sleep(0)
        world.flush_ms = 10_000
        index = await scheduling
        assert sum(node.journal.flushed_index >= index for node in world.nodes) >= 2

    scenario(play)


def test_what_waits_for_longer_than_flush_ms_lets_no_write_be_deferred() -> None:
    async def play(world: World) -> None:
        world.flush_ms = FLUSH_MS
        await load(world, 20)
        leader = await world.until_led()
        await until(lambda: waits(leader))
        leader.sync_s = 5.0
        assert leader.driver._flushes.may_defer()
        await until(lambda: leader.driver.unflushed_s > FLUSH_MS / 1000)
        assert not leader.driver._flushes.may_defer()
        batch: Any = SimpleNamespace(size_bytes=1, deferred=False, puts=(), deletes=())
        writes = leader.driver._write_journal
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(writes), "quick", lambda *_: True)  # as the syncs before the stall were
            patched.setattr(type(leader.journal), "is_long", lambda *_: False)
            assert not leader.driver._is_quick(
                batch
            )  # the loop would wait for the disk, and heartbeats for it
            leader.sync_s = 0.001
            await until(lambda: not leader.driver._flushes.late)
            assert leader.driver._is_quick(batch)

    scenario(play)


def test_messages_that_wait_for_a_disk_that_stalls_are_bounded_and_sent_again() -> None:
    most = 20

    async def play(world: World) -> None:
        leader = await world.until_led()
        follower = followers(world, leader)[0]
        follower.running.clear()
        await load(world, 400)
        assert len(follower.driver._inbound) == most
        assert follower.driver.dropped[leader.name, Dropped.STALLED] > 0
        follower.running.set()
        await write(world, 5)

    scenario(play, replace(EVERY_COMMAND_AN_ENTRY, inbound_messages_max=most))


def test_a_large_write_without_a_sync_tells_nothing_of_how_quick_the_disk_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver, "AT_ONCE_BYTES_MAX", 100)
    large: list[bool] = []

    async def play(world: World) -> None:
        world.flush_ms = FLUSH_MS
        await load(world, 20)
        leader = await world.until_led()
        writes = leader.driver._write_journal
        monkeypatch.setattr(type(writes), "long", lambda self, work: (large.append(True), self(work))[1])
        await until(lambda: leader.journal.is_marked and leader.driver._flushes.may_defer())
        await leader.driver.propose(bytes(1_000))

    scenario(play, names=1)
    assert large


def test_a_mark_that_a_write_has_set_again_beside_its_removal_goes_with_the_next_lull() -> None:
    async def play(world: World) -> None:
        world.flush_ms = FLUSH_MS
        leader = await world.until_led()
        settle, log = leader.journal.settle, leader.disk._log
        settled: list[bool] = []

        def beside() -> None:
            """A deferred write sets the mark, and one with a sync leaves nothing that waits for its flush."""
            settle()
            if not settled:
                log._mark.set()
            settled.append(True)

        leader.journal.settle = beside  # type: ignore[method-assign]
        await load(world, 20)
        await until(lambda: bool(settled))
        await asyncio.sleep(5)
        assert not leader.journal.is_marked

    scenario(play)


def test_who_waits_for_a_flush_is_answered_when_a_heartbeats_answer_tells_of_it() -> None:
    async def play(world: World) -> None:
        leader = await world.until_led()
        await asyncio.sleep(1)
        replica = leader.driver._replica
        reply = PeerMessage(heartbeat_reply=HeartbeatReply(term=replica.consensus.state.term))
        for awaited in (False, True):
            replica.wake.clear()
            replica.flush_awaited = awaited
            assert not leader.driver._fast_path.take(followers(world, leader)[0].name, [reply])
            assert replica.wake.is_set() is awaited

    scenario(play)


def test_who_goes_back_to_sync_flushes_what_waits() -> None:
    async def play(world: World) -> None:
        world.flush_ms = 10_000
        await load(world, 20)
        assert any(map(waits, world.nodes))
        world.flush_ms = 0
        await write(world, 1)
        await asyncio.sleep(0.2)
        assert not any(map(waits, world.nodes))

    scenario(play)
