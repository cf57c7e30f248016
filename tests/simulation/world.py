"""Whole replicas in one process: real drivers, engines, guards and journals; virtual time, network, disks."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from tarry.node.failures import is_own
from tarry.node.recovery.rejoin import Phase
from tarry.replication.blocking import RunBlocking
from tarry.replication.driver.adaptive_writes import Writes
from tarry.replication.driver.driver import Driver
from tarry.replication.driver.first_start import JournalLost
from tarry.replication.errors import MembershipRefused, NotLeader, Overloaded, ProposalRefused, Unknown
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.records import Batch
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Role
from tests.simulation.checker import Checker, Violation
from tests.simulation.disk import DiskFailed, SimDisk
from tests.simulation.emptied import come_back
from tests.simulation.network import Network, SimTransport
from tests.simulation.processor import AT_ONCE_US, BYTE_US, ENTRY_US, TURN_US, Processor
from tests.simulation.toy import Checkpoint, Toy, ToySnapshots

SLOWNESS = (0.0, 0.0, 1.0, 10.0, 50.0)
QUICK_SYNC_S = 0.0005
AT_ONCE = (0.0, 0.5, 0.5, 1.0)
"""Share of the small writes to a quick disk that are made within a turn."""
QUIET_AFTER_MS = (20, 100, 1_000)
"""Worlds of seeds are rarely without a change for long."""
SETTINGS = ReplicationSettings(retained_bytes_max=2000, entry_commands_max=8, window_bytes_max=64 << 10)


LOST_FRAME_S = 34.0
LARGE = replace(SETTINGS, window_bytes_max=4 << 20, retained_bytes_max=4 << 20)


def draw_bandwidth(draw: random.Random) -> float | None:
    """Return bytes a second of each link: of some worlds 1 to 100 MB/s, else without a limit."""
    return 1e6 * 100 ** draw.random() if draw.random() < 0.3 else None


class SimClock:
    """A node's clocks: each at its own rate."""

    def __init__(self, processor: Processor, rate: float, ahead_ms: int) -> None:
        self._processor = processor
        self.rate = rate
        self.ahead_ms = ahead_ms

    def monotonic_s(self) -> float:
        return self._processor.now() * self.rate

    def wall_ms(self) -> int:
        return 1_800_000_000_000 + round(self._processor.now() * self.rate * 1000) + self.ahead_ms


class SimWrites(Writes):
    """Writes of a node's journal: while its disk is quick, a share of them within the turn."""

    def __init__(self, node: SimNode, off_loop: RunBlocking) -> None:
        super().__init__(off_loop)
        self._node = node

    def quick(self, size_bytes: int) -> bool:
        """Return what is drawn anew each time."""
        del size_bytes
        world = self._node.world
        return self._node.sync_s <= QUICK_SYNC_S and world.draws.random() < world.at_once

    def at_once(self, work: Callable[[], Any], /) -> Any:
        self._node.processor.charge(AT_ONCE_US)
        return super().at_once(work)


class WatchedDriver(Driver):
    """Checked after every turn; stands still while its node is paused."""

    after_turn: Callable[[], None]
    running: asyncio.Event
    processor: Processor

    async def _turn(self) -> None:
        await self.running.wait()
        self.processor.charge(TURN_US)
        await super()._turn()
        self.after_turn()


