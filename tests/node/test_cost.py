"""The hot path of a message costs no Python statement of its own: more messages run no more lines."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tests.node.group_in_process import GROUP, TOPIC, Group
from tests.simulation import virtual_loop

FEW, MANY = 100, 1_000  # each of them one batch for the consumer
DUE_IN_MS = 40
RECORD = Record(body=b"x" * 100).SerializeToString()


@contextmanager
def counted(lines: Counter[str], step: str) -> Iterator[None]:
    """Count the lines of tarry's own code that are run meanwhile."""

    def trace(frame: FrameType, event: str, _: object) -> Any:
        if event == "line" and frame.f_globals.get("__name__", "").startswith("tarry."):
            lines[step] += 1
        return trace

    before = sys.gettrace()
    gc.disable()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
        gc.enable()


async def life_of(folder: Path, count: int) -> Counter[str]:
    """Lines run by each step in the life of `count` messages, from the request to the committed ack."""
    lines: Counter[str] = Counter()
    group = Group(folder)
    now_ms = group.time.now_ms()
    due_ms = now_ms + np.arange(count) % DUE_IN_MS
    raw = ScheduleBatchRequest(topics=[TOPIC], due_ms=due_ms, records=[RECORD] * count).SerializeToString()
    with counted(lines, "intake"):
        command = group.take_in(raw)
    with counted(lines, "schedule"):
        group.apply(command)
    group.join("a", credit=MANY)
    await asyncio.sleep(DUE_IN_MS / 1_000)
    release = log_pb.ReleaseCommand(until_ms=now_ms + DUE_IN_MS, count=count, now_ms=now_ms)
    with counted(lines, "release"):
        released = group.apply(release)
    with counted(lines, "delivery"):
        group.show_applied()
        await asyncio.sleep(0)
        group.group.pump()
    consumer = group.hands["a"].consumer
    assert consumer is not None
    (response,) = consumer.take_all()
    delivered = consumer_pb.ConsumeResponse.FromString(response).deliveries
    offsets = np.array(delivered.offset, np.uint64)
    with counted(lines, "ack"):
        answer = group.group.settlement.ack("a", delivered.queue, offsets)
        for _ in range(3):
            await asyncio.sleep(0)
    ((ack, done),) = group.log
    with counted(lines, "commit of the ack"):
        outcome = group.apply(ack)
    done.set_result(outcome)
    assert isinstance(answer, asyncio.Future)
    assert (len(offsets), len(await answer)) == (count, 0), released
    assert group.machine.queues.acknowledged[GROUP, delivered.queue].contains(offsets).all()
    await group.end()
    group.machine.close()
    return lines


def test_a_message_costs_no_statement_from_its_request_to_its_acknowledgement(tmp_path: Path) -> None:
    virtual_loop.run(life_of(tmp_path / "first", FEW))  # what is imported or cached by the first use
    few = virtual_loop.run(life_of(tmp_path / "few", FEW))
    many = virtual_loop.run(life_of(tmp_path / "many", MANY))
    more = {step: many[step] - few[step] for step in few}
    assert {step: lines for step, lines in more.items() if lines > 50} == {}
    assert min(few.values()) > 0
