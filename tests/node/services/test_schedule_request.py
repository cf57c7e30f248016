"""Every limit at its edge, and every refusal by its reason."""

from __future__ import annotations

import gc
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.config import CLASSIC_DELAY_LEVELS_MS, Limits
from tarry.node.edge.names import no_more_queues
from tarry.node.services.schedule_request import Intake, body_too_large
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest, ScheduleRequest
from tarry.replication.state_machine.lanes import lane_of
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.refusal import Refusal

NOW_MS = 1_795_000_000_000
LIMITS = Limits(
    topic_chars_max=5,
    body_bytes_max=100,
    properties_max=2,
    keys_max=2,
    tags_max=2,
    record_overhead_bytes_max=100,
    batch_messages_max=3,
    batch_topics_max=2,
    batch_bytes_max=10_000,
    due_horizon_ms=1_000_000,
    jitter_ms_max=5_000,
)
INTAKE = Intake(LIMITS, CLASSIC_DELAY_LEVELS_MS)
RECORD = Record(body=b"x").SerializeToString()
FORGED = Record(properties={"tarry.group": "g"}).SerializeToString()


def batch(**fields: object) -> log_pb.ScheduleCommand | Refusal:
    given = {"topics": ["t"], "records": [RECORD], **fields}
    return INTAKE.batch(ScheduleBatchRequest(**given).SerializeToString(), NOW_MS)  # type: ignore[arg-type]


def one(record: Record | None = None, **fields: object) -> log_pb.ScheduleCommand | Refusal:
    given = {"topic": "t", "delay_ms": 1, **fields}
    return INTAKE.one(ScheduleRequest(record=record or Record(), **given), NOW_MS)  # type: ignore[arg-type]


def due(command: log_pb.ScheduleCommand | Refusal) -> list[int]:
    assert isinstance(command, log_pb.ScheduleCommand)
    return np.frombuffer(command.due_ms or command.request.due_ms, dtype="<i8").tolist()


def test_a_batch_may_name_as_many_topics_as_the_limit_says() -> None:
    command = batch(delay_ms=[1] * 3, records=[RECORD] * 3, topics=["a", "b"], topic=[0, 1, 1])
    assert isinstance(command, log_pb.ScheduleCommand)
    assert command.request.topics == ["a", "b"]


def test_each_way_to_say_when_becomes_a_due_time() -> None:
    assert due(batch(due_ms=[NOW_MS + 7])) == [NOW_MS + 7]
    assert due(batch(delay_ms=[7])) == [NOW_MS + 7]
    assert due(batch(delay_level=[18])) == [NOW_MS + 7_200_000]
    assert due(one(delay_ms=0)) == [NOW_MS]


def test_a_jitter_puts_a_message_off_within_its_window_and_a_repeated_request_equally() -> None:
    given = {"records": [RECORD] * 3, "jitter_ms": [0, 10, 5_000], "producer": "p"}
    seen = []
    for sequence in range(1, 200):
        command = batch(due_ms=[NOW_MS] * 3, sequence=sequence, **given)
        assert due(command) == due(batch(due_ms=[NOW_MS] * 3, sequence=sequence, **given))
        assert isinstance(command, log_pb.ScheduleCommand)
        assert not command.request.jitter_ms
        assert due(one(delay_ms=7, jitter_ms=1))[0] - NOW_MS in (7, 8)
        seen.append(due(command))
    later = np.array(seen) - NOW_MS
    assert later[:, 0].max() == 0
    assert set(later[:, 1].tolist()) == set(range(11))
    assert later[:, 2].min() < 300
    assert 4_700 < later[:, 2].max() <= 5_000


