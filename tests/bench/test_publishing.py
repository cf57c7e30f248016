import asyncio

import pytest

from tarry.bench.side_by_side.amqp import publishings
from tarry.bench.side_by_side.confirms import Confirms


def test_a_publishing_is_three_frames_as_the_specification_lays_them_out() -> None:
    """Bytes as pika 1.4 marshals the same message."""
    assert [frame.hex() for frame in publishings(1, "q", [b"hello"], [250]).split(b"\xce")] == [
        "0100010000000a003c0028000000017100",
        "02000100000013003c0000000000000000000511000203323530",
        "0300010000000568656c6c6f",
        "",
    ]


async def test_a_batch_is_done_when_all_of_it_and_all_before_are_confirmed() -> None:
    confirms = Confirms()
    first, second = (asyncio.ensure_future(confirms.expect(2)) for _ in range(2))
    await asyncio.sleep(0)
    for number in (4, 3, 2):
        confirms.answer(number, False, True)
        await asyncio.sleep(0)
        assert not first.done()
        assert not second.done()
    confirms.answer(1, False, True)
    await asyncio.gather(first, second)


async def test_one_answer_can_confirm_everything_up_to_its_number() -> None:
    confirms = Confirms()
    batch = asyncio.ensure_future(confirms.expect(1_000))
    await asyncio.sleep(0)
    confirms.answer(1_000, True, True)
    await batch


async def test_a_refused_message_fails_its_batch_alone() -> None:
    confirms = Confirms()
    first, second = (asyncio.ensure_future(confirms.expect(1)) for _ in range(2))
    await asyncio.sleep(0)
    confirms.answer(1, False, False)
    confirms.answer(2, False, True)
    with pytest.raises(RuntimeError, match="refused"):
        await first
    await second
