"""A request names no more offsets than it may, and those are worked on in pieces, one a turn."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tarry.node.config import NodeConfig
from tarry.node.delivery.offset_pieces import PIECE_BLOCKS, PIECE_OFFSETS, Pieces
from tarry.node.edge.auth import Authorizer
from tarry.node.services.subscriptions import QUEUES_HELD_MAX, Subscriptions
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.queue_checksums import BLOCK_UNITS
from tarry.replication.state_machine.refusal import Refusal


def joining() -> Subscriptions:
    config = NodeConfig(node="n1", data=Path("none"), listen="127.0.0.1:1", members={"n1": "127.0.0.1:1"})
    core: Any = SimpleNamespace(config=config, driver=None, machine=None, leadership=None)
    return Subscriptions(core, Authorizer({}))


def test_offsets_are_taken_up_to_the_limit() -> None:
    checks = joining()
    most = checks._config.limits.offsets_max
    assert checks.check_offsets(most) is None
    refusal = checks.check_offsets(most + 1)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.TOO_MANY_OFFSETS


def test_what_a_consumer_holds_is_of_few_queues_and_its_offsets_count_together() -> None:
    checks = joining()
    half = checks._config.limits.offsets_max // 2
    for queues, each, taken in (
        (QUEUES_HELD_MAX, 1, True),
        (QUEUES_HELD_MAX + 1, 1, False),
        (2, half, True),
        (3, half, False),
    ):
        held = [pb.Holding(queue=queue, offset=range(each)) for queue in range(queues)]
        refusal = checks._check_holding(pb.Subscribe(holding=held))
        assert (refusal is None) is taken


async def test_each_piece_has_a_turn_of_its_own_whoever_asks() -> None:
    turn, done = 0, []

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def work(offsets: np.ndarray) -> int:
        done.append(turn)
        return len(offsets)

    counting = asyncio.ensure_future(count())
    pieces, many = Pieces(), range(2 * PIECE_OFFSETS + 1)
    answers = await asyncio.gather(pieces.each(many, work), pieces.each(many, work))
    counting.cancel()
    assert answers == [[PIECE_OFFSETS, PIECE_OFFSETS, 1]] * 2
    assert len(set(done)) == len(done) == 6


async def test_small_pieces_share_a_turn_in_their_order() -> None:
    """Else each cancel, nack or look-up would take some turns for itself, a few a second on a busy loop."""
    turn, done = 0, list[int]()

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    pieces, parts = Pieces(), [0.25] * 40 + [1.0] + [0.25] * 4
    await asyncio.gather(*(pieces.part(part, partial(done.append, n)) for n, part in enumerate(parts)))
    counting.cancel()
    assert done == list(range(len(parts)))
    assert turn <= 2 * (40 // 4 + 1 + 1)


async def test_an_offset_that_is_named_twice_is_worked_on_once() -> None:
    assert await Pieces().each([5, 3, 5, 9, 3], np.ndarray.tolist) == [[3, 5, 9]]


async def test_a_piece_is_of_few_blocks_of_the_queue() -> None:
    spread = range(0, PIECE_OFFSETS * BLOCK_UNITS, BLOCK_UNITS)
    pieces = await Pieces().each(spread, np.ndarray.tolist)
    assert [len(piece) for piece in pieces] == [PIECE_BLOCKS] * (PIECE_OFFSETS // PIECE_BLOCKS)
    assert list(chain.from_iterable(pieces)) == list(spread)
    dense = range(PIECE_BLOCKS * BLOCK_UNITS)[:PIECE_OFFSETS]
    assert await Pieces().each(dense, np.ndarray.tolist) == [list(dense)]
