"""Clients that change the same pending messages at the same time, judged as in `make chaos`.

They schedule, reschedule, update, cancel, cancel by a tag, look up and list. Each asks until it is answered.
What they are told is a history of `tarry.chaos`, on true time, and is held to its checks.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
from google.protobuf.message import Message

from tarry.chaos.checks import changes
from tarry.chaos.checks.linearizability import AHEAD_MS
from tarry.chaos.history import RETRYING, Answer, Asked, Delivered, History, Operation, Sent, Sweep
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto import tarry_query_pb2 as query_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.message_id import MessageId
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import MessageState, Record
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation.checker import Violation
from tests.simulation.edge import StreamEnded
from tests.simulation.ledger import Id, Told, demand
from tests.simulation.model_producer import ROUND_TRIP_MS, TRY_AGAIN, WITHOUT_ROOM

if TYPE_CHECKING:
    from tests.simulation.whole_world import WholeWorld

TOPIC = "a"
NAMES = ("c0", "c1", "c2")
HOUR_MS = 3_600_000
BATCH = 8
RECENT = 60
TO_S = 3.0
"""What is left far away at the end is moved to so soon."""


@dataclass(slots=True)
class Known:
    """A message as its clients know it: due, by the last answer, when `due_ms` says."""

    token: int
    label: bytes
    id: Id
    tag: str
    due_ms: int
    alone: bool
    """Cancelled one by one, too; else its tag is left to a cancel of all, whose count is exact then."""

    @property
    def name(self) -> str:
        return str(MessageId(0, *self.id))


class Changing:
    """The clients of one run, and what they and the consumers saw of their messages."""

    def __init__(self, world: WholeWorld, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"changes {seed}")
        self.history = History()
        self.counts: Counter[str] = Counter()
        self._sequence = count(1)
        self._versions = count(1)
        self._all: list[Known] = []
        self._unswept: list[list[Known]] = []
        self._tokens: dict[bytes, int] = {}
        self._forgotten: set[int] = set()
        """Tokens of messages that the cluster knew no more as they were looked up."""

    # What consumers see

    def delivered(self, group: str, record: Record, due_ms: int, message: Id) -> None:
        """Write down a delivery; of others' messages nothing."""
        token = self._tokens.get(record.body)
        if token is None:
            return
        now_ms, version = self._world.true_ms(), int(record.properties.get("version", "0"))
        # where a group was moved back, what it has had may be cancelled yet
        self.history.delivered.append(
            Delivered(
                token, TOPIC, RETRYING[0] if group in self._world.ledger.sought else group, str(message),
                due_ms, 1, False, now_ms, now_ms, version=version,
            )
        )  # fmt: skip

    # What clients do

    async def run(self, until_s: float) -> None:
        """Change until then; afterwards have what is far away come soon."""
        loop = asyncio.get_running_loop()
        work: tuple[tuple[Callable[[str], Awaitable[None]], float], ...] = (
            (self._schedule, 0.2), (self._reschedule, 0.06), (self._reschedule, 0.06), (self._compete, 0.1),
            (self._update, 0.06), (self._cancel, 0.2), (self._sweep, 0.4), (self._get, 0.03),
            (self._list, 0.2),
        )  # fmt: skip

        async def repeat(name: str, does: Callable[[str], Awaitable[None]], mean_s: float) -> None:
            while loop.time() < until_s:
                await asyncio.sleep(self._rng.uniform(0, 2 * mean_s))
                await does(name)

        async with asyncio.TaskGroup() as tasks:
            for n, (does, mean_s) in enumerate(work):
                tasks.create_task(repeat(NAMES[n % len(NAMES)], does, mean_s))
        await self._bring_near()

    async def _bring_near(self) -> None:
        world = self._world
        for one in self._all:
            state = await self._look_up(NAMES[0], one)
            if state == "pending" and one.due_ms > world.true_ms():
                due_ms = world.true_ms() + int(1_000 * self._rng.uniform(0, TO_S))
                await self._move(NAMES[0], one, due_ms)
                if one.due_ms > max(due_ms, world.true_ms()):  # the cluster's level does not allow it yet
                    await self._cancel_one(NAMES[0], one)

    def _drawn(self, *, alone: bool = False) -> Known | None:
        some = [one for one in self._all[-RECENT:] if one.alone or not alone]
        some = some[-BATCH:] if self._rng.random() < 0.6 else some
        return self._rng.choice(some) if some else None

    def _due_ms(self) -> int:
        near = self._rng.choice(
            ((-1_000, 0), (100, 900), (100, 900), (300, 4_000), (300, 4_000), (0, 9 * HOUR_MS))
        )
        return self._world.true_ms() + self._rng.randint(*near)

    async def _schedule(self, name: str) -> None:
        world, number = self._world, next(self._sequence)
        tag, at_ms = f"tag {number}", world.true_ms()
        labels = [b"changes/%d/%d" % (number, n) for n in range(BATCH)]
        dues_ms = [max(at_ms, self._due_ms()) for _ in labels]
        tokens = [len(self._tokens) + n for n in range(BATCH)]
        self._tokens |= dict(zip(labels, tokens, strict=True))
        request = log_pb.ScheduleColumns(
            producer="changes",
            sequence=number,
            topics=[TOPIC],
            topic=np.zeros(BATCH, dtype="<u4").tobytes(),
            due_ms=np.array(dues_ms, dtype="<i8").tobytes(),
            tag_mask=np.full(BATCH, tag_mask([tag]), dtype="<u8").tobytes(),
            records=[Record(body=label, tags=[tag]).SerializeToString() for label in labels],
        )
        raw = await self._ask(name, "schedule", request)
        if isinstance(raw, Refusal):
            return
        answer, now_ms = log_pb.ScheduledColumns.FromString(raw), world.true_ms()
        hours, due = np.frombuffer(answer.hour, dtype="<u4"), np.frombuffer(answer.due_ms, dtype="<i8")
        if answer.repeated and world.is_deleted(hours):  # its due times are not known any more
            return
        ids = list(zip(hours.tolist(), np.frombuffer(answer.global_index, dtype="<u4").tolist(), strict=True))
        mine = [
            Known(token, label, found, tag, due_ms, number % 2 == 0)
            for token, label, found, due_ms in zip(tokens, labels, ids, due.tolist(), strict=True)
        ]
        self.history.sent += [
            Sent(
                one.token, TOPIC, asked_ms, at_ms, at_ms, Answer.ACKNOWLEDGED, now_ms, now_ms, one.name,
                one.due_ms,
            )
            for one, asked_ms in zip(mine, dues_ms, strict=True)
        ]  # fmt: skip
        self._all += mine
        self._unswept.append(mine)

    async def _reschedule(self, name: str) -> None:
        if one := self._drawn():
            await self._move(name, one, self._due_ms())

    async def _compete(self, _: str) -> None:
        """Two clients reschedule one message where it is due as it was last told; a third updates it."""
        if one := self._drawn():
            before_ms = one.due_ms
            moves = (self._move(name, one, self._due_ms(), before_ms) for name in NAMES[:2])
            await asyncio.gather(*moves, self._give_version(NAMES[2], one, 0))

    async def _move(self, name: str, one: Known, due_ms: int, if_due_ms: int = 0) -> None:
        asked = self._asks(one, Asked.RESCHEDULE, due_ms=due_ms, if_due_ms=if_due_ms)
        request = pb.RescheduleRequest(
            ids=[one.name], due_ms=[due_ms], if_due_ms=[if_due_ms] if if_due_ms else []
        )
        raw = await self._ask(name, "reschedule", request)
        if isinstance(raw, Refusal):
            self._told(one, asked, "")
            return
        answer = pb.RescheduleResponse.FromString(raw)
        self._changed(one, asked, answer.outcomes[0], answer.due_ms[0])

    async def _update(self, name: str) -> None:
        if one := self._drawn():
            await self._give_version(name, one, one.due_ms if self._rng.random() < 0.4 else 0)

    async def _give_version(self, name: str, one: Known, if_due_ms: int) -> None:
        version = next(self._versions)
        asked = self._asks(one, Asked.UPDATE, version=version, if_due_ms=if_due_ms)
        request = pb.UpdateRequest(id=one.name, if_due_ms=if_due_ms or None)
        request.properties.properties["version"] = str(version)
        raw = await self._ask(name, "update", request)
        if isinstance(raw, Refusal):
            self._told(one, asked, "")
            return
        answer = pb.UpdateResponse.FromString(raw)
        self._changed(one, asked, answer.outcome, answer.due_ms)

    def _changed(self, one: Known, asked: Operation, outcome: int, due_ms: int) -> None:
        self._told(one, asked, _lower(pb.ChangeOutcome.Name(outcome), "CHANGE_OUTCOME_"), due_ms)

    async def _cancel(self, name: str) -> None:
        if one := self._drawn(alone=True):
            await self._cancel_one(name, one)

    async def _cancel_one(self, name: str, one: Known) -> None:
        asked = self._asks(one, Asked.CANCEL)
        raw = await self._ask(name, "cancel", pb.CancelRequest(ids=[one.name], every_outcome=True))
        assert isinstance(raw, bytes)
        (outcome,) = pb.CancelResponse.FromString(raw).outcomes
        self._told(one, asked, _lower(pb.CancelOutcome.Name(outcome), "CANCEL_OUTCOME_"))

    async def _sweep(self, name: str) -> None:
        if len(self._unswept) < 2:
            return
        mine = self._unswept.pop(self._rng.randrange(len(self._unswept) - 1))
        bounds = {}
        if self._rng.random() < 0.5:
            from_ms = self._world.true_ms() + self._rng.randint(0, 2_000)
            bounds = {"due_from_ms": from_ms, "due_to_ms": from_ms + self._rng.choice((2_000, HOUR_MS))}
        asked = self._asks(
            mine[0], Asked.SWEEP, due_ms=bounds.get("due_from_ms", 0), due_to_ms=bounds.get("due_to_ms", 0)
        )
        only = query_pb.MessageFilter(topic=TOPIC, tags=[mine[0].tag], **bounds)
        told = query_pb.BulkCancel()
        while not told.done:
            request = query_pb.CancelMatchingRequest(filter=only, cursor=told.cursor)
            raw = await self._ask(name, "cancel_matching", request)
            assert isinstance(raw, bytes), raw
            told = query_pb.CancelMatchingResponse.FromString(raw).progress
        for one in mine:
            self._told(one, replace(asked, token=one.token), "done")
        tokens, other = tuple(one.token for one in mine), told.unreadable + told.not_found
        self.history.sweeps.append(Sweep(tokens, told.matched, told.cancelled, told.released, other))

    async def _get(self, name: str) -> None:
        if one := self._drawn():
            await self._look_up(name, one)

    async def _look_up(self, name: str, one: Known) -> str:
        asked = self._asks(one, Asked.GET)
        raw = await self._ask(name, "get", pb.GetRequest(id=one.name), gone=True)
        if isinstance(raw, Refusal):
            self._told(one, asked, "not_found")
            return "not_found"
        answer = pb.GetResponse.FromString(raw)
        state = _lower(MessageState.Name(answer.state), "MESSAGE_STATE_")
        known = {} if state == "cancelled" else {"due_ms": answer.due_ms, "record": answer.record}
        self._told(one, asked, state, **known)
        return state

    async def _list(self, name: str) -> None:
        from_ms = self._world.true_ms() + self._rng.choice((-500, 200))
        to_ms = from_ms + self._rng.choice((1_000, 3_000, 9 * HOUR_MS))
        asked = self._asks(Known(0, b"", (0, 0), "", 0, False), Asked.LIST, due_ms=from_ms, due_to_ms=to_ms)
        of = self._all[-RECENT:]
        only = query_pb.MessageFilter(topic=TOPIC, due_from_ms=from_ms, due_to_ms=to_ms)
        request = query_pb.ListMessagesRequest(
            filter=only, states=[query_pb.LISTED_STATE_PENDING], bodies=True, page_size=20
        )
        rows: dict[bytes, query_pb.ListedMessage] = {}
        while True:
            raw = await self._ask(name, "list", request)
            if isinstance(raw, Refusal):
                return
            page = query_pb.ListMessagesResponse.FromString(raw)
            if any(row.damaged for row in page.messages):
                return
            rows |= {row.body: row for row in page.messages}
            request.cursor = page.cursor
            if not page.cursor:
                break
        for one in of:
            row = rows.get(one.label)
            if row is None:
                self._told(one, replace(asked, token=one.token), "absent")
            else:
                record = Record(properties=row.properties)
                self._told(one, replace(asked, token=one.token), "pending", row.due_ms, record)

    # How they ask, and what they write down

    def _asks(self, one: Known, what: Asked, **more: Any) -> Operation:
        return Operation(one.token, what, "", self._world.true_ms(), None, **more)

    def _told(
        self, one: Known, asked: Operation, outcome: str, due_ms: int = 0, record: Record | None = None
    ) -> None:
        """Write down an answer; an empty outcome: nobody knows what has been done."""
        self.counts[f"{asked.asked.value} {outcome or 'unknown'}"] += 1
        one.due_ms = due_ms or one.due_ms
        if outcome == "not_found" and self._world.forgets_soon:
            self._forgotten.add(one.token)
            if asked.asked in (Asked.GET, Asked.CANCEL):
                return
            outcome = ""  # its first attempt may have changed it
        version = None if record is None else int(record.properties.get("version", "0"))
        self.history.operations.append(
            replace(
                asked,
                outcome=outcome,
                answered_mono_ms=self._world.true_ms() if outcome else None,
                told_due_ms=due_ms,
                told_version=version,
            )
        )

    async def _ask(self, name: str, call: str, request: Message, *, gone: bool = False) -> bytes | Refusal:
        """Ask until there is an answer, or a refusal that stays; `gone`: also that it is not there."""
        raw = request.SerializeToString()
        while True:
            answer = await self._once(name, call, raw)
            if isinstance(answer, bytes) and self._rng.random() >= self._world.answers_lost:
                return answer
            if isinstance(answer, Refusal) and answer.reason not in TRY_AGAIN:
                if answer.reason in WITHOUT_ROOM or call == "list" or gone:
                    return answer
                raise Violation(f"{name} is refused: {answer}")
            await asyncio.sleep(self._rng.uniform(0.005, 0.05))

    async def _once(self, name: str, call: str, raw: bytes) -> bytes | Refusal | None:
        node = self._world.likely_leader(self._rng, name)
        if node is None:
            return None
        try:
            answer = await asyncio.wait_for(getattr(node.edge, call)(raw), 2.0)
        except (StreamEnded, TimeoutError):
            return None
        return None if (name, node.name) in self._world.cuts else answer

    # How it is judged

    async def judge(self) -> None:
        """Look every message up, once all has been delivered. Raises Violation."""
        world, ledger = self._world, self._world.ledger
        for one in self._all:
            state = await self._look_up(NAMES[0], one)
            if state == "released":  # like any other it has gone to all groups
                ledger.acknowledged(one.label, Told(TOPIC, one.id, one.due_ms))
        self._note_retried()
        clock_ms = ledger.early_ms + ROUND_TRIP_MS
        demand(not ledger.missing(world.horizon_ms), f"V4: not delivered: {ledger.missing()[:5]}")
        for name, found in {
            "no order explains what was told of": changes.not_explained(
                self.history, AHEAD_MS + clock_ms, clock_ms
            ),
            "forgotten are": changes.overdue(self.history, self._forgotten),
            "counted wrong were": changes.miscounted(self.history, self._forgotten),
        }.items():
            demand(not found, f"L13: {name} {found[:3]}: {self.told_of(found[0]) if found else ''}")

    def _note_retried(self) -> None:
        """What was put back for a group's retry may be cancelled yet."""
        ids, rows = {one.token: one.id for one in self._all}, self._world.rows
        self.history.delivered[:] = (
            replace(one, gives_back=ids.get(one.token) in rows.messages[one.group, Kind.RETRIED])
            for one in self.history.delivered
        )

    def told_of(self, found: object) -> str:
        """Return what was seen of a message, by its token; of anything else nothing."""
        seen = [one for one in (*self.history.sent, *self.history.operations, *self.history.delivered)
                if one.token == found]  # fmt: skip
        return "\n".join(map(str, seen))


def _lower(name: str, prefix: str) -> str:
    return name.removeprefix(prefix).lower()
