"""The leader's loop of fires: its heap, its timer, what it asks, and what it does not do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tarry.node.recurring import fires as fires_module
from tarry.node.recurring import plan
from tarry.node.recurring.fires import FireCounts, Fires
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.recurring_table import Schedules
from tests.replication.commands import NOW_MS
from tests.replication.state_machine.test_recurring import change
from tests.simulation import virtual_loop

FIRED, SKIPPED, QUEUED = pb.FIRE_OUTCOME_FIRED, pb.FIRE_OUTCOME_SKIPPED, pb.FIRE_OUTCOME_QUEUED


class Lead:
    """A machine and a leader, whose clock is the loop's; what is proposed is applied 5 ms later."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.counts = FireCounts()
        self.fires: Fires | None = None
        self.settled: bool | None = True
        self.asked = 0
        self.looks = 0
        self.ahead_ms = 0
        self.messages = 0  # of the command that made most
        self._tasks: list[asyncio.Task[None]] = []

    def now_ms(self) -> int:
        self.looks += 1
        return NOW_MS + self.ahead_ms + round(1_000 * asyncio.get_running_loop().time())

    def apply(self, *payloads: Any) -> Any:
        machine = self.machine
        done = machine.apply(machine.applied_index + 1, 1, [encode(payload) for payload in payloads])
        changed = machine.recurring.take_changed()
        if self.fires is not None:
            self.fires.changed(changed)
        return done[-1]

    def put(self, name: str = "s", record: bytes = b"", **more: Any) -> Any:
        spec = pb.RecurringSpec(
            **{"topic": "t", **({} if "cron" in more else {"interval_ms": 1_000}), **more}
        )
        told = {"spec": spec.SerializeToString(), "record": record, "now_ms": self.now_ms()}
        return self.apply(log_pb.RecurringCommand(name=name, change=log_pb.RECURRING_CHANGE_PUT, **told))

    async def propose(self, command: log_pb.FireCommand) -> Any:
        await asyncio.sleep(0.005)
        self.messages = max(self.messages, sum(len(one.fires) for one in command.plans))
        return self.apply(command)

    async def is_settled(self, hour: int, global_index: int) -> bool:
        self.asked += 1
        await asyncio.sleep(0.001)
        return bool(self.settled)

    def begin(self) -> None:
        time: Any = self
        self.fires = Fires(self.machine, time, self.propose, self.is_settled, self.counts)
        self._tasks = [asyncio.ensure_future(work) for work in (self.fires.run(), self.fires.ask())]

    def end(self) -> None:
        for task in self._tasks:
            assert not task.done()
            task.cancel()
        self.fires = None

    def state(self, name: str = "s") -> log_pb.RecurringCheckpoint:
        entry = self.machine.recurring.named(name)
        assert entry is not None
        return entry.state()

    def history(self, name: str = "s") -> list[tuple[int, int, int]]:
        """Outcome, second of the fire since the creation, and when it was decided, in ms behind it."""
        state = self.state(name)
        return [
            (one.outcome, (one.fire_ms - state.created_ms) // 1_000, one.decided_ms - one.fire_ms)
            for one in state.history
        ]


def play(folder: Path, act: Callable[[Lead], Awaitable[None]]) -> None:
    async def run() -> None:
        machine = Machine(folder, MachineSettings())
        lead = Lead(machine)
        lead.apply(log_pb.RaiseLevelCommand(level=2, now_ms=NOW_MS))
        try:
            await act(lead)
            lead.end()
        finally:
            machine.close()

    virtual_loop.run(run())


def test_a_schedule_put_while_it_leads_fires(tmp_path: Path) -> None:
    async def act(lead: Lead) -> None:
        lead.begin()
        await asyncio.sleep(0.1)
        lead.put()
        await asyncio.sleep(3)
        assert [(outcome, -500 <= late_ms < -400) for outcome, _, late_ms in lead.history()] == [
            (FIRED, True)
        ] * 3
        assert lead.counts.fired == 3

    play(tmp_path, act)


def test_a_new_leader_fires_what_is_there(tmp_path: Path) -> None:
    async def act(lead: Lead) -> None:
        for number in range(fires_module.ENTRIES + 10):
            lead.put(f"s{number}", interval_ms=86_400_000)
        lead.put()
        lead.begin()
        await asyncio.sleep(2.6)
        lead.end()
        await asyncio.sleep(5)
        lead.begin()
        await asyncio.sleep(0.1)
        assert [fire_s for _, fire_s, _ in lead.history()] == [1, 2, 3, 4, 5, 6, 7, 8]
        assert lead.state("s7").next_ms > 0

    play(tmp_path, act)


def test_a_leader_of_many_schedules_is_idle_until_the_first_is_near(tmp_path: Path) -> None:
    async def act(lead: Lead) -> None:
        for number in range(2_000):
            lead.put(f"s{number}", interval_ms=7_200_000 + number)
        lead.begin()
        await asyncio.sleep(5)
        looks, index = lead.looks, lead.machine.applied_index
        await asyncio.sleep(7_000)
        assert lead.looks == looks
        assert lead.machine.applied_index == index
        await asyncio.sleep(205)
        assert lead.counts.fired == 2_000

    play(tmp_path, act)


def test_a_paused_schedule_is_not_looked_at(tmp_path: Path) -> None:
    async def act(lead: Lead) -> None:
        lead.put()
        lead.begin()
        await asyncio.sleep(1.2)
        lead.apply(change("PAUSE", now_ms=lead.now_ms()))
        await asyncio.sleep(1.5)
        looks = lead.looks
        await asyncio.sleep(100)
        assert lead.looks == looks
        lead.apply(change("RESUME", now_ms=lead.now_ms()))
        await asyncio.sleep(1)
        assert lead.state().fired == 2
        lead.apply(change("DELETE", now_ms=lead.now_ms()))
        await asyncio.sleep(5)
        assert lead.counts.fired >= 2

    play(tmp_path, act)


def test_a_clock_put_right_wakes_the_leader(tmp_path: Path) -> None:
    async def act(lead: Lead) -> None:
        lead.put(interval_ms=3_600_000)
        lead.begin()
        await asyncio.sleep(1)
        lead.ahead_ms = 3_600_000
        assert lead.fires is not None
        lead.fires.look(lead.now_ms())
        await asyncio.sleep(0.1)
        assert lead.state().fired == 1

    play(tmp_path, act)


def test_a_fire_is_skipped_at_its_time_where_the_last_is_not_settled(tmp_path: Path) -> None:
    async def act(lead: Lead) -> None:
        lead.settled = False
        lead.put(overlap=pb.OVERLAP_POLICY_SKIP)
        lead.begin()
        await asyncio.sleep(3.3)
        assert [(outcome, fire_s) for outcome, fire_s, _ in lead.history()] == [(FIRED, 1), (SKIPPED, 3)]
        assert lead.counts.skipped == 2
        assert lead.history()[-1][2] >= 0  # it had until then to be settled
        assert lead.asked < 12
        lead.settled = True
        await asyncio.sleep(1)
        assert lead.history()[-1][:2] == (FIRED, 4)

    play(tmp_path, act)


def test_a_queued_fire_comes_as_soon_as_the_last_is_settled(tmp_path: Path) -> None:
    async def act(lead: Lead) -> None:
        lead.settled = False
        lead.put(overlap=pb.OVERLAP_POLICY_QUEUE, interval_ms=10_000)
        lead.begin()
        await asyncio.sleep(25)
        assert [outcome for outcome, _, _ in lead.history()] == [FIRED, QUEUED]
        asked = lead.asked
        await asyncio.sleep(4)
        assert asked + 3 <= lead.asked <= asked + 6  # once a second
        lead.settled = True
        await asyncio.sleep(1.1)
        assert [(outcome, fire_s) for outcome, fire_s, _ in lead.history()[1:3]] == [
            (QUEUED, 20),
            (FIRED, 20),
        ]

    play(tmp_path, act)


def test_a_fire_that_has_waited_for_long_is_asked_about_less_often(tmp_path: Path) -> None:
    async def act(lead: Lead) -> None:
        lead.settled = False
        lead.put(overlap=pb.OVERLAP_POLICY_QUEUE, interval_ms=3_600_000)
        lead.begin()
        await asyncio.sleep(2 * 3_600 + 160)
        asked = lead.asked
        await asyncio.sleep(60)
        assert asked + 4 <= lead.asked <= asked + 6  # it has waited for 160 s and more
        await asyncio.sleep(1_800)
        asked = lead.asked
        await asyncio.sleep(600)
        assert asked + 19 <= lead.asked <= asked + 21
        lead.settled = True
        await asyncio.sleep(31)
        assert [(outcome, fire_s) for outcome, fire_s, _ in lead.history()[1:]] == [
            (QUEUED, 7_200),
            (FIRED, 7_200),
        ]

    play(tmp_path, act)


def test_an_answer_about_a_schedule_that_is_gone_is_not_kept(tmp_path: Path) -> None:
    async def act(lead: Lead) -> None:
        async def settled(hour: int, global_index: int) -> bool:
            lead.apply(change("DELETE", now_ms=lead.now_ms()))
            return True

        lead.put(overlap=pb.OVERLAP_POLICY_SKIP)
        lead.begin()
        await asyncio.sleep(0.6)
        assert lead.fires is not None
        lead.fires._settled = settled
        await asyncio.sleep(2)
        assert len(lead.machine.recurring) == 0
        assert not lead.fires._answers

    play(tmp_path, act)


def test_a_zone_that_this_node_does_not_know_is_told_and_looked_at_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(lead: Lead) -> None:
        lead.put("lost", cron="* * * * *", zone="Atlantis/Deep")
        lead.put("there", interval_ms=1_000)
        lead.begin()
        with capture_logs() as logs:
            await asyncio.sleep(130)
        told = [one["schedule"] for one in logs if one["event"] == "schedule cannot be planned"]
        assert told == ["lost"] * 3
        assert lead.counts.unplannable == 3
        assert lead.state("there").fired >= 129

    play(tmp_path, act)


def test_a_command_makes_messages_of_so_many_bytes(tmp_path: Path) -> None:
    """A command names schedules: applied, it copies the record of each once for each message."""

    async def act(lead: Lead) -> None:
        for number in range(8):
            lead.put(f"s{number}", record=bytes(plan.BYTES_MAX // 3), missed=pb.MISSED_POLICY_ALL)
        lead.begin()
        await asyncio.sleep(0.2)
        lead.ahead_ms = 10_000  # nobody led meanwhile
        await asyncio.sleep(1)
        assert all(lead.state(f"s{number}").fired >= 10 for number in range(8))
        assert 1 < lead.messages <= 6

    play(tmp_path, act)


def test_the_heap_does_not_grow_with_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fires_module, "STALE_MAX", 20)

    async def act(lead: Lead) -> None:
        lead.put(interval_ms=86_400_000)
        lead.begin()
        for number in range(200):
            await asyncio.sleep(0.02)
            lead.put(interval_ms=86_400_000 + number)
        await asyncio.sleep(0.1)
        assert lead.fires is not None
        assert len(lead.fires._heap) <= 25
        assert lead.state().next_ms > 0

    play(tmp_path, act)


def test_a_table_keeps_names_in_order() -> None:
    table = Schedules()
    for number, name in enumerate(("b", "a", "c"), 1):
        spec = pb.RecurringSpec(topic="t").SerializeToString()
        table.store(log_pb.RecurringCheckpoint(number=number, name=name, spec=spec))
    assert table.names_from("", 2) == ["a", "b"]
    assert table.names_from("b", 9) == ["b", "c"]
