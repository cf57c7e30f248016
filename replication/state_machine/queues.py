"""All ready queues and who has acknowledged what in them."""

from __future__ import annotations

import shutil
import sys
from bisect import bisect_left, insort
from collections.abc import Container, Iterator
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap64

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.dead_letters import dead_letter_topic
from tarry.proto.ledger.schema import Kind
from tarry.proto.tarry_consumer_pb2 import GroupStart, StartAt
from tarry.replication.state_machine import lanes
from tarry.replication.state_machine.acknowledgements import Acknowledgements, Key
from tarry.replication.state_machine.blocked_lanes import BlockedLanes
from tarry.replication.state_machine.cancelled_offsets import CancelledOffsets
from tarry.replication.state_machine.checkpoint import group_part, queue_parts, queue_proofs
from tarry.replication.state_machine.cluster_settings import ClusterDefaults
from tarry.replication.state_machine.events import Event, Events
from tarry.replication.state_machine.group_uses import GroupUses
from tarry.replication.state_machine.misfires import divide
from tarry.replication.state_machine.ready_queue import UNIT, Changes, FileChanges, ReadyQueue, UnitsDamaged
from tarry.replication.state_machine.release_rate import Pace
from tarry.replication.state_machine.segment_files import OpenFiles
from tarry.wheel.state import Appended

CHECKS: Final = "~transactions"
"""Topic of the half messages, in a name that no client can give."""
CHECKED: Final = "~checks"
"""Group whose queue of that topic they come to when a check is due, as copies come to a retry queue."""


