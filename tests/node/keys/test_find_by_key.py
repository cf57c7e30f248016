"""Messages found by their keys at a node that leads alone."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.config import Dispatch, Token
from tarry.node.edge.auth import Authorizer
from tarry.node.keys import search
from tarry.node.services import key_calls
from tarry.node.services.key_calls import KeyCalls
from tarry.node.services.schedule_request import KEYS_OF_MESSAGE
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import MessageState, Record
from tarry.proto.tarry_producer_pb2 import CancelRequest, ScheduleBatchRequest
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine import keys
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.state import HOUR_MS
from tests.node.decay import turn_bit
from tests.node.lone_leader import Leader, leader, until
from tests.simulation.edge import Context

QUIET = Dispatch(checkpoint_ms=3_600_000)
SLOW = Dispatch(checkpoint_ms=3_600_000, scrub_bytes_per_s=1)
"""To build an index takes longer than a test."""


async def schedule(
    lead: Leader, key_lists: Sequence[Sequence[str]], due_ms: Any, topic: str = "t"
) -> list[str]:
    records = [
        Record(keys=some, body=str(at).encode()).SerializeToString() for at, some in enumerate(key_lists)
    ]
    due_ms = np.broadcast_to(due_ms, len(records))
    raw = ScheduleBatchRequest(topics=[topic], due_ms=due_ms, records=records).SerializeToString()
    answer = await lead.edge.schedule(raw)
    assert isinstance(answer, bytes), answer
    columns = log_pb.ScheduledColumns.FromString(answer)
    hour, index = np.frombuffer(columns.hour, "<u4"), np.frombuffer(columns.global_index, "<u4")
    return [str(MessageId(0, int(h), int(i))) for h, i in zip(hour, index, strict=True)]


def calls(lead: Leader, tokens: dict[str, Token] | None = None) -> KeyCalls:
    return KeyCalls(lead.node._core, Authorizer(tokens or {}), lead.edge._calls)


class Bearer(Context):
    """A call with a token."""

    def __init__(self, token: str) -> None:
        self._token = token

    def invocation_metadata(self) -> Any:
        return (("authorization", f"Bearer {self._token}"),)


async def find(
    lead: Leader, key: str, topic: str = "t", *, context: Any = None, tokens: Any = None, **more: Any
) -> pb.FindByKeyResponse | Refusal:
    request = pb.FindByKeyRequest(topic=topic, key=key, **more)
    answer = await calls(lead, tokens)._find(request, context or Context())
    return answer if isinstance(answer, Refusal) else pb.FindByKeyResponse.FromString(answer)


async def ids(lead: Leader, key: str, topic: str = "t", **more: Any) -> list[str]:
    """All pages."""
    found: list[str] = []
    while True:
        page = await find(lead, key, topic, **more)
        assert isinstance(page, pb.FindByKeyResponse), page
        found += [message.id for message in page.messages]
        if not page.next:
            return found
        more["begin"] = page.next


async def complete(lead: Leader) -> None:
    await until(lambda: lead.node._core.keys.complete)


async def test_each_message_is_found_by_each_of_its_keys_in_its_topic_alone(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        due_ms = lead.node.time.now_ms() + np.array([1, 1, 30, 2]) * HOUR_MS
        first = await schedule(lead, [["a"], ["a", "b", "a"], ["b"], []], due_ms)
        other = await schedule(lead, [["a", "ü"]], due_ms[0], topic="u")
        for _ in range(2):  # in memory, and on disk
            assert await ids(lead, "a") == first[:2]
            assert await ids(lead, "b") == first[1:3]
            assert await ids(lead, "a", "u") == await ids(lead, "ü", "u") == other
            assert await ids(lead, "ü") == await ids(lead, "c") == await ids(lead, "A") == []
            await lead.node._core.keys.write()
            assert len(lead.node._core.keys._gathered) == 0
        page = await find(lead, "b", records=True)
        assert isinstance(page, pb.FindByKeyResponse)
        assert [(one.id, one.due_ms, one.record.body) for one in page.messages] == [
            (first[1], due_ms[1], b"1"),
            (first[2], due_ms[2], b"2"),
        ]
        assert not (await find(lead, "b")).messages[0].HasField("record")  # type: ignore[union-attr]


async def test_pages_states_and_due_times_choose_among_a_keys_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        now_ms = lead.node.time.now_ms()
        hour = now_ms // HOUR_MS + 1
        due_ms = hour * HOUR_MS + np.arange(40) * (HOUR_MS // 10)
        some = await schedule(lead, [["k"]] * 40, due_ms)
        past = await schedule(lead, [["k"]] * 3, now_ms - 1)
        cancelled = await lead.edge.cancel(CancelRequest(ids=some[:5]).SerializeToString())
        assert isinstance(cancelled, bytes)
        await lead.node._core.keys.write()
        assert await ids(lead, "k") == past + some
        for limit in (1, 7, 1_000):
            assert await ids(lead, "k", limit=limit) == past + some
        monkeypatch.setattr(key_calls, "EXAMINED_MAX", 4)
        monkeypatch.setattr(search, "STEP_PLACES", 3)
        assert (await find(lead, "k")).next  # type: ignore[union-attr]
        monkeypatch.setattr(search, "STEP_BYTES", 1)
        assert await ids(lead, "k") == past + some
        released, pending = MessageState.MESSAGE_STATE_RELEASED, MessageState.MESSAGE_STATE_PENDING
        assert await ids(lead, "k", states=[released], limit=2) == past
        assert await ids(lead, "k", states=[pending]) == some[5:]
        assert await ids(lead, "k", states=[MessageState.MESSAGE_STATE_CANCELLED, released]) == (
            past + some[:5]
        )
        monkeypatch.setattr(key_calls, "PAGE_BYTES", 0)
        assert await ids(lead, "k", records=True) == past + some
        for begin in (0, 3, 10, 39):
            for end in (begin + 1, 25, 40):
                if begin < end:
                    bounds = {"due_from_ms": int(due_ms[begin]), "due_to_ms": int(due_ms[end - 1]) + 1}
                    assert await ids(lead, "k", **bounds) == some[begin:end]


async def test_keys_are_found_after_a_start_with_and_without_what_the_checkpoint_has(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        due_ms = lead.node.time.now_ms() + HOUR_MS
        first = await schedule(lead, [["k"]] * 3, due_ms)
        await lead.node._core.checkpoints.write()
        second = await schedule(lead, [["k"]] * 3, due_ms)
        crashed = tmp_path.with_name(f"{tmp_path.name} crashed")
        copied(tmp_path, crashed)
    for folder in (tmp_path, crashed):
        async with leader(folder, Holds(), dispatch=SLOW) as lead:
            assert lead.node._core.keys.complete  # no hour is read
            assert await ids(lead, "k") == first + second


async def test_a_missing_or_an_older_index_is_built_again_before_it_answers(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        now_ms = lead.node.time.now_ms()
        near = await schedule(lead, [["k"], [], ["k", "l"]], now_ms + HOUR_MS)
        far = await schedule(lead, [["k"]] * 30, now_ms + np.arange(100, 130) * HOUR_MS)
        assert len(lead.machine.wheel.upkeep.far_segments()) == 1
        state = lead.machine.folder / "keys"
    older = copied(state, tmp_path / "older")
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        late = await schedule(lead, [["k"]], now_ms + HOUR_MS)
        assert await ids(lead, "k") == [*near[::2], *late, *far]
    others = near[2:]
    for content in (None, older):
        remove(state)
        if content is not None:
            copied(content, state)
        slow = QUIET.model_copy(update={"scrub_bytes_per_s": 60_000})
        async with leader(tmp_path, Holds(), dispatch=slow) as lead:
            refused = await find(lead, "k")
            assert isinstance(refused, Refusal)
            assert "hours are read" in refused.text
            assert (refused.reason, refused.retry_ms) == (Reason.KEYS_INCOMPLETE, 1_000)
            wanted = search.Wanted(lead.machine.queues.of("t").queue, "k")
            assert isinstance(await lead.node._core.key_search.step(wanted, 0), Refusal)
            await complete(lead)
            assert await ids(lead, "k") == [*near[::2], *late, *far]
            assert await ids(lead, "l") == others
            others += await schedule(lead, [["l"]], now_ms + 2 * HOUR_MS)
            assert await ids(lead, "l") == others
        async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
            assert lead.node._core.keys.complete


def copied(source: Path, to: Path) -> Path:
    shutil.copytree(source, to)
    return to


def remove(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


async def test_a_damaged_run_is_built_again_and_what_is_scheduled_meanwhile_is_found(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        due_ms = lead.node.time.now_ms() + HOUR_MS
        first = await schedule(lead, [["k"]] * 3, due_ms)
        await lead.node._core.keys.write()
        (run,) = lead.node._core.keys._index.runs
        turn_bit(run.path, 3)
        refused = await find(lead, "k")
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.KEYS_INCOMPLETE
        more = await schedule(lead, [["k"]] * 3, due_ms)
        await complete(lead)
        assert await ids(lead, "k") == first + more


async def test_a_message_with_a_damaged_record_is_counted_and_found_once_it_is_mended(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        due_ms = lead.node.time.now_ms() + HOUR_MS
        first = await schedule(lead, [["k"], ["k"]], due_ms)
        log = lead.machine.folder / "hours" / folder_name(MessageId.parse(first[0]).hour) / "delay.log"
        await lead.node._core.checkpoints.write()
        remove(lead.machine.folder / "keys")
    turn_bit(log, 6)
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        page = await find(lead, "k")
        assert isinstance(page, pb.FindByKeyResponse)
        assert ([one.id for one in page.messages], page.unreadable) == (first[1:], 1)
        turn_bit(log, 6)
        page = await find(lead, "k")
        assert isinstance(page, pb.FindByKeyResponse)
        assert ([one.id for one in page.messages], page.unreadable) == (first, 0)


async def test_a_damaged_record_counts_in_one_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        some = await schedule(lead, [["k"]] * 5, lead.node.time.now_ms() + HOUR_MS)
        folder = lead.machine.folder / "hours" / folder_name(MessageId.parse(some[0]).hour)
        await lead.node._core.checkpoints.write()
        log = folder / "delay.log"
        turn_bit(log, log.stat().st_size - 2)  # of the last
        for limit, page_bytes in ((1, 1 << 20), (100, 0)):
            monkeypatch.setattr(key_calls, "PAGE_BYTES", page_bytes)
            pages, begin = [], ""
            while not pages or begin:
                page = await find(lead, "k", limit=limit, records=True, begin=begin)
                assert isinstance(page, pb.FindByKeyResponse)
                pages.append(([one.id for one in page.messages], page.unreadable))
                begin = page.next
            assert [one for page, _ in pages for one in page] == some[:4]
            assert [unreadable for _, unreadable in pages] == [0] * (len(pages) - 1) + [1]


async def test_a_page_of_one_message_asks_the_index_no_more_often_than_a_large_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        now_ms = lead.node.time.now_ms()
        await schedule(lead, [["k"]] * 2_000, now_ms + HOUR_MS)
        last = await schedule(lead, [["k"]], now_ms + 2 * HOUR_MS)
        keeper = lead.node._core.keys
        real = keeper.find

        async def counted(key_hash: int, first: int, end: int, most: int) -> Any:
            asked.append(most)
            return await real(key_hash, first, end, most)

        monkeypatch.setattr(keeper, "find", counted)
        at = {"due_from_ms": now_ms + HOUR_MS + 1}
        assert await ids(lead, "k", limit=1, **at) == last
        assert asked == [search.STEP_PLACES] * (2_001 // search.STEP_PLACES + 1)


async def test_keys_of_equal_hashes_are_told_apart_by_the_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def weak(named: Sequence[str]) -> Any:
        return np.array([len(key) for key in named], np.uint64)

    monkeypatch.setattr(keys, "hashes", weak)
    monkeypatch.setattr(search, "hashes", weak)
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        due_ms = lead.node.time.now_ms() + HOUR_MS
        some = await schedule(lead, [["a"], ["b"], ["c", "b"]], due_ms)
        for _ in range(2):
            assert await ids(lead, "a") == some[:1]
            assert await ids(lead, "b") == some[1:]
            assert await ids(lead, "d") == []
            await lead.node._core.keys.write()


async def test_an_entry_of_a_leader_that_tells_no_keys_is_looked_into(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        now_ms = lead.node.time.now_ms()
        due_ms = np.full(3, now_ms + HOUR_MS)
        records = [
            Record(keys=["k"]).SerializeToString(),
            b"\xff",
            Record(keys=["l", "k"]).SerializeToString(),
        ]
        columns = log_pb.ScheduleColumns(topics=["t"], due_ms=due_ms.tobytes(), records=records)
        absurd: list[dict[str, Any]] = [
            {},
            {"keys_noted": True, "key_message": b"\x09\0\0\0", "key_hash": bytes(8)},
            {"keys_noted": True, "key_message": b"\0", "key_hash": bytes(2)},
        ]
        for more in absurd:
            await lead.propose(log_pb.ScheduleCommand(now_ms=now_ms, request=columns, **more))
        assert len(await ids(lead, "k")) == 2 * len(absurd)
        assert len(await ids(lead, "l")) == len(absurd)


async def test_a_batch_with_more_keys_than_a_command_has_room_for_is_found_by_each(tmp_path: Path) -> None:
    """Each replica then reads them in a thread; a lookup waits for that."""
    count, most = 4_096, 16
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        due_ms = lead.node.time.now_ms() + HOUR_MS
        few = await schedule(lead, [["every", f"few{at}"] for at in range(count)], due_ms)
        named = [[f"k{at}-{key}" for key in range(most - 1)] + ["every"] for at in range(count)]
        batches = [await schedule(lead, named, due_ms) for _ in range(20)]
        for batch, key in (
            (batches[0], "k7-3"),
            (batches[5], f"k{count - 1}-{most - 2}"),
            (batches[19], "k0-0"),
        ):
            at = int(key[1:].partition("-")[0])
            found = await ids(lead, key)
            assert found == [one[at] for one in batches]
            assert batch[at] in found
        assert await ids(lead, "few9") == few[9:10]
        pages = await ids(lead, "every", limit=1_000, due_from_ms=due_ms)
        assert pages == few + [one for batch in batches for one in batch]


async def test_the_largest_batch_with_as_many_keys_as_a_command_has_room_for_is_taken(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        limits = lead.node.config.limits
        count = limits.batch_messages_max
        room = KEYS_OF_MESSAGE * count
        body = bytes(limits.batch_bytes_max // count - 50)
        for keys_each in (KEYS_OF_MESSAGE, KEYS_OF_MESSAGE + 1):
            records = [
                Record(keys=[f"k{at}"] * keys_each, body=body).SerializeToString() for at in range(count)
            ]
            delays = np.full(count, HOUR_MS)
            raw = ScheduleBatchRequest(topics=["t"], delay_ms=delays, records=records).SerializeToString()
            spare = limits.batch_bytes_max - len(raw)
            assert spare > 0
            records[0] = Record(keys=["k0"] * keys_each, body=body + bytes(spare - 4)).SerializeToString()
            raw = ScheduleBatchRequest(topics=["t"], delay_ms=delays, records=records).SerializeToString()
            assert limits.batch_bytes_max - 8 < len(raw) <= limits.batch_bytes_max
            command = lead.edge._producer._intake.batch(raw, lead.node.time.now_ms())
            assert isinstance(command, log_pb.ScheduleCommand)
            assert command.keys_noted == (keys_each * count <= room)
            assert isinstance(await lead.edge.schedule(raw), bytes)
            assert len(await ids(lead, "k9")) == 1 + (keys_each > KEYS_OF_MESSAGE)


async def test_what_a_caller_may_not_know_of_is_answered_as_if_it_were_not_there(tmp_path: Path) -> None:
    tokens = {
        "p": Token(produce=("t",)),
        "c": Token(consume=("t",)),
        "o": Token(operate=True),
        "x": Token(produce=("u",)),
    }
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        await schedule(lead, [["k"]], lead.node.time.now_ms() + HOUR_MS)
        for token, expected in (("p", None), ("c", None), ("o", Reason.PERMISSION_DENIED)):
            plain = await find(lead, "k", context=Bearer(token), tokens=tokens)
            assert isinstance(plain, pb.FindByKeyResponse)
            with_records = await find(lead, "k", context=Bearer(token), tokens=tokens, records=True)
            reason = with_records.reason if isinstance(with_records, Refusal) else None
            assert reason == expected
        hidden = await find(lead, "k", context=Bearer("x"), tokens=tokens)
        absent = await find(lead, "k", "v", context=Bearer("o"), tokens=tokens)
        assert isinstance(hidden, Refusal)
        assert isinstance(absent, Refusal)
        assert (hidden.reason, hidden.text.replace("'t'", "'v'")) == (Reason.TOPIC_UNKNOWN, absent.text)


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        ({"key": ""}, Reason.QUERY_INVALID),
        ({"key": "", "idempotency_key": "k" * (key_calls.KEY_CHARS_MAX + 1)}, Reason.QUERY_INVALID),
        ({"key": "k", "idempotency_key": "k"}, Reason.QUERY_INVALID),
        ({"key": "k" * (key_calls.KEY_CHARS_MAX + 1)}, Reason.QUERY_INVALID),
        ({"limit": key_calls.PAGE_MAX + 1}, Reason.QUERY_INVALID),
        ({"states": [9]}, Reason.QUERY_INVALID),
        ({"due_from_ms": -1}, Reason.QUERY_INVALID),
        ({"due_from_ms": 5, "due_to_ms": 5}, Reason.QUERY_INVALID),
        ({"due_from_ms": search.DUE_MS_MAX}, Reason.QUERY_INVALID),
        ({"due_to_ms": 2**62}, Reason.QUERY_INVALID),
        ({"begin": "none"}, Reason.ID_MALFORMED),
        ({"topic": ""}, Reason.TOPIC_INVALID),
        ({"topic": "unknown"}, Reason.TOPIC_UNKNOWN),
    ],
)
async def test_an_absurd_request_is_refused(tmp_path: Path, wrong: Any, reason: Reason) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        await schedule(lead, [["k"]], lead.node.time.now_ms() + HOUR_MS)
        refused = await find(lead, **({"key": "k"} | wrong))
        assert isinstance(refused, Refusal)
        assert refused.reason is reason
        most = {
            "key": "k" * key_calls.KEY_CHARS_MAX,
            "limit": key_calls.PAGE_MAX,
            "due_from_ms": search.DUE_MS_MAX - 1,
        }
        assert isinstance(await find(lead, **most), pb.FindByKeyResponse)


async def test_a_search_takes_some_of_the_ids_of_a_key_in_each_step(tmp_path: Path) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        some = await schedule(lead, [["k"]] * 600, lead.node.time.now_ms() + HOUR_MS)
        wanted, found = search.Wanted(lead.machine.queues.of("t").queue, "k"), list[str]()
        first: int | None = 0
        while first is not None:
            step = await lead.node._core.key_search.step(wanted, first)
            assert isinstance(step, search.Step)
            assert 0 < len(step.found) <= search.STEP_PLACES
            found += [str(MessageId(0, one.hour, one.global_index)) for one in step.found]
            first = step.next
        assert found == some
