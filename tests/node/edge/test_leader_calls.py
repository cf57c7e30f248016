"""Calls that go on or end together do so some in each turn of the event loop."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any, NoReturn

import grpc
import pytest

from tarry.node.edge.leader_calls import AGAIN_S, HELD_S, TURN_CALLS, Answer, LeaderCalls
from tarry.proto.reasons import Reason
from tarry.replication.errors import NotLeader, Unknown
from tarry.replication.state_machine.ready_queue import UnitsDamaged
from tarry.replication.state_machine.refusal import Refusal
from tests.simulation.edge import Context, StreamEnded

MANY = 3 * TURN_CALLS
NOBODY = Refusal(Reason.NO_LEADER, "nobody")
ANOTHER = Refusal(Reason.NOT_LEADER, "another", {"leader": "n2:1"})


class Seen(Context):
    """What becomes of calls, by the turn of the event loop; it is their context, and passes them on."""

    def __init__(self) -> None:
        self.turn = 0
        self.by_turn = Counter[int]()

    async def count_turns(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def forward(self, *_: object) -> Answer:
        self.by_turn[self.turn] += 1
        return b"passed on"

    async def abort(self, code: grpc.StatusCode, text: str, metadata: object = ()) -> NoReturn:
        self.by_turn[self.turn] += 1
        raise StreamEnded(text)


@pytest.mark.parametrize("leads", ["another", "this node no more"])
async def test_many_calls_are_passed_on_and_refused_some_in_each_turn(leads: str) -> None:
    seen, changed, waiting = Seen(), asyncio.Event(), asyncio.Semaphore(0)

    async def wait(*_: object) -> bool:
        waiting.release()
        return await changed.wait()

    async def local(raw: bytes, context: Any) -> Answer:
        await wait()
        raise Unknown("leadership was lost")

    either: Any = seen  # as forwarder and as context
    calls = LeaderCalls(
        lambda: leads != "another",
        lambda: ANOTHER if changed.is_set() else NOBODY,
        wait,
        either,
        lambda _: NOBODY,
        lambda _: None,
    )
    handle: Any = calls.unary("/t/Call", local).unary_unary
    answers = [asyncio.ensure_future(handle(b"", either)) for _ in range(MANY)]
    for _ in answers:
        await waiting.acquire()
    turns = asyncio.create_task(seen.count_turns())
    changed.set()
    done = await asyncio.gather(*answers, return_exceptions=True)
    turns.cancel()
    assert {type(one) for one in done} == {bytes if leads == "another" else StreamEnded}
    assert sum(seen.by_turn.values()) == MANY
    assert max(seen.by_turn.values()) <= TURN_CALLS


async def test_a_node_that_stops_and_leads_still_is_asked_again_after_a_while_and_not_at_once() -> None:
    """A lone leader that stops would have no turn of its event loop left to write what it has."""
    asked = 0

    async def local(raw: bytes, context: Any) -> Answer:
        nonlocal asked
        asked += 1
        raise NotLeader("n1")

    async def led(_: float) -> bool:
        return True

    either: Any = Seen()
    calls = LeaderCalls(lambda: True, lambda: NOBODY, led, either, lambda _: NOBODY, lambda _: None)
    with pytest.raises(StreamEnded, match="nobody"):
        await calls.unary("/t/Call", local).unary_unary(b"", either)  # type: ignore[misc]
    assert asked <= HELD_S / AGAIN_S + 1


@pytest.mark.parametrize("delivers", [True, False])
async def test_units_that_only_a_question_needs_end_no_delivery(delivers: bool) -> None:
    damage, told = UnitsDamaged(3, "t", []), list[str]()

    async def local(raw: bytes, context: Any) -> Answer:
        raise damage

    async def led(_: float) -> bool:
        return True

    def ends(_: UnitsDamaged) -> Refusal:
        told.append("ends")
        return NOBODY

    either: Any = Seen()
    report = partial(told.append, "reported")
    calls = LeaderCalls(lambda: True, lambda: NOBODY, led, either, ends, lambda _: None, lambda _: report())
    answer = await calls.answer("/t/Call", b"", either, local, delivers=delivers)
    assert isinstance(answer, Refusal)
    assert told == (["ends"] if delivers else ["reported"])
    assert answer.reason == (Reason.NO_LEADER if delivers else Reason.MESSAGE_DAMAGED)
