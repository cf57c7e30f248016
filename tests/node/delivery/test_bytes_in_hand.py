"""A consumer at its bound of bytes in hand: whatever frees bytes lets the next message out."""

from __future__ import annotations

import pytest

from tests.node.group_in_process import Group
from tests.node.group_play import labels, pass_ms, play


async def full(group: Group) -> None:
    """Let a consumer with much credit hold one message, which fills its hand; another waits."""
    group.join("a", credit=100)
    consumer = group.hands["a"].consumer
    assert consumer is not None
    consumer.in_hand_bytes_max = 1
    for _ in range(2):
        group.schedule("", 0, extra_bytes=1_000)
        await pass_ms(group, 10)
    assert labels(group) == ["m0"]


@pytest.mark.parametrize("nack", [False, True])
def test_a_settled_message_lets_the_next_out_though_no_credit_comes(nack: bool) -> None:
    async def steps(group: Group) -> None:
        await full(group)
        group.settle_first("a", 1, nack=nack, delay_ms=60_000 if nack else None)
        await group.commit()
        await group.settle()
        assert labels(group) == ["m0", "m1"]

    play(steps)
