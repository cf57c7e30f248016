"""Messages found by their idempotency keys at a node that leads alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import format_ids
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine import keys
from tarry.wheel.state import HOUR_MS
from tests.node.keys.test_find_by_key import QUIET, complete, find, ids
from tests.node.lone_leader import Leader, leader


async def schedule(lead: Leader, records: Sequence[Record], topic: str = "t") -> list[str]:
    raw = ScheduleBatchRequest(
        topics=[topic],
        due_ms=[lead.node.time.now_ms() + HOUR_MS] * len(records),
        records=[record.SerializeToString() for record in records],
    )
    answer = await lead.edge.schedule(raw.SerializeToString())
    assert isinstance(answer, bytes), answer
    columns = log_pb.ScheduledColumns.FromString(answer)
    return format_ids(0, np.frombuffer(columns.hour, "<u4"), np.frombuffer(columns.global_index, "<u4"))


async def by_idempotency_key(lead: Leader, key: str, topic: str = "t") -> list[str]:
    return await ids(lead, "", topic, idempotency_key=key)


async def ready(lead: Leader) -> None:
    """Idempotency keys are of level 2."""
    await lead.propose(log_pb.RaiseLevelCommand(level=2, now_ms=lead.node.time.now_ms()))
    await complete(lead)


async def test_a_message_is_found_by_its_idempotency_key_which_is_none_of_its_keys(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await ready(lead)
        a, b = await schedule(lead, [Record(idempotency_key="a", keys=["b"]), Record(idempotency_key="b")])
        (plain,) = await schedule(lead, [Record(keys=["a", "\0a"])])
        (other,) = await schedule(lead, [Record(idempotency_key="a")], "u")
        for _ in range(2):  # in memory, and on disk
            assert await by_idempotency_key(lead, "a") == [a]
            assert await by_idempotency_key(lead, "b") == [b]
            assert await by_idempotency_key(lead, "a", "u") == [other]
            assert await by_idempotency_key(lead, "c") == []
            assert (await ids(lead, "a"), await ids(lead, "b")) == ([plain], [a])
            await lead.node._core.keys.write()
        page = await find(lead, "", idempotency_key="a", records=True)
        assert isinstance(page, pb.FindByKeyResponse)
        found = page.messages[0]
        assert found.record == Record(idempotency_key="a", keys=["b"], stored_ms=found.stored_ms)


async def test_the_record_decides_whether_a_key_is_its_idempotency_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of keys with one hash, and of a key that begins as hashed idempotency keys do."""
    monkeypatch.setattr(keys, "hashes", lambda found: np.full(len(found), 7, np.uint64))
    monkeypatch.setattr("tarry.node.keys.search.hashes", keys.hashes)
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await ready(lead)
        (plain,) = await schedule(lead, [Record(keys=["a", "\0a"])])
        (a,) = await schedule(lead, [Record(idempotency_key="a")])
        assert await by_idempotency_key(lead, "a") == [a]
        assert await by_idempotency_key(lead, "\0a") == []
        assert await ids(lead, "a") == [plain]
