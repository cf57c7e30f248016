"""Born, stored, due, delivered: what a message keeps from its schedule on, and what answers tell of it."""

from __future__ import annotations

from pathlib import Path

from tarry.node.app import _replication_settings
from tarry.node.config import Limits, NodeConfig
from tarry.node.services.key_calls import _fault
from tarry.node.services.schedule_request import Intake
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest, ScheduleRequest
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS
from tests.node.keys.test_find_by_key import QUIET, complete, find
from tests.node.lone_leader import Leader, leader
from tests.node.services.test_changes import reschedule

NOW_MS = 1_780_000_000_000


def taken(request: ScheduleBatchRequest | ScheduleRequest) -> list[Record] | Refusal:
    intake = Intake(Limits(), ())
    if isinstance(request, ScheduleRequest):
        command = intake.one(request, NOW_MS)
    else:
        command = intake.batch(request.SerializeToString(), NOW_MS)
    if isinstance(command, Refusal):
        return command
    assert not command.request.born_ms  # the records have it
    return list(map(Record.FromString, command.request.records))


def test_the_leader_notes_when_a_message_was_born_and_stored() -> None:
    records = [Record(body=b"a").SerializeToString(), Record(body=b"b", tags=["t"]).SerializeToString()]
    batch = ScheduleBatchRequest(topics=["t"], delay_ms=[1, 2], records=records, born_ms=NOW_MS - 5)
    assert taken(batch) == [
        Record(body=b"a", born_ms=NOW_MS - 5, stored_ms=NOW_MS),
        Record(body=b"b", tags=["t"], born_ms=NOW_MS - 5, stored_ms=NOW_MS),
    ]
    one = ScheduleRequest(topic="t", delay_ms=0, record=Record(body=b"c"), born_ms=7)
    assert taken(one) == [Record(body=b"c", born_ms=7, stored_ms=NOW_MS)]


def test_what_a_record_says_of_its_times_does_not_count() -> None:
    forged = Record(body=b"a", born_ms=1, stored_ms=2)
    assert taken(ScheduleRequest(topic="t", delay_ms=0, record=forged)) == [
        Record(body=b"a", stored_ms=NOW_MS)
    ]


def test_a_birth_that_is_no_time_is_refused() -> None:
    for born_ms in (-1, 253_402_300_800_000):
        refused = taken(ScheduleRequest(topic="t", delay_ms=0, record=Record(), born_ms=born_ms))
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.RECORD_INVALID
    at_most = ScheduleRequest(topic="t", delay_ms=0, record=Record(), born_ms=253_402_300_799_999)
    assert not isinstance(taken(at_most), Refusal)


def test_the_log_has_room_for_the_largest_request_and_all_that_the_leader_adds_to_it(tmp_path: Path) -> None:
    """With a level's number for a due time, an ordering key, as many keys as have room, and both times."""
    limits = Limits(batch_messages_max=1 << 16)
    names = [f"{number:05}" for number in range(limits.batch_messages_max)]

    def request(body_bytes: int) -> bytes:
        body = bytes(body_bytes)
        records = [
            Record(body=body, keys=[name, f"k{name}"], ordering_key="o").SerializeToString() for name in names
        ]
        levels = [1] * len(names)
        batch = ScheduleBatchRequest(topics=["t"], delay_level=levels, records=records, born_ms=NOW_MS)
        return batch.SerializeToString()

    raw = request(1 + (limits.batch_bytes_max - len(request(1))) // len(names))
    assert limits.batch_bytes_max - len(raw) < len(names)
    command = Intake(limits, (1_000,)).batch(raw, NOW_MS)
    assert not isinstance(command, Refusal), command
    assert len(command.key_hash) == 16 * len(names)
    member = "127.0.0.1:1"
    config = NodeConfig(node="n1", data=tmp_path, listen=member, members={"n1": member}, limits=limits)
    assert len(encode(command)) <= _replication_settings(config).command_bytes_max


async def put(lead: Leader, key: str, born_ms: int, ahead_ms: int = HOUR_MS) -> None:
    due_ms = [lead.node.time.now_ms() + ahead_ms]
    records = [Record(keys=[key]).SerializeToString()]
    batch = ScheduleBatchRequest(topics=["t"], due_ms=due_ms, records=records, born_ms=born_ms)
    assert isinstance(await lead.edge.schedule(batch.SerializeToString()), bytes)


async def test_messages_of_a_key_are_found_by_when_they_were_born_and_stored(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        for born_ms in (1_000, 2_000, 0):
            await put(lead, "k", born_ms)

        async def born(**span: int) -> list[int]:
            page = await find(lead, "k", **span)
            assert isinstance(page, pb.FindByKeyResponse), page
            return [message.born_ms for message in page.messages]

        assert await born() == [1_000, 2_000, 0]
        assert await born(born_from_ms=1_000, born_to_ms=2_000) == [1_000]
        assert await born(born_from_ms=1_001) == [2_000]
        assert await born(born_to_ms=5_000) == [1_000, 2_000]  # one that does not have the time is not found
        first = await find(lead, "k", limit=1)
        assert isinstance(first, pb.FindByKeyResponse)
        stored_ms = first.messages[0].stored_ms
        assert 1_000 in await born(stored_from_ms=stored_ms)
        assert await born(stored_to_ms=stored_ms) == []
        now_ms = lead.node.time.now_ms()
        assert await born(stored_from_ms=now_ms + HOUR_MS) == []
        assert await born(stored_from_ms=now_ms + 9 * HOUR_MS, due_to_ms=now_ms) == []


async def test_what_was_due_in_the_past_or_moved_there_is_found_by_when_it_was_stored(tmp_path: Path) -> None:
    """A lookup passes over the hours before the first time, so a message must not lie in one of them."""
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        begin_ms = lead.node.time.now_ms()
        await lead.propose(log_pb.RaiseLevelCommand(level=2, now_ms=begin_ms))
        await put(lead, "k", 1, -HOUR_MS)
        await put(lead, "k", 2, 9 * HOUR_MS)
        later = await find(lead, "k", born_from_ms=2)
        assert isinstance(later, pb.FindByKeyResponse)
        moved = await reschedule(lead, later.messages[0].id, due_ms=[begin_ms - 5 * HOUR_MS])
        assert moved == ["CHANGED"]
        page = await find(lead, "k", stored_from_ms=begin_ms)
        assert isinstance(page, pb.FindByKeyResponse)
        assert sorted(message.born_ms for message in page.messages) == [1, 2]


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    for name in ("due", "stored", "born"):
        for span in ((5, 5), (5, 4), (-1, 0)):
            request = pb.FindByKeyRequest(topic="t", key="k")
            setattr(request, f"{name}_from_ms", span[0])
            setattr(request, f"{name}_to_ms", span[1])
            refused = _fault(request)
            assert isinstance(refused, Refusal)
            assert name in refused.text
