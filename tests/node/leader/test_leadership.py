"""A leadership counts the retries that it proposes, ends for units that are damaged, and another begins."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.delivery.inherited import Inherited
from tarry.node.leader import leadership as module
from tarry.node.leader.leadership import UnitsNotMended
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.dead_letters import dead_letter_topic
from tarry.proto.reasons import Reason
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.queue_checksums import BLOCK_UNITS
from tarry.replication.state_machine.ready_queue import UNIT, QueueDamaged, UnitsDamaged
from tarry.wheel.state import HOUR_MS
from tests.node.lone_leader import GROUP, RECORD, TOPIC, Leader, leader, until
from tests.node.repair.test_queues import damage_of, lose_unit


async def damaged(lead: Leader) -> UnitsDamaged:
    """Damage a queue of the leader, which has no peer to mend it from."""
    await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
    queue = lead.machine.queues.of(TOPIC)
    queue.append(np.zeros(BLOCK_UNITS, dtype=UNIT))
    lose_unit(lead.machine, 5, queue.queue)
    return damage_of(lead.machine, queue.queue)


async def led_again(lead: Leader) -> None:
    """End the leadership; return once there is another."""
    before = lead.node.leadership.delivery
    lead.node.leadership._lost.set()
    async with asyncio.timeout(5):
        await until(lambda: lead.node.leadership.delivery not in (before, None))


@pytest.mark.parametrize("begins", ["the lease is back", "a release is applied"])
async def test_damage_that_a_delivery_meets_ends_the_leadership_and_not_the_node(
    tmp_path: Path, begins: str
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        damage = await damaged(lead)
        leadership, queues = lead.node.leadership, lead.machine.queues
        assert leadership.delivery is not None
        numbers = queues.of(TOPIC).queue, queues.of(TOPIC, GROUP).queue
        group = leadership.delivery.group(TOPIC, GROUP, *numbers)

        def meet() -> Any:
            raise damage

        setattr(group, "_pump", meet)  # noqa: B010 - a method of one object
        if begins == "the lease is back":
            leadership._served = False
            leadership.look()
        else:
            queues._changed.add(numbers[0])
            leadership.applied()
        assert leadership.delivery is None


async def test_a_last_message_that_cannot_be_looked_at_counts_as_waiting_and_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        damage, leadership = await damaged(lead), lead.node.leadership

        async def looks(*_: object) -> bool:
            raise damage

        monkeypatch.setattr(module, "is_settled", looks)
        delivery = leadership.delivery
        assert not await leadership._is_settled(1, 2)
        assert leadership.delivery is delivery
        assert leadership._damage.queues.left == 1


async def test_a_queue_that_is_deleted_as_it_is_about_to_be_read_ends_nothing(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds()) as lead:
        await lead.ready(3)
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        leadership, queue = lead.node.leadership, lead.machine.queues.of(TOPIC)
        await lead.delete_topic(TOPIC)
        await until(lambda: queue.deleted)
        with pytest.raises(UnitsDamaged) as met:
            queue.at(np.array([0], np.uint64))
        delivery = leadership.delivery
        assert leadership.stop_for(met.value).reason is Reason.TOPIC_UNKNOWN
        assert leadership.delivery is delivery
        assert leadership._damage.queues.left == 0


async def test_damage_told_before_a_leadership_begins_does_not_hold_up_the_one_behind_it(
    tmp_path: Path,
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        damage, leadership = await damaged(lead), lead.node.leadership
        inherit = leadership._inherit

        async def told_late() -> Inherited:
            leadership.stop_for(damage)
            return await inherit()

        setattr(leadership, "_inherit", told_late)  # noqa: B010
        await led_again(lead)
        setattr(leadership, "_inherit", inherit)  # noqa: B010
        await led_again(lead)
        assert leadership._damage.queues.left == 1


async def test_damage_that_no_peer_mends_in_time_ends_the_node_and_its_state_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MENDED_S", 0.0)
    async with leader(tmp_path, Holds()) as lead:
        damage = await damaged(lead)
        lead.node.leadership._damage.queues.report(damage)
        with pytest.raises(UnitsNotMended):
            await lead.node.leadership._until_mended(damage)
    assert not issubclass(UnitsNotMended, QueueDamaged)  # for such a one the process takes a peer's state


@pytest.mark.parametrize(("after_ms", "group", "counted"), [(0, GROUP, 3), (HOUR_MS, GROUP, 0), (0, "", 0)])
async def test_copies_due_soon_count_until_they_are_applied(
    tmp_path: Path, after_ms: int, group: str, counted: int
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        leadership = lead.node.leadership
        await lead.ready(3)
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        assert leadership._dispatcher is not None
        coming = leadership._dispatcher._copies_coming
        retry = log_pb.RetryCommand(
            group=GROUP,
            queue=lead.machine.queues.of(TOPIC).queue,
            offset=np.arange(3, dtype="<u8").tobytes(),
            due_ms=np.full(3, lead.node.time.now_ms() + after_ms, "<i8").tobytes(),
            tag_mask=bytes(3 * 8),
            records=[RECORD] * 3,
            target_topic=TOPIC if group else dead_letter_topic(GROUP),
            target_group=group,
        )
        proposed = asyncio.ensure_future(leadership._propose(retry))
        await asyncio.sleep(0)
        assert coming() == counted
        assert not len((await proposed).stale)
        assert coming() == 0


async def test_a_state_of_the_next_leader_that_comes_before_the_end_of_this_leadership_is_kept(
    tmp_path: Path,
) -> None:
    async with leader(tmp_path, Holds()) as lead:
        leadership = lead.node.leadership
        assert leadership.delivery is not None
        term = leadership.delivery.term
        assert leadership.known().term == term
        leadership.receive_dispatch_state(log_pb.DispatchState(term=term + 1, sequence=1))
        assert leadership.known().term == term + 1  # also what a vote tells
        await led_again(lead)
        assert leadership._heard.term == term + 1
