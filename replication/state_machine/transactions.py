"""Transactional messages: what committed prepares, ends and checks do.

    PrepareCommand ─► a half message in the wheel, of a topic that no client can name, due at its first check
    CheckCommand   ─► checks that came due: each half message goes back, due at its next check,
                      or after its last one to its topic's dead letters
    EndCommand     ─► commit: the half message is gone there, and a message of its topic, in one entry
                      rollback: it is gone

So a check is a message like any other, released when it is due, and no failover loses one. The table says
what each transaction is; of those that have ended the latest are remembered, so that a second end answers as
the first.
"""

from __future__ import annotations

from typing import Final

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.dead_letters import UNRESOLVED, dead_letter_topic
from tarry.proto.ledger.schema import Kind
from tarry.proto.ledger.transactions import TransactionDetail, TransactionEvent, detail_of
from tarry.proto.reasons import Reason
from tarry.proto.record_times import times
from tarry.replication.state_machine import admission, keys
from tarry.replication.state_machine.events import Event, Events
from tarry.replication.state_machine.lanes import queue_of
from tarry.replication.state_machine.outcomes import Checked, Moved, Transacted
from tarry.replication.state_machine.queues import CHECKED, CHECKS, Queues
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX, Scheduler
from tarry.replication.state_machine.transaction_table import OPEN, Transactions, place_of
from tarry.wheel.state import Appended, Cancellation
from tarry.wheel.wheel import Wheel

COMMIT: Final = pb.TRANSACTION_END_COMMIT
ROLLBACK: Final = pb.TRANSACTION_END_ROLLBACK
STATES: Final = {COMMIT: pb.TRANSACTION_STATE_COMMITTED, ROLLBACK: pb.TRANSACTION_STATE_ROLLED_BACK}
"""By end, what a transaction is then."""
ALL: Final = 1 << 62
"""Of those that have ended are remembered, where a command has no limit."""
RETRY_MS: Final = 1_000


