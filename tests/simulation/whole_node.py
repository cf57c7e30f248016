"""A whole node in the simulation: the product's core, on simulated clocks, network and power."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from tarry.node.assembly import Core
from tarry.node.config import (
    CheckTimes,
    Delivery,
    Dispatch,
    LedgerSettings,
    MetricsSettings,
    NodeConfig,
    TransactionSettings,
    Upgrade,
)
from tarry.node.delivery.batch import DeliveryBatch
from tarry.node.process import DAMAGED
from tarry.node.recovery.thinning import Thinning
from tarry.node.repair.peer_records import index_units, ready_units, whole
from tarry.node.repair.record_reads import RecordReads
from tarry.node.repair.records import Numbers
from tarry.node.repair.scrubber import Scrub
from tarry.replication.blocking import RunBlocking
from tarry.replication.driver.driver import Driver
from tarry.replication.driver.first_start import JournalLost
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import Batch
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.checkpoint import CheckpointRefused
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.levels import AnotherVersion
from tarry.replication.state_machine.machine import Captured, Machine
from tarry.replication.state_machine.queues import Queues
from tarry.wheel.cached_reads import NotCached
from tarry.wheel.delay_log import UNIT_BYTES
from tarry.wheel.state import HourState
from tests.simulation.disk import DiskFailed, SimDisk
from tests.simulation.edge import Edge
from tests.simulation.network import SimTransport
from tests.simulation.processor import (
    BYTE_US,
    DELIVERED_US,
    ENTRY_US,
    FAR_HOUR_US,
    HOUR_US,
    NEAR_HOURS,
    ROW_US,
    Processor,
)
from tests.simulation.rot import demand_sound_indices
from tests.simulation.torn_files import tear
from tests.simulation.world import SimNode, SimWrites, WatchedDriver

if TYPE_CHECKING:
    from tests.simulation.whole_world import WholeWorld

RATE_ERROR = 0.0005
"""Of a monotonic clock; ten times that of a bad crystal."""

DELIVERY = Delivery(lease_ms=1_500, attempts_max=4, back_off_ms=(200, 400, 800), reserved_messages_max=20)
DISPATCH = Dispatch(
    slice_messages_max=20,
    checkpoint_ms=2_500,
    retention_check_ms=500,
    scrub_step_ms_max=1_000,
    scrub_bytes_per_s=1 << 50,  # a thread would wait in true time
)


LEDGER = LedgerSettings(disk_free_bytes_min=1)
TRANSACTIONS = TransactionSettings(
    check_after_ms=1_500,
    check_pauses_ms=(700, 1_500),
    checks_max=100,
    groups={"gone": CheckTimes(check_after_ms=500, check_pauses_ms=(500,), checks_max=3)},
)
METRICS = MetricsSettings(listen="127.0.0.1:1")
"""They are counted; nobody listens."""


class NodeClock:
    """A node's clocks: monotonic at its own rate, wall at its own distance from the truth."""

    def __init__(
        self, world: WholeWorld, processor: Processor, rate: float, drift_ms_per_s: float, ahead_ms: int
    ) -> None:
        """`drift_ms_per_s`: of the wall clock, to and fro within the world's bound, as one that NTP slews."""
        self._world = world
        self._processor = processor
        self._rate = rate
        self._drift_ms_per_s = drift_ms_per_s
        self.ahead_ms = ahead_ms
        self._unseen = (0, 0)  # readings that a jump comes after, and how far ahead they are

    def jump(self, ahead_ms: int, readings: int = 0) -> None:
        """Be so far ahead from now on; so many readings do not show it yet: it may be between two of them."""
        self._unseen = (readings, self.ahead_ms)
        self.ahead_ms = ahead_ms

    def monotonic_s(self) -> float:
        return (self._processor.now() * self._rate * 1000 + self._world.asleep_ms) / 1000

    def wall_ms(self) -> int:
        now_s, (unseen, before_ms) = self._processor.now(), self._unseen
        if unseen:
            self._unseen = (unseen - 1, before_ms)
        ahead_ms = before_ms if unseen else self.ahead_ms
        return self._world.true_ms(now_s) + ahead_ms + self._drifted_ms(now_s)

    def _drifted_ms(self, now_s: float) -> int:
        most_ms = self._world.drift_ms
        if not most_ms:
            return 0
        return round(abs(now_s * self._drift_ms_per_s % (4 * most_ms) - 2 * most_ms) - most_ms)


