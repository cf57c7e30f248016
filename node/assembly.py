"""A node without its port: state, log, leadership and time, put together.

`app` gives it a network and callers; a simulation gives it other clocks, disks and a network of its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import NodeConfig
from tarry.node.edge.audit import AuditStatus
from tarry.node.equal_settings import told
from tarry.node.keys.keeper import KeyKeeper
from tarry.node.keys.search import KeySearch
from tarry.node.leader.leadership import Leadership
from tarry.node.ledger.closer import Closer
from tarry.node.ledger.ledger import Ledger
from tarry.node.ledger.went_alone import marked
from tarry.node.metrics.release_rate import ReleaseRate
from tarry.node.metrics.traffic import Traffic
from tarry.node.recovery.checkpoints import Checkpoints
from tarry.node.reload import ReloadStatus
from tarry.node.repair.record_reads import RecordReads
from tarry.node.repair.records import Damage
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.version import VERSION
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.clock import Clock
from tarry.replication.driver.adaptive_writes import Writes
from tarry.replication.driver.driver import Driver
from tarry.replication.durations import Timings
from tarry.replication.journal.journal import Journal
from tarry.replication.loop_holds import Holds
from tarry.replication.settings import ReplicationSettings
from tarry.replication.snapshot.state_damage import StateDamage
from tarry.replication.snapshot.state_files import StateSink, StateSource
from tarry.replication.snapshot.state_folder import StateFolder
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.commands import kinds
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Outcome
from tarry.replication.status import Hello, Role, digest_of
from tarry.replication.transport.interface import Transport
from tarry.wheel.state import WheelDamaged

log = structlog.get_logger()

SOON_MS: Final = 15_000
"""With something due so soon, the wheel loads ahead with each heartbeat: they come at their usual pace."""


class Core:
    """The parts of one start of a node; driver, leadership and checkpoints are to be run."""

    def __init__(
        self,
        config: NodeConfig,
        clock: Clock,
        journal: Journal,
        transport: Transport,
        settings: ReplicationSettings,
        *,
        rng: random.Random | None = None,
        run_blocking: RunBlocking = in_thread,
        write_journal: Writes | None = None,
        reads: Callable[[Machine], RecordReads] = RecordReads,
        look_up: RunBlocking | None = None,
        driver: type[Driver] = Driver,
        closer: Closer | None = None,
        holds: Holds | None = None,
        applies: int = levels.HIGHEST,
    ) -> None:
        """Open the data folder and recover; ``applies``: the highest level that this node can apply.

        Raises:
            AnotherVersion: the data is of a higher level; nothing was touched.
            CheckpointDamaged, WheelDamaged, QueueDamaged: the node must not start with
                this data; restore it from a peer.
            StateMismatch: journal and checkpoint do not belong together.
        """
        levels.demand(f"the journal in {config.data}", journal.level, applies)
        self.config = config
        self.journal = journal
        self.time = ClusterTime(clock)
        self.reload, self.audit = ReloadStatus(), AuditStatus()
        self.run_blocking = run_blocking
        self.blocked = transport.blocked
        """Peers whose port this node cannot reach."""
        folder = StateFolder(config.data)
        settings_of_machine = MachineSettings(shard=config.shard, applies=applies)
        self.machine = Machine(folder.path, settings_of_machine, from_start=journal.first_index == 1)
        self._clock = clock
        self.holds = holds or Holds()
        alone = marked(config.data, journal.cluster_incarnation)
        self.ledger = Ledger(
            config, self.machine.applied_index, self.time.now_ms, run_blocking, closer, alone
        )
        self.traffic = Traffic(config.metrics, config.limits.queues_max, self._leads)
        self.release_rate = ReleaseRate()
        self.machine.events.wanted = self.ledger.enabled or self.traffic.wanted
        self.checkpoints = Checkpoints(
            self.machine,
            config.dispatch,
            lambda index: self.driver.compact(index),  # noqa: PLW0108 made below
            run_blocking,
            self._before_checkpoint,
            self.holds,
        )
        self.damage = Damage(self.machine, config.shard, run_blocking, reads(self.machine))
        scrubbed = config.dispatch.scrub_bytes_per_s
        least = config.limits.disk_free_bytes_min
        self.keys = KeyKeeper(self.machine, self.damage, scrubbed, run_blocking, look_up, least)
        self.key_search = KeySearch(self.keys, self.machine, self.damage)
        write_journal = write_journal or Writes(run_blocking)
        self.timings = Timings(
            journal_write=write_journal.durations,
            checkpoint=self.checkpoints.durations,
            turn=self.holds.turns,
        )
        self.leader_changes = 0
        """That this node has heard of since its start."""
        self._led_by = ""
        equal = told(config)
        self.driver = driver(
            node=config.node,
            members=config.members,
            journal=journal,
            machine=_Observed(self),
            transport=transport,
            clock=clock,
            rng=rng or random.Random(),
            settings=settings,
            heartbeat=self._heartbeat,
            known=lambda: self.leadership.known().SerializeToString(),
            told_all=lambda: self.leadership.told_all,
            hello=Hello(applies, VERSION, equal, digest_of(equal)),
            cluster_level=lambda: self.machine.level,
            flush_ms=lambda: self.machine.queues.defaults.flush_ms,
            on_heartbeat=self._hear,
            on_role=self._on_role,
            snapshot_source=StateSource(
                self.machine, self.checkpoints.write, run_blocking, self.damage.report_state
            ),
            snapshot_sink=StateSink(
                self.machine, folder, self.checkpoints.writing, run_blocking, _refused, applies, _left
            ),
            run_blocking=run_blocking,
            write_journal=write_journal,
            holds=self.holds,
            timings=self.timings,
        )
        self.leadership = Leadership(
            config,
            self.machine,
            self.driver,
            self.time,
            self.damage,
            self.ledger,
            self.traffic,
            self.holds,
            journal.cluster_incarnation,
        )

    async def _before_checkpoint(self) -> None:
        await self.driver.flush()  # a state is never ahead of what a loss of power leaves of its log
        await self.ledger.write(sync=True)
        await self.keys.write()

    def _leads(self) -> bool:
        return self.leadership.leads()

    def _heartbeat(self, sent_s: float) -> bytes:
        """Return a leader's dispatch state; keep cluster time, and notice that the lease came or went."""
        with self.holds.by("heartbeat"):
            self.time.update(self.driver.consensus.clock_offsets_ms)
            self.leadership.look()
            self._watch_clock()
            now_ms = self.time.now_ms()
            self._load_ahead(now_ms)
            next_due_ms = self.machine.wheel.next_due_ms()
            if next_due_ms is not None and next_due_ms < now_ms + SOON_MS:
                self.driver.stir()
            return self.leadership.dispatch_state(sent_s)

    def _hear(self, leader: str, payload: bytes) -> None:
        with self.holds.by("heartbeat"):
            self._note_leader(leader)
            state = log_pb.DispatchState.FromString(payload)
            self.leadership.receive_dispatch_state(state)
            self._watch_clock()
            if state.now_ms:
                self.time.adopt(state.now_ms)
                self._load_ahead(state.now_ms)

    def _note_leader(self, leader: str) -> None:
        if leader != self._led_by:
            self._led_by = leader
            self.leader_changes += 1

    def _load_ahead(self, now_ms: int) -> None:
        """Load what is due next; a damaged index is taken from a peer before an entry needs it.

        Also notes how fast full releases follow one another.
        """
        indices = self.damage.indices
        if indices.left:
            return
        try:
            self.machine.wheel.load_ahead(now_ms)
        except WheelDamaged as damage:
            indices.report_path(damage)
        wheel = self.machine.wheel
        self.release_rate.note(now_ms, wheel.released, full=not wheel.cut.complete)

    def _watch_clock(self) -> None:
        self.ledger.watch_clock(self._clock.wall_ms(), self._clock.monotonic_s() * 1000)

    def _on_role(self, role: Role) -> None:
        log.info("role", role=role.value, term=self.driver.status().term)
        if role is Role.LEADER:
            self._note_leader(self.config.node)
        self.leadership.look()


