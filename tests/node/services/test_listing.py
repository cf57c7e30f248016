"""ListMessages of a node that leads: what comes in which page, whatever happens between them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.config import Token
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.leader_calls import parsed
from tarry.node.repair.record_reads import RecordReads
from tarry.node.services import due_scans, listed_page, listing
from tarry.node.services.list_cursor import CHARS, Phase, Place, key_of, place_of, text_of
from tarry.node.services.listing import ListCalls
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import format_ids
from tarry.proto.reasons import Reason
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_producer_pb2 import CancelRequest, ScheduleBatchRequest
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.cached_reads import pread_cached
from tarry.wheel.due_scan import DueScan
from tests.node.lone_leader import GROUP, TOPIC, Leader, Stream, leader, subscription, until
from tests.simulation.edge import Context

HOUR_MS = 3_600_000
PENDING, RETRYING, RELEASED = pb.LISTED_STATE_PENDING, pb.LISTED_STATE_RETRYING, pb.LISTED_STATE_RELEASED
WAITING, IN_HAND, SETTLED = pb.LISTED_STATE_WAITING, pb.LISTED_STATE_IN_HAND, pb.LISTED_STATE_SETTLED


class Lists:
    """The service of a leader, asked page by page."""

    def __init__(self, lead: Leader, tokens: dict[str, Token] | None = None) -> None:
        self.calls = ListCalls(lead.node._core, Authorizer(tokens or {}), lead.edge._calls)

    async def answer(self, token: str = "", **request: Any) -> pb.ListMessagesResponse | Refusal:
        context: Any = Context()
        if token:
            context.invocation_metadata = lambda: (("authorization", f"Bearer {token}"),)
        fields = {name: request.pop(name) for name in list(request) if name in FILTER}
        asked = pb.ListMessagesRequest(filter=pb.MessageFilter(**{"topic": TOPIC, **fields}), **request)
        local = parsed(pb.ListMessagesRequest, self.calls._list)
        answer = await local(asked.SerializeToString(), context)
        return answer if isinstance(answer, Refusal) else pb.ListMessagesResponse.FromString(answer)

    async def page(self, **request: Any) -> pb.ListMessagesResponse:
        answer = await self.answer(**request)
        assert isinstance(answer, pb.ListMessagesResponse), answer
        return answer

    async def refused(self, **request: Any) -> Refusal:
        answer = await self.answer(**request)
        assert isinstance(answer, Refusal)
        return answer

    async def all(self, between: Callable[[], Awaitable[None]] | None = None, **request: Any) -> list[Any]:
        listed, cursor = list[Any](), ""
        while True:
            page = await self.page(cursor=cursor, **request)
            listed += page.messages
            if not (cursor := page.cursor):
                return listed
            if between is not None:
                await between()


FILTER = {field.name for field in pb.MessageFilter.DESCRIPTOR.fields}


def led(folder: Path, act: Callable[[Leader, Lists], Awaitable[None]], **settings: Any) -> None:
    async def whole() -> None:
        async with leader(folder, Holds(), **settings) as lead:
            await lead.propose(log_pb.RaiseLevelCommand(level=2, now_ms=lead.node.time.now_ms()))
            await act(lead, Lists(lead))

    asyncio.run(whole())


async def schedule(
    lead: Leader, due_ms: Any, tags: Any = (), keys: Any = (), topic: str = TOPIC
) -> list[str]:
    """Schedule messages with their position as body; their ids."""
    due = np.asarray(due_ms, np.int64)
    records = [
        Record(
            body=b"%d" % at,
            tags=[tags[at % len(tags)]] if tags else [],
            keys=[keys[at % len(keys)]] if keys else [],
        )
        for at in range(len(due))
    ]
    raw = ScheduleBatchRequest(
        topics=[topic],
        due_ms=due,
        records=[record.SerializeToString() for record in records],
        tag_mask=[tag_mask(record.tags) for record in records] if tags else [],
    ).SerializeToString()
    answer = await lead.edge.schedule(raw)
    assert isinstance(answer, bytes), answer
    columns = log_pb.ScheduledColumns.FromString(answer)
    return format_ids(0, np.frombuffer(columns.hour, "<u4"), np.frombuffer(columns.global_index, "<u4"))


def ids(listed: Any) -> list[str]:
    return [each.id for each in listed]


def test_pending_messages_come_by_due_time_with_what_their_records_say(tmp_path: Path) -> None:
    async def act(lead: Leader, lists: Lists) -> None:
        now_ms = lead.node.time.now_ms()
        due_ms = now_ms + np.array([3, 1, 500, 2, 1]) * HOUR_MS
        given = await schedule(lead, due_ms, ["red", "blue"], ["k1", "k2", "x"])
        await schedule(lead, due_ms, topic="other")
        page = await lists.page(bodies=True)
        assert page.cursor == "" and page.looked_to_ms == 0
        order = [1, 4, 3, 0, 2]
        assert ids(page.messages) == [given[at] for at in order]
        first = page.messages[0]
        assert (first.due_ms, first.state, list(first.tags), list(first.keys)) == (
            due_ms[1], PENDING, ["blue"], ["k2"],
        )  # fmt: skip
        assert [each.body for each in page.messages] == [b"%d" % at for at in order]
        assert [each.body_bytes for each in page.messages] == [1] * 5
        assert not any(each.body for each in (await lists.page()).messages)
        for size in (1, 2, 3):
            assert ids(await lists.all(page_size=size)) == [given[at] for at in order]
        only = {"due_from_ms": int(due_ms[3]), "due_to_ms": int(due_ms[2])}
        assert ids((await lists.page(**only)).messages) == [given[3], given[0]]
        assert ids((await lists.page(tags=["red"])).messages) == [given[at] for at in (4, 0, 2)]
        assert ids((await lists.page(tags=["red"], key_prefix="k")).messages) == [given[4], given[0]]
        assert ids((await lists.page(keys=["x", "k2"])).messages) == [given[1], given[4], given[2]]
        assert (await lists.page(tags=["green"])).messages == []

    led(tmp_path, act)


def test_what_a_group_has_done_with_messages_is_told(tmp_path: Path) -> None:
    async def act(lead: Leader, lists: Lists) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=GROUP))
        now_ms = lead.node.time.now_ms()
        given = await schedule(lead, [now_ms - 1] * 6)
        later = await schedule(lead, [now_ms + HOUR_MS])
        queue = lead.machine.queues.of(TOPIC)
        await until(lambda: queue.units == 6)
        everywhere = await lists.all(page_size=2)
        assert ids(everywhere) == later + given
        assert [each.state for each in everywhere] == [PENDING] + [RELEASED] * 6
        assert [each.offset for each in everywhere[1:]] == [0, 1, 2, 3, 4, 5]
        stream = Stream(lead.edge, subscription("c", 4))
        await until(lambda: stream.received == 4)
        ack = consumer_pb.Ack(request=1, queue=queue.queue, offset=[0])
        assert not (await stream.asked(consumer_pb.ConsumeRequest(ack=ack))).acked.stale
        for request, offset, delay_ms in ((2, 1, 0), (3, 2, 10 * HOUR_MS)):
            nack = consumer_pb.Nack(request=request, queue=queue.queue, offset=[offset], delay_ms=delay_ms)
            assert not (await stream.asked(consumer_pb.ConsumeRequest(nack=nack))).acked.stale
        await until(lambda: stream.received == 4)
        retries = lead.machine.queues.of(TOPIC, GROUP)
        await until(lambda: retries.units == 1)

        def told(listed: list[Any]) -> list[tuple[str, int, str]]:
            return [(each.id, each.state, each.group) for each in listed]

        retried = [(given[2], RETRYING, GROUP)]
        for size in (1, 2, 100):
            assert told(await lists.all(group=GROUP, page_size=size)) == [
                (later[0], PENDING, ""), *retried, (given[1], WAITING, GROUP),
                (given[3], IN_HAND, ""), (given[4], WAITING, ""), (given[5], WAITING, ""),
            ]  # fmt: skip
        waits = (await lists.all(group=GROUP, states=[RETRYING]))[0]
        assert (waits.attempt, waits.reason) == (2, 1)
        assert waits.due_ms >= now_ms + 10 * HOUR_MS
        settled = await lists.all(group=GROUP, states=[SETTLED])
        assert told(settled) == [(each, SETTLED, "") for each in given[:3]]
        released = await lists.all(group=GROUP, states=[RELEASED])
        assert [each.state for each in released] == [WAITING, *[SETTLED] * 3, IN_HAND, WAITING, WAITING]
        assert told(await lists.all(states=[RETRYING])) == retried
        assert len(await lists.all()) == 2 + 1 + 6
        cancelled = CancelRequest(ids=[given[5], later[0], given[2]]).SerializeToString()
        assert isinstance(await lead.edge.cancel(cancelled), bytes)
        assert told(await lists.all(group=GROUP)) == [
            (given[1], WAITING, GROUP), (given[3], IN_HAND, ""), (given[4], WAITING, ""),
        ]  # fmt: skip
        assert given[5] not in ids(await lists.all()) + ids(await lists.all(group=GROUP, states=[SETTLED]))
        stream.send(consumer_pb.ConsumeRequest(credit=consumer_pb.Credit(messages=9)))
        await until(lambda: stream.received == 6)
        assert {each.state for each in await lists.all(group=GROUP)} == {IN_HAND}
        await stream.leave()

    led(tmp_path, act)


@pytest.mark.parametrize("seed", range(2))
def test_what_is_there_all_the_time_is_listed_once_whatever_happens_between_the_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(listing, "PIECE_RECORDS", 3)
    monkeypatch.setattr(listing, "PIECE_UNITS", 4)
    monkeypatch.setattr(listed_page, "UNITS_MAX", 8)
    monkeypatch.setattr(listed_page, "RECORDS_MAX", 7)
    monkeypatch.setattr("tarry.wheel.due_scan.FOUND_MAX", 8)
    random = np.random.default_rng(seed)
    tags = ["red", "blue", "green"]

    async def act(lead: Leader, lists: Lists) -> None:
        pending: dict[str, tuple[int, str]] = {}
        ever: dict[str, tuple[int, str]] = {}

        async def add() -> None:
            count = int(random.integers(1, 12))
            hours = random.integers(1, 30, count) ** 2 // 20
            due_ms = lead.node.time.now_ms() + 60_000 + hours * HOUR_MS + random.integers(0, 3, count)
            given = await schedule(lead, due_ms, tags)
            for at, id_ in enumerate(given):
                ever[id_] = pending[id_] = int(due_ms[at]), tags[at % 3]

        async def cancel() -> None:
            for id_ in random.choice(list(pending), min(4, len(pending)), replace=False).tolist():
                del pending[id_]
                await lead.edge.cancel(CancelRequest(ids=[id_]).SerializeToString())

        async def move() -> None:
            hours = lead.machine.wheel.hours()
            lead.machine.wheel.pending_per_second(hours[int(random.integers(len(hours)))])

        async def change() -> None:
            for _ in range(int(random.integers(3))):
                await [add, cancel, move][int(random.integers(3))]()

        for _ in range(15):
            await add()
        for wanted in (tags, ["red"], ["red", "green"]):
            for size in (3, 10):
                before = dict(pending)
                listed = await lists.all(change, tags=wanted if len(wanted) < 3 else [], page_size=size)
                assert [each.due_ms for each in listed] == sorted(each.due_ms for each in listed)
                assert len(set(ids(listed))) == len(listed)
                assert all(set(each.tags) <= set(wanted) for each in listed)
                matching = {id_ for id_ in before.keys() & pending if before[id_][1] in wanted}
                assert matching <= set(ids(listed))
                assert all(ever[each.id][0] == each.due_ms for each in listed)

    led(tmp_path, act)


def test_a_listing_goes_on_without_its_scan_and_with_a_page_that_is_asked_for_again(tmp_path: Path) -> None:
    async def act(lead: Leader, lists: Lists) -> None:
        now_ms = lead.node.time.now_ms()
        given = await schedule(lead, now_ms + HOUR_MS + np.arange(10))
        first = await lists.page(page_size=3)
        second = await lists.page(page_size=3, cursor=first.cursor)
        again = await lists.page(page_size=3, cursor=first.cursor)
        assert ids(second.messages) == ids(again.messages) == given[3:6]
        third = await lists.page(page_size=3, cursor=again.cursor)
        long_ago = await lists.page(page_size=3, cursor=first.cursor)
        assert ids(third.messages) == given[6:9]
        assert ids(long_ago.messages) == given[3:6]
        other = Lists(lead)  # as a leader that has never heard of it
        for cursor in (second.cursor, again.cursor):
            assert ids((await other.page(cursor=cursor)).messages) == given[6:]
        together = await asyncio.gather(*(lists.page(page_size=9, cursor=second.cursor) for _ in range(6)))
        assert {tuple(ids(page.messages)) for page in together} == {tuple(given[6:])}

    led(tmp_path, act)


def test_scans_are_few_and_go_when_nobody_asks_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(lead: Leader, lists: Lists) -> None:
        await schedule(lead, lead.node.time.now_ms() + HOUR_MS + np.arange(10))
        for size in range(1, 10):
            await lists.page(page_size=1, due_from_ms=size)
        assert len(lists.calls._scans) == due_scans.SCANS_MAX
        monkeypatch.setattr(due_scans, "IDLE_S", -1.0)
        lists.calls._scans.drop_idle()
        assert len(lists.calls._scans) == 0
        await lists.all(page_size=4)
        assert len(lists.calls._scans) == 0

    led(tmp_path, act)


def test_what_is_released_and_gone_with_its_hour_is_left_out(tmp_path: Path) -> None:
    async def act(lead: Leader, lists: Lists) -> None:
        hour = lead.node.time.now_ms() // HOUR_MS - 3
        due_ms = np.array([hour, hour + 1]) * HOUR_MS
        columns = log_pb.ScheduleColumns(
            topics=[TOPIC], due_ms=due_ms.tobytes(), records=[Record(body=b"x").SerializeToString()] * 2
        )
        await lead.propose(log_pb.ScheduleCommand(now_ms=int(due_ms[0]), request=columns))
        queue = lead.machine.queues.of(TOPIC)
        await until(lambda: queue.units == 2)
        assert [each.due_ms for each in await lists.all()] == due_ms.tolist()
        lead.machine.wheel.drop_hour(hour)
        assert [each.due_ms for each in await lists.all()] == due_ms[1:].tolist()

    led(tmp_path, act)


def test_a_page_ends_where_enough_has_been_looked_at_and_says_how_far_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_page, "RECORDS_MAX", 20)

    async def act(lead: Leader, lists: Lists) -> None:
        now_ms = lead.node.time.now_ms()
        given = await schedule(lead, now_ms + np.arange(100) * HOUR_MS + HOUR_MS, keys=["x"] * 99 + ["y"])
        pages, cursor = list[pb.ListMessagesResponse](), ""
        while not pages or cursor:
            pages.append(await lists.page(keys=["y"], cursor=cursor))
            cursor = pages[-1].cursor
        assert [len(page.messages) for page in pages[:4]] == [0] * 4
        assert [page.looked_to_ms for page in pages[:4]] == [
            now_ms + (20 * number) * HOUR_MS for number in range(1, 5)
        ]
        assert ids([each for page in pages for each in page.messages]) == [given[99]]

    led(tmp_path, act)


def test_a_page_ends_where_its_records_are_too_many_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_page, "READ_BYTES_MAX", 10)

    async def act(lead: Leader, lists: Lists) -> None:
        given = await schedule(lead, lead.node.time.now_ms() + HOUR_MS + np.arange(10))
        page = await lists.page()
        assert 0 < len(page.messages) < 10
        assert ids(await lists.all()) == given

    led(tmp_path, act)


def test_a_caller_sees_topics_that_it_has_a_right_on_and_bodies_of_those_it_produces_to_or_consumes(
    tmp_path: Path,
) -> None:
    tokens = {
        "p": Token(produce=("t",)),
        "c": Token(consume=("t",)),
        "o": Token(operate=True),
        "n": Token(produce=("other",)),
    }

    async def act(lead: Leader, _: Lists) -> None:
        lists = Lists(lead, tokens)
        given = await schedule(lead, [lead.node.time.now_ms() + HOUR_MS])
        for token in ("p", "c", "o"):
            assert ids((await lists.page(token=token)).messages) == given
        for token in ("p", "c"):
            assert (await lists.page(token=token, bodies=True)).messages[0].body == b"0"
        assert (await lists.refused(token="o", bodies=True)).reason is Reason.PERMISSION_DENIED
        unseen = await lists.refused(token="n")
        none = await lists.refused(token="n", topic="none")
        assert unseen.reason is none.reason is Reason.TOPIC_UNKNOWN
        assert unseen.text.replace("'t'", "") == none.text.replace("'none'", "")

    led(tmp_path, act)


def test_what_cannot_be_listed_is_refused_with_what_to_do(tmp_path: Path) -> None:
    async def act(lead: Leader, lists: Lists) -> None:
        await schedule(lead, lead.node.time.now_ms() + HOUR_MS + np.arange(5))
        cursor = (await lists.page(page_size=2)).cursor
        assert (await lists.page(page_size=listed_page.PAGE_MAX, cursor=cursor)).messages
        for wrong in (
            {"page_size": listed_page.PAGE_MAX + 1},
            {"states": [99]},
            {"states": [0]},
            {"states": [SETTLED]},
            {"cursor": "x"},
            {"cursor": "é"},
            {"cursor": "A" * CHARS},
            {"cursor": cursor[:-1]},
            {"cursor": ("A" if cursor[9] != "A" else "B").join((cursor[:9], cursor[10:]))},
            {"cursor": cursor, "tags": ["red"]},
            {"cursor": cursor, "states": [PENDING]},
            {"due_from_ms": 5, "due_to_ms": 5},
        ):
            assert (await lists.refused(**wrong)).reason is Reason.QUERY_INVALID, wrong
        assert (await lists.refused(topic="none")).reason is Reason.TOPIC_UNKNOWN
        assert (await lists.refused(topic="no name")).reason is Reason.TOPIC_INVALID
        assert (await lists.refused(group="none")).reason is Reason.GROUP_UNKNOWN

    led(tmp_path, act)


def test_a_scan_that_another_listing_has_left_is_not_taken_for_its_number_and_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Numbers count up, and a request with any checksum is easily made."""
    monkeypatch.setattr(listing, "key_of", lambda request: 7)
    tokens = {"v": Token(produce=("secret",)), "a": Token(produce=(TOPIC,))}

    async def act(lead: Leader, _: Lists) -> None:
        lists, due_ms = Lists(lead, tokens), lead.node.time.now_ms() + HOUR_MS + np.arange(10)
        own, queues = set(await schedule(lead, due_ms)), lead.machine.queues
        await schedule(lead, due_ms, topic="secret")
        left = await lists.page(token="v", topic="secret", page_size=2)
        scan = place_of(left.cursor, 7, queues.of("secret").queue)
        assert isinstance(scan, Place)
        cursor = text_of(Place(Phase.WHEEL, scan=scan.scan), 7, queues.of(TOPIC).queue)
        page = await lists.page(token="a", cursor=cursor, bodies=True)
        assert set(ids(page.messages)) == own

    led(tmp_path, act)


