"""RecurringService at a node that leads alone: what callers are told, and what fires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tarry.node.edge.auth import Authorizer
from tarry.node.recurring.fires import Fires
from tarry.node.services import recurring, topic_admin
from tarry.node.services.recurring import RecurringService
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_consumer_pb2 import AckRequest, NackRequest, ReceiveRequest, ReceiveResponse
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.recurring_table import Entry, Schedules
from tarry.replication.state_machine.refusal import Refusal
from tests.node.lone_leader import Leader, leader, until
from tests.simulation.edge import Context

FIRED, TRIGGERED = pb.FIRE_OUTCOME_FIRED, pb.FIRE_OUTCOME_TRIGGERED


class Caller:
    """Calls of the service, without a network."""

    def __init__(self, lead: Leader, tokens: Any = None) -> None:
        self.lead = lead
        self.service = RecurringService(lead.node._core, Authorizer(tokens or {}), lead.edge._calls)
        self._locals = self.service.locals()
        self.context: Any = Context()

    async def call(self, name: str, request: Any, answer: Any = pb.RecurringResponse) -> Any:
        raw = await self._locals[name](request.SerializeToString(), self.context)
        return raw if isinstance(raw, Refusal) else answer.FromString(raw)

    async def put(self, name: str = "s", *, topic: str = "t", **more: Any) -> Any:
        spec = {"topic": topic, "interval_ms": 1_000, "record": Record(body=b"x")}
        asked = {field: more.pop(field) for field in ("if_revision", "paused") if field in more}
        if "cron" in more:
            del spec["interval_ms"]
        request = pb.PutRecurringRequest(name=name, spec=pb.RecurringSpec(**{**spec, **more}), **asked)
        told = await self.call("PutRecurring", request)
        return told if isinstance(told, Refusal) else told.recurring

    async def get(self, name: str = "s") -> Any:
        told = await self.call("GetRecurring", pb.GetRecurringRequest(name=name))
        return told if isinstance(told, Refusal) else told.recurring

    async def fires(self, **asked: Any) -> Any:
        return await self.call("NextFires", pb.NextFiresRequest(**asked), pb.NextFiresResponse)

    async def page(self, **asked: Any) -> Any:
        return await self.call("ListRecurring", pb.ListRecurringRequest(**asked), pb.ListRecurringResponse)

    async def trigger(self, **asked: Any) -> Any:
        return await self.trigger_of("s", **asked)

    async def trigger_of(self, name: str, **asked: Any) -> Any:
        request = pb.TriggerRecurringRequest(name=name, **asked)
        return await self.call("TriggerRecurring", request, pb.TriggerRecurringResponse)


@asynccontextmanager
async def calling(folder: Path, **settings: Any) -> AsyncIterator[Caller]:
    async with leader(folder, Holds(), **settings) as lead:
        await until(lambda: lead.machine.level == 2)
        yield Caller(lead)


def play(folder: Path, act: Callable[[Caller], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with calling(folder, **settings) as caller:
            await act(caller)

    asyncio.run(run())


def reason(answer: Any) -> Reason:
    assert isinstance(answer, Refusal), answer
    return answer.reason


def test_a_schedule_fires_at_its_times_until_its_end(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        now_ms = caller.lead.node.time.now_ms()
        start_ms = now_ms + 300
        made = await caller.put(start_ms=start_ms, end_ms=start_ms + 1_500)
        assert (made.revision, made.next_ms, made.number) == (1, start_ms, 1)
        await until(lambda: caller.lead.machine.queues.of("t").units == 2)
        told = await caller.get()
        assert (told.fired, told.ended, told.next_ms, told.missed) == (2, True, 0, 0)
        assert [(fire.outcome, fire.fire_ms, fire.due_ms) for fire in told.history] == [
            (FIRED, start_ms + 1_000, start_ms + 1_000),
            (FIRED, start_ms, start_ms),
        ]
        assert told.spec.record.body == b"x"

    play(tmp_path, act)


def test_a_paused_schedule_fires_only_where_it_is_triggered(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        await caller.put(paused=True)
        assert (await caller.get()).paused
        first = await caller.trigger(if_triggered=0)
        assert first.triggered == 1
        assert reason(await caller.trigger(if_triggered=0)) is Reason.RECURRING_CHANGED
        told = await caller.get()
        assert [(fire.outcome, fire.id) for fire in told.history] == [(TRIGGERED, first.id)]
        resumed = await caller.call("ResumeRecurring", pb.ResumeRecurringRequest(name="s", if_revision=1))
        assert resumed.recurring.revision == 2
        assert resumed.recurring.next_ms > 0
        paused = await caller.call("PauseRecurring", pb.PauseRecurringRequest(name="s", if_revision=1))
        assert reason(paused) is Reason.RECURRING_CHANGED
        gone = await caller.call(
            "DeleteRecurring", pb.DeleteRecurringRequest(name="s"), pb.DeleteRecurringResponse
        )
        assert gone == pb.DeleteRecurringResponse()
        assert reason(await caller.get()) is Reason.RECURRING_UNKNOWN
        assert reason(await caller.trigger()) is Reason.RECURRING_UNKNOWN

    play(tmp_path, act)


def test_a_put_may_be_repeated_and_names_the_revision_it_changes(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        day = {"cron": "0 3 * * *", "zone": "Europe/Berlin"}
        assert (await caller.put(if_revision=0, **day)).revision == 1
        assert (await caller.put(**day)).revision == 1
        assert reason(await caller.put(if_revision=0, **day)) is Reason.RECURRING_CHANGED
        assert (await caller.put(if_revision=1, cron="0 4 * * *")).revision == 2

    play(tmp_path, act)


REFUSED: tuple[tuple[dict[str, Any], Reason], ...] = (
    ({"name": ""}, Reason.RECURRING_INVALID),
    ({"name": "a b"}, Reason.RECURRING_INVALID),
    ({"topic": ""}, Reason.TOPIC_INVALID),
    ({"interval_ms": 999}, Reason.RECURRING_INVALID),
    ({"interval_ms": 2**63}, Reason.RECURRING_INVALID),
    ({"cron": "0 0 30 2 *"}, Reason.RECURRING_INVALID),
    ({"cron": "0 0 */31 * 1#2"}, Reason.RECURRING_INVALID),
    ({"cron": "0 3 * * *", "zone": "Europe/Atlantis"}, Reason.RECURRING_INVALID),
    ({"end_ms": 5}, Reason.RECURRING_INVALID),
    ({"start_ms": -5}, Reason.RECURRING_INVALID),
    ({"overlap": 9}, Reason.RECURRING_INVALID),
    ({"missed": 9}, Reason.RECURRING_INVALID),
    ({"missed_after_ms": 2**63}, Reason.RECURRING_INVALID),
    ({"jitter_ms": 2**32 - 1}, Reason.JITTER_TOO_LARGE),
    ({"record": Record(idempotency_key="k")}, Reason.RECURRING_INVALID),
    ({"record": Record(tags=["x"] * 17)}, Reason.TOO_MANY_TAGS),
    ({"record": Record(body=b"x" * (256 << 10) + b"y")}, Reason.RECORD_TOO_LARGE),
)


def test_what_cannot_be_kept_is_refused(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        for more, refused in REFUSED:
            assert reason(await caller.put(**more)) is refused, more
        assert len(caller.lead.machine.recurring) == 0

    play(tmp_path, act)


def test_next_fires_are_told_of_what_is_stored_and_of_what_is_not(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        spec = pb.RecurringSpec(cron="30 2 * * *", zone="Europe/Berlin")
        told = await caller.fires(spec=spec, fires_max=2, after_ms=1_774_700_000_000)
        assert list(told.local) == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]
        assert not told.ended
        made = await caller.put(cron="0 3 * * *")
        told = await caller.fires(name="s")
        assert len(told.fire_ms) == 10
        assert told.fire_ms[0] == made.next_ms
        ends = pb.RecurringSpec(interval_ms=1_000, start_ms=1_000, end_ms=3_500)
        told = await caller.fires(spec=ends, after_ms=1)
        assert (list(told.fire_ms), told.ended) == ([1_000, 2_000, 3_000], True)
        for asked in ({}, {"name": "s", "spec": spec}, {"name": "s", "fires_max": 1_001}):
            assert reason(await caller.fires(**asked)) is Reason.RECURRING_INVALID
        assert reason(await caller.fires(name="s", after_ms=2**62)) is Reason.RECURRING_INVALID
        assert reason(await caller.fires(spec=pb.RecurringSpec(interval_ms=1))) is Reason.RECURRING_INVALID
        assert reason(await caller.fires(name="other")) is Reason.RECURRING_UNKNOWN

    play(tmp_path, act)


def test_pages_hold_every_schedule_once_by_name(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        for number in range(7):
            await caller.put(f"s{number}", topic=f"t{number % 2}", paused=True)
        names, cursor = [], ""
        while True:
            page = await caller.page(page_size=3, cursor=cursor)
            names += [one.name for one in page.recurring]
            assert page.total == 7
            cursor = page.cursor
            if not cursor:
                break
        assert names == [f"s{number}" for number in range(7)]
        assert [one.name for one in (await caller.page(topic="t1")).recurring] == ["s1", "s3", "s5"]
        assert [one.name for one in (await caller.page(name_prefix="s6")).recurring] == ["s6"]
        assert not (await caller.page(name_prefix="x")).recurring
        assert reason(await caller.page(page_size=1_001)) is Reason.RECURRING_INVALID
        assert page.recurring[0].spec.record.body == b""

    play(tmp_path, act)


def test_a_page_does_not_grow_beyond_its_bytes(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        large = Record(properties={f"p{number}": "x" * 900 for number in range(60)})
        for number in range(40):
            await caller.put(f"s{number:02}", paused=True, record=large)
        page = await caller.page()
        assert 0 < len(page.recurring) < 40
        assert page.cursor

    play(tmp_path, act)


def test_a_page_of_large_bodies_is_told_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(caller: Caller) -> None:
        for number in range(24):
            await caller.put(f"s{number:02}", paused=True, record=Record(body=bytes(200 << 10)))
        service, told = caller.service, RecurringService._told
        turn: list[str] = []
        turns: list[int] = []

        def end() -> None:
            turns.append(len(turn))
            turn.clear()

        def counted(entry: Any) -> Any:
            if not turn:
                asyncio.get_running_loop().call_soon(end)
            turn.append(entry.name)
            return told(service, entry)

        monkeypatch.setattr(service, "_told", counted)
        assert len((await caller.page()).recurring) == 24
        assert len(turns) >= 4
        assert max(turns) <= recurring.PAGE_BYTES // (200 << 10) + 1

    play(tmp_path, act)


def test_limits_name_what_to_raise(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        await caller.put("a", interval_ms=10_000, paused=True)
        full = await caller.put("b", interval_ms=10_000, paused=True)
        assert reason(full) is Reason.TOO_MANY_RECURRING
        assert "limits.recurring_max" in full.text
        large = await caller.put("a", interval_ms=10_000, record=Record(body=b"x" * 2_000))
        assert reason(large) is Reason.TOO_MANY_RECURRING
        assert "limits.recurring_bytes_max" in large.text
        assert reason(await caller.put("a", interval_ms=9_999)) is Reason.RECURRING_INVALID

    limits = {"recurring_max": 1, "recurring_bytes_max": 1_000, "recurring_interval_ms_min": 10_000}
    play(tmp_path, act, limits=limits)


def test_a_put_does_not_change_what_comes_to_be_under_its_name_while_it_waits(tmp_path: Path) -> None:
    """Who may produce to one topic may not change the schedules of another."""

    async def act(caller: Caller) -> None:
        service, searched = caller.service, caller.service._fires

        async def waits(*asked: Any) -> Any:
            service._fires = searched  # type: ignore[method-assign]
            assert (await caller.put(topic="theirs")).revision == 1
            return await searched(*asked)

        service._fires = waits  # type: ignore[method-assign]
        assert reason(await caller.put(topic="mine")) is Reason.OVERLOADED
        assert (await caller.get()).spec.topic == "theirs"
        assert (await caller.put(topic="mine")).revision == 2  # it is asked whether it may change theirs, too

    play(tmp_path, act)


def test_schedules_make_no_more_topics_than_there_may_be(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        for topic in ("one", "two", "two"):
            assert (await caller.put(f"of-{topic}", topic=topic, paused=True)).number
        assert reason(await caller.put("more", topic="three")) is Reason.TOO_MANY_QUEUES
        assert reason(await caller.put("of-one", topic="three")) is Reason.TOO_MANY_QUEUES
        assert (await caller.put("of-one", topic="two")).revision == 2
        assert caller.lead.machine.queues.live == 2

    play(tmp_path, act, limits={"queues_max": 2})


def test_many_puts_at_once_wait_for_each_other_and_too_many_are_refused(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        most = recurring.SEARCHES_MAX + recurring.SEARCHES_WAITING_MAX
        puts = [caller.put(f"s{number}", interval_ms=60_000) for number in range(most)]
        told = await asyncio.gather(*puts)
        assert [one.revision for one in told] == [1] * most
        more = [caller.fires(spec=pb.RecurringSpec(interval_ms=60_000)) for _ in range(most + 9)]
        refused = [one for one in await asyncio.gather(*more) if isinstance(one, Refusal)]
        assert [(one.reason, one.retry_ms) for one in refused] == [(Reason.OVERLOADED, 100)] * 9
        assert (await caller.put("then", interval_ms=60_000)).revision == 1

    play(tmp_path, act)


def test_a_fire_waits_for_the_acknowledgement_of_the_last_and_of_its_retry(tmp_path: Path) -> None:
    async def act(caller: Caller) -> None:
        edge, machine = caller.lead.edge, caller.lead.machine

        async def receive() -> Any:
            asked = ReceiveRequest(topic="t", group="g", consumer="c", wait_ms=5_000, lease_ms=60_000)
            raw = await edge.receive(asked.SerializeToString())
            assert isinstance(raw, bytes), raw
            return ReceiveResponse.FromString(raw).deliveries[0]

        first_ms = caller.lead.node.time.now_ms() + 1_000
        await caller.put("skips", overlap=pb.OVERLAP_POLICY_SKIP, start_ms=first_ms)
        given = await receive()
        await until(lambda: machine.recurring.named("skips").state().skipped >= 1)
        nack = {"topic": "t", "group": "g", "consumer": "c", "queue": given.queue, "offset": given.offset}
        await edge.nack(NackRequest(**nack, delay_ms=0).SerializeToString())
        again = await receive()
        assert list(again.attempt) == [2]
        skipped = (await caller.get("skips")).skipped
        await until(lambda: machine.recurring.named("skips").state().skipped > skipped)
        told = await caller.get("skips")
        assert told.fired == 1  # its retry is in hand
        acked = {**nack, "queue": again.queue, "offset": again.offset}
        await edge.ack(AckRequest(**acked).SerializeToString())
        await until(lambda: machine.recurring.named("skips").state().fired == 2)

    play(tmp_path, act)


@pytest.mark.parametrize("paused", [False, True])
def test_a_change_waits_for_fires_that_have_come_and_are_not_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    """As behind a failover, before the new leader has come to the schedule."""
    plans, decides = Fires._plans, asyncio.Event()
    monkeypatch.setattr(
        Fires, "_plans", lambda fires, now_ms: plans(fires, now_ms) if decides.is_set() else []
    )
    monkeypatch.setattr(recurring, "DECIDED_MS", 20)

    async def act(caller: Caller) -> None:
        time, start_ms = caller.lead.node.time, caller.lead.node.time.now_ms() + 20
        assert not isinstance(await caller.put(start_ms=start_ms), Refusal)
        await until(lambda: time.now_ms() > start_ms)

        async def change() -> Any:
            if paused:
                return await caller.call("PauseRecurring", pb.PauseRecurringRequest(name="s"))
            return await caller.put(start_ms=start_ms, interval_ms=3_600_000)

        assert reason(await change()) is Reason.OVERLOADED
        monkeypatch.setattr(recurring, "DECIDED_MS", 10_000)
        changing = asyncio.create_task(change())
        await asyncio.sleep(0)
        decides.set()
        assert not isinstance(await changing, Refusal)
        told = await caller.get()
        assert told.fired >= 1
        assert told.missed == 0

    play(tmp_path, act)


def test_a_change_waits_for_no_fire_that_comes_behind_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a leader that is always late for a schedule of short intervals would refuse its pause for ever."""

    async def act(caller: Caller) -> None:
        time, named = caller.lead.node.time, Schedules.named

        def always_late(table: Schedules, name: str) -> Entry | None:
            entry = named(table, name)
            if entry is not None and not entry.paused:
                entry.next_ms = time.now_ms() - 5
            return entry

        await caller.put(start_ms=time.now_ms() + 3_600_000)
        monkeypatch.setattr(Schedules, "named", always_late)
        told = await caller.call("PauseRecurring", pb.PauseRecurringRequest(name="s"))
        assert not isinstance(told, Refusal) and told.recurring.paused

    play(tmp_path, act)


def test_a_topic_takes_its_schedules_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_admin, "SCHEDULES_AT_ONCE", 2)

    async def act(caller: Caller) -> None:
        for number in range(7):
            await caller.put(f"s{number}", topic="gone" if number else "kept", paused=True)
        await caller.trigger_of("s1")
        deleted = await caller.lead.delete_topic("gone")
        assert deleted.recurring == 6
        assert [one.name for one in (await caller.page()).recurring] == ["s0"]

    play(tmp_path, act)