def _refused(damage: StateDamage) -> None:
    log.error("snapshot refused", damage=str(damage))


def _left(error: OSError) -> None:
    log.warning("files of the replaced state are left: the next start removes them", error=str(error))


class _Observed:
    """The machine as the log drives it; the leadership hears of every entry."""

    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def applied_index(self) -> int:
        return self._core.machine.applied_index

    def apply(self, index: int, term: int, commands: Sequence[bytes]) -> Sequence[Outcome]:
        machine, holds = self._core.machine, self._core.holds
        with holds.by(f"apply {kinds(commands)}"):
            outcomes = machine.apply(index, term, commands)
        self._core.keys.applied()
        if machine.level > self._core.journal.level:  # the next start looks there first
            self._core.journal.note_level(machine.level)
        while machine.queues.damaged:
            self._core.damage.queues.report(machine.queues.damaged.pop())
        with holds.by("ledger rows"):
            events = machine.take_events()
            self._core.ledger.applied(index, term, events, machine.queues)
        if self._core.traffic.wanted:
            with holds.by("metrics"):
                self._core.traffic.applied(events, machine.queues, self._core.time.now_ms())
        if commands:
            self._core.leadership.applied()
        else:  # perhaps the leader's own first entry, with which it may serve
            self._core.leadership.look()
        return outcomes
