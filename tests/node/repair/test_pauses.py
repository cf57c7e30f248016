"""What no peer has whole is asked for again, by records, indices and queues alike."""

from __future__ import annotations

import asyncio

from tarry.node.repair.pauses import RETRY_MS_MAX, Pauses
from tests.simulation import virtual_loop


async def rested_ms(pauses: Pauses, peers: list[str]) -> int:
    begun = asyncio.get_running_loop().time()
    assert not await pauses.rest(lambda: peers, left=True, mended=False)
    return round((asyncio.get_running_loop().time() - begun) * 1000)


def test_each_pause_is_longer_up_to_a_bound_until_something_is_mended_or_reported() -> None:
    async def play() -> None:
        pauses = Pauses()
        assert [await rested_ms(pauses, ["a"]) for _ in range(3)] == [2_000, 4_000, 8_000]
        for _ in range(10):
            longest_ms = await rested_ms(pauses, ["a"])
        assert longest_ms == RETRY_MS_MAX
        pauses.end()
        assert await pauses.rest(lambda: ["a"], left=True, mended=False)
        pauses.begin()
        assert await rested_ms(pauses, ["a"]) == 2_000
        await pauses.rest(lambda: ["a"], left=True, mended=True)
        assert await rested_ms(pauses, ["a"]) == 2_000

    virtual_loop.run(play())


def test_another_peer_in_reach_ends_a_pause() -> None:
    async def play() -> None:
        pauses, peers = Pauses(), ["a"]
        for _ in range(6):
            await rested_ms(pauses, peers)
        asyncio.get_running_loop().call_later(1.5, peers.append, "b")
        assert await rested_ms(pauses, peers) == 2_000
        asyncio.get_running_loop().call_later(1.5, peers.remove, "b")
        asyncio.get_running_loop().call_later(3.5, peers.append, "b")
        assert await rested_ms(pauses, peers) == 4_000

    virtual_loop.run(play())
