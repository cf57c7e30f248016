"""Answers that pages of a token share."""

from __future__ import annotations

import asyncio

import pytest

from tarry.client.errors import Unavailable
from tarry.console.shared_answers import ANSWERS_MAX, SharedAnswers
from tarry.console.watch import Look


def look() -> Look:
    return Look({}, None, {}, (), ())


class Asking:
    """Counts how often it is asked; answers once it may."""

    def __init__(self) -> None:
        self.times = 0
        self.may = asyncio.Event()

    async def __call__(self) -> int:
        self.times += 1
        await self.may.wait()
        return self.times


async def test_pages_of_one_look_share_an_answer_and_those_of_the_next_get_another() -> None:
    shared, asking, first = SharedAnswers(), Asking(), look()
    asking.may.set()
    together = [shared.of(first, "a", asking) for _ in range(3)]
    assert await asyncio.gather(*together) == [1, 1, 1]
    assert await shared.of(first, "a", asking) == 1
    assert await shared.of(first, "b", asking) == 2
    assert await shared.of(look(), "a", asking) == 3


async def test_a_page_that_is_left_does_not_take_the_answer_from_others() -> None:
    shared, asking, first = SharedAnswers(), Asking(), look()
    left, stays = (asyncio.ensure_future(shared.of(first, "a", asking)) for _ in range(2))
    await asyncio.sleep(0)
    left.cancel()
    await asyncio.sleep(0)
    asking.may.set()
    assert await stays == 1
    assert left.cancelled()


async def test_a_failure_is_of_all_who_ask_in_that_look() -> None:
    shared, first, times = SharedAnswers(), look(), 0

    async def fail() -> int:
        nonlocal times
        times += 1
        raise Unavailable("NO_LEADER", "none")

    for _ in range(2):
        with pytest.raises(Unavailable):
            await shared.of(first, "a", fail)
    assert times == 1


async def test_beyond_the_bound_an_answer_is_of_one_page() -> None:
    shared, asking, first = SharedAnswers(), Asking(), look()
    asking.may.set()
    for key in range(ANSWERS_MAX):
        await shared.of(first, key, asking)
    assert await shared.of(first, "more", asking) == ANSWERS_MAX + 1
    assert await shared.of(first, "more", asking) == ANSWERS_MAX + 2
    assert await shared.of(first, 0, asking) == 1