def test_a_listing_ends_with_its_topic_also_where_that_is_made_again(tmp_path: Path) -> None:
    async def act(lead: Leader, lists: Lists) -> None:
        due_ms = lead.node.time.now_ms() + HOUR_MS + np.arange(10)
        await schedule(lead, due_ms)
        cursor = (await lists.page(page_size=2)).cursor
        await lead.propose(log_pb.DeleteTopicCommand(topic=TOPIC, now_ms=lead.node.time.now_ms()))
        assert (await lists.refused(cursor=cursor)).reason is Reason.TOPIC_UNKNOWN
        given = await schedule(lead, due_ms)
        refused = await lists.refused(cursor=cursor)
        assert refused.reason is Reason.QUERY_INVALID
        assert "made again" in refused.text
        assert ids(await lists.all()) == given

    led(tmp_path, act)


def test_before_each_step_of_a_scan_what_it_looks_at_is_read_in_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.wheel.delay_log.DelayLog.held_units_max", 4)
    monkeypatch.setattr("tarry.wheel.due_scan._STEP_COST", 1)
    monkeypatch.setattr("tarry.wheel.due_scan.BLOCK_UNITS", 8)
    ahead, step, read = DueScan.ahead, DueScan.step, list[tuple[DueScan, threading.Thread]]()
    reads = 0

    def noted(scan: DueScan) -> Callable[[], None] | None:
        work = ahead(scan)
        if work is None:
            return None

        def done() -> None:
            work()
            read.append((scan, threading.current_thread()))

        return done

    def checked(scan: DueScan) -> None:
        nonlocal reads
        if ahead(scan) is not None:
            of, thread = read.pop()
            assert of is scan
            assert thread is not threading.main_thread()
            reads += 1
        step(scan)

    monkeypatch.setattr(DueScan, "ahead", noted)
    monkeypatch.setattr(DueScan, "step", checked)

    async def act(lead: Leader, lists: Lists) -> None:
        lead.node._core.damage.reads = RecordReads(lead.machine, pread_cached)
        given = await schedule(
            lead, lead.node.time.now_ms() // HOUR_MS * HOUR_MS + 2 * HOUR_MS + np.arange(100)
        )
        lead.machine.wheel.pending_per_second(lead.machine.wheel.hours()[-1])  # out of the far log
        assert ids(await lists.all(page_size=9)) == given
        assert reads >= 100 // 8

    led(tmp_path, act)


