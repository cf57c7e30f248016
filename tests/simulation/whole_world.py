"""Whole nodes with their producers and consumers, all from one seed."""

from __future__ import annotations

import asyncio
import math
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from tarry.node.delivery import redrive
from tarry.node.metrics.traffic import Traffic
from tarry.node.process import DAMAGED
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.tarry_message_pb2 import Retried
from tarry.proto.tarry_operator_pb2 import MisfirePolicy, TopicSettings
from tarry.replication.errors import ProposalRefused
from tarry.replication.state_machine.acknowledgements import Acknowledgements
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tarry.wheel.state import MessageState
from tests.simulation.checker import Violation
from tests.simulation.edge import StreamEnded
from tests.simulation.forgotten import Forgotten
from tests.simulation.ledger import UNKNOWN, Ledger, demand
from tests.simulation.model_changer import Changing
from tests.simulation.model_consumer import ModelConsumer
from tests.simulation.model_puller import ModelPuller
from tests.simulation.model_recurring import Recurring
from tests.simulation.model_transactions import Transactions
from tests.simulation.rot import rotten, spread_records
from tests.simulation.rows import Misfires, Rows
from tests.simulation.synced_files import SyncedFiles
from tests.simulation.whole_node import DISPATCH, WholeNode
from tests.simulation.world import SETTINGS, SimNode, World

HOUR_MS = 3_600_000
MEASURING_MS = 5
"""How early a message may be beyond the skew of the right clocks. Nobody can tell a clock that is wrong by
less than half a round trip (1 ms here, more in a storm) from a right one; and while the others cannot be
measured better than that, cluster time goes on by the leader's monotonic clock, whose rate is 0.05 % wrong
(1.5 ms in the 3 s of a storm)."""
DIGEST_EVERY = 32
GROUPS = {"a": ["a/g1", "a/g2"], "b": ["b/g1", "b/red"]}
SHAPED = "c"
"""A topic with a rate, a bound on what is pending, and misfires."""
MISFIRE_AFTER_MS = 800
DEAD_LETTERS = ("dlq.g1.a", "dlq.misfired.c")
"""Topics that somebody reads."""
DRAINED_MS = 30_000
"""Far longer than what is not scheduled far."""
SCRUBBED_S = DISPATCH.scrub_step_ms_max / 1_000
"""Between two looks at all that is on all disks, while only the scrub can still find what has rotted: a look
reads all of it, and costs far more than what the nodes do meanwhile."""
ROTTEN = "B4: something has rotted"
COLD_SHARES = (0.01, 0.05, 0.3)
"""Of reads, how many find that what they want is not cached."""
SEVERAL = ("a*", "b")
"""Topics of a consumer of several, in their group g1."""
SEVERAL_SHARE = 0.5
"""Of the worlds, how many have one."""
BROADCAST = "all~bc"
"""The group of a broadcast consumer: the name that it shares with others, and its own."""


TEMPERS: tuple[dict[str, float], ...] = (
    {"nacks": 0.1},
    {"forgets": 0.1},
    {"thinks_s": 1.0},
    {"thinks_s": 3.0, "extends": 1.0, "nacks": 0.3},
)