class Transacting:
    """Applies the three commands to the table, the wheel and the queues."""

    def __init__(
        self,
        table: Transactions,
        wheel: Wheel,
        queues: Queues,
        scheduler: Scheduler,
        events: Events,
        keyed: keys.Keyed,
    ) -> None:
        self._table = table
        self._wheel = wheel
        self._queues = queues
        self._scheduler = scheduler
        self._events = events
        self._keyed = keyed

    def apply(
        self, command: log_pb.PrepareCommand | log_pb.EndCommand | log_pb.CheckCommand
    ) -> Transacted | Moved | Checked | Refusal:
        """Apply a command of any of these kinds."""
        match command:
            case log_pb.PrepareCommand():
                return self.prepare(command)
            case log_pb.EndCommand():
                return self.end(command)
            case _:
                return self.check(command)

    def prepare(self, command: log_pb.PrepareCommand) -> Transacted | Refusal:
        """Put a half message into the wheel; of a name that is known, answer with what became of it."""
        known = self._table.named(command.producer_group, command.transaction)
        if known is not None:
            state = known.state()
            return Transacted(state, repeated=True) if _is_same(command, state) else _differs(state)
        if command.open_max and len(self._table) >= command.open_max:
            return _too_many(command.open_max)
        topic, check_ms = self._queues.of(command.topic), np.array([_due(command.check_ms, command.now_ms)])
        refused = admission.topic_full(self._wheel, self._queues, np.array([topic.queue], np.uint32))
        refused = refused or admission.second_full(
            self._wheel, check_ms, command.second_messages_max, command.now_ms
        )
        if refused is not None:
            return refused
        placed = self._half(command.record, int(check_ms[0]), command.now_ms)
        self._table.number += 1
        state = log_pb.TransactionCheckpoint(
            number=self._table.number,
            producer_group=command.producer_group,
            transaction=command.transaction,
            topic=command.topic,
            state=OPEN,
            prepared_ms=command.now_ms,
            tag_mask=command.tag_mask,
            lane=command.lane,
            record_bytes=len(command.record),
            record_crc=google_crc32c.value(command.record),
            queue=topic.queue,
            place_hour=int(placed.hour[0]),
            place_index=int(placed.global_index[0]),
            next_ms=int(check_ms[0]),
            born_ms=command.born_ms,
        )
        if command.HasField("due_ms"):
            state.due_ms = command.due_ms
        else:
            state.delay_ms = command.delay_ms
        self._table.store(state)
        self._tell(Kind.PREPARED, TransactionEvent.HALF, state, command.now_ms)
        return Transacted(state, repeated=False)

    def end(self, command: log_pb.EndCommand) -> Transacted | Moved | Refusal:
        """Commit a transaction, or roll it back; one that has ended so already stays as it is."""
        row = self._table.known(command.number)
        if row is None:
            return unknown(f"number {command.number}", self._table)
        state = row.state()
        if row.end:
            return Transacted(state, repeated=True) if state.state == STATES[command.end] else ended(state)
        if row.place != place_of(command.place_hour, command.place_index):
            return Moved()
        if command.end == COMMIT and not _is_of(command.record, state):
            return Refusal(
                Reason.MESSAGE_DAMAGED, "the record is not the one that was prepared: commit again"
            )
        self._gone(state)
        if command.end == COMMIT:
            due_ms = state.due_ms if state.HasField("due_ms") else command.now_ms + state.delay_ms
            due_ms = _due(due_ms, command.now_ms)
            record = command.record + times(state.born_ms, command.now_ms)  # as a message it is stored now
            placed = self._message(state, state.topic, record, due_ms, command.now_ms)
            hour, index = self._wheel.first_ids_of(placed.hour, placed.global_index)  # its place is of no use
            state.place_hour, state.place_index = int(hour[0]), int(index[0])
            state.next_ms = due_ms
        else:
            self._forget_place(state)
            self._tell(Kind.ROLLED_BACK, TransactionEvent.ROLLED_BACK, state, command.now_ms)
        self._end(state, STATES[command.end], command.now_ms, command.ended_max)
        return Transacted(state, repeated=False)

    def check(self, command: log_pb.CheckCommand) -> Checked | Refusal:
        """Put half messages whose checks are due back into the wheel, or among the dead letters."""
        offsets = np.frombuffer(command.offset, "<u8")
        if len(command.hour) // 4 != len(offsets) or len(command.global_index) // 4 != len(offsets):
            return Refusal(Reason.COLUMNS_DIFFER, "the command's columns differ in length")
        within = offsets < self._queues.checks().units  # what is past the end would be a leader's bug
        checked = Checked(tuple(self._checked(check, command) for check in command.checks))
        hour, index = np.frombuffer(command.hour, "<u4"), np.frombuffer(command.global_index, "<u4")
        self._done(offsets[within & ~self._table.rest_at(hour, index)])
        return checked

    def cancelled(
        self, done: Cancellation, hour: NDArray[np.uint32], index: NDArray[np.uint32], now_ms: int
    ) -> None:
        """Roll back transactions whose half messages, at places of shape (n,), were cancelled."""
        queue = self._queues.find(CHECKS, CHECKED)
        if queue is None or not len(self._table):
            return
        for at in done.rows[queue_of(done.topic) == queue.queue].tolist():
            row = self._table.at(int(hour[at]), int(index[at]))
            if row is not None:
                state = row.state()
                self._forget_place(state)
                self._tell(Kind.ROLLED_BACK, TransactionEvent.ROLLED_BACK, state, now_ms)
                self._end(state, STATES[ROLLBACK], now_ms, ALL)

    def _checked(
        self, check: log_pb.PlannedCheck, command: log_pb.CheckCommand
    ) -> log_pb.TransactionCheckpoint | None:
        row = self._table.numbered(check.number)
        if row is None or row.place != place_of(check.place_hour, check.place_index):
            return None
        state = row.state()
        self._gone(state)
        if not check.due_ms:
            topic = dead_letter_topic(state.topic, UNRESOLVED)
            self._forget_place(state)
            self._tell(Kind.ROLLED_BACK, TransactionEvent.UNRESOLVED, state, command.now_ms)
            self._message(state, topic, check.record, command.now_ms, command.now_ms, letter=True)
            self._end(state, pb.TRANSACTION_STATE_UNRESOLVED, command.now_ms, command.ended_max)
            return state
        due_ms = _due(check.due_ms, command.now_ms)
        placed = self._half(check.record, due_ms, command.now_ms)
        state.place_hour, state.place_index = int(placed.hour[0]), int(placed.global_index[0])
        state.checks += 1
        state.next_ms = due_ms
        self._table.store(state)
        return state

    def _half(self, record: bytes, check_ms: int, now_ms: int) -> Appended:
        """Put a half message where its check comes due; what is due already is there at once."""
        return self._scheduler.place(
            np.array([check_ms], np.int64),
            np.array([self._queues.checks().queue], np.uint32),
            np.zeros(1, np.uint64),
            [record],
            now_ms,
            told=False,
        )

    def _message(
        self,
        state: log_pb.TransactionCheckpoint,
        topic: str,
        record: bytes,
        due_ms: int,
        now_ms: int,
        *,
        letter: bool = False,
    ) -> Appended:
        queue = np.array([self._queues.of(topic).queue], np.uint32)
        placed = self._scheduler.place(
            np.array([due_ms], np.int64),
            queue,
            np.array([state.tag_mask], np.uint64),
            [record],
            now_ms,
            lane=np.array([state.lane], np.uint32) if state.lane else None,
            detail="DEAD_LETTER" if letter else _detail(TransactionEvent.COMMITTED, state),
        )
        if self._keyed.wanted:
            self._keyed.add(keys.of_records([record]), queue, placed.hour, placed.global_index)
        return placed

    def _gone(self, state: log_pb.TransactionCheckpoint) -> None:
        """Take the half message out of the wheel; of one whose check came due nothing is pending."""
        place = np.array([state.place_hour], np.uint32), np.array([state.place_index], np.uint32)
        self._wheel.cancel(*place)

    def _done(self, offsets: NDArray[np.uint64]) -> None:
        """Acknowledge checks that have been handed over; one that was not would never be asked again."""
        if len(offsets):
            self._queues.acknowledged[CHECKED, self._queues.checks().queue].add(offsets)

    def _end(
        self, state: log_pb.TransactionCheckpoint, to: pb.TransactionState, now_ms: int, ended_max: int
    ) -> None:
        state.state, state.ended_ms = to, now_ms
        self._table.store(state, ended_max or ALL)

    def _forget_place(self, state: log_pb.TransactionCheckpoint) -> None:
        state.place_hour = state.place_index = state.next_ms = 0

    def _tell(
        self, kind: Kind, event: TransactionEvent, state: log_pb.TransactionCheckpoint, now_ms: int
    ) -> None:
        if self._events.wanted:
            self._events.add(Event(kind, 1, now_ms, topic=state.topic, detail=_detail(event, state)))


