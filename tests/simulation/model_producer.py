"""A producer that gives up on nothing, and now and then cancels and reschedules, whatever became of it.

Some of its messages have idempotency keys: it schedules them twice at one time, and again much later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from tarry.node.edge.leader_calls import Answer
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation.checker import Violation
from tests.simulation.edge import StreamEnded
from tests.simulation.ledger import Told, demand, is_red

if TYPE_CHECKING:
    from tests.simulation.whole_world import WholeWorld

TRY_AGAIN = {
    Reason.NOT_LEADER,
    Reason.NO_LEADER,
    Reason.OUTCOME_UNKNOWN,
    Reason.OVERLOADED,
    Reason.KEYS_INCOMPLETE,  # the index of a node that was set up anew is being built
    Reason.MESSAGE_DAMAGED,  # a block of a ready queue that is being mended
}


WITHOUT_ROOM = {Reason.TOPIC_FULL, Reason.SECOND_FULL, Reason.LEVEL_TOO_LOW}
JITTERS_MS = (0, 0, 0, 0, 300)
HOUR_MS = 3_600_000
FAR_TOPICS = ("a", "b")
"""Whose bounds are not reached by what is pending for long."""
KEYS = ("", "", *(f"k{n}" for n in range(6)))
ROUND_TRIP_MS = 120
"""In the worst weather: by so much a leader whose own clock is wrong may think the others' clocks ahead."""
RECENT = 60
"""Messages that are cancelled later than at once: they may be released, or with a consumer."""
GONE = (pb.CANCEL_OUTCOME_CANCELLED, pb.CANCEL_OUTCOME_ALREADY_CANCELLED)
CHANGED = (pb.CHANGE_OUTCOME_CHANGED, pb.CHANGE_OUTCOME_ALREADY_SO)
LATE = (
    pb.CANCEL_OUTCOME_ALREADY_RELEASED, pb.CANCEL_OUTCOME_ALREADY_DELIVERED, pb.CANCEL_OUTCOME_ALREADY_DONE,
)  # fmt: skip
ORDERED_MAX = 5
"""Messages of one request that have a key: one waits for another, and a consumer may think for long."""


