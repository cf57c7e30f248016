"""Commands of operators and of retention: changes of topics and groups, and trims."""

from __future__ import annotations

from typing import Final

import numpy as np
from google.protobuf.message import Message

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.replication.state_machine import group_policies, levels
from tarry.replication.state_machine.event_details import of_ids, settled
from tarry.replication.state_machine.events import Events
from tarry.replication.state_machine.outcomes import Changed
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tarry.replication.state_machine.recurring_table import Schedules
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS
from tarry.wheel.wheel import Wheel

RESERVED: Final = "~"
"""Begins the names of groups that are not consumers'."""


class Administration:
    """Applies operators' commands."""

    def __init__(self, wheel: Wheel, queues: Queues, recurring: Schedules, events: Events) -> None:
        self._wheel = wheel
        self._queues = queues
        self._recurring = recurring
        self._events = events

    def apply(self, command: Message, level: int) -> Changed | Refusal:
        """Apply a command of any of these kinds at a level of the cluster."""
        match command:
            case log_pb.TopicCommand():
                return self._topic(command)
            case log_pb.DeleteTopicCommand():
                return self._delete_topic(command)
            case log_pb.DeleteGroupCommand():
                return self._delete_group(command)
            case log_pb.GroupPolicyCommand():
                return self._group_policy(command)
            case log_pb.ClusterSettingsCommand():
                return self._cluster_settings(command)
            case log_pb.SeekCommand():
                return self._seek(command)
            case log_pb.TrimCommand():
                return self._trim(command, level)
            case _:
                raise AssertionError(f"nothing applies a {type(command).__name__}")

    def _topic(self, command: log_pb.TopicCommand) -> Changed:
        queue = self._queues.of(command.topic)
        queue.shape(command.settings, command.now_ms)
        self._queues.note_change(queue)
        return Changed()

    def _delete_topic(self, command: log_pb.DeleteTopicCommand) -> Changed | Refusal:
        queue = self._queues.find(command.topic)
        if queue is None:
            return Refusal(Reason.TOPIC_UNKNOWN, f"there is no topic {command.topic!r}")
        held = queue.units - queue.first
        retries = (self._queues.of(queue.topic, group) for group in self._queues.groups_of(queue.queue))
        numbers = [queue.queue, *(retry.queue for retry in retries)]
        pending = self._wheel.pending_of_all(np.array(numbers, np.uint32))
        recurring = self._recurring.remove_topic(command.topic)
        return Changed(held, self._queues.delete_topic(command.topic), pending, recurring)

    def _delete_group(self, command: log_pb.DeleteGroupCommand) -> Changed | Refusal:
        queue = self._group(command.topic, command.group)
        if isinstance(queue, Refusal):
            return queue
        done = self._queues.acknowledged[command.group, queue.queue]
        left = queue.units - done.floor - len(done.acked)
        pending = self._wheel.pending_of(self._queues.of(command.topic, command.group).queue)
        self._queues.delete_group(command.topic, command.group)
        return Changed(left, pending=pending)

    def _group_policy(self, command: log_pb.GroupPolicyCommand) -> Changed | Refusal:
        queue = self._group(command.topic, command.group)
        if isinstance(queue, Refusal):
            return queue
        retries = self._queues.of(command.topic, command.group)
        retries.set_policy(group_policies.changed(retries.policy, command.policy, command.unset))
        self._queues.note_change(retries)
        return Changed()

    def _cluster_settings(self, command: log_pb.ClusterSettingsCommand) -> Changed:
        self._queues.defaults.change(command)
        self._queues.note_change()
        return Changed()

    def _seek(self, command: log_pb.SeekCommand) -> Changed | Refusal:
        queue = self._group(command.topic, command.group)
        if isinstance(queue, Refusal):
            return queue
        before = self._queues.acknowledged[command.group, queue.queue].floor
        self._queues.seek(command.topic, command.group, command.offset)
        self._queues.uses.settled(command.topic, command.group, command.now_ms)
        return Changed(before)

    def _trim(self, command: log_pb.TrimCommand, level: int) -> Changed | Refusal:
        queues = np.frombuffer(command.queue, dtype="<u4").tolist()
        offsets = np.frombuffer(command.offset, dtype="<u8").tolist()
        hours = np.frombuffer(command.hour, dtype="<u4").tolist()
        planned = np.frombuffer(command.units, dtype="<u8").tolist() or [None] * len(hours)
        if (
            len(queues) != len(offsets)
            or len(hours) != len(planned)
            or any(number >= len(self._queues) for number in queues)
        ):
            return Refusal(Reason.COLUMNS_DIFFER, "the command's columns do not fit")
        for number, offset in zip(queues, offsets, strict=True):
            if not self._queues[number].deleted:
                self._expire(self._queues[number], offset, command.now_ms)
                self._queues.trim(number, offset, opens=level >= levels.RETRIES_EXPIRE)
        if hours:  # with an hour goes whose ids its places are: what is told of them is told by ids before
            for event in of_ids(self._wheel, self._queues, self._events.take()):
                self._events.add(event)
        released_ms = self._wheel.cut.due_ms
        for hour, units in zip(hours, planned, strict=True):
            there = self._wheel.units_in_hour(hour)
            same = units in (there, None)  # None: of an entry from before they were told
            if there and same and (hour + 1) * HOUR_MS <= released_ms:
                self._wheel.drop_hour(hour)
        if hours:
            self._wheel.sweep_moved()
        return Changed(len(hours))

    def _expire(self, queue: ReadyQueue, offset: int, now_ms: int) -> None:
        """Tell and count what groups lose by a trim; the redrives of a dead-letter topic lose nothing."""
        queues, end = self._queues, min(offset, queue.units)
        for group, left in queues.unacknowledged_below(queue.queue, end):
            if group.startswith(RESERVED):
                continue
            queues.uses.expired(queue.topic, group, len(left))
            if self._events.wanted:
                told = settled(Kind.EXPIRED, self._wheel, queues, queue.queue, group, left, now_ms)
                self._events.add(told._replace(detail="RETENTION"))

    def _group(self, topic: str, group: str) -> ReadyQueue | Refusal:
        queue = self._queues.find(topic)
        if queue is None:
            return Refusal(Reason.TOPIC_UNKNOWN, f"there is no topic {topic!r}")
        if (group, queue.queue) not in self._queues.acknowledged:
            text = f"topic {topic!r} has no group {group!r}: create it first"
            return Refusal(Reason.GROUP_UNKNOWN, text)
        return queue
