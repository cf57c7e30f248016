"""Consumer streams that end together are closed some in each turn of the event loop."""

from __future__ import annotations

import asyncio
import tempfile
from collections import Counter
from pathlib import Path
from typing import NoReturn

import grpc
import pytest

from tarry.node.services.consumer import STREAMS
from tarry.replication.loop_holds import Holds
from tests.node.lone_leader import Stream, leader, subscription, until
from tests.simulation import edge


async def test_all_streams_of_a_leadership_that_ends_are_closed_and_only_some_in_one_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many, turn, closed = 3 * STREAMS, 0, Counter[int]()

    async def count_turns() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    async def abort(_: edge.Context, code: grpc.StatusCode, text: str, metadata: object = ()) -> NoReturn:
        closed[turn] += 1
        raise edge.StreamEnded(text)

    monkeypatch.setattr(edge.Context, "abort", abort)
    with tempfile.TemporaryDirectory() as folder:
        async with leader(Path(folder), Holds()) as lead:
            streams = [Stream(lead.edge, subscription(f"c{number}", 1)) for number in range(many)]
            for stream in streams:
                assert (await stream.answer()).HasField("subscribed")
            before = lead.node.leadership.delivery
            turns = asyncio.create_task(count_turns())
            lead.node.leadership._lost.set()
            ended = await asyncio.gather(*(stream.ended for stream in streams), return_exceptions=True)
            turns.cancel()
            await until(lambda: lead.node.leadership.delivery not in (before, None))
            again = Stream(lead.edge, subscription("c0", 1))
            assert (await again.answer()).HasField("subscribed")
            await again.leave()
    assert [type(error) for error in ended] == [edge.StreamEnded] * many
    assert sum(closed.values()) == many
    assert max(closed.values()) <= STREAMS
