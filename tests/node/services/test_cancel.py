"""Cancel and Get of a node that leads: what a caller is told, at either level of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from tarry.node.config import Upgrade
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.message_id import format_ids
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import MessageState
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tests.node.lone_leader import GROUP, TOPIC, Leader, Stream, leader, subscription, until

NAMES = {number: name.removeprefix("CANCEL_OUTCOME_") for name, number in pb.CancelOutcome.items()}


def led(folder: Path, act: Callable[[Leader], Awaitable[None]], *, level: int = 2) -> None:
    async def whole() -> None:
        finish: Literal["auto", "manual"] = "auto" if level > 1 else "manual"
        async with leader(folder, Holds(), upgrade=Upgrade(finish=finish)) as lead:
            await act(lead)

    asyncio.run(whole())


async def scheduled(lead: Leader, *delays_ms: int) -> list[str]:
    due_ms = lead.node.time.now_ms() + np.array(delays_ms)
    columns = await lead.schedule(len(delays_ms), due_ms)
    return format_ids(0, np.frombuffer(columns.hour, "<u4"), np.frombuffer(columns.global_index, "<u4"))


async def cancel(lead: Leader, *ids: str, remaining_groups: bool = False, every: bool = True) -> list[str]:
    request = pb.CancelRequest(ids=ids, remaining_groups=remaining_groups, every_outcome=every)
    answer = await lead.edge.cancel(request.SerializeToString())
    assert isinstance(answer, bytes), answer
    return [NAMES[number] for number in pb.CancelResponse.FromString(answer).outcomes]


async def state(lead: Leader, message: str) -> str:
    answer = await lead.edge.get(pb.GetRequest(id=message).SerializeToString())
    assert isinstance(answer, bytes), answer
    return MessageState.Name(pb.GetResponse.FromString(answer).state).removeprefix("MESSAGE_STATE_")


def test_a_message_is_cancelled_while_it_is_pending_and_once_it_is_released(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        pending, *due = await scheduled(lead, 3_600_000, -1, -1, -1)
        await until(lambda: lead.machine.queues.of(TOPIC).units == 3)
        unknown = format_ids(0, np.array([7]), np.array([7]))[0]
        asked = [due[0], pending, unknown, due[0], pending]
        again = "ALREADY_CANCELLED"
        assert await cancel(lead, *asked) == ["CANCELLED", "CANCELLED", "NOT_FOUND", again, again]
        assert await cancel(lead, *asked) == [again, again, "NOT_FOUND", again, again]
        assert [await state(lead, one) for one in (pending, *due[:2])] == [
            "CANCELLED", "CANCELLED", "RELEASED",
        ]  # fmt: skip
        stream = Stream(lead.edge, subscription("c", 10))
        await until(lambda: stream.received == 2 or stream.ended.done())
        assert await cancel(lead, *due) == [again, "ALREADY_DELIVERED", "ALREADY_DELIVERED"]
        await stream.leave()

    led(tmp_path, act)


def test_what_every_group_is_done_with_is_done_and_an_old_caller_is_told_as_before(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        due = await scheduled(lead, -1, -1, -1)
        stream = Stream(lead.edge, subscription("c", 1))
        await until(lambda: stream.received == 1)
        queue = lead.machine.queues.of(TOPIC).queue
        held = lead.group().feeds[queue].cursor - 1
        offset = np.array([held], "<u8").tobytes()
        assert await cancel(lead, due[held]) == ["ALREADY_DELIVERED"]
        await stream.leave()
        await lead.propose(log_pb.AckCommand(group=GROUP, queue=queue, offset=offset))
        assert await cancel(lead, *due) == ["ALREADY_DONE", "CANCELLED", "CANCELLED"]
        old = await cancel(lead, *due, every=False)
        assert old == ["ALREADY_RELEASED", "CANCELLED", "CANCELLED"]

    led(tmp_path, act)


def test_at_level_one_all_is_as_it_was_and_what_needs_two_is_refused(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        pending, due = await scheduled(lead, 3_600_000, -1)
        await until(lambda: lead.machine.queues.of(TOPIC).units == 1)
        for _ in range(2):
            assert await cancel(lead, pending, due) == ["CANCELLED", "ALREADY_RELEASED"]
        request = pb.CancelRequest(ids=[pending], remaining_groups=True).SerializeToString()
        refused = await lead.edge.cancel(request)
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.LEVEL_TOO_LOW

    led(tmp_path, act, level=1)


def test_what_is_not_pending_any_more_is_answered_without_a_commit(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        pending, due = await scheduled(lead, 3_600_000, -1)
        stream = Stream(lead.edge, subscription("c", 10))
        await until(lambda: stream.received == 1)
        assert await cancel(lead, pending) == ["CANCELLED"]
        before = lead.machine.applied_index
        assert await cancel(lead, pending, due) == ["ALREADY_CANCELLED", "ALREADY_DELIVERED"]
        assert lead.machine.applied_index == before
        await stream.leave()

    led(tmp_path, act)


def test_a_damaged_block_is_refused_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(lead: Leader) -> None:
        due = await scheduled(lead, *[-1] * 10)
        queue = lead.machine.queues.of(TOPIC)
        await until(lambda: queue.units == 10)
        queue.flush()
        (path,) = queue.folder.glob("*.ready")
        content = bytearray(path.read_bytes())
        content[40] ^= 1
        path.write_bytes(content)
        request = pb.CancelRequest(ids=due[:1], every_outcome=True).SerializeToString()
        refused = await lead.edge.cancel(request)
        assert isinstance(refused, Refusal)
        assert (refused.reason, refused.retry_ms) == (Reason.MESSAGE_DAMAGED, 1_000)
        assert "cancel again" in refused.text

    led(tmp_path, act)


def test_messages_of_a_deleted_topic_are_done(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        due = await scheduled(lead, -1)
        await until(lambda: lead.machine.queues.of(TOPIC).units == 1)
        await lead.delete_topic(TOPIC)
        assert await cancel(lead, *due) == ["ALREADY_DONE"]

    led(tmp_path, act)
