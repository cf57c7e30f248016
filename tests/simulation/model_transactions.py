"""Transactions in a run: what producers prepare, end, leave, and answer when they are asked.

Each has an end that is decided beforehand, as a database would know it. At the end of the run every committed
one has its message released once, not before it was due, and no other has any.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from google.protobuf.message import Message

from tarry.proto import tarry_transaction_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation.edge import StreamEnded
from tests.simulation.ledger import demand
from tests.simulation.model_producer import TRY_AGAIN

if TYPE_CHECKING:
    from tests.simulation.whole_world import WholeWorld

A = TypeVar("A", bound=Message)
TOPIC: Final = "transactions"
"""That nobody consumes: whoever looks looks at the rows."""
GROUP: Final = "shop"
COMMIT, ROLLBACK = pb.TRANSACTION_END_COMMIT, pb.TRANSACTION_END_ROLLBACK
COMMITTED: Final = pb.TRANSACTION_STATE_COMMITTED
ENDED_S = 60.0
"""All faults over, every transaction has ended so soon."""


class Transactions:
    """The transactions of one run, and what is known of their ends elsewhere."""

    def __init__(self, world: WholeWorld, seed: int) -> None:
        self._world = world
        self._rng = random.Random(f"transactions {seed}")
        self.ends: dict[str, Any] = {}
        """As the database knows them, by name."""
        self.told: dict[str, pb.Transaction] = {}
        """As the cluster told of them once they had ended."""
        self.counts: Counter[str] = Counter()

    async def prepare(self, name: str, end: Any, *, delay_ms: int = 300, check_after_ms: int = 0) -> None:
        """Prepare a transaction whose end will be this, and tell nobody."""
        self.ends[name] = end
        request = pb.PrepareRequest(
            producer_group=GROUP,
            transaction=name,
            topic=TOPIC,
            record=Record(body=name.encode()),
            delay_ms=delay_ms,
            check_after_ms=check_after_ms,
        )
        told = await self.ask("prepare", request, pb.PrepareResponse)
        demand(not isinstance(told, Refusal), f"T1: {name} was not prepared: {told}")

    async def end(self, name: str, end: Any = None) -> Any:
        """End a transaction as the database knows it, or otherwise; the answer."""
        request = pb.EndTransactionRequest(
            producer_group=GROUP, transaction=name, end=self.ends[name] if end is None else end
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
        demand(not response.HasField("refused"), f"T2: an answer as the database knows it: {response}")
        if response.HasField("check"):
            name = response.check.transaction.transaction
            demand(response.check.record.body == name.encode(), f"T3: another record: {response}")
            self.counts["checks"] += 1
            for _ in range(self._rng.choice((1, 1, 2))):  # now and then twice
                answer = pb.CheckAnswer(transaction=name, end=self.ends[name])
                requests.put_nowait(pb.ChecksRequest(answer=answer))

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
            demand(not isinstance(told, Refusal) and told.repeated, f"T5: {name} has ended otherwise: {told}")
            self.told[name] = told.transaction
        await asyncio.sleep(1)

    def judge(self) -> None:
        """Hold the rows to what the database knows. Raises Violation."""
        released = self._world.rows.released[TOPIC]
        expected = {}
        for one in self.told.values():
            if one.state == COMMITTED:
                found = MessageId.parse(one.id)
                expected[found.hour, found.global_index] = one
        demand(set(released) == set(expected), f"T6: {set(released) ^ set(expected)} released, or not")
        for place, one in expected.items():
            due_ms = one.message_due_ms
            demand(
                due_ms >= one.ended_ms + one.delay_ms, f"T7: due {due_ms}, not counted from the commit: {one}"
            )
            self.counts["released"] += place in released
