"""The replicated state machine: commands in, outcomes out.

    apply(index, term, commands) -> outcomes

Total and deterministic: no clock, no randomness, no exception for bad input. What a
replica is after an entry depends on the entries alone. An exception here is a bug, a
broken disk or a newer version's command, and ends the process: a replica must never
skip an entry.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Final, cast

import numpy as np
from google.protobuf.message import Message
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.files import punch, sync_path
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import (
    command_validity,
    event_details,
    keys,
    levels,
    released_cancels,
    reschedules,
)
from tarry.replication.state_machine import commands as command_codec
from tarry.replication.state_machine.administration import Administration
from tarry.replication.state_machine.checkpoint import (
    CheckpointRefused,
    CheckpointStore,
    WheelCheckpoints,
    checkpoint_in,
    wheel_state,
)
from tarry.replication.state_machine.events import Event, Events
from tarry.replication.state_machine.outcomes import Acked, Cancelled, Changed, Outcome, Released, Subscribed
from tarry.replication.state_machine.producer_answers import Producers
from tarry.replication.state_machine.queues import CHECKS, Queues
from tarry.replication.state_machine.ready_queue import FileChanges
from tarry.replication.state_machine.recurring import Recurring
from tarry.replication.state_machine.recurring_table import Schedules
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX, Scheduler
from tarry.replication.state_machine.transaction_table import Transactions
from tarry.replication.state_machine.transactions import Transacting
from tarry.wheel.state import HOUR_MS, CancelOutcome, Taken, WheelSettings, WheelState
from tarry.wheel.wheel import Wheel

FEW_FILES: Final = 64
"""Of ready queues: so many are forced to disk one by one, more with all of the file system."""
PREPARED_MAX: Final = 500
"""In one turn of the event loop: some 5 ms."""
KEPT: Final = frozenset(("_settings", "events", "keyed", "snapshots", "_halfway"))
"""Attributes of a machine that do not belong to the state that it has opened."""


@dataclass(frozen=True, slots=True)
class MachineSettings:
    """Equal on all nodes of a cluster, but for the last: they decide what applying does."""

    shard: int = 0
    wheel: WheelSettings = field(default_factory=WheelSettings)
    applies: int = levels.HIGHEST  # the highest level that this node can apply


@dataclass(frozen=True, slots=True)
class Captured:
    """A checkpoint to be written: taken on the event loop, written by a thread."""

    tables: Sequence[bytes]  # laid end to end a Checkpoint, serialized: all but the next four
    producers: Sequence[bytes]
    recurring: Sequence[bytes]
    transactions: Sequence[bytes]
    wheel: WheelState
    queues: Sequence[FileChanges]
    applied_index: int


class Machine:
    """State of one replica: wheel, ready queues, groups, producers."""

    def __init__(
        self,
        folder: Path,
        settings: MachineSettings,
        *,
        from_start: bool = True,
        events: Events | None = None,
        keyed: keys.Keyed | None = None,
    ) -> None:
        """Open the folder and recover its last checkpoint; ``from_start``: where it has none, start empty.

        Raises:
            CheckpointDamaged, WheelDamaged, QueueDamaged: restore the node from a peer.
            AnotherVersion: the state is of a level that this node cannot apply; nothing was touched.
        """
        self._settings = settings
        self.events = Events() if events is None else events
        self.keyed = keys.Keyed() if keyed is None else keyed
        self.snapshots = 0  # being given away: no file is deleted meanwhile
        self._halfway = False  # through an entry: for good, where a disk failed in it
        self._open(folder, from_start)
        self.wheel.prepare()

    def _open(self, folder: Path, from_start: bool) -> None:
        self.folder = folder
        self._obsolete: list[Path] = []  # no durable checkpoint names them
        self._holes: list[tuple[Path, tuple[int, int]]] = []  # likewise, of files
        self._store = CheckpointStore(folder / "checkpoint")
        checkpoint = checkpoint_in(folder, self._store, from_start=from_start, applies=self._settings.applies)
        self.level = levels.of_checkpoint(checkpoint.apply_version)
        self._wheel_checkpoints = WheelCheckpoints()
        self.wheel = Wheel.recover(folder / "hours", self._settings.wheel, wheel_state(checkpoint))
        (folder / "ready").mkdir(exist_ok=True)
        sync_path(folder)  # both folders are there for good
        self.queues = Queues(folder / "ready", self.events)
        self.queues.recover(checkpoint)
        self.producers = Producers()
        self.producers.recover(checkpoint.producers)
        self._scheduler = Scheduler(
            self._settings.shard, self.wheel, self.queues, self.producers, self.events, self.keyed
        )
        self.recurring = Schedules()
        self.recurring.recover(checkpoint.recurring, checkpoint.recurring_number)
        self._recurring = Recurring(
            self.recurring, self.wheel, self.queues, self._scheduler, self.events, self.keyed
        )
        self.transactions = Transactions(self.queues)
        self.transactions.recover(checkpoint)
        self._transacting = Transacting(
            self.transactions, self.wheel, self.queues, self._scheduler, self.events, self.keyed
        )
        self._administration = Administration(self.wheel, self.queues, self.recurring, self.events)
        self.applied_index = checkpoint.applied_index
        self.applied_term = checkpoint.applied_term
        self.term_before = checkpoint.applied_term
        self.keys_generation = checkpoint.keys_generation
        """Of the key index that has all messages of the checkpoint; 0: none is sure to."""

    def opened(self, folder: Path) -> Machine:
        """Return a machine of the state in another folder, which came from a peer. For a thread.

        Raises as the constructor does.
        """
        return Machine(folder, self._settings, from_start=False, events=self.events, keyed=self.keyed)

    def become(self, other: Machine) -> None:
        """Take the state that another machine has opened; it gets this one's, closed."""
        for name in vars(other).keys() - KEPT:
            mine = getattr(self, name)
            setattr(self, name, getattr(other, name))
            setattr(other, name, mine)
        self.keyed.generation = 0  # the index beside the new state is yet to be opened
        other.close()

    def may_propose(self, level: int) -> bool:
        """Return whether commands and fields of a level may be proposed: all replicas can apply them."""
        return level <= self.level

    def encode(self, payload: Message) -> bytes:
        """Return a command's bytes, to be proposed.

        Raises LevelTooLow where the cluster's level has no such command yet; ``may_propose`` says so before.
        """
        if refusal := levels.refusal(payload, self.level):
            raise levels.LevelTooLow(refusal)
        return command_codec.encode(payload)

    def apply(self, index: int, term: int, commands: Sequence[bytes]) -> list[Outcome]:
        """Apply one log entry; return an outcome for each of its commands.

        Raises AnotherVersion, with nothing touched where a command is of a level that this node cannot apply.
        """
        command_codec.demand_applicable(commands, self._settings.applies)
        self._halfway = True
        outcomes: list[Outcome] = []
        for is_schedule, run in groupby(commands, key=command_codec.is_schedule):
            if is_schedule:
                decoded = [cast(log_pb.ScheduleCommand, command_codec.decode(c)) for c in run]
                outcomes.extend(self._scheduler.apply([self._refusal(c) or c for c in decoded]))
            else:
                outcomes.extend(self._told(command_codec.decode(c)) for c in run)
        if term != self.applied_term:
            self.term_before = self.applied_term
        self.applied_index, self.applied_term = index, term
        self._halfway = False
        return outcomes

    def take_events(self) -> list[Event]:
        """Return what has happened since the last call, in order; nothing unless ``events.wanted``."""
        events = event_details.of_ids(self.wheel, self.queues, self.events.take())
        return event_details.of_origins(self.wheel, self.queues, events)

    def _told(self, payload: Message) -> Outcome:
        queues = self.queues
        moved, trimmed = len(queues.moved), len(queues.trimmed)
        outcome = self._refusal(payload) or self._one(payload)
        if self.events.wanted:
            for topic, group in (*queues.moved[moved:], *queues.trimmed[trimmed:]):
                self.events.add(event_details.moved(payload, self.queues, topic, group))
        return outcome

    def _refusal(self, payload: Message) -> Refusal | None:
        return levels.refusal(payload, self.level) or command_validity.refusal(payload)

    def _one(self, payload: Message) -> Outcome:
        match payload:
            case log_pb.ReleaseCommand():
                return self._release(payload)
            case log_pb.AckCommand():
                return self._ack(payload)
            case log_pb.RetryCommand():
                return self._retry(payload)
            case log_pb.CancelCommand():
                return self._cancel(payload)
            case log_pb.CancelReleasedCommand():
                return released_cancels.cancel(payload, self.wheel, self.queues, self.events)
            case log_pb.RescheduleCommand():
                return reschedules.reschedule(
                    payload, self.wheel, self.queues, self._scheduler, self.events, self.keyed
                )
            case log_pb.RecurringCommand() | log_pb.FireCommand():
                return self._recurring.apply(payload)
            case log_pb.PrepareCommand() | log_pb.EndCommand() | log_pb.CheckCommand():
                return self._transacting.apply(payload)
            case log_pb.SubscribeCommand():
                made = self.queues.subscribe(payload.topic, payload.group, payload.start)
                if made:
                    self.events.add(event_details.moved(payload, self.queues, payload.topic, payload.group))
                self.queues.uses.subscribed(payload, made=made)
                queue = self.queues.of(payload.topic).queue
                return Subscribed(queue, self.queues.of(payload.topic, payload.group).queue)
            case log_pb.RaiseLevelCommand():
                return self._raise_level(payload)
            case _:
                return self._administration.apply(payload, self.level)

    def _raise_level(self, command: log_pb.RaiseLevelCommand) -> Changed:
        self.level = max(self.level, command.level)
        if command.id_gap:
            self.wheel.begin_incarnation(command.id_gap)
        return Changed(self.level)

    def _release(self, command: log_pb.ReleaseCommand) -> Released | Refusal:
        overtaking = _columns(command)
        if isinstance(overtaking, Refusal):
            return overtaking
        overtaken = [self.wheel.overtake(*overtaking)] if len(command.hour) else []
        for first in overtaken:
            self._ready(first, command.now_ms)
        taken = self.wheel.take(command.until_ms, command.count)
        self._ready(taken, command.now_ms)
        return Released(len(taken), (*overtaken, taken))

    def _ready(self, taken: Taken, now_ms: int) -> None:
        where = taken.hour, taken.global_index
        self.queues.release(taken.topic, taken.due_ms, *where, taken.tag_mask, now_ms)

    def _ack(self, command: log_pb.AckCommand) -> Acked | Refusal:
        offsets = np.frombuffer(command.offset, dtype="<u8")
        stale = self._settle(command, offsets)
        if isinstance(stale, Refusal):
            return stale
        if self.events.wanted:
            where = (self.wheel, self.queues, command.queue, command.group)
            self.events.add(event_details.settled(Kind.ACKED, *where, offsets[~stale], command.now_ms))
        return Acked(offsets[stale])

    def _settle(
        self, command: log_pb.AckCommand | log_pb.RetryCommand, offsets: NDArray[np.uint64]
    ) -> NDArray[np.bool_] | Refusal:
        group, queue = command.group, command.queue
        acknowledged = self.queues.acknowledged.get((group, queue))
        if acknowledged is None:
            return Refusal(Reason.QUEUE_UNKNOWN, f"group {group!r} does not consume queue {queue}")
        if len(offsets) and int(offsets.max()) >= self.queues[queue].units:
            return Refusal(Reason.OFFSET_NOT_DELIVERED, "an offset is past the end of the queue")
        stale = acknowledged.add(offsets)
        self.queues.uses.settled(self.queues[queue].topic, group, command.now_ms)
        self.queues.unblock(queue, offsets[~stale])
        return stale

    def _retry(self, command: log_pb.RetryCommand) -> Acked | Refusal:
        offsets = np.frombuffer(command.offset, dtype="<u8")
        due_ms = np.frombuffer(command.due_ms, dtype="<i8")
        mask = np.frombuffer(command.tag_mask, dtype="<u8")
        lane = np.frombuffer(command.lane, dtype="<u4") if command.lane else np.zeros(len(mask), np.uint32)
        columns = {len(due_ms), len(mask), len(lane), len(command.records)}
        if columns != ({0} if command.dropped else {len(offsets)}):
            return Refusal(Reason.COLUMNS_DIFFER, "the command's columns differ in length")
        if self.level >= levels.RETRIES_REACH and (gone := self._gone(command)):
            return gone
        stale = self._settle(command, offsets)
        if isinstance(stale, Refusal):
            return stale
        keep = np.flatnonzero(~stale)
        if command.dropped:
            return self._dropped(command, keep, offsets[stale])
        target = self.queues.of(command.target_topic, command.target_group)
        if not target.group and self.level >= levels.LETTERS:
            self.queues.note_letters(command.queue, command.group, target)
        if len(keep):
            due = np.clip(due_ms[keep], command.now_ms, DUE_MS_MAX)
            if self.events.wanted:
                for event in event_details.retried(self.wheel, self.queues, command, keep, due):
                    self.events.add(event)
            placed = self._scheduler.place(
                due,
                np.full(len(keep), target.queue, dtype=np.uint32),
                mask[keep],
                [command.records[i] for i in keep.tolist()],
                command.now_ms,
                lane=lane[keep] if command.lane else None,
                told=not target.group,
                detail="DEAD_LETTER",
            )
            if self.keyed.wanted and not target.group:  # a dead letter is found by its keys, too
                letters = keys.of_records([command.records[i] for i in keep.tolist()])
                queue = np.full(len(keep), target.queue, np.uint32)
                self.keyed.add(letters, queue, placed.hour, placed.global_index)
            if command.lane and target.group == command.group:  # not redriven: that comes after its key
                self.queues.block(target.queue, lane[keep], placed)
        return Acked(offsets[stale])

    def _gone(self, command: log_pb.RetryCommand) -> Refusal | None:
        """Return the refusal of a retry for a group that was deleted before it: a redrive's, into another."""
        topic, group = command.target_topic, command.target_group
        if not group or self.queues.find(topic, group) is not None:
            return None
        return Refusal(Reason.GROUP_UNKNOWN, f"topic {topic!r} has no group {group!r}")

    def _dropped(
        self, command: log_pb.RetryCommand, keep: NDArray[np.intp], stale: NDArray[np.uint64]
    ) -> Acked:
        """Count what a group gives up for good, and tell of it as of a dead letter."""
        self.queues.uses.dropped(self.queues[command.queue].topic, command.group, len(keep))
        if self.events.wanted and len(keep):
            for event in event_details.retried(self.wheel, self.queues, command, keep, np.empty(0, np.int64)):
                self.events.add(event)
        return Acked(stale)

    def _cancel(self, command: log_pb.CancelCommand) -> Cancelled | Refusal:
        chosen = _columns(command)
        if isinstance(chosen, Refusal):
            return chosen
        hour, global_index = self.wheel.places_of(*chosen)
        done = self.wheel.cancel(hour, global_index)
        if self.events.wanted:
            for event in event_details.cancelled(done, hour, global_index, command.now_ms):
                if not isinstance(event.queue, int) or self.queues[event.queue].topic != CHECKS:
                    self.events.add(event)
        self._transacting.cancelled(done, hour, global_index, command.now_ms)
        gone = done.outcomes == CancelOutcome.CANCELLED
        self.queues.unblock_cancelled(hour[gone], global_index[gone])
        return Cancelled(done.outcomes)

    def build(self, most: int = PREPARED_MAX) -> int:
        """Do some of what ``digested`` has left to do; return how many parts were built."""
        built = self.queues.build(most)
        return built + self.producers.build(most - built)

    def prepare(self, most: int = PREPARED_MAX) -> int:
        """Do some of what ``capture`` has left to do; return likewise."""
        built = self.build(most)
        return built + self.queues.gather(most - built)

    def capture(self) -> Captured:
        """Return a checkpoint of now; ``write`` makes it durable.

        Raises CheckpointRefused: an entry was applied by half, and would be lost by half.
        """
        if self._halfway:
            raise CheckpointRefused(f"entry {self.applied_index + 1} was applied by half")
        wheel = self.wheel.capture()
        far = bool(wheel.far.segments)
        applied = log_pb.Checkpoint(
            applied_index=self.applied_index,
            applied_term=self.applied_term,
            apply_version=levels.checkpoint_version(self.level, far=far),
            keys_generation=self.keyed.generation,
            recurring_number=self.recurring.number,
            transaction_number=self.transactions.number,
            transaction_end=self.transactions.end,
        )
        return Captured(
            [applied.SerializeToString(), *self.queues.capture(), *self.queues.capture_proofs()],
            self.producers.capture(),
            self.recurring.capture(),
            self.transactions.capture(),
            wheel,
            self.queues.take_files(),
            self.applied_index,
        )

    def write(self, captured: Captured) -> bytes:
        """Sync the files, then store the checkpoint, and return it. For a thread; one call at a time."""
        self.wheel.sync(captured.wheel, keep=self.snapshots > 0)
        touched = {path for changes in captured.queues for path in changes.write()}
        if len(touched) < FEW_FILES or not self.wheel.sync_filesystem():
            folders = {path.parent for path in touched}
            for path in {*touched, *folders, *(folder.parent for folder in folders)}:
                sync_path(path)
        wheel = self._wheel_checkpoints.serialized(captured.wheel)
        large = log_pb.Checkpoint(
            wheel=wheel,
            producers=captured.producers,
            recurring=captured.recurring,
            transactions=captured.transactions,
        )
        checkpoint = b"".join((*captured.tables, large.SerializeToString()))
        self._store.save(checkpoint)
        self.wheel.committed(captured.wheel)
        self._obsolete += [path for changes in captured.queues for path in changes.obsolete]
        while self._obsolete and self.snapshots == 0:
            path = self._obsolete.pop()
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        self._holes += [changes.hole for changes in captured.queues if changes.hole]
        while self._holes and self.snapshots == 0:
            path, hole = self._holes.pop()
            punch(path, [hole])
        return checkpoint

    @property
    def frontier_ms(self) -> int:
        """The due time, ms since the epoch, up to which everything has been released."""
        cut = self.wheel.cut
        return cut.due_ms if cut.complete else cut.due_ms - 1

    def due_ms(self, hour: NDArray[np.uint32], global_index: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Return messages' due times, shape (n,). Raises UnknownMessage."""
        in_hour: NDArray[np.uint32] = self.wheel.units(hour, global_index)["due_in_hour_ms"]
        return hour.astype(np.int64) * HOUR_MS + in_hour.astype(np.int64)

    def digest(self) -> bytes:
        """Return 16 bytes that are equal on replicas that applied the same entries."""
        return self.digested()()

    def digested(self) -> Callable[[], bytes]:
        """Return what works out the digest of the state as it is now, in any thread."""
        wheel, index = self.wheel.digest(), self.applied_index
        raised = self.level if self.level > levels.FIRST else 0  # 0.2.0 works out the same of the first one
        known, queues = self.producers.capture(), self.queues.capture()
        recurring, number = self.recurring.capture(), self.recurring.number
        transactions, prepared = self.transactions.capture(), self.transactions.number

        def digest() -> bytes:
            tables = log_pb.Checkpoint(
                applied_index=index,
                producers=known,
                apply_version=raised,
                recurring=recurring,
                recurring_number=number,
                transactions=transactions,
                transaction_number=prepared,
            )
            return hashlib.blake2b(
                b"".join((wheel, tables.SerializeToString(), *queues)), digest_size=16
            ).digest()

        return digest

    def free(self) -> None:
        """Free the large tables of a closed machine in parts. For a thread: at once would hold the GIL."""
        self.queues.blocked.free()
        self.producers.free()

    def close(self) -> None:
        """Close all files; nothing is written."""
        self.wheel.close()
        self.queues.close()
        self._store.close()


def _columns(
    command: log_pb.ReleaseCommand | log_pb.CancelCommand,
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]] | Refusal:
    """Return hours and global indices of the messages that a command names."""
    hour = np.frombuffer(command.hour, dtype="<u4")
    global_index = np.frombuffer(command.global_index, dtype="<u4")
    if len(hour) != len(global_index):
        return Refusal(Reason.COLUMNS_DIFFER, "the command's columns differ in length")
    return hour, global_index
