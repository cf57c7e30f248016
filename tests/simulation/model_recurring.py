"""Schedules that recur in a run: steady ones, and one that is changed all the time.

At the end each steady schedule is held to its definition: every fire since its creation is decided, and has a
message where it fired. Of no schedule has a fire two messages, but where the first was cancelled.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypeVar

from google.protobuf.message import Message

from tarry.node.recurring.timing import timing_of
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation.checker import Violation
from tests.simulation.edge import StreamEnded
from tests.simulation.ledger import demand
from tests.simulation.model_producer import TRY_AGAIN

if TYPE_CHECKING:
    from tests.simulation.whole_world import WholeWorld

A = TypeVar("A", bound=Message)

TOPIC = "recurring"
"""That nobody consumes: whoever looks looks at the rows."""
STEADY: dict[str, pb.RecurringSpec] = {
    "second": pb.RecurringSpec(interval_ms=1_000),
    "jittered": pb.RecurringSpec(
        interval_ms=1_700, jitter_ms=1_500, missed=pb.MISSED_POLICY_NONE, missed_after_ms=4_000
    ),
    "cron": pb.RecurringSpec(cron="*/2 * * * * *", zone="Australia/Lord_Howe", missed_after_ms=4_000),
    "all": pb.RecurringSpec(interval_ms=13_000, missed=pb.MISSED_POLICY_ALL),
    "skipping": pb.RecurringSpec(interval_ms=1_100, overlap=pb.OVERLAP_POLICY_SKIP),
    "queueing": pb.RecurringSpec(interval_ms=1_300, overlap=pb.OVERLAP_POLICY_QUEUE),
}
CHANGING = "changing"
RAISED_S, CHANGED_S = 10.0, 1.5
DECIDED_S = 30.0
"""All faults over, what has come is decided so soon."""


class Recurring:
    """The schedules of one run."""

    def __init__(self, world: WholeWorld, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"recurring {seed}")
        self.counts: Counter[str] = Counter()
        self.last: dict[str, pb.Recurring] = {}
        """Each steady schedule as it was told of at the end."""

    async def run(self, until_s: float) -> None:
        """Create the steady schedules as soon as the cluster's level has such; change another until then.

        Where the level comes late, both go on for a while once the faults have ended.
        """
        loop = asyncio.get_running_loop()
        while loop.time() < until_s + RAISED_S:
            told = await self.put("second", STEADY["second"])
            if not isinstance(told, Refusal):
                break
            await asyncio.sleep(0.2)
        else:
            return
        for name, spec in STEADY.items():
            await self.put(name, spec)
        until_s = max(until_s, loop.time() + CHANGED_S)
        while loop.time() < until_s:
            await asyncio.sleep(self._rng.uniform(0, 0.6))
            await self._rng.choice(
                (self._put, self._pause, self._pause, self._resume, self._resume, self._trigger, self._delete)
            )()

    async def put(self, name: str, spec: pb.RecurringSpec) -> pb.RecurringResponse | Refusal:
        """Put a schedule of the topic."""
        given = pb.RecurringSpec(topic=TOPIC, record=Record(body=name.encode()))
        given.MergeFrom(spec)
        return await self.ask(
            "PutRecurring", pb.PutRecurringRequest(name=name, spec=given), pb.RecurringResponse
        )

    async def _put(self) -> None:
        spec = self._rng.choice(
            (
                pb.RecurringSpec(interval_ms=self._rng.choice((1_000, 1_001, 1_500))),
                pb.RecurringSpec(cron="* * * * * *", jitter_ms=700),
                pb.RecurringSpec(interval_ms=1_000, start_ms=self._world.true_ms() + 300),
            )
        )
        await self.put(CHANGING, spec)

    async def _pause(self) -> None:
        await self.change("Pause")

    async def _resume(self) -> None:
        await self.change("Resume")

    async def change(self, what: str, name: str = CHANGING) -> None:
        """Pause or resume a schedule."""
        request = {"Pause": pb.PauseRecurringRequest, "Resume": pb.ResumeRecurringRequest}[what](name=name)
        await self.ask(f"{what}Recurring", request, pb.RecurringResponse)
        self.counts[what.lower()] += 1

    async def _trigger(self) -> None:
        answer = await self.ask(
            "TriggerRecurring", pb.TriggerRecurringRequest(name=CHANGING), pb.TriggerRecurringResponse
        )
        self.counts["triggered"] += not isinstance(answer, Refusal)

    async def _delete(self) -> None:
        if self._rng.random() < 0.2:
            await self.delete(CHANGING)

    async def delete(self, name: str) -> None:
        """Delete a schedule."""
        await self.ask("DeleteRecurring", pb.DeleteRecurringRequest(name=name), pb.DeleteRecurringResponse)

    async def ask(self, name: str, request: Message, kind: type[A]) -> A | Refusal:
        """Ask until it is answered, or refused for good."""
        world = self._world
        while True:
            await asyncio.sleep(self._rng.uniform(0.0005, 0.001))
            node = world.likely_leader(self._rng, "recurring")
            if node is not None:
                try:
                    answer: Any = await asyncio.wait_for(
                        node.edge.recurring(name, request.SerializeToString()), 2.0
                    )
                except (StreamEnded, TimeoutError):
                    answer = Refusal(Reason.NO_LEADER, "no answer")
                if not isinstance(answer, Refusal):
                    return kind.FromString(answer)
                if answer.reason not in TRY_AGAIN:
                    return answer
            await asyncio.sleep(self._rng.uniform(0.01, 0.05))

    async def settle(self) -> None:
        """All faults are over: what has come is decided soon. Then the schedules go. Raises Violation."""
        loop, world = asyncio.get_running_loop(), self._world
        begun = loop.time()
        for name in STEADY:
            while True:
                told = await self.ask("GetRecurring", pb.GetRecurringRequest(name=name), pb.RecurringResponse)
                if isinstance(told, Refusal):  # the run ended before it was made
                    break
                self.last[name] = told.recurring
                if told.recurring.next_ms > world.true_ms():
                    break
                demand(loop.time() - begun < DECIDED_S, f"R1: {name} has not been decided: {told}")
                await asyncio.sleep(0.1)
        for name in (*STEADY, CHANGING):
            await self.delete(name)

    def judge(self) -> None:
        """Hold the rows to what schedules are by their definition. Raises Violation."""
        rows = self._world.rows
        cancelled = rows.messages[TOPIC, Kind.CANCELLED]
        every, kept = defaultdict[int, list[int]](list), defaultdict[int, list[int]](list)
        for fire, message in rows.fires:
            if fire.fire_ms is not None:
                every[fire.number].append(fire.fire_ms)
                if message not in cancelled:
                    kept[fire.number].append(fire.fire_ms)
        for number, times in kept.items():
            if times != sorted(set(times)):
                raise Violation(f"R2: schedule {number} has fired twice, or backwards: {times}")
            self.counts["fired"] += len(times)
        for name, told in self.last.items():  # as they were deleted, their last message was cancelled
            self._hold(name, told, every[told.number])

    def _hold(self, name: str, told: pb.Recurring, fired: list[int]) -> None:
        timing = timing_of(told.spec, told.created_ms)
        expected = list(takewhile(lambda fire_ms: fire_ms < told.next_ms, timing.fires(told.created_ms)))
        fired = [fire_ms for fire_ms in fired if fire_ms < told.next_ms]
        waiting = bool(told.waiting_ms)
        decided = told.fired + told.missed + told.skipped + waiting
        demand(decided == len(expected), f"R3: {name} has decided {decided} of {len(expected)} fires: {told}")
        demand(set(fired) <= set(expected), f"R4: {name} fires at {sorted(set(fired) - set(expected))}")
        demand(len(fired) == told.fired, f"R5: {name} has {len(fired)} messages of {told.fired} fires")
        if told.spec.missed == pb.MISSED_POLICY_ALL:
            demand(fired == expected, f"R6: {name} left out {sorted(set(expected) - set(fired))}")
        self.counts["missed"] += told.missed