class WholeWorld(World):
    """`skew_ms`: how far the right clocks may be off; at most one is wrong, by anything."""

    flushes_late = False
    """Whether an operator makes its durability async."""

    def __init__(
        self,
        seed: int,
        names: int = 3,
        *,
        skew_ms: int = 0,
        quiet_after_ms: int = 1_000,
        slowness: float = 0.0,
        groups: dict[str, list[str]] = GROUPS,
        retention_ms: int = DISPATCH.retention_ms,
        drift_ms: int = 0,
    ) -> None:
        """`drift_ms`: how far a wall clock drifts to and fro from where it was set."""
        rng = random.Random(f"whole {seed}")
        memory = Path("/dev/shm")
        self.folder = Path(tempfile.mkdtemp(dir=memory if memory.is_dir() else None))
        self.synced = SyncedFiles(self.folder)
        self.synced.watch()
        self.asleep_ms = 0
        self.longest_turn_s = 0.0
        self.answers_lost = 0.05
        self.finish: Literal["auto", "manual"] = "manual"
        """How the nodes' upgrades end."""
        self.upgrades = False
        """Whether its nodes begin with the version before."""
        self.by_properties = False
        """Whether a group that is not given all filters by properties, else by tags."""
        self.calm = False
        self.cold = random.Random(f"cold {seed}")
        self.cold_share = self.cold.choice(COLD_SHARES)
        """Probability that a read of a record or of a block of a queue finds it not cached."""
        self.several = {"a", "b"} <= groups.keys() and random.Random(
            f"several {seed}"
        ).random() < SEVERAL_SHARE
        """Whether a consumer has several topics, beside those that have one of them."""
        self.cuts: set[tuple[str, str]] = set()
        """(client, node) that do not reach one another."""
        self._base_ms = 500_000 * HOUR_MS - rng.randrange(20_000)  # an hour may begin in the middle
        self.groups = groups
        self.retention_ms = retention_ms
        self.schedules_far = False
        """Whether producers schedule over many hours and years, too."""
        self.rots = False
        """Whether files of one node rot."""
        self.horizon_ms = math.inf
        """What is due later is not waited for."""
        self.right_ms = skew_ms + MEASURING_MS
        """How far off a right clock may be set."""
        self.drift_ms = drift_ms
        self.drifts = False
        """Whether the wrong clock is drifting away."""
        self.ledger = Ledger(self.right_ms + drift_ms, groups)
        self.rows = Rows(self.ledger)
        self.traffic: list[Traffic] = []
        """Of each start of each node."""
        self.forgotten = Forgotten(self.ledger, self.rows, retention_ms)
        settings = replace(SETTINGS, quiet_after_ms=quiet_after_ms)
        super().__init__(seed, names, settings=settings, slowness=slowness)
        self.changes = Changing(self, seed)
        self.recurring = Recurring(self, seed)
        self.transactions = Transactions(self, seed)
        self.wrong = cast(WholeNode, self.rng.choice(self.nodes))
        self.rotting = cast(WholeNode, self.rng.choice(self.nodes))
        for node in self.whole:
            node.wall.ahead_ms = self.rng.randint(-skew_ms, skew_ms)

    @property
    def whole(self) -> list[WholeNode]:
        return cast(list[WholeNode], self.nodes)

    def make_node(self, name: str) -> SimNode:
        return WholeNode(self, name)

    @property
    def forgets_soon(self) -> bool:
        return self.retention_ms < 10_000

    def may_remove(self, members: int) -> bool:
        """A wrong clock must stay one of three, and so must a disk that rots: of two none can rejoin."""
        right = abs(self.wrong.wall.ahead_ms) <= self.right_ms and not self.drifts
        return super().may_remove(members) and (members > 3 or (right and self.is_sound()))

    def may_empty(self) -> bool:
        """What one disk loses the others have whole."""
        return super().may_empty() and self.may_remove(len(self.nodes)) and self.is_sound()

    def is_sound(self) -> bool:
        """Whether all are there, and nothing of theirs is damaged, be it known or not.

        A record that none has whole is not mended any more; where somebody waits for it, it is missing.
        """
        if not all(node.alive for node in self.whole):
            return False
        machines = [node.core.machine for node in self.whole]
        if not (damaged := sum(map(rotten, machines))):
            return True
        return damaged == len(machines) * len(spread_records(machines))

    def forget(self, last: int) -> None:
        """As in `World`; the ids of lost messages stay known, for no other message may get one."""
        super().forget(last)
        self.forgotten.forget(last)
        self.ledger.lost(self.rows.forget(last))

    async def mend(self) -> None:
        """All faults end; clocks are set, too."""
        for node in self.whole:
            node.wall.ahead_ms = min(max(node.wall.ahead_ms, -self.right_ms), self.right_ms)
            node.state_fails = False
        await super().mend()

    async def until_sound(self) -> None:
        """Return once nothing on any disk is damaged, which the scrub may have to find. Raises Violation."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not self.is_sound():
            if loop.time() - begun > 10 + self._scrubbed_s():
                raise Violation(f"{ROTTEN}, and nobody knows, or mends it")
            await asyncio.sleep(SCRUBBED_S)

    def relative(self, text: str) -> str:
        """Begin paths below the world's folder, whose name no seed decides."""
        return text.replace(f"{self.folder}/", "")

    def note(self, text: str) -> None:
        super().note(self.relative(text))

    def on_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """As in `World`; of a node whose disk rots it may be that. Calls end as another node leads."""
        error = context.get("exception")
        if isinstance(error, StreamEnded):
            return
        if isinstance(error, DAMAGED) and self.rotting.alive:
            self.rotting.set_aside(error)
        else:
            super().on_error(loop, context)

    def true_ms(self, at_s: float | None = None) -> int:
        """`at_s`: by the loop's time; now, where none is given."""
        at_s = asyncio.get_running_loop().time() if at_s is None else at_s
        return self._base_ms + int(at_s * 1000) + self.asleep_ms

    def likely_leader(self, rng: random.Random, client: str) -> WholeNode | None:
        """A node to ask, in reach of the client: one that leads, if any; now and then any."""
        alive = [node for node in self.whole if node.alive and (client, node.name) not in self.cuts]
        serving = [node for node in alive if node.core.leadership.delivery is not None]
        nodes = alive if rng.random() < 0.1 else serving or alive
        return rng.choice(nodes) if nodes else None

    def is_deleted(self, hours: NDArray[np.uint32]) -> bool:
        """Return whether a node has deleted one of the hours."""
        return any(node.core.machine.wheel.floor_hour > hours.min() for node in self.whole if node.alive)

    def on_apply(self, node: WholeNode, index: int, term: int, commands: Sequence[bytes]) -> None:
        digest = node.core.machine.digest() if index % DIGEST_EVERY == 0 else b""
        entry = (term, list(commands), digest)
        first = self.checker.applied.setdefault(index, entry)
        if first != entry:
            what = "has another state at" if first[:2] == entry[:2] else "applies another entry at"
            raise Violation(f"C5: {node.name} {what} {index}")
        self.forgotten.applied(index, commands, node.core.machine.queues)

    def after_turn(self, node: WholeNode) -> None:
        busy_s = node.processor.free_at - asyncio.get_running_loop().time()
        self.longest_turn_s = max(self.longest_turn_s, busy_s)
        self.checker.after_turn(node, self.nodes)

    async def until_served(self) -> WholeNode:
        """A leader whose delivery has begun."""
        for _ in range(1_000):
            leader = self.leader()
            if leader is not None and cast(WholeNode, leader).core.leadership.delivery is not None:
                return cast(WholeNode, leader)
            await asyncio.sleep(0.01)
        raise Violation("V1: nobody serves after 10 s")

    def consumers(self) -> list[ModelConsumer | ModelPuller]:
        """Of every group a steady one, and one that is not."""
        made: list[ModelConsumer | ModelPuller] = []
        for topic, groups in self.groups.items():
            for group in (name.split("/")[1] for name in groups):
                if group == BROADCAST:
                    made.append(ModelConsumer(self, group.split("~")[1], topic, group))
                    continue
                made.append(ModelConsumer(self, f"{topic}-{group}-steady", topic, group))
                name, temper = f"{topic}-{group}-odd", self.rng.randrange(6)
                if temper >= 4:
                    made.append(ModelPuller(self, name, topic, group))
                    continue
                made.append(ModelConsumer(self, name, topic, group, **TEMPERS[temper]))
        if self.several:
            made.append(ModelConsumer(self, "several-g1", "", "g1", topics=SEVERAL, credit=20))
        if SHAPED in self.groups:
            made += [ModelConsumer(self, f"{topic}-m", topic, "m") for topic in DEAD_LETTERS]
        return made

    async def shape(self, policy: int) -> None:
        """Give the topic its settings, as soon as somebody takes them."""
        settings = TopicSettings(
            release_per_s_max=60,
            pending_max=40,
            misfire=policy,  # type: ignore[arg-type]
            misfire_after_ms=MISFIRE_AFTER_MS if policy else 0,
            catch_up_per_s_max=30 if policy == MisfirePolicy.MISFIRE_POLICY_CATCH_UP else 0,
        )
        leaves_out = (MisfirePolicy.MISFIRE_POLICY_DROP, MisfirePolicy.MISFIRE_POLICY_DEAD_LETTER)
        if policy in leaves_out:
            self.rows.misfires = Misfires(SHAPED, MISFIRE_AFTER_MS, 1 << 60)
        while True:
            leader = cast(WholeNode | None, self.leader())
            if leader is not None:
                now_ms = leader.core.time.now_ms()
                command = encode(log_pb.TopicCommand(topic=SHAPED, settings=settings, now_ms=now_ms))
                try:
                    await asyncio.wait_for(leader.driver.propose(command), 2.0)
                except (ProposalRefused, TimeoutError):
                    pass
                else:
                    break
            await asyncio.sleep(0.05)
        if self.rows.misfires is not None:
            index = max(self.checker.applied)
            self.rows.misfires = Misfires(SHAPED, MISFIRE_AFTER_MS, index)

    async def drain(self, timeout_s: float = 60.0) -> None:
        """All faults are over: everything that was acknowledged is delivered, and the queues empty."""
        self.calm = True
        self.cuts.clear()
        loop = asyncio.get_running_loop()
        for node in self.whole:
            if node.alive and not rotten(node.core.machine):
                check_places(node.core.machine, self.ledger.sought)
        await self.mend()
        begun = loop.time()
        if self.rots:
            timeout_s += self._scrubbed_s()
        if self.schedules_far:
            self.horizon_ms = self.true_ms() + DRAINED_MS
        while left := self._left():
            if loop.time() - begun > timeout_s:
                raise Violation(f"V4: not drained after {timeout_s} s: {left}")
            await asyncio.sleep(SCRUBBED_S if left.startswith(ROTTEN) else 0.05)
        self.check_states()

    def _scrubbed_s(self) -> float:
        """Return how long a scrub takes to look at all of a node: what nobody reads, only it finds."""
        machine = self.rotting.core.machine
        places = (
            len(machine.wheel.partitions()) + len(machine.wheel.upkeep.far_segments()) + len(machine.queues)
        )
        return 2 * places * DISPATCH.scrub_step_ms_max / 1000

    def _left(self) -> str:
        if not all(node.alive for node in self.nodes):
            return "a node is down"
        missing = self.ledger.missing(self.horizon_ms)
        if missing:
            return f"{len(missing)} of {len(self.ledger.told)} not delivered: {missing[:5]}"
        applied = {node.name: node.core.machine.applied_index for node in self.whole}
        if len(set(applied.values())) > 1:
            return f"not converged: {applied}"
        machine = self.whole[0].core.machine
        damaged = [node.name for node in self.whole if node.core.damage.left]
        spread = bool(damaged) and bool(spread_records([node.core.machine for node in self.whole]))
        sound = self.is_sound()
        if damaged and not (spread and sound):
            return f"what is damaged at {damaged} is not mended"
        if not sound:  # what is unsettled could not be read
            unknown = [node.name for node in self.whole if rotten(node.core.machine)]
            return f"{ROTTEN} at {unknown}, and nobody knows"
        unacknowledged, pending = unsettled(machine), machine.wheel.pending
        left = unacknowledged or pending > self.ledger.ahead(self.horizon_ms)
        return f"{unacknowledged=} {pending=}" if left else ""

    def check_states(self) -> None:
        """At equal applied indices."""
        machines = [node.core.machine for node in self.whole]
        demand(len({machine.digest() for machine in machines}) == 1, "C14: states differ")
        self.rows.check()
        self.check_traffic()
        for machine in machines:
            check_books(machine)

    def counted_of(self, kind: Kind) -> Counter[str]:
        """Return what the metrics of all leaders have counted of a kind, by topic."""
        counts = Counter[str]()
        for traffic in self.traffic:
            counts.update({topic: getattr(of, kind) for topic, of in traffic.topics})
        return counts

    def check_traffic(self) -> None:
        """No message may be counted by two leaders."""
        for kind in (Kind.SCHEDULED, Kind.RELEASED):
            for topic, count in self.counted_of(kind).items():
                there = self.rows.messages[topic, kind]
                counted_once = UNKNOWN in there or count <= len(there)
                demand(counted_once, f"L11: {count} counted as {kind} of {topic}, there are {len(there)}")

    def crash_all(self) -> None:
        for node in self.nodes:
            node.crash()

    async def close(self) -> None:
        for node in self.whole:
            node.crash()
            if node._buried is not None:
                await node._buried
        self.synced.unwatch()
        shutil.rmtree(self.folder)


