"""Transactions in a run: what producers prepare, end, leave, and answer when they are asked.

Each has an end that a database knows, from the first on or after a while. At the end of the run every
committed one has its message released once, not before it was due, and no other has any; of a group of which
nobody answers, what nobody has ended is a dead letter.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import Message

from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.dead_letters import UNRESOLVED, dead_letter_topic
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation.edge import StreamEnded
from tests.simulation.ledger import UNKNOWN, demand
from tests.simulation.model_producer import TRY_AGAIN

if TYPE_CHECKING:
    from tests.simulation.whole_world import WholeWorld

A = TypeVar("A", bound=Message)
TOPIC: Final = "transactions"
"""That nobody consumes: whoever looks looks at the rows."""
LETTERS: Final = dead_letter_topic(TOPIC, UNRESOLVED)
GROUP: Final = "shop"
GONE: Final = "gone"
"""A producer group of which nobody answers checks."""
UNDECIDED: Final = pb.TRANSACTION_END_UNSPECIFIED
COMMIT, ROLLBACK = pb.TRANSACTION_END_COMMIT, pb.TRANSACTION_END_ROLLBACK
COMMITTED: Final = pb.TRANSACTION_STATE_COMMITTED
STATES: Final = {COMMIT: COMMITTED, ROLLBACK: pb.TRANSACTION_STATE_ROLLED_BACK}
PRODUCERS: Final = 2
"""That answer checks."""
RAISED_S: Final = 10.0
WORKED_S: Final = 1.5
"""At least, once the level is raised."""
AGAIN: Final = {reason.value for reason in TRY_AGAIN}
ENDED_S = 60.0
"""All faults over, every transaction has ended so soon."""


class Transactions:
    """The transactions of one run, and what is known of their ends elsewhere."""

    def __init__(self, world: WholeWorld, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"transactions {seed}")
        self.ends: dict[str, Any] = {}
        """As the database knows them, by name; undecided: not yet."""
        self.groups: dict[str, str] = {}
        """By name."""
        self.told: dict[str, pb.Transaction] = {}
        """As the cluster told of them once they had ended."""
        self.counts: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        """Checks of each name."""
        self.silent: set[str] = set()
        """Names of those whose checks are not answered yet."""
        self.answering: list[asyncio.Task[None]] = []
        """Producers of a run, that answer checks."""

    async def run(self, until_s: float) -> None:
        """Prepare and end transactions until then, once the cluster's level has them; answer checks."""
        loop = asyncio.get_running_loop()
        while loop.time() < until_s + RAISED_S:
            told = await self.ask("prepare", self._request("first", GROUP), pb.PrepareResponse)
            if not isinstance(told, Refusal):
                break
            await asyncio.sleep(0.2)
        else:
            return
        self.ends["first"] = ROLLBACK
        self.answering = [asyncio.create_task(self.answer_checks()) for _ in range(PRODUCERS)]
        async with asyncio.TaskGroup() as working:
            number, until_s = 0, max(until_s, loop.time() + WORKED_S)
            while loop.time() < until_s:
                number += 1
                working.create_task(self._work(f"o-{number}"))
                await asyncio.sleep(self._rng.uniform(0, 0.3))

    async def _work(self, name: str) -> None:
        """A program's life: it prepares, does its work, and commits or rolls back, or dies before."""
        rng, end = self._rng, self._rng.choice((COMMIT, COMMIT, ROLLBACK))
        group = GONE if rng.random() < 0.15 else GROUP
        times = {
            "delay_ms": rng.randrange(800),
            "check_after_ms": rng.choice((0, 1, rng.randrange(1, 3_000))),
        }
        await self.prepare(name, UNDECIDED, group=group, **times)
        await asyncio.sleep(rng.choice((0.0, rng.uniform(0, 0.3), rng.uniform(0, 2.0))))
        self.ends[name] = end
        if rng.random() < 0.3:
            self.counts["left"] += 1
            return
        told = await self.end(name)
        self._hold(name, told)
        if rng.random() < 0.3:
            self._hold(name, await self.end(name))
        if rng.random() < 0.3:
            other = await self.end(name, ROLLBACK if end == COMMIT else COMMIT)
            refused = isinstance(other, Refusal) and other.reason is Reason.TRANSACTION_ENDED
            demand(refused, f"T8: {name} has ended twice: {told}, {other}")
        if rng.random() < 0.1:
            await self.prepare(name, end, group=group, **times)

    def _hold(self, name: str, told: Any) -> None:
        """Hold an answer to what the database knows: of a group that is gone it may have come too late."""
        if isinstance(told, Refusal):
            late = told.reason is Reason.TRANSACTION_ENDED and told.facts["state"] == "UNRESOLVED"
            demand(late and self.groups[name] == GONE, f"T9: {name}: {told}")
        else:
            demand(told.transaction.state == STATES[self.ends[name]], f"T10: {name}: {told}")

    async def prepare(
        self, name: str, end: Any, *, group: str = GROUP, delay_ms: int = 300, check_after_ms: int = 0
    ) -> None:
        """Prepare a transaction whose end will be this, and tell nobody."""
        self.ends[name], self.groups[name] = end, group
        request = self._request(name, group, delay_ms, check_after_ms)
        told = await self.ask("prepare", request, pb.PrepareResponse)
        demand(not isinstance(told, Refusal), f"T1: {name} was not prepared: {told}")

    def _request(
        self, name: str, group: str, delay_ms: int = 300, check_after_ms: int = 0
    ) -> pb.PrepareRequest:
        self.groups[name] = group
        return pb.PrepareRequest(
            producer_group=group,
            transaction=name,
            topic=TOPIC,
            record=Record(body=name.encode()),
            delay_ms=delay_ms,
            check_after_ms=check_after_ms,
        )

    async def end(self, name: str, end: Any = None) -> Any:
        """End a transaction as the database knows it, or otherwise; the answer."""
        request = pb.EndTransactionRequest(
            producer_group=self.groups[name],
            transaction=name,
            end=self.ends[name] if end is None else end,
        )
        return await self.ask("end_transaction", request, pb.EndTransactionResponse)

    async def answer_checks(self) -> None:
        """As a producer of the group, at whichever node leads, until cancelled."""
        while True:
            node = self._world.likely_leader(self._rng, "transactions")
            if node is not None:
                requests: asyncio.Queue[pb.ChecksRequest | None] = asyncio.Queue()
                requests.put_nowait(pb.ChecksRequest(subscribe=pb.ChecksSubscribe(producer_group=GROUP)))
                try:
                    async for raw in node.edge.checks(requests):
                        self._take(pb.ChecksResponse.FromString(raw), requests)
                except StreamEnded:
                    pass
            await asyncio.sleep(self._rng.uniform(0.01, 0.1))

    def _take(self, response: pb.ChecksResponse, requests: asyncio.Queue[pb.ChecksRequest | None]) -> None:
        refused = response.HasField("refused") and response.refused.reason not in AGAIN
        demand(not refused, f"T2: an answer as the database knows it: {response}")
        if response.HasField("check"):
            name = response.check.transaction.transaction
            demand(response.check.record.body == name.encode(), f"T3: another record: {response}")
            self.counts["checks"] += 1
            self.asked[name] += 1
            if name in self.silent:
                return
            for _ in range(self._rng.choice((1, 1, 2))):  # now and then twice
                answer = pb.CheckAnswer(transaction=name, end=self.ends[name])
                requests.put_nowait(pb.ChecksRequest(answer=answer))

    async def until_asked(self, name: str, times: int) -> None:
        """Return once producers have been asked so often about one."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while self.asked[name] < times:
            demand(loop.time() - begun < ENDED_S, f"T13: {name} was asked about {self.asked[name]} times")
            await asyncio.sleep(0.02)

    async def ask(self, name: str, request: Message, kind: type[A]) -> A | Refusal:
        """Ask until it is answered, or refused for good."""
        while True:
            await asyncio.sleep(self._rng.uniform(0.0005, 0.001))
            node = self._world.likely_leader(self._rng, "transactions")
            if node is not None:
                try:
                    call = getattr(node.edge, name)(request.SerializeToString())
                    answer: Any = await asyncio.wait_for(call, 2.0)
                except (StreamEnded, TimeoutError):
                    answer = Refusal(Reason.NO_LEADER, "no answer")
                if not isinstance(answer, Refusal):
                    return kind.FromString(answer)
                if answer.reason not in TRY_AGAIN:
                    return answer
            await asyncio.sleep(self._rng.uniform(0.01, 0.05))

    async def settle(self) -> None:
        """All faults are over: every transaction ends soon, as the database knows it. Raises Violation."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            leader = await self._world.until_served()
            open_ones = leader.core.machine.transactions.rows(ended=False)
            if not open_ones:
                break
            demand(loop.time() - begun < ENDED_S, f"T4: still open: {[row.name for row in open_ones]}")
            await asyncio.sleep(0.2)
        for name in self.ends:
            told = await self.end(name)
            self._hold(name, told)
            if isinstance(told, Refusal):
                self.counts["unresolved"] += 1
                continue
            demand(told.repeated, f"T5: {name} had not ended: {told}")
            self.told[name] = told.transaction
        while len(self._world.rows.released[TOPIC]) < len(self._expected()):
            demand(loop.time() - begun < ENDED_S, "T11: not every message of a committed one was released")
            await asyncio.sleep(0.05)
        await self.leave()

    async def leave(self) -> None:
        """Answer no more checks. Raises Violation where an answer of the cluster was wrong."""
        for task in self.answering:
            task.cancel()
        for ended in await asyncio.gather(*self.answering, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended
        self.answering = []

    def _expected(self) -> dict[tuple[int, int], pb.Transaction]:
        """Return the committed ones, by the places of their messages."""
        expected = {}
        for one in self.told.values():
            if one.state == COMMITTED:
                found = MessageId.parse(one.id)
                expected[found.hour, found.global_index] = one
        return expected

    def judge(self) -> None:
        """Hold the rows to what the database knows. Raises Violation."""
        released, letters = self._world.rows.released[TOPIC], self._world.rows.released[LETTERS]
        expected = self._expected()
        if UNKNOWN not in released:
            demand(set(released) == set(expected), f"T6: {set(released) ^ set(expected)} released, or not")
        if UNKNOWN not in letters:
            count = self.counts["unresolved"]
            demand(len(letters) == count, f"T12: {count} are unresolved, with the letters {letters}")
        for place, one in expected.items():
            due_ms = one.message_due_ms
            demand(
                due_ms >= one.ended_ms + one.delay_ms, f"T7: due {due_ms}, not counted from the commit: {one}"
            )
            self.counts["released"] += place in released
