"""Sequences: what is in flight stays within what the server remembers."""

from __future__ import annotations

import asyncio

from tarry.client.producers.sequences import Sequences


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_sequences_start_at_one_and_grow_by_one() -> None:
    sequences = Sequences(4)
    assert [await sequences.take() for _ in range(4)] == [1, 2, 3, 4]
    assert sequences.in_flight == 4


async def test_one_that_is_retried_for_long_holds_the_window_where_it_is() -> None:
    sequences = Sequences(3)
    for _ in range(3):
        await sequences.take()
    waiting = asyncio.ensure_future(sequences.take())
    sequences.answered(2)
    sequences.answered(3)
    await turns()
    assert not waiting.done()  # only one is in flight, but 4 would be three ahead of it
    sequences.answered(1)
    assert await waiting == 4
    assert sequences.in_flight == 1


async def test_all_who_wait_get_a_sequence_in_the_end_each_its_own() -> None:
    sequences = Sequences(2)
    given: list[int] = []

    async def work() -> None:
        sequence = await sequences.take()
        given.append(sequence)
        await turns(1)
        sequences.answered(sequence)

    await asyncio.gather(*(work() for _ in range(50)))
    assert given == list(range(1, 51))


async def test_one_who_stops_waiting_takes_no_sequence_with_it() -> None:
    sequences = Sequences(1)
    await sequences.take()
    gone, stays = asyncio.ensure_future(sequences.take()), asyncio.ensure_future(sequences.take())
    await turns()
    gone.cancel()
    sequences.answered(1)
    assert await stays == 2