class SimNode:
    """A node over all its starts: its disk, its checkpoint and its clock stay."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.disk = SimDisk(world.rng)
        self.checkpoint = Checkpoint()
        rate = world.rng.uniform(1 - world.drift, 1 + world.drift)
        self.processor = Processor(world.slowness)
        self.clock = SimClock(self.processor, rate, world.rng.randrange(-5000, 5000))
        self.alive = False
        self.sync_s = QUICK_SYNC_S
        self.sync_spread = (0.5, 2.0)
        """A write takes as many times `sync_s`, drawn between the two."""
        self.running = asyncio.Event()
        self.phase: Phase | None = None
        """How far it has come back after its disk was lost, once it knows of it."""
        self.lacks: int | None = None
        """The last entry that it must have again, after its disk was lost."""
        self._had = (0, 0)
        """Index and term up to which it had a log then."""
        self._under_way: Batch | None = None
        self._starts = 0

    def configured(self, members: dict[str, str]) -> dict[str, str] | None:
        """Return the members that its start goes by; None: nothing runs yet."""
        if self.phase is Phase.LEAVING:
            return None
        joins = self.phase is Phase.JOINING
        return {name: at for name, at in members.items() if not joins or name != self.name}

    def start(self, members: dict[str, str]) -> None:
        configured = self.configured(members)
        if self.disk.lost_power and self.phase is None:
            self._note_lost_power()
        elif configured is not None:
            if self.disk.lost_power:  # the others have let it go
                self.disk, self.checkpoint = SimDisk(self.world.rng), Checkpoint()
            self._open(configured)

    def _note_lost_power(self) -> None:
        """It may have forgotten what it had acknowledged: nothing of it runs before the others let it go."""
        self.world.note(f"{self.name} does not start: its machine lost its power")
        self.world.checker.sometimes["power lost"] += 1
        self.lacks = max(self.world.checker.applied, default=0)
        self.world.checker.promised.pop(self.name, None)
        self.world.rejoin(self)

    def _open(self, members: dict[str, str]) -> None:
        world = self.world
        self._starts += 1
        self.journal = Journal(self.disk, incarnation=world.rng.getrandbits(60), tail_entries_max=64)
        world.checker.on_start(self)
        self.machine = Toy(self.checkpoint, self._on_apply)
        snapshots = ToySnapshots(self.machine, lambda: self.checkpoint, self._store)
        self.transport = SimTransport(world.network, self.name, self.processor)
        self.running.set()
        self.driver = WatchedDriver(
            node=self.name,
            members=members,
            journal=self.journal,
            machine=self.machine,
            transport=self.transport,
            clock=self.clock,
            rng=random.Random(world.rng.random()),
            settings=world.settings,
            heartbeat=lambda sent: self.name.encode(),
            on_heartbeat=lambda leader, state: None,
            on_role=self._on_role,
            snapshot_source=snapshots,
            snapshot_sink=snapshots,
            flush_ms=lambda: world.flush_ms,
            run_blocking=self._run_blocking,
            write_journal=SimWrites(self, self._run_blocking),
        )
        self.driver.running = self.running
        self.driver.processor = self.processor
        self.driver.after_turn = partial(world.checker.after_turn, self, world.nodes)
        self.alive = True
        self._task = asyncio.get_running_loop().create_task(
            self._run(), name=self.name, context=self.processor.context
        )

    def crash(self) -> None:
        """Power loss: what was not synced is gone, or half there.

        With async durability only where the others have all; else the process is killed.
        """
        if self.alive:
            (self.lose_power if self.world.may_lose_power(self) else self.kill)()

    def lose_power(self) -> None:
        """Whatever that takes back; what it has acknowledged just before counts."""
        if self.alive:
            self._had = self.journal.durable_index, self.journal.durable_term
            self._end(self.disk.crash)
            if self.disk.lost_power:
                self.lacks = max(self.world.checker.applied, default=0)

    def kill(self) -> None:
        """Kill the process: what its journal has written stays."""
        if self.alive:
            self._end(self.disk.kill)

    def _end(self, end_disk: Callable[[Batch | None], None]) -> None:
        self.alive = False
        self.transport.kill()
        self.processor.stop()
        self._task.cancel()
        end_disk(self._under_way)
        self._under_way = None

    def lose_disk(self) -> None:
        """Its journal and state are gone, and with them what it has promised."""
        self._had = self.journal.durable_index, self.journal.durable_term
        self.crash()
        self.disk = SimDisk(self.world.rng)
        self.checkpoint = Checkpoint()
        self.lacks = max(self.world.checker.applied, default=0)
        self.world.checker.promised.pop(self.name, None)

    def refuse(self, lost: JournalLost) -> None:
        """It is told to rejoin; nothing of it runs before the others have let it go."""
        self.world.note(f"{self.name} does not start: {lost}")
        self.crash()
        self.world.checker.sometimes["start refused"] += 1
        if self.lacks is None:
            self.world.fail(lost)
        self.world.rejoin(self)

    def is_whole(self) -> bool:
        """Whether it has all again that it had before its disk was lost."""
        if self.lacks is None:
            return True
        if self.phase is not None or not self.alive or self.machine.applied_index < self.lacks:
            return False
        self.lacks = None
        return True

    def _on_apply(self, index: int, term: int, commands: Sequence[bytes], digest: bytes) -> None:
        self.processor.charge(ENTRY_US + BYTE_US * sum(map(len, commands)))
        self.world.checker.on_apply(self.name, index, term, list(commands), digest)

    def take_checkpoint(self) -> None:
        if self.alive and self.running.is_set():
            self.checkpoint = self.machine.checkpoint()
            self.driver.compact(self.checkpoint.index)

    def has_durable(self, index: int, term: int) -> bool:
        """In its disk's records, or contained in its checkpoint, or so until its disk was lost."""
        had_index, had_term = self._had
        if index <= self.checkpoint.index or (
            self.lacks is not None and index <= had_index and term <= had_term
        ):
            return True
        value = self.disk.read(index)
        return value is not None and int.from_bytes(value[:8], "little") == term

    def note_failure(self, failed: DiskFailed) -> None:
        """It ends by an error of its disk."""
        self.world.note(f"{self.name} ends: its disk failed, {failed}")
        self.world.counts["disks full"] += str(failed) == "ENOSPC"

    async def _run(self) -> None:
        try:
            await self.driver.run()
        except JournalLost as lost:
            self.refuse(lost)
        except DiskFailed as failed:
            self.note_failure(failed)
            self.alive = False
            self.transport.kill()
            (self.disk.kill if self.disk.is_at_risk else self.disk.crash)(None)
        except Violation as violation:
            self.world.fail(violation)
        except Exception as error:  # noqa: BLE001 - whatever ends a replica here is a finding
            self.world.fail(error)

    async def _run_blocking(self, work: Callable[[], Any]) -> Any:
        """Half of the time before it is durable, half before that is known. Upkeep may be beside it."""
        if not self.alive:
            raise asyncio.CancelledError  # the power went before it began
        args = getattr(work, "args", ())
        batch = args[0] if args and isinstance(args[0], Batch) else None
        if batch is not None:
            self._under_way = batch
        delay_s, start = self.sync_s * self.world.rng.uniform(*self.sync_spread), self._starts
        await asyncio.sleep(delay_s / 2)
        if not self.alive or start != self._starts:
            raise asyncio.CancelledError  # the power went first
        done = self._finish(work, batch)
        await asyncio.sleep(delay_s / 2)
        return done

    def _finish(self, work: Callable[[], Any], batch: Batch | None) -> Any:
        """Do it. A batch that fails is not under way any more: a later crash must not write it again."""
        try:
            return work()
        finally:
            if batch is not None:
                self._under_way = None

    def _store(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.world.checker.sometimes["snapshot installed"] += 1

    def _on_role(self, role: Role) -> None:
        self.world.note(f"{self.name} is {role.value} in term {self.driver.status().term}")
        self.world.checker.sometimes[role.value] += 1


class World:
    """Must be made inside a running virtual loop."""

    def __init__(
        self, seed: int, names: int = 3, *, settings: ReplicationSettings = SETTINGS, slowness: float = 0.0
    ) -> None:
        """`slowness`: of the nodes' processors, see `Processor`."""
        self.rng = random.Random(seed)
        self.draws = random.Random(f"writes {seed}")
        self.at_once = self.draws.choice(AT_ONCE)
        self.slowness = slowness
        self.settings = settings
        self.drift = settings.clock_rate_error / 3
        self.checker = Checker()
        self.network = Network(random.Random(self.rng.random()), self.checker.on_said)
        self.large = False
        """Now and then a command is as large as one may be."""
        self.failure: BaseException | None = None
        self.history: list[str] = []
        self.counts: Counter[str] = Counter()
        self.changes_members = False
        """An operator has a change under way."""
        self.flush_ms = 0
        """By the cluster's durability; 0: sync."""
        self._failed = asyncio.Event()
        self._rejoining: dict[str, asyncio.Future[None]] = {}
        self._commands = 0
        self.nodes = [self.make_node(f"n{i + 1}") for i in range(names)]
        self.members = {node.name: f"{node.name}:1" for node in self.nodes}

    def make_node(self, name: str) -> SimNode:
        return SimNode(self, name)

    def start(self) -> None:
        for node in self.nodes:
            node.start(self.members)

    def counted(self) -> dict[str, int]:
        sometimes = self.checker.sometimes
        return {
            **self.counts,
            "nodes": len(self.nodes),
            "clocks drifting": len(self.nodes),
            "version exchanged": sometimes["version exchanged"],
            "faults": self.counts["faults"],
            "elections": len(self.checker.leaders),
            "transfers": sometimes["transferred"],
            "membership_changes": sometimes["members changed"],
            "snapshots": sometimes["snapshot installed"],
            "power lost": sometimes["power lost"],
            **{name: sometimes[name] for name in ("emptied", "start refused", "rejoined", "set aside")},
        }

    def node(self, name: str) -> SimNode:
        return next(node for node in self.nodes if node.name == name)

    def may_remove(self, members: int) -> bool:
        """Whether one of so many members may go."""
        return members > 1 and all(node.is_whole() for node in self.nodes)

    def may_lose_power(self, node: SimNode) -> bool:
        """Whether a node whose journal is marked may lose its power: the others have all, and go on.

        Half of the time it is a process that ends, of which nothing is lost.
        """
        return not node.disk.is_at_risk or (self.may_do_without_one() and self.draws.random() < 0.5)

    def may_do_without_one(self) -> bool:
        """Whether any node may forget what it has acknowledged."""
        return len(self.members) > 2 and self.may_empty()

    def may_empty(self) -> bool:
        """Whether a disk may be lost: all are there and members, so that what one had the others have.

        And all have taken part: an emptied one and one that never has are a majority that is new.
        A member that was added comes back only through a leader, and one node of two elects nobody.
        """
        everybody = self.members.keys()
        return (
            len(everybody) > 1
            and not self.changes_members
            and all(node.alive and node.is_whole() and node.journal.term > 0 for node in self.nodes)
            and all(node.driver.status().members.keys() == everybody for node in self.nodes)
            and (len(everybody) > 2 or not any(self.nodes[0].driver._membership.voters().values()))
        )

    def rejoin(self, node: SimNode) -> None:
        """The node leaves and comes back, as it is told to."""
        if node.phase is None:
            node.phase = Phase.LEAVING
            self._rejoining[node.name] = asyncio.ensure_future(self._watched(come_back(self, node)))

    def stay(self, node: SimNode) -> None:
        """The node does not leave: an operator has it go on with what it has."""
        self._rejoining.pop(node.name).cancel()
        node.phase = node.lacks = None

    def forget(self, last: int) -> None:
        """What comes behind that entry is lost for good: the checks go on with what is left."""
        self.checker = self.checker.up_to(last)
        self.network.watch(self.checker.on_said)
        for node in self.nodes:
            node.lacks = last

    async def _watched(self, work: Awaitable[None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - whatever goes wrong is a finding
            self.fail(error)

    def seen(self, name: str) -> int:
        """Return how often something has come about."""
        return self.counts[name] + self.checker.sometimes[name]

    def note(self, text: str) -> None:
        self.history.append(f"{asyncio.get_running_loop().time():9.4f} {text}")

    def fail(self, error: BaseException) -> None:
        if self.failure is None:
            self.failure = error
            self.note(f"FAILED: {type(error).__name__}: {error}")
        self._failed.set()

    def on_error(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Of a callback, or of a task that nobody awaits: it would end a node."""
        if is_own(error := context.get("exception")):
            self.fail(error)

    async def during(self, work: Awaitable[None]) -> None:
        """Runs `work`, but not beyond the first failure, which is raised."""
        task = asyncio.ensure_future(work)
        failed = asyncio.ensure_future(self._failed.wait())
        await asyncio.wait([task, failed], return_when=asyncio.FIRST_COMPLETED)
        failed.cancel()
        if self.failure is not None:
            task.cancel()
            raise self.failure
        await task

    def leader(self) -> SimNode | None:
        """That may serve now."""
        return next((node for node in self.nodes if node.alive and node.driver.may_serve()), None)

    async def until_led(self, timeout_s: float = 5.0, *, but: str = "") -> SimNode:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        while loop.time() < deadline:
            leader = self.leader()
            if leader is not None and leader.name != but and leader.running.is_set():
                return leader
            await asyncio.sleep(0.005)
        raise Violation(f"V1: nobody leads after {timeout_s} s")

    async def propose(self, node: SimNode, timeout_s: float = 2.0) -> bool:
        """One new command; whether it was acknowledged. Whatever comes is checked."""
        self._commands += 1
        command = b"%d" % self._commands + bytes(self._size_bytes())
        try:
            index = await asyncio.wait_for(node.driver.propose(command), timeout_s)
        except (NotLeader, Overloaded):
            self.checker.on_refused(command)
        except (Unknown, TimeoutError):
            self.checker.sometimes["unknown"] += 1
            return False
        except ProposalRefused as refused:
            self.fail(refused)
        else:
            self.checker.on_acknowledged(command, index, node)
            return True
        return False

    def _size_bytes(self) -> int:
        if self.large and self.rng.random() < 0.03:
            return self.rng.randrange(self.settings.command_bytes_max - 20)
        return self.rng.randrange(200)

    async def read(self, node: SimNode) -> None:
        floor = self.checker.most_acknowledged
        try:
            await asyncio.wait_for(node.driver.read_barrier(), 2.0)
        except (NotLeader, TimeoutError):
            return
        self.checker.on_read(node.driver.status().applied_index, floor)

    async def client(self, until: float) -> None:
        loop, rng = asyncio.get_running_loop(), self.rng
        while loop.time() < until:
            alive = [node for node in self.nodes if node.alive]
            claiming = [node for node in alive if node.driver.status().role is Role.LEADER]
            node = rng.choice(claiming or alive or self.nodes)
            if node.alive:
                try:
                    await (self.read(node) if rng.random() < 0.1 else self.propose(node))
                except Violation as violation:
                    self.fail(violation)
            await asyncio.sleep(rng.uniform(0.001, 0.03))

    async def converge(self, timeout_s: float = 10.0) -> None:
        """All faults are over: the cluster serves again, and its states become equal."""
        await self.mend()
        loop = asyncio.get_running_loop()
        begun = loop.time()
        patience_s = 2.0 + self._lost_frame_s
        while not await self.propose(await self.until_led(3.0 + self._lost_frame_s)):
            if loop.time() - begun > patience_s:
                raise Violation("V2: no write succeeds after the healing")
        begun = loop.time()
        while len({node.machine.applied_index for node in self.nodes}) > 1:
            if loop.time() - begun > timeout_s + self._lost_frame_s:
                where = {node.name: node.machine.applied_index for node in self.nodes}
                raise Violation(f"V3: not converged: {where}")
            await asyncio.sleep(0.02)
        self.checker.at_the_end(self.nodes)

    @property
    def _lost_frame_s(self) -> float:
        """How much longer everything may take after a frame was lost.

        With large commands a leader gives a slow link up to half a minute before it takes what is under way
        for lost; here a frame is lost without its stream.
        """
        return LOST_FRAME_S if self.large else 0.0

    async def mend(self) -> None:
        """All faults end."""
        self.network.heal()
        self.network.bytes_per_s = None
        self.set_slowness(0.0)
        for node in self.nodes:
            node.disk.fails = False
            node.disk.room_bytes = None
            node.running.set()
            if not node.alive:
                node.start(self.members)
        await self._gather_disks()
        await self._gather_members()

    async def until_sound(self) -> None:
        """Return once nothing on any disk is damaged; here journals are refused and replaced at once."""

    async def _gather_disks(self, timeout_s: float = 30.0) -> None:
        """Whoever has lost its disk comes back."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not all(node.is_whole() for node in self.nodes):
            if loop.time() - begun > timeout_s + self._lost_frame_s:
                lacking = {node.name: node.phase for node in self.nodes if not node.is_whole()}
                raise Violation(f"V6: {lacking} do not come back")
            await asyncio.sleep(0.02)

    def set_slowness(self, slowness: float) -> None:
        self.slowness = slowness
        for node in self.nodes:
            node.processor.slowness = slowness

    async def _gather_members(self) -> None:
        """Whoever was removed comes back.

        Tries do not count while the removal itself may be uncommitted because a frame was lost.
        """
        loop = asyncio.get_running_loop()
        begun, tries = loop.time(), 0
        while tries < 4 * len(self.nodes):
            tries += loop.time() - begun >= self._lost_frame_s
            leader = await self.until_led(3.0 + self._lost_frame_s)
            away = sorted(set(self.members) - set(leader.driver.status().members))
            if not away:
                return
            try:
                await asyncio.wait_for(leader.driver.add(away[0], self.members[away[0]], 3000), 4.0)
            except (MembershipRefused, NotLeader, Unknown, TimeoutError) as refused:
                self.note(f"{away[0]} does not come back: {refused!r}")
                await asyncio.sleep(0.1)
        raise Violation(f"V5: {away} cannot come back")
