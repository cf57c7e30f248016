"""Leadership: what runs only while this node may serve as leader.

Begins when the node leads, holds the lease and has applied all that was
committed before it. Without the lease, delivery pauses and goes on when the lease
is back; with another term or leader, it ends. Everything volatile (what is in
flight to whom) is made anew each time and dropped at the end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
import structlog
from google.protobuf.message import Message

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import NodeConfig
from tarry.node.delivery.context import Context
from tarry.node.delivery.delivery import Delivery
from tarry.node.delivery.inherited import Inherited, take_over
from tarry.node.leader.bulk_turn import BulkTurn
from tarry.node.leader.cluster_seed import ClusterSeed
from tarry.node.leader.dispatcher import Dispatcher
from tarry.node.leader.group_expiry import GroupExpiry
from tarry.node.leader.group_moves import GroupMoves
from tarry.node.leader.leftovers import Leftovers
from tarry.node.leader.letter_retention import LetterRetention
from tarry.node.leader.pending_cancels import PendingCancels
from tarry.node.leader.recent_lateness import RecentLateness
from tarry.node.leader.retention import Retention
from tarry.node.leader.settings_watch import SettingsWatch
from tarry.node.leader.tasks import LeaderTasks
from tarry.node.leader.upgrade import Upgrade
from tarry.node.leader.wait import LeaderWait
from tarry.node.ledger.ledger import Ledger
from tarry.node.metrics.traffic import Traffic
from tarry.node.recurring.fires import FireCounts, Fires
from tarry.node.recurring.settled import is_settled
from tarry.node.repair.records import Damage
from tarry.node.transactions.checks import CheckCounts, Checks
from tarry.node.transactions.producers import CheckStreams
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.files import free_bytes
from tarry.proto.reasons import Reason
from tarry.replication.driver.driver import Driver
from tarry.replication.errors import Overloaded
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.command_costs import cost_us
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import WheelDamaged

log = structlog.get_logger()

CLOCKS_WAIT_MS: Final = 300
"""A member that says nothing for so long, though connected, is led without."""
UNSURE_WAIT_MS: Final = 3_000
"""For a third clock, where two differ: as long as a node takes to start."""
CLOCKS_LOOK_MS: Final = 5
MENDED_S: Final = 10.0
"""A leader serves nobody for so long at most while a ready queue is mended; then its node ends."""

NO_LEADER: Final = Refusal(Reason.NO_LEADER, "the cluster has no leader right now: try again", retry_ms=100)


class UnitsNotMended(Exception):
    """No peer has mended units that all delivery waits for: another member may lead better."""


class Leadership:
    """Starts and stops the dispatcher and the delivery as leadership comes and goes."""

    def __init__(
        self,
        config: NodeConfig,
        machine: Machine,
        driver: Driver,
        time: ClusterTime,
        damage: Damage,
        ledger: Ledger,
        traffic: Traffic,
        holds: Holds,
        incarnation: int = 0,
    ) -> None:
        self.delivery: Delivery | None = None
        self._dispatcher: Dispatcher | None = None
        self._seed: ClusterSeed | None = None
        self._fires: Fires | None = None
        self.fire_counts = FireCounts()
        self._checks: Checks | None = None
        self.check_counts, self.check_streams = CheckCounts(), CheckStreams()
        self.retention: Retention | None = None
        self.upgrade = Upgrade(machine, driver, time.now_ms, by_itself=config.upgrade.finish == "auto")
        self._config = config
        self._machine = machine
        self._driver = driver
        self._time = time
        self._damage = damage
        self._ledger = ledger
        self._traffic = traffic
        self._holds = holds
        self._incarnation = incarnation
        self._changed = asyncio.Event()
        self._lost = asyncio.Event()
        self._led_term = 0
        self._damaged: UnitsDamaged | None = None  # met by what delivers, which has ended for it
        self._served = False
        self.wait = LeaderWait(self._is_led)
        self.bulk_turn = BulkTurn(machine, time)
        self.group_moves = GroupMoves(driver)
        self._heard = log_pb.DispatchState()
        self._sequence = 0
        self._copies_coming = 0  # for retries that are due soon: proposed and not applied

    def receive_dispatch_state(self, state: log_pb.DispatchState) -> None:
        """Keep a leader's dispatch state if it is newer; a new leader starts from it."""
        if (state.term, state.sequence) > (self._heard.term, self._heard.sequence):
            self._heard = state
        self.wait.notify()

    def known(self) -> log_pb.DispatchState:
        """Return the newest dispatch state that this node knows of, without a time."""
        state = log_pb.DispatchState()
        if self.delivery is None or self._heard.term > self.delivery.term:  # of a leader after this one
            state.CopyFrom(self._heard)
        else:
            state.ParseFromString(self.dispatch_state(None))
        state.ClearField("now_ms")
        return state

    def dispatch_state(self, sent_s: float | None) -> bytes:
        """Return this leader's state, serialized, for a heartbeat sent then; None: it delivers no more."""
        if self.delivery is None:
            return self.known().SerializeToString()
        wheel = self._machine.wheel
        self._sequence += 1
        delivers = not self._driver.consensus.transfer.running
        state = log_pb.DispatchState(
            term=self.delivery.term,
            sequence=self._sequence,
            tick=wheel.tick,
            local_index=wheel.local_index,
            frontier_ms=self._machine.frontier_ms,
            now_ms=self._time.now_ms(),
        )
        return state.SerializeToString() + self.delivery.cursors(sent_s if delivers else None)

    @property
    def told_all(self) -> bool:
        """True if the last heartbeat had all of this leader's state."""
        return self.delivery is None or self.delivery.told_all

    def look(self) -> None:
        """Start or end what runs only on the leader, if something about the role has changed."""
        self._changed.set()
        self.wait.notify()
        delivery = self.delivery  # to deliver may end it
        if delivery is None:
            return
        if not self.leads():
            self._lost.set()
            return
        serves = self._driver.may_serve()
        if serves and not self._served:  # the lease is back, or a transfer was given up
            delivery.pump()
        now_ms = self._time.now_ms()
        delivery.look(now_ms)
        if self._dispatcher is not None:
            self._dispatcher.look(now_ms)
        if self._fires is not None:
            self._fires.look(now_ms)
        if self._checks is not None:
            self._checks.look(now_ms)
        self._served = serves

    def applied(self) -> None:
        """Deliver what an applied entry released; wake the dispatcher if need be."""
        queues = self._machine.queues
        changed: Iterable[int] = queues.take_changed()
        trimmed, moved = queues.take_trimmed(), queues.take_moved()
        recurring = self._machine.recurring.take_changed()
        if self._fires is not None:
            self._fires.changed(recurring)
        if self._checks is not None:
            self._checks.released(changed)
        delivery = self.delivery  # to deliver may end it
        if delivery is not None:
            for topic, group in trimmed:
                delivery.trimmed(topic, group)
            for topic, group in moved:
                delivery.moved(topic, group)
            delivery.released(changed)
            delivery.note_queues()
        if self._dispatcher is not None:
            self._dispatcher.inserted()
        if self._seed is not None:
            self._seed.look()

    @property
    def lateness(self) -> RecentLateness | None:
        """Lateness of this leader's latest releases; None where the node does not lead."""
        return None if self._dispatcher is None else self._dispatcher.lateness

    def serves(self) -> bool:
        """Return whether this node answers as the leader, now."""
        return self.delivery is not None and self._driver.may_serve()

    def stop_for(self, damage: UnitsDamaged) -> Refusal:
        """End all delivery, which needs damaged units of a queue; it begins anew once they are mended.

        What it had half done is not known. Return what its callers are to be told.
        """
        queue = self._machine.queues[damage.queue]
        if queue.deleted:  # while it was about to be read
            return Refusal(Reason.TOPIC_UNKNOWN, f"topic {queue.topic!r}, or its group, has been deleted")
        refusal = Refusal(Reason.NO_LEADER, "a ready queue of the leader is being mended", retry_ms=100)
        self._damage.queues.report(damage)
        self._damaged = damage
        self._end_delivery(refusal)
        self._lost.set()
        return refusal

    async def run(self) -> None:
        """Run until cancelled. Raises what a task of a leadership raised unexpectedly."""
        while True:
            if self._damaged is not None:
                damage, self._damaged = self._damaged, None
                await self._until_mended(damage)
            self._changed.clear()
            if self._driver.may_serve() and await self._await_clocks():
                await self._lead()
            else:
                await self._changed.wait()

    async def _until_mended(self, damage: UnitsDamaged) -> None:
        try:
            async with asyncio.timeout(MENDED_S):
                await self._damage.queues.mended(damage.queue)
        except TimeoutError:
            if self._driver.may_serve():
                raise UnitsNotMended(f"{damage}; not mended within {MENDED_S:.0f} s") from damage

    async def _await_clocks(self) -> bool:
        """Wait until every member in reach has told its time; return whether this node still leads.

        The lease rests on a majority, two of three; but of two clocks nobody can say which one is wrong. So
        where they differ, and no leader has told the time yet, a member that is still to come is waited for.
        """
        for looks in range(UNSURE_WAIT_MS // CLOCKS_LOOK_MS):
            untold = [p for p in self._driver.status().peers.values() if p.clock_offset_ms is None]
            heard = looks * CLOCKS_LOOK_MS >= CLOCKS_WAIT_MS or not any(p.connected for p in untold)
            sure = not untold or self._time.sure(self._driver.consensus.clock_offsets_ms)
            if (heard and sure) or not self._driver.may_serve():
                break
            await asyncio.sleep(CLOCKS_LOOK_MS / 1000)
        return self._driver.may_serve()

    async def _lead(self) -> None:
        term = self._driver.status().term
        if term != self._led_term:  # under one leader time never runs back
            self._time.lead(self._driver.consensus.clock_offsets_ms)
        self._led_term = term
        inherited = await self._holds.steps("inherited cursors", self._inherit())
        if self._driver.status().term != term or not self._driver.may_serve():
            return
        self._lost.clear()
        self._damaged = None  # what ended another leadership; this one finds it again
        tasks = LeaderTasks(self.look, self.stop_for)
        context = Context(
            config=self._config,
            machine=self._machine,
            time=self._time,
            propose=self._propose,
            may_serve=self._driver.may_serve,
            confirmed_s=lambda: self._driver.consensus.heartbeats.confirmed_s,
            beat=self._driver.beat,
            stir=self._driver.stir,
            spawn=tasks.spawn,
            fail=tasks.fail,
            damage=self._damage,
            ledger=self._ledger,
            traffic=self._traffic,
            incarnation=self._incarnation,
            holds=self._holds,
        )
        self.delivery = Delivery(context, term, inherited)
        self._dispatcher = Dispatcher(
            self._machine, self._time, self._config.dispatch, self._propose, lambda: self._copies_coming
        )
        self.wait.notify()
        log.info("leading", term=term)
        self._ledger.leadership("leader", term)
        report = self._damage.queues.report
        self.retention = retention = Retention(
            self._machine,
            self._time,
            self._config.dispatch,
            self._propose_at_once,
            report,
            self.group_moves,
            LetterRetention(self._machine, self._config),
            self._damage.reads,
        )
        tasks.spawn(self._holds.steps("dispatch", self._dispatcher.run()))
        expiry = GroupExpiry(
            self._machine,
            self._time,
            self._config.dispatch,
            self._propose_at_once,
            self._is_open,
            self.group_moves,
        )
        tasks.spawn(self._holds.steps("retention", retention.run()))
        tasks.spawn(self._holds.steps("group expiry", expiry.run()))
        pending = PendingCancels(self._machine, self._driver, self._time)
        leftovers = Leftovers(self._machine, self._damage, pending, self.bulk_turn)
        tasks.spawn(self._holds.steps("left of deleted topics", leftovers.run()))
        self._fires = Fires(self._machine, self._time, self._propose, self._is_settled, self.fire_counts)
        tasks.spawn(self._holds.steps("recurring schedules", self._fires.run()))
        tasks.spawn(self._holds.steps("settled fires", self._fires.ask()))
        self._checks = Checks(
            self._machine,
            self._time,
            self._config.transactions,
            self._config.limits.transactions_remembered_max,
            self._propose,
            self._damage.read,
            self.check_streams,
            self.check_counts,
            self._config.shard,
            self._has_disk,
        )
        tasks.spawn(self._holds.steps("checks of transactions", self._checks.run()))
        self._seed = ClusterSeed(self._machine, self._config, self._time.now_ms, self._propose)
        tasks.spawn(self._holds.steps("cluster settings", self._seed.run()))
        tasks.spawn(self._holds.steps("settings", SettingsWatch(self._driver).run()))
        tasks.spawn(self._holds.steps("upgrade", self.upgrade.run()))
        lost = asyncio.ensure_future(self._lost.wait())
        failed: asyncio.Future[Any] = tasks.failed
        try:
            await asyncio.wait((lost, failed), return_when=asyncio.FIRST_COMPLETED)
            if self.delivery is not None:
                await self.delivery.pause()
        finally:
            lost.cancel()
            self._end_delivery(self.not_leader())
            tasks.end()
            log.info("no longer leading", term=term)
            self._ledger.leadership("follower", term)
        if failed.done():
            failed.result()

    def _is_open(self, topic: str, group: str) -> bool:
        return self.delivery is not None and self.delivery.find(topic, group) is not None

    async def _is_settled(self, hour: int, global_index: int) -> bool:
        """Return whether a message waits for nothing; one that cannot be looked at now counts as waiting."""
        if self.delivery is None:
            return False
        try:
            return await is_settled(self._machine, self.delivery, hour, global_index)
        except WheelDamaged as damage:
            self._damage.indices.report_path(damage)
        except UnitsDamaged as damage:
            self._damage.queues.report(damage)
        return False

    def _end_delivery(self, refusal: Refusal) -> None:
        if self.delivery is not None:
            self._heard = self.known()
            delivery, self.delivery, self._dispatcher, self.retention = self.delivery, None, None, None
            self._fires = self._checks = None
            self.check_streams.end(refusal)
            delivery.end(refusal)

    async def _inherit(self) -> Inherited:
        """Return where the leader before stood with each group, found out in turns of their own."""
        elected_by = map(log_pb.DispatchState.FromString, self._driver.consensus.elections.elected_by)
        inherited = Inherited()
        await asyncio.sleep(0)  # another leadership may have ended in this turn
        for _ in take_over(inherited, [*elected_by, self._heard], self._machine):
            await asyncio.sleep(0)
        return inherited

    def not_leader(self) -> Refusal:
        """Return the refusal that says who leads, as far as this node knows."""
        status = self._driver.status()
        if status.leader is None or status.leader == status.node:
            return NO_LEADER
        address = status.members.get(status.leader, "")
        text = f"{status.node} does not lead: {status.leader} at {address} does"
        facts = {"leader": address, "leader_node": status.leader}
        return Refusal(Reason.NOT_LEADER, text, facts, retry_ms=20)

    def hears_leader(self) -> bool:
        """Return whether another leads, and was heard: without a majority the last leader stays known."""
        status = self._driver.status()
        peer = status.peers.get(status.leader or "")
        heard_ms_ago = None if peer is None else peer.heard_ms_ago
        return heard_ms_ago is not None and heard_ms_ago < 2 * self._config.consensus.election_max_ms

    def _is_led(self) -> bool:
        return self.serves() or self.not_leader().reason is Reason.NOT_LEADER

    def leads(self) -> bool:
        """Return whether it leads in the term in which its delivery was made, with its lease or without."""
        return self.delivery is not None and self._driver.consensus.state.leads(self.delivery.term)

    def _copies_due_soon(self, retry: log_pb.RetryCommand) -> int:
        """Return the number of a retry's copies that a release may have that is planned before they come."""
        soon_ms = self._time.now_ms() + self._config.dispatch.ahead_ms_max
        due_ms = np.frombuffer(retry.due_ms, "<i8")
        return int(np.count_nonzero(due_ms <= soon_ms)) if retry.target_group else 0  # else: dead letters

    def _has_disk(self) -> bool:
        return free_bytes(self._machine.folder) >= self._config.limits.disk_free_bytes_min

    async def _propose(self, payload: Message) -> Any:
        """Propose what the leader itself decided; overload is waited out."""
        copies = isinstance(payload, log_pb.AckCommand | log_pb.RetryCommand) and bool(
            self._machine.queues[payload.queue].group
        )
        groups = 0
        if isinstance(payload, log_pb.CancelReleasedCommand):
            groups = len(self._machine.queues.groups_of(payload.queue))
        command, cost = self._machine.encode(payload), cost_us(payload, copies=copies, groups=groups)
        coming = self._copies_due_soon(payload) if isinstance(payload, log_pb.RetryCommand) else 0
        self._copies_coming += coming
        try:
            while True:
                try:
                    return await self._driver.propose(command, cost)
                except Overloaded as overloaded:
                    await asyncio.sleep(overloaded.retry_ms / 1000)
        finally:
            self._copies_coming -= coming

    async def _propose_at_once(self, payload: Message) -> Any:
        """Propose what holds only for the state as it is now. Raises Overloaded."""
        return await self._driver.propose(self._machine.encode(payload), cost_us(payload))
