"""Keys of records, read all at once, and what is gathered of them for the key index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record, Retried
from tarry.replication.state_machine import keys
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine
from tarry.wheel.keys.run import hours_of, indices_of
from tests.replication.commands import NOW_MS
from tests.replication.state_machine.test_machine import fresh, run

__all__ = ["fresh"]

TEXTS = st.sampled_from(["", "a", "\0", "\0\0", "ü", "order-7", "\x12\x01\0"]) | st.text(max_size=4)


def pairs(found: keys.KeyColumns) -> list[tuple[int, int]]:
    return list(zip(found.message.tolist(), found.key_hash.tolist(), strict=True))


def one_by_one(records: list[bytes], first: int = 0) -> list[tuple[int, int]]:
    parsed = [Record.FromString(record) for record in records]
    named = [(at, key.encode()) for at, record in enumerate(parsed, first) for key in record.keys]
    named += [
        (at, keys.IDEMPOTENCY_PREFIX + record.idempotency_key.encode())
        for at, record in enumerate(parsed, first)
        if record.idempotency_key
    ]
    return [(at, int(keys.hashes([key])[0])) for at, key in named]


@given(
    st.lists(
        st.builds(
            lambda some, body, tags, one: Record(
                keys=some, body=body, tags=tags, idempotency_key=one
            ).SerializeToString(),
            st.lists(TEXTS, max_size=3),
            st.binary(max_size=5),
            st.lists(TEXTS, max_size=2),
            st.just("") | TEXTS,
        ),
        max_size=6,
    ),
    st.integers(0, 9),
)
def test_keys_of_records_read_at_once_are_those_of_each(records: list[bytes], first: int) -> None:
    assert pairs(keys.of_sound(records, first)) == one_by_one(records, first)
    assert pairs(keys.of_records(records)) == one_by_one(records)


def test_records_that_do_not_parse_and_copies_for_retries_have_no_keys() -> None:
    keyed = Record(keys=["k"]).SerializeToString()
    copy = Retried(record=keyed, hour=5, global_index=6, topic="t", group="g", attempt=2).SerializeToString()
    records = [keyed, b"\xff", copy, b"", b"\x12\x09k", keyed]
    assert pairs(keys.of_records(records)) == [(0, one_by_one([keyed])[0][1]), (5, one_by_one([keyed])[0][1])]


def test_an_idempotency_key_of_a_record_that_has_several_is_its_last() -> None:
    few, several = Record(idempotency_key="a").SerializeToString(), b""
    for key in ("b", "\0", "c"):
        several += Record(idempotency_key=key).SerializeToString()
    assert keys.idempotency_keys([few, several]) == [b"a", b"c"]
    assert keys.idempotency_keys([few, few]) == [b"a", b"a"]
    last = (1, int(keys.hashes([keys.IDEMPOTENCY_PREFIX + b"c"])[0]))
    assert last in pairs(keys.of_sound([few, several]))
    assert len(keys.of_sound([few, several]).message) == 4  # a row too many is no harm: the record decides


def test_hashes_of_keys_and_topics_never_change_for_they_are_on_disk() -> None:
    found = keys.of_topic(keys.hashes([b"a", b"order-7", b""]), np.array([0, 0, 1], np.uint32))
    assert keys.hashes([b"a", b"order-7", b""]).tolist() == [13965736321817755203, 7728299573458819802, 0]
    assert len({*found.tolist(), *keys.of_topic(keys.hashes([b"a"]), np.array([1], np.uint32)).tolist()}) == 4
    assert found.tolist() == [11161225487339695638, 8306501443696895984, 3068355145992359398]


def test_no_key_has_the_hash_of_records_that_could_not_be_read() -> None:
    every = np.array([0], np.uint64)
    mixed = keys.of_topic(every, np.array([0], np.uint32))
    unmixed = every ^ np.uint64(0x9E3779B97F4A7C15)  # which topic 0 turns into nothing
    assert keys.of_topic(unmixed, np.array([0], np.uint32)).tolist() == [keys.UNREAD + 1]
    assert mixed.tolist() != [keys.UNREAD]


def schedule(topics: list[str], topic: list[int], key_lists: list[list[str]], **more: Any) -> Any:
    records = [Record(keys=some).SerializeToString() for some in key_lists]
    due_ms = np.full(len(records), NOW_MS + 5, "<i8").tobytes()
    request = log_pb.ScheduleColumns(
        topics=topics, topic=np.array(topic, "<u4").tobytes(), due_ms=due_ms, records=records
    )
    return log_pb.ScheduleCommand(now_ms=NOW_MS, request=request, **more)


@pytest.mark.parametrize("noted", [True, False])
def test_an_entry_of_several_commands_gives_a_row_for_each_key_with_topic_and_id(
    fresh: Machine, *, noted: bool
) -> None:
    commands = [
        schedule(["t"], [0, 0], [["a"], []]),
        schedule(["u", "t"], [0, 1, 0], [["a"], ["b", "a"], []]),
    ]
    for command in commands if noted else []:
        found = keys.of_records(list(command.request.records))
        command.keys_noted = True
        command.key_message, command.key_hash = found.message.tobytes(), found.key_hash.tobytes()
    assert fresh.keyed.take() == []
    run(fresh, [encode(commands[0])])
    assert fresh.keyed.take() == []  # nobody wants them
    fresh.keyed.wanted = True
    fresh.apply(2, 1, [encode(command) for command in commands])
    rows = np.concatenate(fresh.keyed.take())
    t, u = (fresh.queues.of(name).queue for name in "tu")
    expected = [(b"a", t, 2), (b"a", u, 4), (b"b", t, 5), (b"a", t, 5)]
    hashes = keys.of_topic(
        keys.hashes([key for key, _, _ in expected]), np.array([queue for _, queue, _ in expected], np.uint32)
    )
    assert rows["hash"].tolist() == hashes.tolist()
    assert indices_of(rows["place"]).tolist() == [number for _, _, number in expected]
    assert set(hours_of(rows["place"]).tolist()) == {(NOW_MS + 5) // 3_600_000}
    assert fresh.keyed.take() == []