class WholeNode(SimNode):
    world: WholeWorld

    def __init__(self, world: WholeWorld, name: str) -> None:
        super().__init__(world, name)
        self.data: Path = world.folder / name
        rate, drift_ms_per_s = 1 + world.rng.uniform(-RATE_ERROR, RATE_ERROR), world.rng.uniform(1.0, 10.0)
        self.wall = NodeClock(world, self.processor, rate, drift_ms_per_s, 0)
        self.write_s = 0.002
        self.applies = levels.HIGHEST
        """The highest level that the version which its next start runs can apply."""
        self.too_old: list[AnotherVersion] = []
        """Why a version could not start, or ended."""
        self.state_fails = False
        self._emptied = False
        self.writing: asyncio.Task[None] | None = None
        self.streams: dict[asyncio.Task[Any], None] = {}
        self._tasks: list[asyncio.Task[Any]] = []
        self._launch: asyncio.Task[None] | None = None
        self._buried: asyncio.Task[None] | None = None

    def start(self, members: dict[str, str]) -> None:
        """Soon: what is left of the start before is buried first."""
        if self.disk.lost_power and self.phase is None:
            self._note_lost_power()
            return
        configured = self.configured(members)
        if self._launch is None and configured is not None:
            context = self.processor.context
            self._launch = asyncio.get_running_loop().create_task(self._start(configured), context=context)

    async def _start(self, members: dict[str, str]) -> None:
        try:
            if self._buried is not None:
                await self._buried
            if self.disk.lost_power:  # the others have let it go
                self.disk = SimDisk(self.world.rng)
                shutil.rmtree(self.data)
            self._starts += 1
            self._open(members)
        except DAMAGED as damage:
            self.set_aside(damage)
        except AnotherVersion as refused:
            self.refuse_version(refused)
        except Exception as error:  # noqa: BLE001 - a node that cannot start is a finding
            self.world.fail(error)
        finally:
            self._launch = None

    def _open(self, members: dict[str, str]) -> None:
        world = self.world
        self.config = NodeConfig(
            node=self.name,
            data=self.data,
            listen="127.0.0.1:1",
            members=world.members,
            delivery=DELIVERY,
            dispatch=DISPATCH.model_copy(
                update={"retention_ms": world.retention_ms, "idempotency_window_ms": world.retention_ms}
            ),
            transactions=TRANSACTIONS,
            ledger=LEDGER,
            metrics=METRICS,
            upgrade=Upgrade(finish=world.finish),
        ).model_copy(update={"members": members})
        self.journal = Journal(self.disk, incarnation=world.rng.getrandbits(60), tail_entries_max=64)
        world.checker.on_start(self)
        self.transport = SimTransport(world.network, self.name, self.processor)
        self.running.set()
        # a start's disk work must not outlive it
        start = self._starts

        async def run_blocking(work: Callable[[], Any], /) -> Any:
            return await self._block(work, start)

        self.core = self._make_core(run_blocking, WatchedDriver)
        self.machine = self.core.machine  # type: ignore[assignment]
        world.traffic.append(self.core.traffic)
        self._watch_rows()
        apply = self.core.machine.apply

        def watched(index: int, term: int, commands: Sequence[bytes]) -> Any:
            commands = list(commands)
            if self.state_fails:
                raise DiskFailed("ENOSPC")
            self.processor.charge(BYTE_US * sum(map(len, commands)))
            outcomes = apply(index, term, commands)
            world.on_apply(self, index, term, commands)
            return outcomes

        become = self.core.machine.become

        def became(other: Machine) -> None:
            become(other)
            if self is not world.rotting:
                demand_sound_indices(self.core.machine)
            world.checker.sometimes["snapshot installed"] += 1

        setattr(self.core.machine, "apply", watched)  # noqa: B010 - a method of one object
        setattr(self.core.machine, "become", became)  # noqa: B010
        driver = self.core.driver
        assert isinstance(driver, WatchedDriver)
        self.driver = driver
        driver.running = self.running
        driver.processor = self.processor
        driver.after_turn = self._after_turn
        self.edge = Edge(self.core, self.processor)
        self.alive = True
        damage, dispatch = self.core.damage, self.config.dispatch
        work = (
            driver.run,
            self.core.leadership.run,
            self.core.checkpoints.run,
            self.core.keys.run,
            self.core.keys.run_writes,
            self.core.ledger.run,
            partial(damage.run, self._peers, self._fetch),
            partial(damage.indices.run, self._peers, self._fetch_index),
            partial(damage.queues.run, self._peers, self._fetch_ready),
            damage.far.run,
            Thinning(self.core.machine, self.core.checkpoints, damage, dispatch, run_blocking).run,
            Scrub(self.core.machine, damage, dispatch, run_blocking).run,
        )
        self._tasks = [asyncio.ensure_future(self._guard(part)) for part in work]

    def _watch_rows(self) -> None:
        """The world hears of what the ledger is told."""
        ledger, rows = self.core.ledger, self.world.rows
        applied, delivered = ledger.applied, ledger.delivered

        def watched(index: int, term: int, events: Sequence[Event], queues: Queues) -> None:
            rows.applied(self.name, index, events, queues)
            self._charge(events)
            applied(index, term, events, queues)

        def watched_delivery(batch: DeliveryBatch, topic: str, group: str, *more: Any) -> None:
            rows.delivered(self.core.machine, batch, topic, group)
            self.processor.charge(DELIVERED_US * len(batch.units))
            delivered(batch, topic, group, *more)

        setattr(ledger, "applied", watched)  # noqa: B010 - a method of one object
        setattr(ledger, "delivered", watched_delivery)  # noqa: B010

    def _charge(self, events: Sequence[Event]) -> None:
        hours = [len(np.unique(event.hour)) for event in events if event.hour is not None]
        near = sum(min(count, NEAR_HOURS) for count in hours)
        cost_us = HOUR_US * near + FAR_HOUR_US * (sum(hours) - near)
        self.processor.charge(ENTRY_US + ROW_US * sum(event.n for event in events) + cost_us)

    def _peers(self) -> list[str]:
        """Return those that are in reach, as `app` does."""
        return [name for name, peer in sorted(self.driver.status().peers.items()) if peer.connected]

    async def _asked(self, peer: str) -> Machine | None:
        """Return whom RecordService answers from, where the network lets it."""
        network = self.world.network
        other = cast(WholeNode, self.world.node(peer))
        await asyncio.sleep(0.001)
        open_ways = network.passes(self.name, peer) and network.passes(peer, self.name)
        return other.core.machine if other.alive and other.running.is_set() and open_ways else None

    async def _fetch(self, peer: str, hour: int, numbers: Numbers) -> dict[int, bytes]:
        machine = await self._asked(peer)
        return dict(zip(*whole(machine.wheel, hour, numbers), strict=True)) if machine else {}

    async def _fetch_index(self, peer: str, hour: int, units: int) -> bytes:
        """All hours of a run fit in one answer."""
        machine = await self._asked(peer)
        index = index_units(machine.wheel, hour, 0, units) if machine else b""
        return index if len(index) == units * UNIT_BYTES else b""

    async def _fetch_ready(self, peer: str, queue: int, first: int, count: int) -> bytes:
        machine = await self._asked(peer)
        return ready_units(machine.queues, queue, first, count) if machine else b""

    def _make_core(self, run_blocking: RunBlocking, driver: type[Driver]) -> Core:
        return Core(
            self.config,
            self.wall,
            self.journal,
            self.transport,
            self.world.settings,
            rng=random.Random(self.world.rng.random()),
            run_blocking=run_blocking,
            write_journal=SimWrites(self, run_blocking),
            driver=driver,
            applies=self.applies,
            reads=partial(RecordReads, pread=self._pread, run_blocking=run_blocking, run_long=run_blocking),
        )

    def _pread(self, fd: int, size_bytes: int, offset: int) -> bytes:
        if self.world.cold.random() < self.world.cold_share:
            self.world.counts["cold records"] += 1
            raise NotCached
        return os.pread(fd, size_bytes, offset)

    async def _guard(self, part: Callable[[], Awaitable[object]]) -> None:
        try:
            await part()
        except JournalLost as lost:
            self.refuse(lost)
        except AnotherVersion as refused:
            self.refuse_version(refused)
        except DAMAGED as damage:
            if self.alive:
                self.set_aside(damage)
        except CheckpointRefused as refused:  # one has failed that a peer had asked for
            self.world.note(f"{self.name} ends: {refused}")
            self.crash()
            self.start(self.world.members)  # as whoever looks after it does
        except DiskFailed as failed:
            self.note_failure(failed)
            if not (self.state_fails or self.core.checkpoints.writing.locked()):  # one at a time
                with contextlib.suppress(CheckpointRefused):  # what may still be written is worth writing
                    self.core.machine.write(self.core.machine.capture())
            self.crash()
        except Exception as error:  # noqa: BLE001 - whatever ends a node here is a finding
            if self.alive:
                self.world.fail(error)

    def _end(self, end_disk: Callable[[Batch | None], None]) -> None:
        """Streams break; what the state had not synced is gone or half there."""
        self.alive = False
        self.processor.stop()
        self.transport.kill()
        for task in [*self.streams, *self._tasks]:
            task.cancel()
        end_disk(self._under_way)
        self._under_way = None
        tasks = [*self._tasks, *self.edge.end()]
        self._buried = asyncio.get_running_loop().create_task(self._bury(self.core, tasks))

    def refuse_version(self, refused: AnotherVersion) -> None:
        """What runs here is too old for the cluster: only a scenario that expects it goes on."""
        self.world.note(f"{self.name} runs what applies level {self.applies}: {refused}")
        if self._is_member():
            self.too_old.append(refused)
        self.crash()
        if self.applies == levels.HIGHEST:
            self.world.fail(refused)

    def note_failure(self, failed: DiskFailed) -> None:
        """By which of its disks it ends."""
        if not self.state_fails:
            super().note_failure(failed)
            return
        self.world.note(f"{self.name} ends: its state cannot be written, {failed}")
        self.world.counts["state disks full"] += 1

    def _is_member(self) -> bool:
        """Whether the cluster waits for this node with the level: one that was removed it does not ask."""
        others = [other for other in self.world.whole if other.alive and other is not self]
        if not others:
            return True
        furthest = max(others, key=lambda other: other.core.machine.applied_index)
        return self.name in furthest.driver.status().members

    def lose_disk(self) -> None:
        """Also the state's files, once all is closed."""
        super().lose_disk()
        self._emptied = True

    def set_aside(self, damage: Exception) -> None:
        """Its data is damaged: it rejoins without, as a node does that is told to."""
        if self is not self.world.rotting or not self.world.counts["rotten"]:
            self.world.fail(damage)
            return
        self.world.note(f"{self.name} sets its data aside: {damage!r}")
        self.world.checker.sometimes["set aside"] += 1
        ran = self.alive
        self.lose_disk()
        if not ran:
            shutil.rmtree(self.data)
            self._emptied = False
        self.world.rejoin(self)

    async def _bury(self, core: Core, tasks: list[asyncio.Task[Any]]) -> None:
        others = [task for task in tasks if task is not asyncio.current_task()]
        await asyncio.gather(*others, return_exceptions=True)
        for _ in range(3):  # what they had started
            await asyncio.sleep(0)
        core.machine.close()
        tear(self.data, self.world.synced, random.Random(self.world.rng.random()))
        if self._emptied:
            shutil.rmtree(self.data)
            self._emptied = False

    def take_checkpoint(self) -> None:
        if self.alive and self.running.is_set():
            work = self._guard(self.core.checkpoints.write)
            self.writing = asyncio.get_running_loop().create_task(work, context=self.processor.context)
            self._tasks.append(self.writing)

    def _after_turn(self) -> None:
        self.world.after_turn(self)

    async def _block(self, work: Callable[[], Any], start: int) -> Any:
        """As in `SimNode`; a checkpoint and the journal may be written at once."""
        if not self.alive or start != self._starts:
            raise asyncio.CancelledError
        args = getattr(work, "args", ())
        batch = args[0] if args and isinstance(args[0], Batch) else None
        if batch is not None:
            self._under_way = batch
        is_checkpoint = bool(args) and isinstance(args[0], Captured)
        is_thin = bool(args) and isinstance(args[0], HourState)
        takes_s = self.write_s if is_checkpoint else self.sync_s
        delay_s = takes_s * self.world.rng.uniform(0.5, 2)
        await asyncio.sleep(delay_s / 2)
        if not self.alive or start != self._starts:
            raise asyncio.CancelledError  # the power went first
        if (is_checkpoint or is_thin) and self.state_fails:
            raise DiskFailed("ENOSPC")
        done = self._finish(work, batch)
        self.world.counts["hours thinned"] += is_thin
        await asyncio.sleep(delay_s / 2)
        return done
