"""What expires of a slow group by ``retention_max_ms`` goes; all else of it goes on as it was."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from tarry.node.delivery.retries import Delay
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.refusal import Refusal
from tests.node.group_in_process import Group
from tests.node.group_play import pass_ms, play

HOUR_MS = 3_600_000


def trim(group: Group, offset: int, hours: Sequence[int] = ()) -> None:
    """Let the messages below an offset expire, and forget hours."""
    group.apply(
        log_pb.TrimCommand(
            queue=np.array([group.queue], "<u4").tobytes(),
            offset=np.array([offset], "<u8").tobytes(),
            hour=np.array(hours, "<u4").tobytes(),
        )
    )
    group.show_applied()


def given(group: Group) -> list[tuple[str, bool]]:
    return [(one.label, one.maybe_duplicate) for one in group.given]


def test_what_is_in_hand_above_the_cut_stays_in_hand_and_can_be_acknowledged() -> None:
    async def steps(group: Group) -> None:
        for _ in range(4):
            group.schedule("", 0)
        group.join("a", credit=4)
        await pass_ms(group, 1)
        group.join("b", credit=4)
        trim(group, 2)
        await pass_ms(group, 20)
        assert given(group) == [(f"m{number}", False) for number in range(4)]
        assert group.settle_first("a", 4, nack=False)
        await group.settle()
        await group.commit()
        assert group.machine.queues.acknowledged["g", group.queue].floor == 4

    play(steps)


def test_what_expires_in_hand_is_stale_and_lets_what_waits_for_its_key_out() -> None:
    async def steps(group: Group) -> None:
        for key in ("k", "", "k", "k"):
            group.schedule(key, 0)
        group.join("a", credit=9)
        await pass_ms(group, 1)
        assert given(group) == [("m0", False), ("m1", False)]  # the others wait for the first of their key
        trim(group, 1)
        await pass_ms(group, 20)
        assert given(group)[2:] == [("m2", False)]
        (feed,) = (feed for feed in group.group.feeds.values() if feed.in_flight)
        assert feed.in_flight["a"].messages == 2
        answer = group.group.settlement.ack("a", group.queue, np.array([0, 1], np.uint64))
        await group.settle()
        await group.commit()
        assert not isinstance(answer, Refusal)
        assert answer.result().tolist() == [0]
        await pass_ms(group, 2_000)  # its lease does not end
        assert group.failed == []
        labels = [payload for payload, _ in group.log if isinstance(payload, log_pb.RetryCommand)]
        assert [np.frombuffer(one.offset, "<u8").tolist() for one in labels] == [[2]]

    play(steps)


def test_what_waits_or_was_given_back_expires_too() -> None:
    async def steps(group: Group) -> None:
        for _ in range(6):
            group.schedule("", 0)
        group.join("a", credit=2)
        await pass_ms(group, 1)
        group.leave("a", clean=True)
        await pass_ms(group, 1)
        trim(group, 3)
        group.join("b", credit=9)
        await pass_ms(group, 20)
        assert [label for label, _ in given(group)[2:]] == ["m3", "m4", "m5"]

    play(steps)


def test_what_the_leader_before_delivered_and_is_held_expires_too() -> None:
    async def steps(group: Group) -> None:
        for _ in range(4):
            group.schedule("k", 0)
            group.schedule("", 0)
        group.join("a", credit=9)
        await pass_ms(group, 1)
        await group.fail_over(0, group.cursors())
        group.join("b", credit=9)
        trim(group, 5)
        await pass_ms(group, 1_500)
        await group.commit()
        await pass_ms(group, 100)
        assert {label for label, _ in given(group)[5:]} == {"m5", "m6", "m7"}

    play(steps)


@pytest.mark.parametrize("ledger", [False, True])
def test_a_nack_of_what_expires_meanwhile_reads_nothing_of_it(ledger: bool) -> None:
    async def steps(group: Group) -> None:
        group._ledger.enabled = ledger
        group.schedule("", 0)
        group.schedule("", 0)
        group.join("a", credit=2)
        await pass_ms(group, 1)
        now_ms = group.time.now_ms()
        group.apply(log_pb.ReleaseCommand(until_ms=now_ms + 2 * HOUR_MS, count=9, now_ms=now_ms))
        answer = group.group.settlement.nack("a", group.queue, np.array([0, 1], np.uint64), Delay(5))
        tasks = list(group._tasks)
        (hour,) = group.machine.wheel.hours()
        trim(group, 2, hours=[hour])
        assert group.machine.wheel.hours() == ()
        await asyncio.gather(*tasks)
        assert not isinstance(answer, Refusal)
        assert (answer.result().tolist(), group.log) == ([], [])

    play(steps)