def test_the_classic_eighteen_levels() -> None:
    levels = re.findall(r"\d+[smh]", "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")
    unit = {"s": 1_000, "m": 60_000, "h": 3_600_000}
    assert [int(text[:-1]) * unit[text[-1]] for text in levels] == list(CLASSIC_DELAY_LEVELS_MS)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({}, Reason.DUE_MISSING),
        ({"due_ms": [1], "delay_ms": [1]}, Reason.DUE_AMBIGUOUS),
        ({"due_ms": [-1]}, Reason.DUE_INVALID),
        ({"due_ms": [2**63 - 1]}, Reason.DUE_TOO_FAR),
        ({"due_ms": [NOW_MS + 1_000_001]}, Reason.DUE_TOO_FAR),
        ({"delay_ms": [-1]}, Reason.DELAY_NEGATIVE),
        ({"delay_ms": [-(2**63)]}, Reason.DELAY_NEGATIVE),
        ({"delay_ms": [1_000_001]}, Reason.DUE_TOO_FAR),
        ({"delay_ms": [2**63 - 1]}, Reason.DUE_TOO_FAR),
        ({"delay_level": [0]}, Reason.DELAY_LEVEL_UNKNOWN),
        ({"delay_level": [19]}, Reason.DELAY_LEVEL_UNKNOWN),
        ({"delay_ms": [1], "topics": []}, Reason.TOPIC_INVALID),
        ({"delay_ms": [1], "topics": [""]}, Reason.TOPIC_INVALID),
        ({"delay_ms": [1], "topics": ["a/b"]}, Reason.TOPIC_INVALID),
        ({"delay_ms": [1], "topics": ["."]}, Reason.TOPIC_INVALID),
        ({"delay_ms": [1], "topics": ["ü"]}, Reason.TOPIC_INVALID),
        ({"delay_ms": [1], "topics": ["sixsix"]}, Reason.TOPIC_INVALID),
        ({"delay_ms": [1], "topic": [1]}, Reason.COLUMNS_DIFFER),
        ({"delay_ms": [1], "topics": ["a", "b"]}, Reason.COLUMNS_DIFFER),
        ({"delay_ms": [1] * 3, "records": [RECORD] * 3, "topics": ["a", "b", "c"]}, Reason.BATCH_TOO_LARGE),
        ({"delay_ms": [1, 2]}, Reason.COLUMNS_DIFFER),
        ({"delay_ms": [1], "tag_mask": [1, 2]}, Reason.COLUMNS_DIFFER),
        ({"delay_ms": [1], "jitter_ms": [1, 2]}, Reason.COLUMNS_DIFFER),
        ({"delay_ms": [1], "jitter_ms": [5_001]}, Reason.JITTER_TOO_LARGE),
        ({"records": []}, Reason.BATCH_EMPTY),
        ({"delay_ms": [1] * 4, "records": [RECORD] * 4}, Reason.BATCH_TOO_LARGE),
        ({"delay_ms": [1], "records": [b"x" * 10_000]}, Reason.BATCH_TOO_LARGE),
        ({"delay_ms": [1], "records": [b"\xff\xff"]}, Reason.RECORD_INVALID),
        ({"delay_ms": [1], "producer": "p"}, Reason.PRODUCER_INVALID),
        ({"delay_ms": [1], "producer": "p" * 65, "sequence": 1}, Reason.PRODUCER_INVALID),
        ({"delay_ms": [1], "producer": "p", "sequence": 2**63}, Reason.PRODUCER_INVALID),
        ({"delay_ms": [1], "topics": ["dlq.t"]}, Reason.TOPIC_INVALID),
        ({"delay_ms": [1], "records": [FORGED]}, Reason.PROPERTY_RESERVED),
    ],
)
def test_a_bad_batch_is_refused_by_its_reason(fields: dict[str, object], reason: Reason) -> None:
    refusal = batch(**fields)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is reason
    assert refusal.text


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (Record(body=b"x" * 101), Reason.RECORD_TOO_LARGE),
        (Record(properties={"p": "x" * 200}), Reason.RECORD_TOO_LARGE),
        (Record(properties={"a": "", "b": "", "c": ""}), Reason.TOO_MANY_PROPERTIES),
        (Record(keys=["a", "b", "c"]), Reason.TOO_MANY_KEYS),
        (Record(tags=["a", "b", "c"]), Reason.TOO_MANY_TAGS),
        (Record(ordering_key="k" * 129), Reason.ORDERING_KEY_TOO_LONG),
    ],
)
def test_a_bad_record_is_refused_by_its_reason(record: Record, reason: Reason) -> None:
    refusal = one(record)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is reason


