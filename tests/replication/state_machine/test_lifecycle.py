"""The events of the state machine keep to the table of a message's life, whatever commands it is given."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from tarry.node.delivery import retries
from tarry.node.delivery.retries import Delay
from tarry.proto.ledger.schema import Kind
from tarry.proto.lifecycle import TRANSITIONS, Event, State
from tarry.proto.tarry_message_pb2 import RetryReason
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.node.policies import policy
from tests.replication.commands import NOW_MS, ack, cancel, release, schedule, subscribe
from tests.replication.state_machine.test_released_cancels import RAISE, cancel_released
from tests.replication.state_machine.test_reschedules import command as reschedule

GROUPS: Final = ("g", "h")
STEP_MS: Final = 100
EVENTS: Final = {
    Kind.SCHEDULED: Event.SCHEDULE,
    Kind.CANCELLED: Event.CANCEL,
    Kind.RESCHEDULED: Event.RESCHEDULE,
    Kind.RELEASED: Event.RELEASE,
    Kind.ACKED: Event.ACK,
    Kind.RETRIED: Event.NACK,
    Kind.DEAD: Event.ATTEMPTS_END,
}
Message = tuple[int, int]  # hour, global index


class Place(NamedTuple):
    """Where a group finds a message: its queue and offset."""

    group: str
    queue: int
    offset: int


class Lives:
    """A machine, and the state of each message as its events tell it."""

    def __init__(self, folder: Path) -> None:
        self.machine = Machine(folder, MachineSettings())
        self.machine.events.wanted = True
        self.now_ms = NOW_MS
        self.whole: dict[Message, State] = {}
        self.of_group: dict[tuple[Message, str], State] = {}
        self.places: dict[Place, Message] = {}
        self.current: dict[tuple[Message, str], Place] = {}
        self.delivered: list[Place] = []
        self.seen = set[tuple[State | None, Event]]()
        self.machine.apply(1, 1, [RAISE])
        for group in GROUPS:
            self.apply(subscribe(group=group))

    # -- commands --------------------------------------------------------------------------

    def schedule(self, number: int) -> None:
        self.apply(schedule([self.now_ms + STEP_MS * (number % 4)] * (1 + number % 3), now_ms=self.now_ms))

    def cancel(self, number: int) -> None:
        if self.whole:
            self.apply(cancel([list(self.whole)[number % len(self.whole)]]))

    def withdraw(self, number: int) -> None:
        """Cancel a released message that no group has had, as the leader finds out."""
        firsts = [
            (place.offset, message)
            for place, message in self.places.items()
            if place.queue == 0 and place.group == GROUPS[0] and self.whole[message] is State.RELEASED
        ]
        fresh = [
            (offset, message)
            for offset, message in firsts
            if all(self.of_group[message, group] is State.READY for group in GROUPS)
            and not any(self.places[place] == message for place in self.delivered)
        ]
        for offset, _ in fresh[number % len(fresh) :][:1] if fresh else ():
            self.apply(cancel_released(self.machine, [offset]))

    def reschedule(self, number: int) -> None:
        if self.whole:
            self._reschedule(list(self.whole)[number % len(self.whole)], number)

    def reschedule_retry(self, number: int) -> None:
        wheel = self.machine.wheel
        for group in GROUPS:
            queue = self.machine.queues.of("t", group).queue
            for hour in wheel.hours():
                page = wheel.pending_page(hour, np.array([queue], np.uint32), 0, wheel.units_in_hour(hour))
                for index in page.global_index.tolist()[:1]:
                    self._reschedule((hour, index), number, copies=True)

    def _reschedule(self, message: Message, number: int, *, copies: bool = False) -> None:
        due_ms = self.now_ms + STEP_MS * (number % 4)
        payload = reschedule(self.machine, [message], [due_ms], now_ms=self.now_ms, copies=copies)
        self.apply(encode(payload))

    def release(self, number: int) -> None:
        self.now_ms += STEP_MS * (number % 4)
        self.apply(release(self.now_ms, now_ms=self.now_ms))

    def ack(self, number: int) -> None:
        for place in self._settled(number):
            self.apply(ack([place.offset], group=place.group, queue=place.queue))

    def nack(self, number: int) -> None:
        self._retry(number, RetryReason.RETRY_REASON_NACKED)

    def lease_end(self, number: int) -> None:
        self._retry(number, RetryReason.RETRY_REASON_LEASE_EXPIRED)

    def _settled(self, number: int) -> Iterator[Place]:
        """Yield a place of which a leader that delivered may be told: in hand, or settled before."""
        known = [p for p in self.delivered if self.of_group[self.places[p], p.group] is not State.READY]
        yield from known[number % len(known) :][:1] if known else ()

    def _retry(self, number: int, reason: RetryReason) -> None:
        for place in self._settled(number):
            queue = self.machine.queues[place.queue]
            offset = np.array([place.offset], np.uint64)
            unit = queue.at(offset)
            (record,) = self.machine.wheel.read(unit["hour"], unit["global_index"])
            assert record is not None
            limits = policy(attempts_max=2)
            where = (0, queue, place.group, offset, unit)
            for command in retries.commands(*where, [record], reason, Delay(STEP_MS), self.now_ms, limits):
                self.apply(encode(command))

    # -- what only the leader does ---------------------------------------------------------

    def deliver(self, number: int) -> None:
        ready = [
            key
            for key, state in self.of_group.items()
            if state is State.READY and self.whole[key[0]] is State.RELEASED
        ]
        for message, group in ready[number % len(ready) :][:1] if ready else ():
            self._move_in_group(message, group, Event.DELIVER)
            self.delivered.append(self.current[message, group])

    def failover(self, _: int) -> None:
        for (message, group), state in list(self.of_group.items()):
            if state is State.IN_HAND:
                self._move_in_group(message, group, Event.FAILOVER)

    # -- events ----------------------------------------------------------------------------

    def apply(self, command: bytes) -> None:
        self.machine.apply(self.machine.applied_index + 1, 1, [command])
        for event in self.machine.take_events():
            if event.kind is Kind.GROUP_MOVED:
                continue
            assert event.hour is not None
            assert event.global_index is not None
            messages = zip(event.hour.tolist(), event.global_index.tolist(), strict=True)
            queues = np.broadcast_to(event.queue, event.n).tolist()
            offsets = [-1] * event.n if event.offset is None else event.offset.tolist()
            expired = event.kind is Kind.RETRIED and event.detail == "LEASE_EXPIRED"
            what = Event.LEASE_EXPIRE if expired else EVENTS[event.kind]
            for message, queue, offset in zip(messages, queues, offsets, strict=True):
                self._happened(what, message, event.group, queue, offset)

    def _happened(self, what: Event, message: Message, group: str | None, queue: int, offset: int) -> None:
        group = group or self.machine.queues[queue].group
        if what is Event.RELEASE:
            groups = [group] if group else GROUPS if self.machine.queues[queue].topic == "t" else []
            if not group:
                self._move(self.whole, message, what)
            for each in groups:
                if group:
                    self._move_in_group(message, each, what)
                else:
                    self.of_group[message, each] = State.READY
                place = Place(each, queue, offset)
                assert place not in self.places
                self.places[place] = message
                self.current[message, each] = place
        elif group:
            if what is not Event.RESCHEDULE:
                assert self.current[message, group] == Place(group, queue, offset)
            self._move_in_group(message, group, what)
        else:
            self._move(self.whole, message, what)

    def _move_in_group(self, message: Message, group: str, what: Event) -> None:
        assert self.whole[message] is State.RELEASED
        self._move(self.of_group, (message, group), what)

    def _move(self, states: dict[Any, State], key: Any, what: Event) -> None:
        step = (states.get(key), what)
        assert step in TRANSITIONS
        states[key] = TRANSITIONS[step]
        self.seen.add(step)


STEPS: Final = (
    Lives.schedule, Lives.cancel, Lives.release, Lives.deliver, Lives.ack, Lives.nack, Lives.lease_end,
    Lives.failover, Lives.withdraw, Lives.reschedule, Lives.reschedule_retry,
)  # fmt: skip


def test_whatever_it_is_told_the_machine_s_events_keep_to_the_table() -> None:
    seen = set[tuple[State | None, Event]]()

    # no shrinking: each example opens a machine on disk
    @settings(max_examples=60, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 50)), min_size=20, max_size=80))
    def play(steps: list[tuple[Any, int]]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            lives = Lives(Path(folder))
            lives.schedule(2)
            for step, number in steps:
                step(lives, number)
            seen.update(lives.seen)
            lives.machine.close()

    play()
    assert seen == set(TRANSITIONS)