def fault(command: log_pb.PrepareCommand | log_pb.EndCommand) -> str:
    """Return why a prepare or an end cannot be applied, whatever the state is; empty: it can."""
    if isinstance(command, log_pb.EndCommand):
        return "" if command.end in STATES else "a transaction ends by a commit or a rollback"
    if not command.producer_group or not command.transaction or not command.topic:
        return "a transaction has a producer group, a name and a topic"
    if command.HasField("due_ms") == command.HasField("delay_ms"):
        return "a transaction's message has a due time or a delay"
    given = command.due_ms if command.HasField("due_ms") else command.delay_ms
    return "" if 0 <= given <= DUE_MS_MAX else f"nothing can be due at, or after, {given}"


def unknown(name: str, table: Transactions) -> Refusal:
    """Return the refusal of what is not known, or not any more; it says whether any is forgotten."""
    text, facts = f"transaction {name} was never prepared, or this caller may not know of it", {}
    if table.forgotten:
        text += (
            f"; or it is one of {table.forgotten} that ended before {table.remembered_ms} ms since the epoch "
            "and are forgotten: see limits.transactions_remembered_max"
        )
        facts = {"forgotten": str(table.forgotten), "remembered_ms": str(table.remembered_ms)}
    return Refusal(Reason.TRANSACTION_UNKNOWN, text, facts)


def ended(state: log_pb.TransactionCheckpoint) -> Refusal:
    """Return the refusal of what comes after another end."""
    how = pb.TransactionState.Name(state.state).removeprefix("TRANSACTION_STATE_")
    text = (
        f"transaction {state.transaction!r} has ended already: it is {how}"
        + (f" since its last check, and its message is in {dead_letter_topic(state.topic, UNRESOLVED)}")
        * (state.state == pb.TRANSACTION_STATE_UNRESOLVED)
        + "; what was done for it elsewhere has to be undone, or its message sent anew"
    )
    return Refusal(Reason.TRANSACTION_ENDED, text, {"state": how, "number": str(state.number)})


def _is_of(record: bytes, state: log_pb.TransactionCheckpoint) -> bool:
    """Return whether a record is the one that was prepared."""
    return len(record) == state.record_bytes and google_crc32c.value(record) == state.record_crc


def _is_same(command: log_pb.PrepareCommand, state: log_pb.TransactionCheckpoint) -> bool:
    return (
        command.topic == state.topic
        and _is_of(command.record, state)
        and command.HasField("due_ms") == state.HasField("due_ms")
        and (command.due_ms, command.delay_ms) == (state.due_ms, state.delay_ms)
    )


def _differs(state: log_pb.TransactionCheckpoint) -> Refusal:
    text = (
        f"producer group {state.producer_group!r} has prepared transaction {state.transaction!r} before, "
        "with another message, topic or time: give each transaction a name of its own"
    )
    return Refusal(Reason.TRANSACTION_DIFFERS, text, {"number": str(state.number)})


def _too_many(most: int) -> Refusal:
    text = (
        f"there are {most} open transactions: commit some or roll them back, wait for their checks, or raise "
        "limits.transactions_max"
    )
    return Refusal(Reason.TOO_MANY_TRANSACTIONS, text, {"transactions_max": str(most)}, retry_ms=RETRY_MS)


def _detail(event: TransactionEvent, state: log_pb.TransactionCheckpoint) -> str:
    return detail_of(TransactionDetail(event, state.number, state.producer_group, state.transaction))


def _due(due_ms: int, now_ms: int) -> int:
    return min(max(due_ms, now_ms), DUE_MS_MAX)