def test_names_that_only_look_reserved_are_taken() -> None:
    like = Record(
        body=b"tarry.group", properties={"my.tarry.group": "tarry.x", "tarry": "t"}, tags=["tarry.x"]
    )
    intake = Intake(Limits(), ())
    assert isinstance(batch(delay_ms=[1], producer="p", sequence=2**63 - 1), log_pb.ScheduleCommand)
    request = ScheduleRequest(topic="dlq", record=like, delay_ms=1)
    assert isinstance(intake.one(request, NOW_MS), log_pb.ScheduleCommand)


def test_a_producer_s_command_has_the_leader_s_bounds_and_one_without_a_name_none() -> None:
    intake = Intake(Limits(producers_max=7, producer_silent_ms=8), ())
    for name, bounds in (("p", (7, 8)), ("", (0, 0))):
        request = ScheduleRequest(topic="t", record=Record(body=b"x"), delay_ms=1, producer=name, sequence=1)
        command = intake.one(request, NOW_MS)
        assert isinstance(command, log_pb.ScheduleCommand)
        assert (command.producers_max, command.producer_silent_ms) == bounds


def test_a_reserved_property_is_refused_wherever_it_stands_with_its_place_and_what_to_do() -> None:
    refusal = batch(delay_ms=[1] * 3, records=[RECORD, FORGED, RECORD])
    assert isinstance(refusal, Refusal)
    assert refusal.facts["position"] == "1"
    assert "leave it out" in refusal.text
    assert isinstance(batch(delay_ms=[1] * 2, records=[FORGED] * 2), Refusal)
    single = one(Record(properties={"tarry.": ""}))
    assert isinstance(single, Refusal)
    assert single.reason is Reason.PROPERTY_RESERVED


@pytest.mark.parametrize("size", [0, 1, 2, 3, 94, 127, 128, 250, 16_383, 16_384, 20_000])
def test_an_ordering_key_is_found_beside_a_body_of_any_length(size: int) -> None:
    intake = Intake(Limits(), ())
    bodies = [Record(body=b"x" * size), Record(body=b"x" * size, ordering_key="k"), Record()]
    columns = log_pb.ScheduleColumns(
        topics=["t"],
        delay_ms=np.zeros(3, dtype="<i8").tobytes(),
        records=[record.SerializeToString() for record in bodies],
    )
    command = intake.batch(columns.SerializeToString(), 0)
    assert isinstance(command, log_pb.ScheduleCommand)
    assert np.frombuffer(command.lane, "<u4").tolist() == [0, lane_of("k"), 0]


@pytest.mark.parametrize(
    "command",
    [
        one(Record(body=b"x" * 100, tags=["a", "b"], keys=["a", "b"], properties={"a": "", "b": ""})),
        batch(delay_ms=[1_000_000] * 3, records=[RECORD] * 3),
        batch(delay_ms=[1], topics=["fives"]),
        batch(due_ms=[0]),
    ],
)
def test_what_just_fits_is_taken(command: object) -> None:
    assert isinstance(command, log_pb.ScheduleCommand)


def test_a_refusal_names_the_position_of_the_first_bad_message() -> None:
    refusal = batch(delay_ms=[1, -5], records=[RECORD] * 2)
    assert isinstance(refusal, Refusal)
    assert refusal.facts == {"position": "1"}


def test_unpacked_columns_are_legal_protobuf_and_taken() -> None:
    record = bytes([0x4A, len(RECORD)]) + RECORD
    unpacked = (
        b"\x31" + (5).to_bytes(8, "little") + b"\x31" + (6).to_bytes(8, "little")
    )  # field 6, 64-bit, twice
    raw = b"\x1a\x01t" + unpacked + record + record
    assert due(INTAKE.batch(raw, NOW_MS)) == [NOW_MS + 5, NOW_MS + 6]


