"""A schedule against its definition: whatever is done in whatever order, each fire is decided once.

The leader's plans are applied at once, later, twice or never; changes come in between, and restarts.
"""

from __future__ import annotations

import shutil
import tempfile
from itertools import takewhile
from pathlib import Path
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tarry.node.recurring.plan import look
from tarry.node.recurring.timing import timing_of
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.recurring import MESSAGES, TRIGGERED
from tarry.replication.state_machine.recurring_table import Entry
from tests.replication.commands import NOW_MS, release
from tests.replication.state_machine.test_recurring import apply, change
from tests.replication.state_machine.test_reschedules import RAISE

SPECS = (
    pb.RecurringSpec(topic="t", interval_ms=1_000),
    pb.RecurringSpec(topic="t", interval_ms=1_500, start_ms=NOW_MS - 700, jitter_ms=900),
    pb.RecurringSpec(topic="u", interval_ms=2_000, missed_after_ms=3_000, missed=pb.MISSED_POLICY_NONE),
    pb.RecurringSpec(topic="t", interval_ms=1_000, missed_after_ms=3_000, missed=pb.MISSED_POLICY_ALL),
    pb.RecurringSpec(topic="t", cron="*/3 * * * * *", missed_after_ms=2_000, end_ms=NOW_MS + 600_000),
    pb.RecurringSpec(topic="t", interval_ms=1_000, overlap=pb.OVERLAP_POLICY_SKIP),
    pb.RecurringSpec(topic="t", interval_ms=1_000, overlap=pb.OVERLAP_POLICY_QUEUE, missed_after_ms=2_500),
)


class OneSchedule(RuleBasedStateMachine):
    """One schedule, a leader, and time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.machine = Machine(self.folder, MachineSettings())
        self.machine.apply(1, 1, [RAISE])
        self.now_ms = NOW_MS
        self.decided_ms = 0
        """By the model: each fire of the present specification behind it is yet to be decided."""
        self.flying: list[log_pb.FireCommand] = []
        self.messages = 0

    def teardown(self) -> None:
        self.machine.close()
        shutil.rmtree(self.folder)

    @property
    def entry(self) -> Entry | None:
        return self.machine.recurring.named("s")

    def fires(self, until_ms: int) -> list[int]:
        """Fires that are yet to be decided, from the definition."""
        assert self.entry is not None
        state = self.entry.state()
        timing = timing_of(pb.RecurringSpec.FromString(state.spec), state.created_ms)
        return list(takewhile(lambda fire_ms: fire_ms <= until_ms, timing.fires(self.decided_ms)))

    def changed(self, payload: log_pb.RecurringCommand) -> None:
        before = self.entry and self.entry.state()
        (done,) = apply(self.machine, payload)
        if not done.changed:
            return
        cancelled = self._cancelled(before)
        self.messages -= cancelled is not None
        if cancelled is not None and cancelled > self.now_ms:  # it is still to come
            self.decided_ms = cancelled - 1
        self.decided_ms = max(self.now_ms, self.decided_ms) if before else self.now_ms

    def _cancelled(self, before: log_pb.RecurringCheckpoint | None) -> int | None:
        """The fire whose message a change has cancelled."""
        pending = self.machine.wheel.pending + sum(queue.units for queue in self.machine.queues)
        return before.fired_ms if before is not None and pending < self.messages else None

    @rule(spec=st.sampled_from(SPECS))
    def put(self, spec: pb.RecurringSpec) -> None:
        command = log_pb.RecurringCommand(
            name="s",
            change=log_pb.RECURRING_CHANGE_PUT,
            spec=spec.SerializeToString(),
            record=b"\x22\x01x",
            now_ms=self.now_ms,
        )
        self.changed(command)

    @precondition(lambda self: self.entry is not None)
    @rule(kind=st.sampled_from(["PAUSE", "RESUME", "RESUME", "DELETE"]))
    def change(self, kind: str) -> None:
        self.changed(change(kind, now_ms=self.now_ms))

    @rule(ms=st.one_of(st.integers(0, 700), st.integers(0, 9_000), st.just(200_000)))
    def time_goes_on(self, ms: int) -> None:
        self.now_ms += ms

    @precondition(lambda self: self.entry is not None)
    @rule(settled=st.booleans(), applied=st.booleans())
    def plan(self, settled: bool, applied: bool) -> None:
        """A leader looks, and its plan is applied now or later."""
        assert self.entry is not None
        state = self.entry.state()
        spec = pb.RecurringSpec.FromString(state.spec)
        timing = timing_of(spec, state.created_ms)
        found = look(state, spec, timing, self.now_ms, settled=settled)
        if found.plan is not None:
            command = log_pb.FireCommand(plans=[found.plan], now_ms=self.now_ms)
            self.flying.append(command)
            if applied:
                self._apply(command)

    @precondition(lambda self: self.entry is not None)
    @rule()
    def trigger(self) -> None:
        assert self.entry is not None
        fire = log_pb.PlannedFire(outcome=TRIGGERED, due_ms=self.now_ms)
        plan = log_pb.SchedulePlan(number=self.entry.number, changes=self.entry.changes, fires=[fire])
        self._apply(log_pb.FireCommand(plans=[plan], now_ms=self.now_ms))

    @precondition(lambda self: self.flying)
    @rule(data=st.data())
    def a_plan_is_applied_late_or_again(self, data: Any) -> None:
        self._apply(data.draw(st.sampled_from(self.flying[-4:])))

    def _apply(self, command: log_pb.FireCommand) -> None:
        entry = self.entry
        waiting_ms = entry.waiting_ms if entry else 0
        (done,) = apply(self.machine, command)
        if done.last == (None,):
            return
        (plan,) = command.plans
        self.messages += sum(fire.outcome in MESSAGES for fire in plan.fires)
        own = [fire for fire in plan.fires if fire.outcome != TRIGGERED]
        if own and own[0].fire_ms == waiting_ms:
            own = own[1:]
        if not plan.decided_ms:
            return
        expected = self.fires(plan.decided_ms)
        assert sum(max(fire.fires, 1) for fire in own) == len(expected)
        assert {fire.fire_ms for fire in own} <= set(expected)
        self.decided_ms = plan.decided_ms

    @rule()
    def release(self) -> None:
        self.machine.apply(self.machine.applied_index + 1, 1, [release(self.now_ms + 50, now_ms=self.now_ms)])

    @rule()
    def restart(self) -> None:
        digest = self.machine.digest()
        self.machine.write(self.machine.capture())
        self.machine.close()
        self.machine = Machine(self.folder, MachineSettings())
        assert self.machine.digest() == digest

    @precondition(lambda self: self.entry is not None)
    @rule()
    def the_leader_works_off_what_there_is(self) -> None:
        """At the end of its looks nothing that has come is undecided."""
        for _ in range(1_000):
            assert self.entry is not None
            changes = self.entry.changes
            self.plan(settled=True, applied=True)
            if self.entry.changes == changes:
                break
        if not self.entry.paused:
            assert self.fires(self.now_ms) == []
            assert self.entry.next_ms != 0

    @invariant()
    def messages_are_those_of_fires(self) -> None:
        there = self.machine.wheel.pending + sum(queue.units for queue in self.machine.queues)
        assert there == self.messages


TestOneSchedule = OneSchedule.TestCase
TestOneSchedule.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)