class ModelProducer:
    """Numbers its requests; asks again, by the same number, until it is answered."""

    def __init__(self, world: WholeWorld, name: str) -> None:
        self._world = world
        self._rng = random.Random(world.rng.random())
        self._name = name
        self._sequence = 0
        self._asked_again = False  # the last request, more than once
        self._recent: list[bytes] = []
        self._by_key: list[tuple[bytes, list[bytes], int]] = []
        """Requests with idempotency keys, their messages' labels, and from when on the keys may be free."""
        self._keys = random.Random(f"idempotency {name} {self._rng.getstate()[1][0]}")
        self.repeated = 0
        self.without_room = 0

    async def run(self, until_s: float) -> None:
        loop, rng = asyncio.get_running_loop(), self._rng
        while loop.time() < until_s:
            dues_ms = self._dues()
            key = rng.choice(KEYS) if len(dues_ms) <= ORDERED_MAX else ""
            jitter_ms = rng.choice(JITTERS_MS)
            topic = rng.choice(sorted(self._world.groups))
            by_key = self._keys.random() < 0.3
            labels = await self.schedule(topic, dues_ms, key, jitter_ms, by_key=by_key)
            if labels and rng.random() < 0.3:
                await asyncio.sleep(rng.uniform(0, 0.2))
                await self.cancel(rng.choice(labels))
            self._recent = [*self._recent, *labels][-RECENT:]
            if self._recent and rng.random() < 0.2:  # perhaps behind a rate or a key, or with a consumer
                few = rng.sample(self._recent, min(len(self._recent), rng.choice((1, 1, 3, 10))))
                await self.cancel_all(few)
            if rng.random() < 0.4:
                some = rng.choice((labels, labels, self._recent))
                few = rng.sample(some, min(len(some), rng.choice((1, 1, 3, 10))))
                await self.reschedule(few, self._dues(len(few)))
            if self._by_key and self._keys.random() < 0.2:
                await self.schedule_again()
            if self._world.schedules_far and rng.random() < 0.15:
                await self._schedule_far()
            await asyncio.sleep(rng.uniform(0.002, 0.08))

    async def _schedule_far(self) -> None:
        """Many at once, over hours that the run may sleep through, or years; some are cancelled at once."""
        rng, begin_ms = self._rng, self._world.true_ms() + 60_000
        reach_ms = rng.choice((12, 12, 12, 24 * 100, 24 * 365 * 3)) * HOUR_MS
        dues_ms = [begin_ms + rng.randrange(reach_ms) for _ in range(rng.choice((20, 60, 200)))]
        labels = await self.schedule(rng.choice(FAR_TOPICS), dues_ms)
        moved = rng.sample(labels, len(labels) // 3)
        await self.reschedule(moved, [begin_ms + rng.randrange(reach_ms) for _ in moved])
        await self.cancel_all(rng.sample(labels, len(labels) // 3))

    async def schedule(
        self,
        topic: str,
        dues_ms: list[int],
        key: str = "",
        jitter_ms: int = 0,
        *,
        by_key: bool = False,
    ) -> list[bytes]:
        """Return the messages' labels once it is acknowledged, none where there is no room for them.

        None either where it is answered so late that it may have been scheduled twice.
        `key`: their ordering key; `by_key`: each has an idempotency key, which needs level 2.
        """
        self._sequence += 1
        labels = [f"{self._name}/{self._sequence}/{n}".encode() for n in range(len(dues_ms))]
        tags = [["red"] if is_red(label) else [] for label in labels]
        colours = [{"colour": "red" if is_red(label) else "blue"} for label in labels]
        request = log_pb.ScheduleColumns(
            producer="" if by_key else self._name,
            sequence=0 if by_key else self._sequence,
            topics=[topic],
            topic=np.zeros(len(labels), dtype="<u4").tobytes(),
            due_ms=np.array(dues_ms, dtype="<i8").tobytes(),
            tag_mask=np.array([tag_mask(some) for some in tags], dtype="<u8").tobytes(),
            records=[
                Record(
                    body=label,
                    tags=some,
                    properties=colour if self._world.by_properties else None,
                    ordering_key=key,
                    idempotency_key=label.decode() if by_key else "",
                ).SerializeToString()
                for label, some, colour in zip(labels, tags, colours, strict=True)
            ],
            jitter_ms=np.full(len(labels), jitter_ms, dtype="<u4").tobytes() if jitter_ms else b"",
        )
        asked = request.SerializeToString()
        free_ms = self._free_ms()
        raw = await (self._ask_by_key(asked, labels, free_ms) if by_key else self._ask("schedule", asked))
        if isinstance(raw, Refusal):
            self.without_room += 1
            return []
        if raw is None:
            return []
        answer = log_pb.ScheduledColumns.FromString(raw)
        self.repeated += answer.repeated
        hours = np.frombuffer(answer.hour, dtype="<u4")
        due = np.frombuffer(answer.due_ms, dtype="<i8")
        if answer.repeated and self._world.is_deleted(hours) and (due == hours * np.int64(HOUR_MS)).all():
            # one that is repeated so late tells of a due time its hour alone
            dues_ms, jitter_ms = [asked_ms // HOUR_MS * HOUR_MS for asked_ms in dues_ms], jitter_ms + HOUR_MS
        columns = zip(
            labels,
            hours.tolist(),
            np.frombuffer(answer.global_index, dtype="<u4").tolist(),
            due.tolist(),
            strict=True,
        )
        latest_ms = self._world.true_ms() + self._world.ledger.early_ms
        if any(node.wall.ahead_ms for node in self._world.nodes):
            latest_ms += ROUND_TRIP_MS
        for (label, hour, index, due_ms), asked_ms in zip(columns, dues_ms, strict=True):
            if not asked_ms <= due_ms <= max(asked_ms, latest_ms) + jitter_ms:
                raise Violation(
                    f"L3: {label!r} is asked for {asked_ms} + {jitter_ms} ms, and due at {due_ms}"
                )
            self._world.ledger.acknowledged(label, Told(topic, (hour, index), due_ms))
        if by_key:
            self._by_key.append((asked, labels, free_ms))
        return labels

    def _free_ms(self) -> int:
        """Return from when on a key may be free that is asked for now.

        Its message is released at the earliest now, by the clock of a leader. The judge of a later request is
        another's, and half of the window is for leaders that the network, or a wrong clock, misleads.
        """
        return self._world.true_ms() + self._world.retention_ms // 2 - 2 * self._world.ledger.early_ms

    async def _ask_by_key(
        self, asked: bytes, labels: list[bytes], free_ms: int, *, again: bool = False
    ) -> bytes | Refusal | None:
        """Schedule by idempotency keys, now and then by two calls at one time; return the first's answer.

        None: it was asked more than once (`again`: before), and answered when the keys may have been free.
        Whatever holds of one message then holds of none of these.
        """
        calls, ledger = 1 if again else self._keys.choice((1, 1, 2)), self._world.ledger

        def doubt() -> None:
            ledger.free_ms.update(dict.fromkeys(labels, free_ms))

        if again or calls > 1:
            doubt()
        answers = await asyncio.gather(*(self._ask("schedule", asked, doubt) for _ in range(calls)))
        self._asked_again |= calls > 1
        if (again or self._asked_again) and self._world.true_ms() >= free_ms:
            return None
        for label in labels:
            ledger.free_ms.pop(label, None)
        first, *others = sorted(answers, key=lambda answer: isinstance(answer, Refusal))
        for other in (other for other in others if isinstance(other, bytes)):
            demand(
                _ids(first) == _ids(other), f"L14: {self._name} is answered {_ids(first)} and {_ids(other)}"
            )
        return first

    async def schedule_again(self) -> None:
        """Schedule messages again by their idempotency keys, whatever became of them, within the window."""
        now_ms = self._world.true_ms()
        self._by_key = [one for one in self._by_key[-RECENT:] if now_ms < one[2]]
        if not self._by_key:
            return
        chosen = asked, labels, free_ms = self._keys.choice(self._by_key)
        answer = await self._ask_by_key(asked, labels, free_ms, again=True)
        if answer is None:
            self._by_key.remove(chosen)
            return
        if isinstance(answer, Refusal):
            return
        ids = [self._world.ledger.told[label].message for label in labels]
        demand(_ids(answer) == ids, f"L14: {labels} were scheduled as {ids}, and again as {_ids(answer)}")
        repeats = np.frombuffer(log_pb.ScheduledColumns.FromString(answer).repeats, "<u4").tolist()
        demand(repeats == list(range(len(labels))), f"L14: of {labels} only {repeats} count as repeated")

    async def cancel(self, label: bytes) -> bool:
        """Return whether the cluster says that it is cancelled."""
        return (await self.cancel_all([label]))[0]

    async def cancel_all(self, labels: list[bytes]) -> list[bool]:
        """Return, of each, whether the cluster says that it is cancelled."""
        ledger = self._world.ledger
        if not labels:
            return []
        ids = [str(MessageId(0, *ledger.told[label].message)) for label in labels]
        request = pb.CancelRequest(ids=ids, every_outcome=True)
        before = ledger.cancelled | ledger.perhaps_cancelled
        ledger.perhaps_cancelled.update(labels)
        raw = await self._ask("cancel", request.SerializeToString())
        assert isinstance(raw, bytes)
        answer = pb.CancelResponse.FromString(raw)
        ledger.perhaps_cancelled.difference_update(labels)
        for label, outcome in zip(labels, answer.outcomes, strict=True):
            ledger.counts[pb.CancelOutcome.Name(outcome)] += 1
            if outcome in GONE:
                if outcome == pb.CANCEL_OUTCOME_ALREADY_CANCELLED and not self._asked_again:
                    demand(label in before, f"L2: {label!r} is cancelled, and nobody has asked for it before")
                ledger.cancel_answered(label, self._world.rows.retried(ledger.told[label]))
                continue
            forgotten = outcome == pb.CANCEL_OUTCOME_NOT_FOUND and self._world.forgets_soon
            if outcome not in LATE and not forgotten:
                raise Violation(f"{label!r} was acknowledged, and a cancel is answered {outcome}")
        return [outcome in GONE for outcome in answer.outcomes]

    async def reschedule(self, labels: list[bytes], dues_ms: list[int]) -> None:
        """Have messages due at other times; what is not pending stays as it is."""
        ledger = self._world.ledger
        if not labels:
            return
        request = pb.RescheduleRequest(
            ids=[str(MessageId(0, *ledger.told[label].message)) for label in labels], due_ms=dues_ms
        )
        gone = ledger.cancelled | ledger.perhaps_cancelled
        for label, due_ms in zip(labels, dues_ms, strict=True):
            ledger.perhaps_due.setdefault(label, set()).add(due_ms)
        raw = await self._ask("reschedule", request.SerializeToString())
        if isinstance(raw, Refusal):
            return  # some may have been moved
        answer = pb.RescheduleResponse.FromString(raw)
        for label, due_ms, outcome, now_due_ms in zip(
            labels, dues_ms, answer.outcomes, answer.due_ms, strict=True
        ):
            ledger.counts[f"RESCHEDULE_{pb.ChangeOutcome.Name(outcome)}"] += 1
            if outcome in CHANGED:
                demand(now_due_ms >= due_ms, f"L12: {label!r} is asked for {due_ms}, and due at {now_due_ms}")
                ledger.rescheduled(label, now_due_ms)
            elif outcome == pb.CHANGE_OUTCOME_ALREADY_CANCELLED:
                demand(label in gone, f"L2: {label!r} is cancelled, and nobody has asked for it before")
            elif outcome == pb.CHANGE_OUTCOME_ALREADY_RELEASED:
                if not self._asked_again and ledger.perhaps_due[label] == {due_ms}:
                    del ledger.perhaps_due[label]  # it has not been moved
            elif outcome != pb.CHANGE_OUTCOME_NOT_FOUND or not self._world.forgets_soon:
                raise Violation(f"{label!r} was acknowledged, and a reschedule is answered {outcome}")

    async def _ask(
        self, call: str, raw: bytes, before_again: Callable[[], None] | None = None
    ) -> bytes | Refusal:
        self._asked_again = False
        while True:
            answer = await self._once(call, raw)
            if isinstance(answer, bytes) and self._rng.random() >= self._world.answers_lost:
                return answer
            if isinstance(answer, Refusal) and answer.reason in WITHOUT_ROOM:
                return answer
            if isinstance(answer, Refusal) and answer.reason not in TRY_AGAIN:
                raise Violation(f"{self._name} is refused: {answer}")
            self._asked_again = True
            await asyncio.sleep(self._rng.uniform(0.005, 0.05))
            if before_again is not None:
                before_again()

    async def _once(self, call: str, raw: bytes) -> Answer | None:
        node = self._world.likely_leader(self._rng, self._name)
        if node is None:
            return None
        calls = {"schedule": node.edge.schedule, "reschedule": node.edge.reschedule}
        ask = calls.get(call, node.edge.cancel)
        try:
            answer = await asyncio.wait_for(ask(raw), 2.0)
        except (StreamEnded, TimeoutError):
            return None
        return None if (self._name, node.name) in self._world.cuts else answer

    def _dues(self, count: int = 0) -> list[int]:
        rng, now_ms = self._rng, self._world.true_ms()
        spread = rng.choice(((-2000, 0), (0, 300), (0, 1500), (0, 1500), (500, 6000), (1000, 12_000)))
        count = count or rng.choice((1, 1, 2, 5, 40))
        if rng.random() < 0.2:
            return [now_ms + rng.randint(*spread)] * count
        return [now_ms + rng.randint(*spread) for _ in range(count)]


def _ids(answer: bytes | Refusal) -> list[tuple[int, int]]:
    """Return the ids of a schedule's messages."""
    assert isinstance(answer, bytes)
    columns = log_pb.ScheduledColumns.FromString(answer)
    hours, indices = (
        np.frombuffer(column, "<u4").tolist() for column in (columns.hour, columns.global_index)
    )
    return list(zip(hours, indices, strict=True))