@pytest.mark.parametrize(
    "column", [{"due_ms": bytes(7)}, {"topic": bytes(3)}, {"tag_mask": b"1"}, {"jitter_ms": b"\xff" * 11}]
)
def test_a_column_that_ends_within_a_value_is_refused(column: dict[str, bytes]) -> None:
    given = {"due_ms": bytes(8), **column}
    columns = log_pb.ScheduleColumns(topics=["t"], records=[RECORD], **given)  # type: ignore[arg-type]
    refusal = INTAKE.batch(columns.SerializeToString(), NOW_MS)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.COLUMNS_DIFFER


BODIES = st.builds(Record, body=st.binary(max_size=300)).map(Record.SerializeToString)
HEADS = st.sampled_from((b"\x22", b"\x22\x02", b"\x22\x80"))


@given(st.lists(BODIES | st.builds(bytes.__add__, HEADS, st.binary(max_size=4)), min_size=1, max_size=3))
def test_records_are_taken_where_each_parses_and_its_body_is_small_enough(records: list[bytes]) -> None:
    try:
        sizes = [len(Record.FromString(record).body) for record in records]
    except DecodeError:
        reason = Reason.RECORD_INVALID
    else:
        reason = Reason.RECORD_TOO_LARGE if max(sizes) > LIMITS.body_bytes_max else None
    columns = log_pb.ScheduleColumns(topics=["t"], delay_ms=bytes(8 * len(records)), records=records)
    command = INTAKE.batch(columns.SerializeToString(), NOW_MS)
    assert (command.reason if isinstance(command, Refusal) else None) is reason


def test_garbage_is_refused() -> None:
    refusal = INTAKE.batch(b"\xff" * 50, NOW_MS)
    assert isinstance(refusal, Refusal)
    assert refusal.reason is Reason.RECORD_INVALID


def test_a_batch_costs_no_statement_a_message() -> None:
    intake = Intake(Limits(), CLASSIC_DELAY_LEVELS_MS)

    def lines(n: int) -> int:
        request = ScheduleBatchRequest(topics=["t"], delay_ms=[5] * n, records=[RECORD] * n)
        raw = request.SerializeToString()
        count = 0

        def trace(frame: object, event: str, arg: object) -> object:
            nonlocal count
            count += event == "line"
            return trace

        gc.disable()  # its callbacks would be counted too
        sys.settrace(trace)
        try:
            intake.batch(raw, NOW_MS)
        finally:
            sys.settrace(None)
            gc.enable()
        return count

    lines(10)
    assert lines(10) == lines(1_000)


def test_a_body_is_held_to_the_limit_of_its_own_topic() -> None:
    records = [Record(body=bytes(size)).SerializeToString() for size in (10, 11, 30)]
    topic = np.array([0, 1, 2], dtype="<u4").tobytes()
    request = log_pb.ScheduleColumns(topics=["small", "large", "any"], topic=topic, records=records)
    assert body_too_large(request, [10, 11, 0]) is None
    refusal = body_too_large(request, [10, 10, 0])
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.facts["position"]) == (Reason.RECORD_TOO_LARGE, "1")
    assert "'large'" in refusal.text
    alone = log_pb.ScheduleColumns(topics=["small"], records=records)
    assert body_too_large(alone, [29]) is not None
    assert body_too_large(alone, [30]) is None


def test_no_topic_and_no_group_is_made_beyond_their_limit(tmp_path: Path) -> None:
    queues, limits = Queues(tmp_path), Limits(queues_max=2)
    queues.of("a")
    assert no_more_queues(queues, limits) is None
    queues.of("a", "g")
    refusal = no_more_queues(queues, limits)
    assert isinstance(refusal, Refusal)
    assert (refusal.reason, refusal.facts["queues_max"]) == (Reason.TOO_MANY_QUEUES, "2")
    queues.delete_topic("a")
    assert no_more_queues(queues, limits) is None
