"""One run of a scenario: a fresh cluster, traffic of every kind, the faults, then peace and the verdict.

start ── load ──────────── faults ──────────── stop sending ── heal all ── everything delivered? ── judge
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from statistics import median

from grpc import aio

from tarry.chaos.checks.outages import doubted
from tarry.chaos.cluster.cluster import Cluster, mono_ms
from tarry.chaos.history import Answer, History, NodeSeen, Outage, Span
from tarry.chaos.scenario import Scenario
from tarry.chaos.traffic.consumers import BRISK, ROUGH, Consumers
from tarry.chaos.traffic.load import LATER, LOADS, MASS, drawn
from tarry.chaos.traffic.producers import Producers
from tarry.chaos.traffic.rate import QUICK
from tarry.chaos.traffic.traffic import patiently
from tarry.client.aio import Client
from tarry.client.errors import TarryError
from tarry.client.local.cluster import LocalNode
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.tarry_operator_pb2_grpc import OperatorServiceStub

TOPICS = ("orders", "reminders")
DEADLINE_MS = 6_000  # of a call: during a fault it may well have no answer
WARM_UP_S = 0.7
COOL_DOWN_S = 0.7
SETTLE_S = 60.0
SERVES_S = 120.0
RUN_S_MAX = 1_200
RECOVER_MS = 2_000  # after a fault is over, until clients and nodes have found each other again
SAW_MS = 500
BEHIND_MS = 100  # how old what followers know of deliveries may be: two heartbeats
ALL_BEHIND_MS = 500  # with all nodes what they knew is lost: only acknowledgements in their logs tell
TOLD_TIMES = 100
ASKED_S = 5.0


class Run:
    """One run of a scenario: its cluster, traffic and record."""

    def __init__(
        self,
        scenario: Scenario,
        folder: Path,
        seed: int,
        say: Callable[[str], None],
        load: str = "",
        *,
        kept: bool = False,
    ) -> None:
        """Make the cluster.

        `load`: the name of one, empty: what the seed draws. `kept`: somebody reads the nodes' folders
        afterwards. Raises NoToxiproxy.
        """
        self.scenario = scenario
        self._kept = kept
        self.seed = seed
        self.traffic = LOADS[load] if load else drawn(seed, scenario.name, scenario.loads)
        self.ahead_ms = scenario.ahead_ms()
        self.say = say
        self.history = History()
        self.cluster = Cluster(
            scenario.nodes,
            folder,
            linked=not scenario.namespaces,
            namespaces=scenario.namespaces,
            **scenario.settings,
        )
        self.history.events = self.cluster.events
        self.spans: list[Span] = []
        self.windows: list[Span] = []
        self.complaints: list[str] = []
        self.left_out: list[str] = []
        self.slow: list[str] = []  # what took too long; means nothing on a machine that is too busy
        self._loads: list[float] = []
        self.pauses_ms: list[int] = []
        self.client: Client = self.cluster.connect(deadline_ms=DEADLINE_MS)
        given = ([*self.cluster.dial.values()], self.history, TOPICS)
        self.producers = Producers(self.client, *given, scenario.rates, seed, self.ahead_ms, self.traffic)
        self.consumers = Consumers(self.client, *given, seed, self.ahead_ms)
        self._channels: dict[str, aio.Channel] = {}
        self._at_end: list[Callable[[], object]] = []

    # For scenarios

    @property
    def names(self) -> tuple[str, ...]:
        return self.cluster.names

    async def leader(self) -> str:
        """Return who leads, once somebody does."""
        return await self.cluster.leader(SERVES_S)

    async def followers(self) -> list[str]:
        """Return the nodes that run and do not lead."""
        leader = await self.leader()
        return [name for name in self.names if name != leader and self.cluster.local.nodes[name].running]

    async def during(self, seconds: float) -> None:
        """Let the load go on."""
        await asyncio.sleep(seconds)
        self.consumers.check()

    @asynccontextmanager
    async def disturbed(
        self,
        name: str,
        node: str = "",
        *,
        behind_ms: int = BEHIND_MS,
        loose_ms: int = 50,
        loose: bool = False,
    ) -> AsyncIterator[None]:
        """Mark the block as a time in which something is broken.

        What a leader delivered from `behind_ms` before it until `loose_ms` after its begin (`loose`: its
        end) may come again: its successor could not know.
        """
        start = self.cluster.happened(name, node).at_mono_ms
        self.say(f"{name} {node}")
        try:
            yield
        finally:
            end = self.cluster.happened(f"end of {name}", node).at_mono_ms
            self.spans.append((start, end + RECOVER_MS))
            self.windows.append((start - behind_ms, end + RECOVER_MS if loose else start + loose_ms))

    def forgets(self, begin_mono_ms: int, before_ms: int) -> None:
        """Note that the cluster may have forgotten all from `before_ms` before a moment until now."""
        wall_ms = time.time_ns() // 1_000_000 - mono_ms()
        self.history.outages.append(Outage(begin_mono_ms - before_ms, mono_ms(), wall_ms))

    def expect(self, kept: bool, complaint: str, *, timed: bool = False) -> None:
        """Write down what was not as it ought to be; the run goes on.

        `timed`: it rests on nodes being run in time, and is judged where the machine is not too busy.
        """
        if not kept:
            (self.slow if timed else self.complaints).append(complaint)

    @property
    def load(self) -> float:
        """Runnable processes a core (load average), averaged over the run."""
        return sum(self._loads) / len(self._loads) if self._loads else 0.0

    async def crash(self, name: str, away_s: float = 1.5) -> None:
        """Kill a node (SIGKILL), and start it again on the data it has."""
        async with self.disturbed("crash", name):
            self.cluster.kill(name)
            await self.during(away_s)
            self.cluster.start(name)

    async def crash_all(
        self, away_s: float = 0.0, *, name: str = "crash of all", loose: bool = False
    ) -> None:
        """Kill all nodes (SIGKILL), and start all again; return once they serve."""
        async with self.disturbed(name, behind_ms=ALL_BEHIND_MS, loose_ms=500, loose=loose):
            for each in self.names:
                self.cluster.kill(each)
            await self.during(away_s)
            self.cluster.start()
            await self.serving()

    async def freeze(self, name: str, seconds: float) -> None:
        """Stop a node (SIGSTOP), and continue it later (SIGCONT)."""
        async with self.disturbed("freeze", name):
            self.cluster.pause(name)
            await self.during(seconds)
            self.cluster.resume(name)

    async def together(self, doing: Coroutine[None, None, None], after_s: float, victim: str) -> None:
        """Kill a node a moment after something has begun; it is started again."""
        task = asyncio.create_task(doing)
        await asyncio.sleep(after_s)
        self.cluster.kill(victim)
        await task
        await self.during(1)
        self.cluster.start(victim)

    async def serving(self) -> None:
        """Wait until every running node follows one leader; it is on record that they do."""
        await self.cluster.serving(SERVES_S)
        await self.ask(digest=False)

    async def transfer(self, target: str = "") -> None:
        """Move leadership as an operator does; the planned pause is written down."""
        self.cluster.happened("transfer", target)
        self.say(f"transfer {target}")
        with suppress(TarryError):  # refused or unknown: leadership stays, or moves all the same
            await self.client.operator().transfer(target)

    async def ended(self, name: str, within_s: float) -> bool:
        """Wait until a node has ended by itself; return whether it has."""
        until = time.monotonic() + within_s
        while self.cluster.local.nodes[name].running and time.monotonic() < until:
            await self.during(0.1)
        return not self.cluster.local.nodes[name].running

    async def fill(
        self, count: int, *, delay_ms: int = 3_600_000, delivered: bool = False, body_bytes: int = 100
    ) -> None:
        """Schedule many at once; `delivered`: in this run, to be judged as all others are."""
        topic = TOPICS[0] if delivered else "bulk"
        await self.producers.schedule_many(topic, count, delay_ms, recorded=delivered, body_bytes=body_bytes)

    async def added(self, node: LocalNode) -> None:
        """Make a running node a member, however often it takes."""
        await self._insist(
            lambda: self.client.operator().add_member(node.name, node.address), node.name, True
        )

    async def removed(self, name: str) -> None:
        """Let a member go, however often it takes."""
        await self._insist(lambda: self.client.operator().remove_member(name), name, False)

    async def _insist(self, change: Callable[[], Awaitable[object]], name: str, wanted: bool) -> None:
        self.cluster.happened("add" if wanted else "remove", name)
        self.say(f"{'add' if wanted else 'remove'} {name}")
        deadline = time.monotonic() + SETTLE_S
        while True:
            with suppress(TarryError):
                members = {member.node for member in (await self.client.operator().status()).members}
                if (name in members) is wanted:
                    return
                await change()
            if time.monotonic() > deadline:
                self.expect(False, f"{name} could not be {'added' if wanted else 'removed'}")
                return
            await asyncio.sleep(0.2)

    async def frontier_ms(self) -> int:
        """Return how far the leader has released."""
        return (await self.client.operator().status()).frontier_ms

    async def told_of_clock(self, name: str, ahead_ms: int, within_ms: int) -> None:
        """Expect that an operator who asks the leader is told how far a node's clock is off."""
        told: list[int] = []
        for _ in range(TOLD_TIMES):
            status = await self.client.operator().status()
            offsets = {member.node: member.clock_offset_ms for member in status.members}
            base = median(-offset for node, offset in offsets.items() if node != name)
            told.append(round(base if status.node == name else offsets[name]))
            if abs(told[-1] - ahead_ms) <= within_ms:
                return
            await asyncio.sleep(0.2)
        self.expect(False, f"the clock of {name} is {ahead_ms} ms off, and operators are told {told[-1]}")

    def on_end(self, undo: Callable[[], object]) -> None:
        """Have something done after the nodes have ended, whatever happens."""
        self._at_end.append(undo)

    # Around them

    async def play(self) -> None:
        """Do it all. Raises LocalClusterError where the cluster does not come back."""
        try:
            self.scenario.prepare(self)
            async with asyncio.timeout(RUN_S_MAX):
                await self._play()
        except TimeoutError:
            self.complaints.append(f"the run did not end within {RUN_S_MAX} s")
        finally:
            for undo in self._at_end:
                undo()

    async def _play(self) -> None:
        async with self.cluster, self.client:
            looking = asyncio.create_task(self._look())
            self.consumers.start(rough=self.scenario.rough)
            self.producers.start()
            try:
                await self.during(WARM_UP_S)
                await self.scenario.play(self)
                await self.during(COOL_DOWN_S)
                await self._peace()
            finally:
                looking.cancel()
                self.producers.cancel()
                await self.consumers.stop()
                for channel in self._channels.values():
                    await channel.close(None)
                ending = [node for node in self.cluster.local.nodes.values() if node.running]
                if not self._kept:  # else they close their ledgers
                    for node in ending:
                        self.cluster.local.kill(node.name)
        if self._kept:
            for node in ending:
                whole = node.process is not None and node.process.returncode == 0
                self.expect(whole, f"{node.name} did not end in order, so its ledger may not be whole")

    async def _peace(self) -> None:
        """Mend everything, stop sending, wait until all has been delivered and all replicas agree."""
        local = self.cluster.local
        self.cluster.heal()
        for node in local.nodes.values():
            if node.paused:
                self.cluster.resume(node.name)
            if not node.running:
                self.cluster.start(node.name)
        await self.producers.finish()
        await self.serving()
        if not await self._settled():
            self.say("not everything was delivered")
        self.expect(await self._agreed(), "the replicas did not come to the same state")
        await self._expect_later()

    async def _expect_later(self) -> None:
        """Expect messages due in days to years to be pending, each once."""
        history = doubted(self.history)
        sent = [one for one in history.sent if one.topic == LATER]
        if not sent:
            return
        taken = {one.token for one in sent if one.answer is Answer.ACKNOWLEDGED}
        unknown = sum(one.answer is Answer.UNKNOWN for one in sent)
        gone = {one.token for one in history.cancelled} & taken
        certain = {one.token for one in history.cancelled if one.certain} & taken
        status = await self.client.operator().status()
        pending = sum(topic.pending for topic in status.topics if topic.topic == LATER)
        self.expect(
            len(taken) - len(gone) <= pending <= len(taken) + unknown - len(certain),
            f"{pending} messages of {LATER!r} are pending; {len(taken)} were acknowledged, {unknown} had no "
            f"answer, {len(certain)} were cancelled, and perhaps {len(gone) - len(certain)} more",
        )

    async def _settled(self) -> bool:
        history = doubted(self.history)
        gone = {one.token for one in history.cancelled}
        groups = groups_of(self.scenario)
        expected = [
            (group, one.token)
            for one in history.acknowledged()
            if one.token not in gone
            for topic, group in groups
            if topic == one.topic
        ]

        async def delivered() -> int | None:
            self.consumers.check()
            here = {(one.group, one.token) for one in self.history.delivered}
            return None if here.issuperset(expected) else len(here)

        settled = await patiently(delivered, SETTLE_S)
        await asyncio.sleep(0.3)  # in which a repetition would come
        return settled

    async def _agreed(self) -> bool:
        """Wait until all have applied the same, for as long as any of them gets further; then compare."""

        async def applied() -> int | None:
            indices = [one.applied_index for one in await self.ask(digest=False)]
            if len(indices) == len(self.names) and len(set(indices)) == 1:
                states = {(one.applied_index, one.digest) for one in await self.ask()}
                if len(states) == 1:
                    return None
            return sum(indices)

        return await patiently(applied, SETTLE_S)

    async def _look(self) -> None:
        asking: dict[str, asyncio.Task[object]] = {}
        async with asyncio.TaskGroup() as tasks:  # a node that hangs does not make the others wait
            while True:
                self._loads.append(os.getloadavg()[0] / cores())
                for name in self.names:
                    if name not in asking or asking[name].done():
                        asking[name] = tasks.create_task(self._ask_one(name, True))
                await asyncio.sleep(SAW_MS / 1_000)

    async def ask(self, *, digest: bool = True) -> list[NodeSeen]:
        """Ask the nodes how they are, past all links; a digest is work for them."""
        seen = await asyncio.gather(*(self._ask_one(name, digest) for name in self.names))
        return [one for one in seen if one is not None]

    async def _ask_one(self, name: str, digest: bool) -> NodeSeen | None:
        if self.cluster.local.nodes[name].paused:
            return None
        address = self.cluster.local.nodes[name].address
        channel = self._channels.setdefault(name, aio.insecure_channel(address, QUICK))
        try:
            status: operator_pb.ClusterStatusResponse = await OperatorServiceStub(channel).ClusterStatus(
                operator_pb.ClusterStatusRequest(digest=digest), timeout=ASKED_S
            )
        except aio.AioRpcError:
            return None
        leads, state = status.lease, status.state_digest.hex()
        seen = NodeSeen(name, mono_ms(), status.term, leads, status.applied_index, state)
        self.history.nodes.append(seen)
        return seen


def groups_of(scenario: Scenario) -> list[tuple[str, str]]:
    """Return the (topic, group) pairs that ought to get everything of their topic."""
    groups = (BRISK, ROUGH) if scenario.rough else (BRISK,)
    return [*((topic, group) for topic in TOPICS for group in groups), (MASS, BRISK)]


QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "microseconds period", or "max period": of the container we are in


def cores(quota: Path = QUOTA) -> float:
    """Return how many affinity and the container's quota leave of the machine's; 0.5 is half of one."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if not quota.exists():
        return allowed
    share, period = quota.read_text().split()
    return allowed if share == "max" else min(allowed, int(share) / int(period))