def unsettled(machine: Machine) -> int:
    """Return how many deliveries are to be made; dead letters that nobody gave back are not."""
    return sum(
        len(_left(machine.queues[queue], acknowledged))
        for (group, queue), acknowledged in machine.queues.acknowledged.items()
        if group != redrive.GROUP
    )


def check_books(machine: Machine) -> None:
    """Scheduled = released + cancelled + pending; nothing is released twice, or though cancelled."""
    state = machine.wheel.capture()
    queues = list(machine.queues)
    released = np.concatenate([np.empty(0, np.uint64), *(_ids(q.read(q.first, q.units)) for q in queues)])
    demand(len(np.unique(released)) == len(released), "B1: a message is released twice")
    struck = [
        hour.hour << 32 | n
        for hour in state.hours
        if hour.cancelled
        for n in BitMap.deserialize(hour.cancelled)
    ]
    cancelled = np.array(struck, dtype=np.uint64)
    demand(not len(np.intersect1d(released, cancelled)), "B2: a cancelled message is released")
    far = machine.wheel._hours.far
    for hour in np.flatnonzero(machine.wheel._hours.counts.far).tolist():
        rows, units = far.rows_of(hour)
        cancelled = np.concatenate([cancelled, _ids(units[far.is_gone(rows)])])
    scheduled = sum(hour.units for hour in state.hours) + far.live
    if all(queue.first == 0 for queue in queues) and not state.floor_hour:
        dropped = sum(queue.misfires_dropped for queue in queues)
        total = len(released) + len(cancelled) + state.pending + dropped
        demand(
            scheduled == total,
            f"B3: {scheduled} scheduled, but {len(released)} released, {len(cancelled)} cancelled, "
            f"{dropped} dropped, {state.pending} pending",
        )


