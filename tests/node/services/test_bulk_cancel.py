"""Cancels of many messages: what they match and count, and that a repeated call counts nothing twice."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.node.leader import bulk_turn, pending_pages
from tarry.node.services import bulk_cancel, bulk_cursor
from tarry.node.services.bulk_cursor import CHOSEN_MAX, Chosen
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_producer_pb2 import RescheduleRequest
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS
from tests.node.lone_leader import GROUP, TOPIC, Stream, subscription, until
from tests.node.services.bulk_play import Bulk, led

TOPICS, TAGS, KEYS = ("t", "u"), ("a", "b"), ("k1", "k2", "l1")
FILTERS: tuple[dict[str, Any], ...] = (
    {},
    {"tags": ["a"]},
    {"tags": ["a", "b"]},
    {"keys": ["k1"]},
    {"key_prefix": "k"},
    {"tags": ["b"], "key_prefix": "k"},
    {"due_from_ms": 2, "due_to_ms": 5},
    {"due_from_ms": 3, "keys": ["k2", "l1"]},
)


def matches(wanted: dict[str, Any], topic: str, due_ms: int, tag: str, key: str) -> bool:
    return (
        topic == "t"
        and ("tags" not in wanted or tag in wanted["tags"])
        and ("keys" not in wanted or key in wanted["keys"])
        and key.startswith(wanted.get("key_prefix", ""))
        and wanted.get("due_from_ms", 0) <= due_ms < wanted.get("due_to_ms", 1 << 62)
    )


def within(wanted: dict[str, Any], base_ms: int) -> dict[str, Any]:
    """Return a filter whose due times are in half hours from a time on."""
    return {
        name: base_ms + value * HOUR_MS // 2 if name.startswith("due") else value
        for name, value in wanted.items()
    }


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_matches_is_cancelled_and_counted_once_whatever_is_repeated_or_comes_between(
    data: st.DataObject,
) -> None:
    plain, rows = FILTERS, st.tuples(*map(st.sampled_from, (TOPICS, range(8), TAGS, KEYS)))
    messages = data.draw(st.lists(rows, min_size=1, max_size=60))
    wanted = data.draw(st.sampled_from(plain))

    async def act(bulk: Bulk) -> None:
        base_ms = (bulk.lead.node.time.now_ms() // HOUR_MS + 2) * HOUR_MS
        ids, matched = [], set()
        for topic, half, tag, key in messages:
            due_ms = base_ms + half * HOUR_MS // 2
            ids += await bulk.schedule(topic, [due_ms], [tag], [key])
            if matches(within(wanted, base_ms), topic, due_ms, tag, key):
                matched.add(ids[-1])
        asked = {"topic": "t", **within(wanted, base_ms)}
        if "t" not in {topic for topic, *_ in messages}:
            await bulk.schedule("t", [base_ms + 100 * HOUR_MS], ["c"], ["z"])
            asked["due_to_ms"] = base_ms + 50 * HOUR_MS
        counted = await bulk.all(dry_run=True, **asked)
        assert (counted.matched, counted.cancelled) == (len(matched), 0)
        cursor, taken = "", set[str]()
        while True:
            told = await bulk.step(cursor, **asked)
            if data.draw(st.booleans()):  # its answer was lost
                assert await bulk.step(cursor, **asked) == told
            some = [one for one in ids if data.draw(st.integers(0, 9)) == 0]
            if some and not chosen_of(told) & set(some):  # another caller's cancels
                taken |= {one for one in some if one in matched and await bulk.state(one) == "PENDING"}
                await bulk.cancel(*some)
            if told.done:
                break
            cursor = told.cursor
        assert (told.matched, told.released) == (told.cancelled, 0)
        assert told.cancelled == len(matched) - len(taken)
        assert {await bulk.state(one) for one in matched} <= {"CANCELLED"}

    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(pending_pages, "PAGE_UNITS", data.draw(st.sampled_from((1, 3, 8_192))))
        patch.setattr(bulk_cancel, "CHOSEN_MAX", data.draw(st.sampled_from((1, 2, 2_048))))
        patch.setattr(bulk_cancel, "LOOK_NS_MAX", data.draw(st.sampled_from((1, 1_000_000, 20_000_000))))
        led(Path(folder), act)


def chosen_of(told: pb.BulkCancel) -> set[str]:
    """Return the ids that the next call cancels."""
    cursor = bulk_cursor._decoded(told.cursor)
    assert cursor is not None
    chosen = bulk_cursor.unpacked(cursor.chosen)
    assert chosen is not None
    return {
        str(MessageId(0, hour, place))
        for hour, place in zip(chosen.hour.tolist(), chosen.place.tolist(), strict=True)
    }


def test_every_call_may_be_repeated_and_the_sums_are_exact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_cancel, "CHOSEN_MAX", 7)

    async def act(bulk: Bulk) -> None:
        base_ms = bulk.lead.node.time.now_ms() + 2 * HOUR_MS
        await bulk.schedule("t", [base_ms + number * HOUR_MS // 10 for number in range(100)])
        cursor, steps = "", 0
        while True:
            told = await bulk.step(cursor, topic="t")
            assert await bulk.step(cursor, topic="t") == told
            steps += 1
            if told.done:
                break
            cursor = told.cursor
        assert steps > 100 // 7
        assert (told.matched, told.cancelled, told.released, told.looked_at) == (100, 100, 0, 100)
        assert told.total == told.looked_at
        assert bulk.lead.machine.wheel.pending == 0

    led(tmp_path, act)


def test_what_is_released_before_its_call_is_told_and_stays(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        now_ms = bulk.lead.node.time.now_ms()
        ids = await bulk.schedule("t", [now_ms + 300, now_ms + 2 * HOUR_MS])
        first = await bulk.step(topic="t", due_to_ms=now_ms + HOUR_MS)
        assert (first.done, first.matched) == (False, 1)
        await until(lambda: bulk.lead.machine.queues.of("t").units == 1)
        told = await bulk.all(first.cursor, topic="t", due_to_ms=now_ms + HOUR_MS)
        assert (told.matched, told.cancelled, told.released) == (1, 0, 1)
        assert [await bulk.state(one) for one in ids] == ["RELEASED", "PENDING"]

    led(tmp_path, act)


def test_what_consumers_have_stays_and_all_else_of_a_topic_is_purged(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        lead = bulk.lead
        now_ms = lead.node.time.now_ms()
        due = await bulk.schedule(TOPIC, [now_ms - 1] * 5)
        await until(lambda: lead.machine.queues.of(TOPIC).units == 5)
        stream = Stream(lead.edge, subscription("c", 2))
        await until(lambda: stream.received == 2)
        later = await bulk.schedule(TOPIC, [now_ms + HOUR_MS] * 3)
        other = await bulk.schedule("u", [now_ms + HOUR_MS])
        counted = await bulk.all(purge=True, dry_run=True, topic=TOPIC)
        assert (counted.matched, counted.ready) == (8, 0)
        told = await bulk.all(purge=True, topic=TOPIC)
        assert (told.cancelled, told.ready, told.in_hand, told.retries) == (3, 3, 2, 0)
        assert told.matched == 8
        assert [await bulk.state(one) for one in (*later, *other)] == ["CANCELLED"] * 3 + ["PENDING"]
        assert {await bulk.state(one) for one in due} == {"CANCELLED", "RELEASED"}
        await stream.leave()

    led(tmp_path, act)


def test_a_purge_takes_retries_too_in_the_wheel_and_in_their_queue(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        lead = bulk.lead
        now_ms = lead.node.time.now_ms()
        await bulk.schedule(TOPIC, [now_ms - 1] * 4)
        stream = Stream(lead.edge, subscription("c", 4))
        await until(lambda: stream.received == 4)
        number, copies = lead.machine.queues.of(TOPIC).queue, lead.machine.queues.of(TOPIC, GROUP)
        for request, (offsets, delay_ms) in enumerate((([0, 1], 50), ([2, 3], HOUR_MS))):
            nack = consumer_pb.Nack(request=request, queue=number, offset=offsets, delay_ms=delay_ms)
            await stream.asked(consumer_pb.ConsumeRequest(nack=nack))
        await stream.leave()
        await until(lambda: copies.units == 2)
        told = await bulk.all(purge=True, topic=TOPIC)
        assert (told.matched, told.retries, told.ready, told.in_hand) == (4, 4, 0, 0)
        assert lead.machine.wheel.pending == 0
        again = Stream(lead.edge, subscription("d", 10))
        fresh = await bulk.schedule(TOPIC, [lead.node.time.now_ms() - 1])
        await until(lambda: again.received == 1)
        assert await bulk.state(fresh[0]) == "RELEASED"
        await again.leave()

    led(tmp_path, act)


@pytest.mark.parametrize("earlier", [False, True])
def test_a_retry_that_is_rescheduled_during_a_purge_is_purged_and_counted_once(
    tmp_path: Path, *, earlier: bool
) -> None:
    async def act(bulk: Bulk) -> None:
        lead = bulk.lead
        ids = await bulk.schedule(TOPIC, [lead.node.time.now_ms() - 1] * 2)
        stream = Stream(lead.edge, subscription("c", 4))
        await until(lambda: stream.received == 2)
        number = lead.machine.queues.of(TOPIC).queue
        for offset, hours in enumerate((2, 4)):
            nack = consumer_pb.Nack(request=1, queue=number, offset=[offset], delay_ms=hours * HOUR_MS)
            await stream.asked(consumer_pb.ConsumeRequest(nack=nack))
        await stream.leave()
        await until(lambda: lead.machine.wheel.pending == 2)
        cursor, hours = "", set[int]()
        while not (told := await bulk.step(cursor, purge=True, topic=TOPIC)).done:
            cursor = told.cursor
            at = bulk_cursor._decoded(cursor)
            chosen = None if at is None else bulk_cursor.unpacked(at.chosen)
            assert at is not None
            assert chosen is not None
            if at.phase == bulk_cancel.RETRIES_PENDING and len(chosen.hour) and not hours & {*chosen.hour}:
                hours |= {*chosen.hour.tolist()}
                delay_ms = 1 * HOUR_MS if earlier else 8 * HOUR_MS
                request = RescheduleRequest(ids=ids, delay_ms=[delay_ms + len(hours)], group=GROUP)
                assert isinstance(await lead.edge.reschedule(request.SerializeToString()), bytes)
        assert (told.retries, lead.machine.wheel.pending) == (2, 0)

    led(tmp_path, act)


def test_below_its_level_a_topic_is_not_purged(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        await bulk.schedule("t", [bulk.lead.node.time.now_ms() + HOUR_MS])
        refused = await bulk.asked(purge=True, topic="t")
        assert isinstance(refused, Refusal)
        assert refused.reason is Reason.LEVEL_TOO_LOW

    led(tmp_path, act, level=1)


def test_a_cursor_counts_only_for_the_request_and_the_topic_that_it_was_given_for(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        later_ms = bulk.lead.node.time.now_ms() + HOUR_MS
        await bulk.schedule("t", [later_ms])
        cursor = (await bulk.step(topic="t")).cursor
        purge = (await bulk.step(purge=True, topic="t")).cursor
        broken = cursor[:-8] + "AAAAAAA="
        for of, wanted in (
            (cursor, {"topic": "t", "tags": ["a"]}),
            (cursor, {"topic": "t", "dry_run": True}),
            (purge, {"topic": "t"}),
            (broken, {"topic": "t"}),
            ("nonsense", {"topic": "t"}),
            ("A" * (bulk_cursor.CURSOR_CHARS_MAX + 4), {"topic": "t"}),
        ):
            refused = await bulk.asked(of, **wanted)
            assert isinstance(refused, Refusal), (of, wanted)
            assert refused.reason is Reason.QUERY_INVALID
        await bulk.lead.delete_topic("t")
        await bulk.schedule("t", [later_ms])
        refused = await bulk.asked(cursor, topic="t")
        assert isinstance(refused, Refusal)
        assert "deleted" in refused.text

    led(tmp_path, act)


def test_a_forged_cursor_cancels_nothing_of_another_topic_and_breaks_nothing(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        later_ms = bulk.lead.node.time.now_ms() + HOUR_MS
        await bulk.schedule("t", [later_ms])
        others = await bulk.schedule("u", [later_ms] * 3)
        hour = later_ms // HOUR_MS
        cursor = bulk_cursor._decoded((await bulk.step(topic="t")).cursor)
        assert cursor is not None
        named = Chosen(np.full(4, hour, np.uint32), np.arange(4))
        for change in (
            {"chosen": bulk_cursor.packed(named)},
            {"hour": 2**32 - 1, "place": 2**64 - 1},
            {"hour": hour, "place": 2**64 - 1},
            {"phase": bulk_cursor.OVER},
            {"key": 7},
            {"hour": hour, "place": 2**64 - 1, "phase": bulk_cursor.PENDING},
        ):
            forged = pb.BulkCursor()
            forged.CopyFrom(cursor)
            for name, value in change.items():
                setattr(forged, name, value)
            await bulk.all(bulk_cursor.text_of(forged), topic="t")
        many, far = pb.BulkCancel(matched=2**63), Chosen(np.array([hour], np.uint32), np.array([2**32]))
        for change in (
            {"phase": bulk_cursor.RETRIES_PENDING},
            {"counts": many},
            {"chosen": b"x" * 99},
            {"chosen": bulk_cursor.packed(far)},
            {"chosen": bulk_cursor.packed(Chosen(named.hour[[0, 0]], named.place[[0, 0]]))},
        ):
            forged = pb.BulkCursor(request=cursor.request, queue=cursor.queue, **change)
            assert isinstance(await bulk.asked(bulk_cursor.text_of(forged), topic="t"), Refusal)
        assert [await bulk.state(one) for one in others] == ["PENDING"] * 3

    led(tmp_path, act)


@pytest.mark.parametrize("offsets", [[100], [2, 2**40], [2**62]])
def test_a_forged_cursor_of_a_purge_names_offsets_that_the_queue_does_not_have(
    tmp_path: Path, offsets: list[int]
) -> None:
    async def act(bulk: Bulk) -> None:
        await bulk.schedule("t", [bulk.lead.node.time.now_ms() - 1] * 3)
        queue = bulk.lead.machine.queues.of("t")
        await until(lambda: queue.units == 3)
        cursor = bulk_cursor._decoded((await bulk.step(purge=True, topic="t")).cursor)
        assert cursor is not None
        named = Chosen(np.full(len(offsets), queue.queue, np.uint32), np.array(offsets, np.int64))
        cursor.phase, cursor.chosen = bulk_cursor.READY, bulk_cursor.packed(named)
        told = await bulk.step(bulk_cursor.text_of(cursor), purge=True, topic="t")
        assert told.ready == sum(offset < 3 for offset in offsets)

    led(tmp_path, act)


def test_a_cursor_of_before_a_restore_names_nothing_of_after_it(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        await bulk.schedule("t", [bulk.lead.node.time.now_ms() + HOUR_MS])
        cursor = (await bulk.step(topic="t")).cursor
        bulk.lead.node._core.journal.begin_cluster(7)
        refused = await bulk.asked(cursor, topic="t")
        assert isinstance(refused, Refusal)
        assert "restore" in refused.text

    led(tmp_path, act)


def test_what_the_cluster_does_not_have_any_more_is_not_said_to_have_been_released(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        lead = bulk.lead
        ids = await bulk.schedule("t", [lead.node.time.now_ms() - 1] * 3)
        await until(lambda: lead.machine.queues.of("t").units == 3)
        await bulk.schedule("t", [lead.node.time.now_ms() + HOUR_MS])
        cursor = bulk_cursor._decoded((await bulk.step(topic="t")).cursor)
        assert cursor is not None
        hour, floor = MessageId.parse(ids[0]).hour, lead.machine.wheel.floor_hour
        for named, outcome in ((hour, (0, 3, 0)), (max(floor, 2) - 1, (0, 0, 3))):
            cursor.chosen = bulk_cursor.packed(Chosen(np.full(3, named, np.uint32), np.arange(3)))
            cursor.counts.matched = 3
            told = await bulk.step(bulk_cursor.text_of(cursor), topic="t")
            assert (told.cancelled, told.released, told.not_found) == outcome

    led(tmp_path, act)


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**53)), max_size=50))
def test_a_cursor_holds_what_the_next_call_cancels_each_once(rows: list[tuple[int, int]]) -> None:
    hour = np.array([hour for hour, _ in rows], np.uint32)
    place = np.array([place for _, place in rows], np.int64)
    again = bulk_cursor.unpacked(bulk_cursor.packed(Chosen(hour, place)))
    assert (again is not None) == (len(set(rows)) == len(rows))
    if again is not None:
        assert list(zip(again.hour.tolist(), again.place.tolist(), strict=True)) == sorted(rows)


@pytest.mark.parametrize(("count", "taken"), [(CHOSEN_MAX, True), (CHOSEN_MAX + 1, False)])
def test_a_cursor_names_so_many_messages_at_most(count: int, taken: bool) -> None:
    named = Chosen(np.full(count, 7, np.uint32), np.arange(count))
    assert (bulk_cursor.unpacked(bulk_cursor.packed(named)) is not None) == taken


def test_no_more_callers_wait_than_may(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        await bulk.schedule("t", [bulk.lead.node.time.now_ms() + HOUR_MS])
        asked = [bulk.asked(topic="t") for _ in range(bulk_turn.CALLS_MAX + 1)]
        answers = await asyncio.gather(*asked)
        refused = [answer for answer in answers if isinstance(answer, Refusal)]
        assert 0 < len(refused) < len(answers)
        assert {one.reason for one in refused} == {Reason.OVERLOADED}
        assert min(one.retry_ms or 0 for one in refused) >= bulk_turn.WAIT_MS_MAX

    led(tmp_path, act)


@pytest.mark.parametrize(
    "wanted",
    [{"topic": ""}, {"topic": "t", "tags": [""]}, {"topic": "none"}, {"topic": "t", "due_from_ms": -1}],
)
def test_a_wrong_filter_is_refused(tmp_path: Path, wanted: dict[str, Any]) -> None:
    async def act(bulk: Bulk) -> None:
        await bulk.schedule("t", [bulk.lead.node.time.now_ms() + HOUR_MS])
        assert isinstance(await bulk.asked(**wanted), Refusal)

    led(tmp_path, act)
