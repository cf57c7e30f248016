"""The dispatcher's loop on a real state machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from google.protobuf.message import Message

from tarry.node.clock import ClusterTime
from tarry.node.config import Dispatch
from tarry.node.dispatcher import Dispatcher
from tarry.replication import command
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, schedule


class _Standing:
    """A clock that stands until it is put forward."""

    now_ms = NOW_MS

    def monotonic_ms(self) -> float:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


async def test_a_backlog_is_released_by_more_slices_a_commit_and_then_by_one_again(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.apply(schedule([NOW_MS - 1] * 95))
    waiting: list[tuple[bytes, asyncio.Future[Any]]] = []
    commits: list[int] = []

    def commit() -> None:
        together = [*waiting]
        waiting.clear()
        commits.append(len(together))
        index = replica.machine.applied_index + 1
        for (_, answer), outcome in zip(
            together, replica.machine.apply(index, 1, [said for said, _ in together]), strict=True
        ):
            answer.set_result(outcome)

    async def propose(payload: Message) -> Any:
        loop = asyncio.get_running_loop()
        if not waiting:
            loop.call_later(0, commit)
        waiting.append((command.encode(payload), loop.create_future()))
        return await waiting[-1][1]

    settings = Dispatch(slice_messages_max=10, slices_max=4)
    clock = _Standing()
    dispatcher = Dispatcher(replica.machine, ClusterTime(clock), settings, propose)
    running = asyncio.ensure_future(dispatcher.run())
    while replica.machine.wheel.pending:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert commits == [1, 2, 4, 4]
    clock.now_ms += 2_000
    replica.apply(schedule([NOW_MS + 2_000] * 5))
    dispatcher.inserted()
    while replica.machine.wheel.pending:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert commits == [1, 2, 4, 4, 1]
    running.cancel()