def test_retry_queues_with_nothing_to_list_take_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_page, "UNITS_MAX", 1)

    async def act(lead: Leader, lists: Lists) -> None:
        for number in range(20):
            await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group=f"g{number}"))
        assert (await lists.page()).cursor == ""
        assert lead.machine.queues.retries_of(TOPIC) == sorted(
            lead.machine.queues.of(TOPIC, group).queue
            for group in lead.machine.queues.groups_of(lead.machine.queues.of(TOPIC).queue)
        )

    led(tmp_path, act)


def test_a_cursor_that_was_made_up_shows_a_place_of_its_own_topic_or_nothing(tmp_path: Path) -> None:
    async def act(lead: Leader, lists: Lists) -> None:
        now_ms = lead.node.time.now_ms()
        await schedule(lead, [now_ms - 1, now_ms + HOUR_MS], topic="secret")
        given = set(await schedule(lead, [now_ms - 1, now_ms + HOUR_MS]))
        queue, own = lead.machine.queues.of("secret"), lead.machine.queues.of(TOPIC).queue
        await until(lambda: queue.units == 1)
        key = key_of(pb.ListMessagesRequest(filter=pb.MessageFilter(topic=TOPIC)))
        for phase in Phase:
            for number in (0, queue.queue, 2**32 - 1):
                for at in (-(2**63), -1, 0, 1, 2**40, 2**63 - 1):
                    place = Place(phase, number, at, 2**32 - 1, 2**64 - 1)
                    text = text_of(place, key, own)
                    assert place_of(text, key, own) == place
                    page = await lists.page(cursor=text)
                    assert set(ids(page.messages)) <= given

    led(tmp_path, act)
