"""Requests that come together share the turns of the event loop, in their order."""

from __future__ import annotations

import asyncio

from tarry.node.edge.intake_turns import IntakeTurns


class _Requests:
    """What has been let go on, and in which turn."""

    def __init__(self) -> None:
        self.turns = IntakeTurns()
        self.turn = 0
        self.went: list[tuple[str, int, float]] = []

    def come(self, name: str, part: float) -> asyncio.Task[None]:
        """Let a request come in the turn that goes on."""
        return asyncio.create_task(self._enter(name, part))

    async def pass_turns(self, count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)
            self.turn += 1

    def names(self) -> str:
        return "".join(name for name, _, _ in self.went)

    def fullest(self) -> float:
        """Return the largest sum of parts of one turn."""
        sums = [sum(part for _, at, part in self.went if at == turn) for turn in range(self.turn + 1)]
        return max(sums)

    async def _enter(self, name: str, part: float) -> None:
        await self.turns.enter(part)
        self.went.append((name, self.turn, part))


async def test_requests_that_come_together_take_no_more_than_a_turn_each_time_and_keep_their_order() -> None:
    requests = _Requests()
    for name in "abcdefgh":
        requests.come(name, 0.4)
    await requests.pass_turns(20)
    assert requests.names() == "abcdefgh"
    assert requests.fullest() <= 1.0


async def test_a_request_that_comes_later_overtakes_none_however_small_it_is() -> None:
    requests = _Requests()
    for name in "abcdefgh":
        requests.come(name, 0.9)
        requests.come(name.upper(), 0.01)
        await requests.pass_turns(1)
    await requests.pass_turns(30)
    assert requests.names() == "aAbBcCdDeEfFgGhH"
    assert requests.fullest() <= 1.0


async def test_a_request_that_takes_more_than_a_turn_has_one_alone() -> None:
    requests = _Requests()
    for name, part in (("a", 0.1), ("b", 4.0), ("c", 0.1), ("d", 4.0)):
        requests.come(name, part)
    await requests.pass_turns(20)
    assert requests.names() == "abcd"
    assert requests.fullest() == 4.0


async def test_small_requests_go_on_in_the_turn_in_which_they_come() -> None:
    requests = _Requests()
    for name in "abcdefgh":
        requests.come(name, 0.1)
    await requests.pass_turns(1)
    assert requests.names() == "abcdefgh"


async def test_a_call_that_is_cancelled_while_it_waits_holds_up_none() -> None:
    requests = _Requests()
    tasks = [requests.come(name, 0.9) for name in "abcd"]
    await requests.pass_turns(1)
    for task in tasks[1:3]:
        task.cancel()
    await requests.pass_turns(10)
    assert requests.names() == "ad"
    requests.come("e", 0.05)
    await requests.pass_turns(1)
    assert requests.names() == "ade"