class Queues:
    """Queue number -> ready queue, and (group, queue) -> what is acknowledged.

    Numbers are given in the order of creation, which is the order of the log,
    so they are equal on all replicas.
    """

    def __init__(self, folder: Path, events: Events | None = None) -> None:
        self._folder = folder
        self._events = events or Events()
        self._files = OpenFiles()
        self._queues: list[ReadyQueue] = []
        self._deleted = bytearray()  # 1 for each that is
        self._changes = Changes()
        self._gathered: list[FileChanges] = []
        self._parts: list[bytes] = []  # of a checkpoint, by queue
        self._proofs: list[bytes] = []  # the same of their checksums
        self._group_parts: dict[Key, bytes] = {}
        self._group_keys: list[Key] = []  # of those parts, ascending
        self._groups_changed: set[Key] = set()  # whose parts are to be built anew
        self._by_name: dict[tuple[str, str], int] = {}
        self.acknowledged: dict[tuple[str, int], Acknowledgements] = {}
        self._groups: dict[int, set[str]] = {}  # by queue: one queue's cost what they are, not what all are
        self.uses = GroupUses()
        self.defaults = ClusterDefaults()
        self.blocked = BlockedLanes()
        self.cancelled = CancelledOffsets()
        self._halves: dict[int, int] = {}  # by queue of a topic
        self.retries_cancelled = 0  # that something waited for, since the start
        self._changed: set[int] = set()
        self.changes_of_policy = 0  # since the start, of any group's
        self.moved: list[tuple[str, str]] = []  # (topic, group), deleted or moved and not yet taken
        self.trimmed: list[tuple[str, str]] = []  # likewise, that have lost what they had yet to acknowledge
        self.damaged: list[UnitsDamaged] = []  # met while applying, where nothing rests on them

    def __len__(self) -> int:
        return len(self._queues)

    def __getitem__(self, queue: int) -> ReadyQueue:
        return self._queues[queue]

    def __iter__(self) -> Iterator[ReadyQueue]:
        return (self._queues[number] for number in list(self._by_name.values()))

    @property
    def live(self) -> int:
        """Number of queues that are not deleted."""
        return len(self._by_name)

    def halves(self, queue: int) -> int:
        """Return how many half messages are open of a topic, by its queue: they are pending elsewhere."""
        return self._halves.get(queue, 0)

    def count_halves(self, queue: int, more: int) -> None:
        """Note that a topic, by its queue, has more half messages, or fewer."""
        count = self.halves(queue) + more
        if count:
            self._halves[queue] = count
        else:
            self._halves.pop(queue, None)

    def checks(self) -> ReadyQueue:
        """Return the queue of the checks that have come due, made with who acknowledges them if it is new."""
        queue = self.of(CHECKS, CHECKED)
        if (CHECKED, queue.queue) not in self.acknowledged:
            self._consume(CHECKED, queue.queue)
        return queue

    def deleted(self, numbers: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Flag the deleted ones of queues, by their numbers, shape (n,)."""
        return np.frombuffer(self._deleted, np.bool_)[numbers]

    def find(self, topic: str, group: str = "") -> ReadyQueue | None:
        """Return the queue of the topic, or with a group its retry queue of it."""
        queue = self._by_name.get((topic, group))
        return None if queue is None else self._queues[queue]

    def of(self, topic: str, group: str = "") -> ReadyQueue:
        """Return that queue, made if it is new."""
        known = self.find(topic, group)
        if known is None:
            known = self._add(topic, group)
            self._by_name[topic, group] = known.queue
        return known

    def _add(self, topic: str, group: str) -> ReadyQueue:
        name = sys.intern(topic)  # each group of a topic has a queue of it
        queue = ReadyQueue(self._folder, len(self._queues), name, group, self._files, self._changes)
        self._queues.append(queue)
        self._deleted.append(0)
        self._parts.append(b"")
        self._proofs.append(b"")
        return queue

    def delay_ms(self, topic: str, group: str) -> int:
        """Return a group's delay: its own, or else that of the topic's groups, or the cluster's."""
        own, of_topic = self.find(topic, group), self.find(topic)
        if own is not None and own.policy is not None and own.policy.HasField("delay_ms"):
            return own.policy.delay_ms
        if of_topic is not None and of_topic.settings.group_policy.HasField("delay_ms"):
            return of_topic.settings.group_policy.delay_ms
        return self.defaults.settings.group_policy.delay_ms

    def groups_of(self, queue: int) -> list[str]:
        """Return the groups that consume a queue."""
        return sorted(self._groups.get(queue, ()))

    def retries_of(self, topic: str) -> list[int]:
        """Return the numbers of a topic's retry queues, ascending; of 20,000 in some 9 ms."""
        groups = self._groups.get(self._by_name.get((topic, ""), -1), ())
        return sorted(self._by_name[topic, group] for group in groups)

    def delete_group(self, topic: str, group: str) -> None:
        """Delete a group of a topic with its retry queue; it must be there."""
        for known in (self.of(topic), self.of(topic, group)):
            del self.acknowledged[group, known.queue]
            self._groups_changed.add((group, known.queue))
            self._groups[known.queue].remove(group)
            if not self._groups[known.queue]:
                del self._groups[known.queue]
        self._delete(self.of(topic, group))
        self.uses.forget(topic, group)
        self.moved.append((topic, group))

    def delete_topic(self, topic: str) -> int:
        """Delete a topic with all its groups; it must be there. Return how many groups it had."""
        queue = self.of(topic)
        groups = self.groups_of(queue.queue)
        for group in groups:
            self.delete_group(topic, group)
        self._delete(queue)
        return len(groups)

    def seek(self, topic: str, group: str, offset: int) -> None:
        """Let the group go on at another offset of its topic; it must be there."""
        queue = self.of(topic)
        within = max(queue.first, min(offset, queue.units))
        acknowledged = self.acknowledged[group, queue.queue]
        acknowledged.seek(within)
        acknowledged.include(self.cancelled.of(queue.queue))
        self.moved.append((topic, group))

    def take_moved(self) -> list[tuple[str, str]]:
        """Return the (topic, group) that were deleted or moved since the last call."""
        moved, self.moved = self.moved, []
        return moved

    def take_trimmed(self) -> list[tuple[str, str]]:
        """Return the (topic, group) that have lost something by a trim since the last call."""
        trimmed, self.trimmed = self.trimmed, []
        return trimmed

    def _delete(self, queue: ReadyQueue) -> None:
        del self._by_name[queue.topic, queue.group]
        queue.delete()
        self._deleted[queue.queue] = 1
        self.blocked.delete(queue.queue)
        self.cancelled.delete(queue.queue)

    def subscribe(self, topic: str, group: str, start: GroupStart) -> bool:
        """Make the group of the topic, and its retry queue; False where they are there."""
        queue = self.of(topic)
        if (group, queue.queue) in self.acknowledged:
            return False
        first = {StartAt.START_AT_LATEST: queue.units}.get(start.at, queue.first)
        if start.at == StartAt.START_AT_TIME:
            first = queue.find_released(start.time_ms)
        self._consume(group, queue.queue, first)
        self.acknowledged[group, queue.queue].include(self.cancelled.of(queue.queue))
        self._consume(group, self.of(topic, group).queue)
        return True

    def _consume(self, group: str, queue: int, floor: int = 0, acked: bytes = b"") -> None:
        key = group, queue
        self.acknowledged[key] = Acknowledgements(floor, acked, key, self._groups_changed)
        self._groups.setdefault(queue, set()).add(group)

    def release(
        self,
        topic: NDArray[np.uint32],
        due_ms: NDArray[np.int64],
        hour: NDArray[np.uint32],
        global_index: NDArray[np.uint32],
        tag_mask: NDArray[np.uint64],
        now_ms: int,
    ) -> None:
        """Append messages, columns of shape (n,) as the wheel gives them, to their queues, in that order."""
        if not len(topic):
            return
        queue, tag_mask, lane = lanes.unpack(topic, tag_mask)
        units = np.empty(len(queue), dtype=UNIT)
        units["due_ms"] = due_ms
        units["released_after_ms"] = np.clip(now_ms - due_ms, -(2**31), 2**31 - 1)
        units["lane"] = lane
        units["hour"] = hour
        units["global_index"] = global_index
        units["tag_mask"] = tag_mask
        if queue[0] == queue[-1] and bool(np.all(queue == queue[0])):
            self._append(int(queue[0]), units, now_ms)
            return
        order = np.argsort(queue, kind="stable")
        numbers, starts = np.unique(queue[order], return_index=True)
        for number, part in zip(numbers.tolist(), np.split(units[order], starts[1:]), strict=True):
            self._append(number, part, now_ms)

    def unacknowledged_below(self, queue: int, offset: int) -> Iterator[tuple[str, NDArray[np.uint64]]]:
        """Yield the groups of a queue that have not acknowledged all below an offset, with what is left."""
        for group in self.groups_of(queue):
            known = self.acknowledged[group, queue]
            if known.floor < offset and len(left := known.missing(known.floor, offset)):
                yield group, left

    def trim(self, queue: int, offset: int, *, opens: bool) -> None:
        """Forget a queue's offsets below; a group that is not past them is moved up.

        ``opens``: lanes that wait for a retry which goes are opened. Raises UnitsDamaged.
        """
        if opens and self.blocked.any_of(queue):
            for _, left in self.unacknowledged_below(queue, min(offset, self._queues[queue].units)):
                self.unblock(queue, left)
            self.retries_cancelled += 1
            self._changed.add(queue)
        self._queues[queue].trim(offset)
        first = self._queues[queue].first
        self.cancelled.trim(queue, first)
        for group in self.groups_of(queue):
            if (acknowledged := self.acknowledged[group, queue]).floor < first:
                acknowledged.seek(first)
                self.trimmed.append((self._queues[queue].topic, group))

    def cancel(self, queue: int, offsets: BitMap64, had_by: Container[str]) -> list[str]:
        """Cancel offsets of a queue for its groups, also those made later, but for ``had_by``.

        Return the groups that go on behind them.
        """
        self.cancelled.add(queue, offsets)
        groups = [group for group in self.groups_of(queue) if group not in had_by]
        for group in groups:
            self.acknowledged[group, queue].include(offsets)
        self._changed.add(queue)
        return groups

    def block(self, queue: int, lane: NDArray[np.uint32], placed: Appended) -> None:
        """Block lanes, shape (n,), until the retries that have been placed are settled."""
        for number, hour, index in zip(
            lane.tolist(), placed.hour.tolist(), placed.global_index.tolist(), strict=True
        ):
            if number:
                self.blocked.add(queue, number, (hour, index))

    def unblock(self, queue: int, offsets: NDArray[np.uint64]) -> None:
        """Open the lanes that wait for retries that have just been settled. Raises UnitsDamaged."""
        if not self.blocked.any_of(queue) or not len(offsets):
            return
        units = self._queues[queue].at(offsets)
        units = units[units["lane"] != 0]
        self.blocked.end(zip(units["hour"].tolist(), units["global_index"].tolist(), strict=True))

    def unblock_cancelled(self, hour: NDArray[np.uint32], global_index: NDArray[np.uint32]) -> None:
        """Open the lanes that wait for retries that were cancelled."""
        if not self.blocked:
            return
        for queue, _ in self.blocked.end(zip(hour.tolist(), global_index.tolist(), strict=True)):
            self.retries_cancelled += 1
            self._changed.add(queue)

    def follow(self, before: tuple[NDArray[np.uint32], NDArray[np.uint32]], now: Appended) -> None:
        """Keep the lanes blocked that wait for retries, columns of shape (n,), which have been moved."""
        if not self.blocked:
            return
        old = zip(*map(np.ndarray.tolist, before), strict=True)
        for retry, hour, index in zip(old, now.hour.tolist(), now.global_index.tolist(), strict=True):
            for queue, lane in self.blocked.end([retry]):
                self.blocked.add(queue, lane, (hour, index))

    def note_change(self, queue: ReadyQueue | None = None) -> None:
        """Note that other settings count for what is delivered from a queue from now on; None: from all."""
        self.changes_of_policy += 1
        self._changed.update(self._by_name.values() if queue is None else (queue.queue,))

    def note_letters(self, queue: int, group: str, target: ReadyQueue) -> None:
        """Note that dead letters of a queue's group go to a queue of another name than theirs.

        A redrive believes what lies there only of groups that have brought some.
        """
        topic = self._queues[queue].topic
        retries = self.find(topic, group)
        known = retries is None or target.queue in retries.letters
        if retries is not None and not known and target.topic != dead_letter_topic(topic, group):
            live = (number for number in retries.letters if not self._queues[number].deleted)
            retries.set_letters((*live, target.queue))

    def take_changed(self) -> set[int]:
        """Return the queues that have had, since the last call, something that may be delivered."""
        changed, self._changed = self._changed, set()
        return changed

    def unacknowledged(self) -> int:
        """Return how many released messages some group has yet to acknowledge."""
        return sum(
            self._queues[queue].units - acknowledged.floor - len(acknowledged.acked)
            for (_, queue), acknowledged in self.acknowledged.items()
        )

    def build(self, most: int) -> int:
        """Build so many parts of a checkpoint anew, of those of which something has changed; return how many.

        ``capture`` builds those that are left.
        """
        changed, groups = self._changes.parts, self._groups_changed
        queues = min(most, len(changed))
        for _ in range(queues):
            number = changed.pop()
            self._parts[number], self._proofs[number] = queue_parts(self._queues[number])
        of_groups = min(most - queues, len(groups))
        for _ in range(of_groups):
            self._build_group(groups.pop())
        built = queues + of_groups
        built += self.uses.build(most - built)
        built += self.blocked.build(most - built)
        return built + self.cancelled.build(most - built)

    def _build_group(self, key: Key) -> None:
        known = self.acknowledged.get(key)
        if known is not None:
            if key not in self._group_parts:
                insort(self._group_keys, key)
            self._group_parts[key] = group_part(*key, known)
        elif self._group_parts.pop(key, None) is not None:
            del self._group_keys[bisect_left(self._group_keys, key)]

    def capture(self) -> list[bytes]:
        """Return the tables for a checkpoint, in parts: laid end to end they are a Checkpoint, serialized."""
        self.build(len(self._changes.parts) + len(self._groups_changed))
        groups = map(self._group_parts.__getitem__, self._group_keys)
        parts = [*self._parts, *groups, *self.blocked.capture()]
        return [*parts, *self.cancelled.capture(), *self.defaults.capture()]

    def capture_proofs(self) -> list[bytes]:
        """Return what is of no digest in the same form: the queues' checksums, as ``capture`` has built them,
        and the groups' uses.
        """
        return [*self._proofs, *self.uses.capture()]

    def recover(self, checkpoint: log_pb.Checkpoint) -> None:
        """Become what ``capture`` saw; files are cut back to it.

        Raises:
            QueueDamaged: a file is shorter than the checkpoint says.
        """
        proofs = queue_proofs(checkpoint)
        for state in checkpoint.queues:
            queue = self._add(state.topic, state.group)
            queue.settings = state.settings
            queue.policy = state.policy if state.HasField("policy") else None
            queue.letters = tuple(state.letters)
            queue.misfires_dropped = state.misfires_dropped
            queue.pace = Pace(
                state.settings.release_per_s_max,
                state.settings.catch_up_per_s_max,
                state.pace_anchor,
                state.pace_at_us,
                state.pace_catch_up_end,
            )
            queue.recover(state.first, proofs[state.queue], deleted=state.deleted)
            self._deleted[state.queue] = state.deleted
            if not state.deleted:
                self._by_name[state.topic, state.group] = state.queue
            elif not queue.folder.exists():  # else the power went before it was removed
                self._changes.files.discard(state.queue)
        for group in checkpoint.groups:
            self._consume(group.group, group.queue, group.floor, group.acked)
        for blocked in checkpoint.blocked:
            self.blocked.add(blocked.queue, blocked.lane, (blocked.hour, blocked.global_index))
        self.cancelled.recover(checkpoint.cancelled)
        self.uses.recover(checkpoint)
        self.defaults.recover(checkpoint)
        for path in self._folder.iterdir() if self._folder.exists() else ():
            if path.name.isdigit() and int(path.name) >= len(self._queues):
                shutil.rmtree(path)  # made after the checkpoint: made again
        self.capture()  # its parts are built now, not while the node serves

    def gather(self, most: int) -> int:
        """Note what has become of the files of so many queues, for the next checkpoint; return how many."""
        changed = self._changes.files
        most = min(most, len(changed))
        self._gathered += [self._queues[changed.pop()].take_changes() for _ in range(most)]
        return most

    def take_files(self) -> list[FileChanges]:
        """Return what has become of the queues' files since the last call."""
        self.gather(len(self._changes.files))
        gathered, self._gathered = self._gathered, []
        return gathered

    def close(self) -> None:
        """Close all files."""
        self._files.close_all()

    def _append(self, number: int, units: NDArray[np.void], now_ms: int) -> None:
        queue = self._queues[number]
        if queue.deleted:
            self._expired(number, units, now_ms, "TOPIC_DELETED")
            return
        parts = divide(units, queue.settings, now_ms)
        if len(parts.dropped):
            queue.drop_misfired(len(parts.dropped))
            self._expired(number, parts.dropped, now_ms, "MISFIRED")
        if len(parts.dead):
            target = self.of(dead_letter_topic(queue.topic)).queue
            self._expired(number, parts.dead, now_ms, "MISFIRED")
            self._add_event(Kind.SCHEDULED, target, parts.dead, now_ms, detail="DEAD_LETTER")
            self._append(target, parts.dead, now_ms)
        if len(parts.kept) == 0:
            return
        if queue.pace.bounded or parts.catching_up:
            queue.take_in(int(parts.kept["due_ms"][0]), now_ms, parts.catching_up)
        first = queue.append(parts.kept)
        self._changed.add(number)
        offsets = np.arange(first, first + len(parts.kept))
        if queue.topic == CHECKS:  # a check is no release of its message
            return
        self._add_event(Kind.RELEASED, number, parts.kept, now_ms, offset=offsets)

    def _expired(self, number: int, units: NDArray[np.void], now_ms: int, why: str) -> None:
        self._add_event(Kind.EXPIRED, number, units, now_ms, detail=why)

    def _add_event(
        self,
        kind: Kind,
        number: int,
        units: NDArray[np.void],
        now_ms: int,
        *,
        offset: NDArray[np.int64] | None = None,
        detail: str | None = None,
    ) -> None:
        if self._events.wanted:
            self._events.add(
                Event(
                    kind,
                    len(units),
                    now_ms,
                    number,
                    hour=units["hour"],
                    global_index=units["global_index"],
                    due_ms=units["due_ms"],
                    offset=offset,
                    detail=detail,
                )
            )