def check_places(machine: Machine, sought: Set[str] = frozenset()) -> None:
    """A message of a group is settled, or in one place: ready (or in hand), or a retry, due or not.

    But for groups that were moved: what is retried may be ready again.
    """
    wheel, queues = machine.wheel, machine.queues
    for (group, number), acknowledged in queues.acknowledged.items():
        retries = queues.find(queues[number].topic, group)
        if queues[number].group or retries is None or f"{retries.topic}/{group}" in sought:
            continue
        ready = _left(queues[number], acknowledged)
        names = wheel.ids_of(ready["hour"], ready["global_index"])
        again = _left(retries, queues.acknowledged[group, retries.queue])
        places = list(zip(*map(np.ndarray.tolist, names), strict=True))
        copies = list(wheel.read(again["hour"], again["global_index"]))
        for hour in wheel.hours():
            state = wheel.upkeep.hour_state(hour)
            index = np.arange(state.units if state else 0, dtype=np.uint32)
            hours = np.full(len(index), hour, dtype=np.uint32)
            there = wheel.readable(hours, index)
            hours, index = hours[there], index[there]
            mine = index[queue_of(wheel.units(hours, index)["topic"]) == retries.queue]
            pending = [n for n in mine.tolist() if wheel.state(hour, n) is MessageState.PENDING]
            copies += wheel.read(hours[: len(pending)], np.array(pending, dtype=np.uint32))
        places += [(c.hour, c.global_index) for c in (Retried.FromString(copy) for copy in copies if copy)]
        twice = [place for place, count in Counter(places).items() if count > 1]
        demand(not twice, f"B5: {twice} of group {group} are in two places")


def _left(queue: ReadyQueue, acknowledged: Acknowledgements) -> NDArray[np.void]:
    offsets = np.arange(max(queue.first, acknowledged.floor), queue.units, dtype=np.uint64)
    return queue.at(offsets[~acknowledged.contains(offsets)])


def _ids(units: NDArray[np.void]) -> NDArray[np.uint64]:
    hours: NDArray[np.uint64] = units["hour"].astype(np.uint64) << np.uint64(32)
    return hours | units["global_index"].astype(np.uint64)
