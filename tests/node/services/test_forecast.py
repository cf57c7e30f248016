"""A forecast equals a count of every message, at any moment, by any length of a bucket."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tarry.node.config import Dispatch, Limits, Token
from tarry.node.edge.auth import Authorizer
from tarry.node.leader.leftovers import pending_of_live
from tarry.node.metrics.release_rate import DEFAULT_PER_S, ReleaseRate
from tarry.node.repair.indices import IndexDamage
from tarry.node.repair.record_reads import RecordReads
from tarry.node.services import forecast
from tarry.node.services.forecast import ForecastCalls
from tarry.node.services.forecast_request import BUCKETS_MAX
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.blocking import in_thread
from tarry.replication.state_machine import commands, lanes
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.state import HOUR_MS
from tests.node.lone_leader import TOPIC, Leader, leader
from tests.simulation.edge import Context

START_MS = 1_792_281_600_000
TOPICS = ("t", "u")
TAGS = ("red", "blue", "green")
BUCKET_MS = {1: 1_000, 2: 60_000, 3: HOUR_MS}


def forecasts(
    machine: Machine, now_ms: Callable[[], int], authorizer: Authorizer | None = None
) -> ForecastCalls:
    """Return the calls of a follower that is at a time of its own."""
    status = SimpleNamespace(node="n2", leader="n1", peers={"n1": SimpleNamespace(heard_ms_ago=12.3)})
    core: Any = SimpleNamespace(
        machine=machine,
        config=SimpleNamespace(limits=Limits(), dispatch=Dispatch()),
        time=SimpleNamespace(now_ms=now_ms),
        driver=SimpleNamespace(status=lambda: status),
        leadership=SimpleNamespace(serves=lambda: False),
        release_rate=ReleaseRate(),
        damage=SimpleNamespace(reads=RecordReads(machine)),
    )
    calls: Any = None
    return ForecastCalls(core, authorizer or Authorizer({}), calls)


async def asked(calls: ForecastCalls, context: Any = None, **request: Any) -> pb.ForecastResponse | Refusal:
    raw = pb.ForecastRequest(**request).SerializeToString()
    answer = await calls.answer("", raw, context or Context())
    return answer if isinstance(answer, Refusal) else pb.ForecastResponse.FromString(answer)


async def told(calls: ForecastCalls, **request: Any) -> pb.ForecastResponse:
    answer = await asked(calls, **request)
    assert isinstance(answer, pb.ForecastResponse), answer
    return answer


@dataclass(frozen=True)
class Pending:
    due_ms: int
    topic: str
    tags: tuple[str, ...]


def expected(pending: list[Pending], now_ms: int, request: dict[str, Any]) -> dict[str, Any]:
    """Return what a forecast is to say, counted one by one."""
    topic, tags = request.get("topic", ""), set(request.get("tags", ()))
    chosen = [
        one.due_ms for one in pending if topic in {"", one.topic} and (not tags or tags & set(one.tags))
    ]
    bucket_ms = BUCKET_MS[request["resolution"]]
    first_ms = max(now_ms, request.get("from_ms", 0)) // bucket_ms * bucket_ms
    count = request.get("buckets", 0) or BUCKETS_MAX[bucket_ms]
    if bucket_ms == HOUR_MS and not request.get("buckets"):
        hours = [(one.due_ms - first_ms) // bucket_ms for one in pending if one.due_ms >= first_ms]
        count = max((hour for hour in hours if hour < count), default=0) + 1
    counts = [0] * count
    for due_ms in chosen:
        at = (due_ms - first_ms) // bucket_ms
        if 0 <= at < count:
            counts[at] += 1
    overdue = [due_ms for due_ms in chosen if due_ms <= now_ms]
    return {
        "first_ms": first_ms,
        "counts": counts,
        "pending": sum(topic in {"", one.topic} for one in pending),
        "overdue": len(overdue),
        "first_due_ms": min(overdue, default=None),
    }


near_times = st.builds(
    lambda hour, second, ms: START_MS + hour * HOUR_MS + second * 1_000 + ms,
    st.integers(-1, 2),
    st.sampled_from([0, 1, 59, 60, 61, 3_598, 3_599]),
    st.sampled_from([0, 1, 500, 999]),
)
times = (
    near_times | near_times | st.builds(lambda hours: START_MS + hours * HOUR_MS + 7, st.integers(3, 100_000))
)


class MessagesAndForecasts(RuleBasedStateMachine):
    """A machine's wheel, and every message that is pending in it."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.pending: dict[tuple[int, int], Pending] = {}

    @initialize(far=st.booleans())
    def start(self, far: bool) -> None:
        self.patch = pytest.MonkeyPatch()
        if far:
            self.patch.setattr("tarry.wheel.placement._DIRECT_HOURS", 0)
            self.patch.setattr("tarry.wheel.placement._DENSE_UNITS", 4)
        self.machine = Machine(Path(self.folder.name), MachineSettings())
        self.now_ms = START_MS - 2 * HOUR_MS
        for topic in TOPICS:
            command = log_pb.TopicCommand(topic=topic, now_ms=self.now_ms)
            self.machine.apply(self.machine.applied_index + 1, 1, [commands.encode(command)])
        self.wheel.take(START_MS - HOUR_MS, 1)

    @property
    def wheel(self) -> Any:
        return self.machine.wheel

    @rule(
        messages=st.lists(
            st.tuples(
                times, st.sampled_from(TOPICS), st.sets(st.sampled_from(TAGS), max_size=2), st.booleans()
            ),
            min_size=1,
            max_size=12,
        )
    )
    def append(self, messages: list[tuple[int, str, set[str], bool]]) -> None:
        due_ms = np.array([max(one[0], self.wheel.floor_hour * HOUR_MS) for one in messages], np.int64)
        queues = np.array([self.machine.queues.of(one[1]).queue for one in messages], np.uint32)
        masks = np.array([tag_mask(one[2]) for one in messages], np.uint64)
        lane = np.array([lanes.lane_of("key") if one[3] else 0 for one in messages], np.uint32)
        records = [Record(tags=sorted(one[2])).SerializeToString() for one in messages]
        done = self.wheel.append(due_ms, *lanes.pack(queues, masks, lane), records)
        for row, (_, topic, tags, _) in enumerate(messages):
            if not done.overdue[row]:
                name = int(done.hour[row]), int(done.global_index[row])
                self.pending[name] = Pending(int(due_ms[row]), topic, tuple(sorted(tags)))

    @rule(until_ms=times, count=st.sampled_from([1, 3, 1_000]))
    def take(self, until_ms: int, count: int) -> None:
        self.forget(self.wheel.take(until_ms, count))

    @rule(data=st.data())
    def cancel_or_overtake(self, data: st.DataObject) -> None:
        if self.pending:
            names = data.draw(
                st.lists(st.sampled_from(sorted(self.pending)), min_size=1, max_size=4, unique=True)
            )
            ids = (
                np.array([name[0] for name in names], np.uint32),
                np.array([name[1] for name in names], np.uint32),
            )
            if data.draw(st.booleans()):
                self.wheel.cancel(*ids)
                for name in names:
                    del self.pending[name]
            else:
                self.forget(self.wheel.overtake(*ids))

    def forget(self, taken: Any) -> None:
        for hour, index in zip(taken.hour.tolist(), taken.global_index.tolist(), strict=True):
            del self.pending[hour, index]

    @rule(
        later_ms=st.sampled_from([0, 1, 500, 60_000, HOUR_MS, 3 * HOUR_MS]),
        resolution=st.sampled_from([1, 2, 3]),
        topic=st.sampled_from(["", *TOPICS]),
        tags=st.lists(st.sampled_from(TAGS), max_size=2, unique=True),
        buckets=st.sampled_from([0, 1, 5, 90]),
        ahead_ms=st.sampled_from([0, 0, 61_001, 2 * HOUR_MS]),
    )
    def forecast(
        self, later_ms: int, resolution: int, topic: str, tags: list[str], buckets: int, ahead_ms: int
    ) -> None:
        self.now_ms += later_ms
        request: dict[str, Any] = {"resolution": resolution, "topic": topic, "buckets": buckets}
        request |= {"tags": tags} if topic else {}
        request |= {"from_ms": self.now_ms + ahead_ms} if ahead_ms else {}
        answer = asyncio.run(told(forecasts(self.machine, lambda: self.now_ms), **request))
        expects = expected(list(self.pending.values()), self.now_ms, request)
        oldest_ms = self.now_ms - (expects.pop("first_due_ms") or self.now_ms)
        assert {name: getattr(answer, name) for name in expects} == expects
        assert answer.oldest_overdue_ms == oldest_ms if topic else answer.oldest_overdue_ms >= oldest_ms
        assert (answer.node, answer.leads, answer.heard_ms_ago) == ("n2", False, 13)
        assert not answer.upper_bound
        assert len(answer.lateness_ms) == (0 if answer.first_ms > self.now_ms else len(answer.counts))

    def teardown(self) -> None:
        self.machine.close()
        self.patch.undo()
        self.folder.cleanup()


TestAForecastEqualsACountOfEveryMessage = MessagesAndForecasts.TestCase
TestAForecastEqualsACountOfEveryMessage.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)


class Filled:
    """A machine with messages of one topic, a second apart."""

    def __init__(self, folder: Path, count: int = 10, tags: tuple[str, ...] = ()) -> None:
        self.machine = Machine(folder, MachineSettings())
        command = log_pb.TopicCommand(topic=TOPIC, now_ms=START_MS)
        self.machine.apply(1, 1, [commands.encode(command)])
        self.schedule(np.arange(1, count + 1) * 1_000 + START_MS, tags)

    def schedule(self, due_ms: Any, tags: tuple[str, ...] = (), says: tuple[str, ...] | None = None) -> None:
        """Append messages; their records may name other tags than their masks."""
        queue = self.machine.queues.of(TOPIC).queue
        record = Record(tags=tags if says is None else says).SerializeToString()
        n = len(due_ms)
        self.machine.wheel.append(
            due_ms, np.full(n, queue, np.uint32), np.full(n, tag_mask(tags), np.uint64), [record] * n
        )


@pytest.fixture
def filled(tmp_path: Path) -> Filled:
    return Filled(tmp_path / "state")


def ask(filled: Filled, now_ms: int = START_MS, **request: Any) -> pb.ForecastResponse | Refusal:
    return asyncio.run(asked(forecasts(filled.machine, lambda: now_ms), **request))


def reason(answer: pb.ForecastResponse | Refusal) -> Reason:
    assert isinstance(answer, Refusal)
    return answer.reason


def test_a_mask_is_not_believed_where_the_record_says_otherwise(tmp_path: Path) -> None:
    filled = Filled(tmp_path / "state", tags=("red",))
    filled.schedule(np.full(3, START_MS + 500), ("red",), says=("of the same bit",))
    answer = ask(filled, topic=TOPIC, tags=["red"])
    assert isinstance(answer, pb.ForecastResponse)
    assert (sum(answer.counts), answer.upper_bound) == (10, False)


@pytest.mark.parametrize(("limit", "value"), [("TAGGED_MAX", 12), ("TAGGED_BYTES_MAX", 60)])
def test_of_too_many_records_only_the_masks_are_looked_at_and_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    filled = Filled(tmp_path / "state", tags=("red",))
    filled.schedule(np.full(3, START_MS + 500), ("red",), says=("of the same bit",))
    monkeypatch.setattr(forecast, limit, value)
    answer = ask(filled, topic=TOPIC, tags=["red"])
    assert isinstance(answer, pb.ForecastResponse)
    assert (sum(answer.counts), answer.upper_bound) == (13, True)
    monkeypatch.setattr(forecast, limit, 10 * value)
    answer = ask(filled, topic=TOPIC, tags=["red"])
    assert isinstance(answer, pb.ForecastResponse)
    assert (sum(answer.counts), answer.upper_bound) == (10, False)


def test_a_backlog_makes_late_what_comes_behind_it(filled: Filled) -> None:
    crowd = int(DEFAULT_PER_S) * 2  # which could not be begun with early, and is due
    for start in range(0, crowd, 20_000):
        filled.schedule(np.full(min(20_000, crowd - start), START_MS + 3_000))
    filled.machine.wheel.load_ahead(START_MS + 3_999)  # as each heartbeat does
    answer = ask(filled, START_MS + 3_999, buckets=4)
    assert isinstance(answer, pb.ForecastResponse)
    assert (answer.overdue, answer.oldest_overdue_ms) == (crowd + 3, 2_999)
    assert answer.counts[:2] == [crowd + 1, 1]
    assert list(answer.lateness_ms) == [3_000, 1_000, 0, 0]  # the crowd at its beginning, 999 ms ago
    assert (answer.released_per_s, answer.released_measured) == (DEFAULT_PER_S, False)
    by_minute = ask(filled, START_MS + 3_999, buckets=1, resolution=2)
    assert isinstance(by_minute, pb.ForecastResponse)
    assert list(by_minute.lateness_ms) == [3_000]


@pytest.mark.parametrize(
    "request_",
    [
        {"buckets": 3_601},
        {"buckets": 1_441, "resolution": 2},
        {"buckets": 87_673, "resolution": 3},
        {"resolution": 4},
        {"from_ms": -1},
        {"from_ms": 1 << 62},
        {"tags": ["red"]},
        {"topic": TOPIC, "tags": [""]},
    ],
)
def test_what_cannot_be_counted_is_refused(filled: Filled, request_: dict[str, Any]) -> None:
    assert reason(ask(filled, **request_)) is Reason.QUERY_INVALID


@pytest.mark.parametrize(("resolution", "buckets"), [(1, 3_600), (2, 1_440), (3, 87_672)])
def test_as_many_buckets_as_there_may_be_are_told(filled: Filled, resolution: int, buckets: int) -> None:
    answer = ask(filled, resolution=resolution, buckets=buckets)
    assert isinstance(answer, pb.ForecastResponse)
    assert (len(answer.counts), sum(answer.counts), answer.pending) == (buckets, 10, 10)


@pytest.mark.parametrize(("limit", "value"), [("UNITS_MAX", 9), ("HOURS_MAX", 0)])
def test_a_topic_is_not_looked_for_among_too_many(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(forecast, limit, value)
    assert reason(ask(filled, topic=TOPIC)) is Reason.QUERY_INVALID
    monkeypatch.setattr(forecast, limit, value + 1)
    answer = ask(filled, topic=TOPIC)
    assert isinstance(answer, pb.ForecastResponse) and sum(answer.counts) == 10
    monkeypatch.setattr(forecast, limit, value)
    answer = ask(filled)
    assert isinstance(answer, pb.ForecastResponse) and sum(answer.counts) == 10


def test_chains_of_the_far_log_are_walked_up_to_a_bound(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled.machine.wheel.take(START_MS, 1)
    filled.schedule(START_MS + 500 + np.arange(12) * HOUR_MS)
    request = {"resolution": 2}
    monkeypatch.setattr(forecast, "FAR_UNITS_MAX", 9)
    assert reason(ask(filled, **request)) is Reason.QUERY_INVALID
    monkeypatch.setattr(forecast, "FAR_UNITS_MAX", 10)
    answer = ask(filled, **request)
    assert isinstance(answer, pb.ForecastResponse) and sum(answer.counts) == 22


def test_an_hour_that_is_dropped_while_it_is_counted_is_counted_anew(
    filled: Filled, monkeypatch: pytest.MonkeyPatch
) -> None:
    wheel, now_ms = filled.machine.wheel, START_MS + 3 * HOUR_MS
    filled.schedule(np.full(3, now_ms))
    counts = list[int]()

    async def released_meanwhile(count: Any) -> Any:
        if wheel.floor_hour == 0:
            wheel.take(now_ms - 1, 100)
            wheel.drop_hour(START_MS // HOUR_MS)
            for _ in range(2):
                wheel.sync(wheel.capture())
        counts.append(wheel.pending)
        return await in_thread(count)

    monkeypatch.setattr(forecast, "in_thread", released_meanwhile)
    answer = ask(filled, now_ms, topic=TOPIC)
    assert isinstance(answer, pb.ForecastResponse)
    assert (answer.overdue, answer.oldest_overdue_ms, list(answer.counts[:2])) == (3, 0, [3, 0])
    assert counts == [3, 3]


def test_a_damaged_index_is_told_and_given_to_who_mends_it(filled: Filled) -> None:
    wheel = filled.machine.wheel
    wheel.close()
    state = wheel.upkeep.hour_state(START_MS // HOUR_MS)
    path = filled.machine.folder / "hours" / folder_name(state.hour) / "delay.index"
    path.write_bytes(bytes(len(path.read_bytes())))
    wheel.close()
    calls = forecasts(filled.machine, lambda: START_MS)
    indices = calls._core.damage.indices = IndexDamage(filled.machine)
    answer = asyncio.run(asked(calls))
    assert reason(answer) is Reason.OVERLOADED
    assert indices.left == {START_MS // HOUR_MS}


def test_what_a_deleted_topic_has_left_is_in_the_buckets_and_not_in_the_total(filled: Filled) -> None:
    filled.machine.queues.delete_topic(TOPIC)
    look = ask(filled)
    assert isinstance(look, pb.ForecastResponse)
    assert (look.pending, sum(look.counts)) == (pending_of_live(filled.machine), 10)
    assert look.pending == 0


def test_so_many_are_counted_at_once_and_one_more_comes_again_later(filled: Filled) -> None:
    async def many() -> list[pb.ForecastResponse | Refusal]:
        calls = forecasts(filled.machine, lambda: START_MS)
        at_once = [asked(calls, topic=TOPIC) for _ in range(forecast.UNDER_WAY_MAX + 1)]
        answers = list(await asyncio.gather(*at_once))
        return [*answers, await asked(calls, topic=TOPIC)]

    answers = asyncio.run(many())
    refused = [answer for answer in answers if isinstance(answer, Refusal)]
    assert [(one.reason, one.retry_ms) for one in refused] == [(Reason.OVERLOADED, 200)]


def test_who_may_do_nothing_with_a_topic_is_told_that_it_is_not_there(filled: Filled) -> None:
    tokens = {
        "of-others": Token(name="of-others", produce=("u",)),
        "of-it": Token(name="of-it", consume=(TOPIC,)),
        "operates": Token(name="operates", operate=True),
    }

    class As(Context):
        def __init__(self, secret: str) -> None:
            self._secret = secret

        def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
            return (("authorization", f"Bearer {self._secret}"),)

    calls = forecasts(filled.machine, lambda: START_MS, Authorizer(tokens))

    def of(secret: str, **request: Any) -> Reason | int:
        answer = asyncio.run(asked(calls, As(secret), **request))
        return answer.reason if isinstance(answer, Refusal) else sum(answer.counts)

    assert of("of-others", topic=TOPIC) is Reason.TOPIC_UNKNOWN
    assert of("of-others", topic="v") is Reason.TOPIC_UNKNOWN
    assert of("of-it") is Reason.PERMISSION_DENIED
    assert of("nobody's") is Reason.UNAUTHENTICATED
    assert [of("of-it", topic=TOPIC), of("operates", topic=TOPIC), of("operates")] == [10, 10, 10]


def test_a_leader_tells_what_it_has_taken_in_as_of_after_the_call_began(tmp_path: Path) -> None:
    async def steps(lead: Leader) -> None:
        calls = ForecastCalls(lead.node._core, Authorizer({}), lead.edge._calls)
        now_ms = lead.node.time.now_ms()
        due_ms = now_ms + 30_000 + np.arange(500) * 11
        await lead.schedule(500, due_ms, ["t", "u"])
        for linearizable in (False, True):
            for resolution in (1, 2, 3):
                of_t = await told(calls, resolution=resolution, topic="t", linearizable=linearizable)
                applied = lead.machine.applied_index
                of_all = await told(calls, resolution=resolution, linearizable=linearizable)
                assert (sum(of_t.counts), sum(of_all.counts), of_all.pending) == (250, 500, 500)
                assert (of_all.node, of_all.leads, of_all.heard_ms_ago, of_all.overdue) == ("n1", True, 0, 0)
                assert applied <= of_all.applied_index <= lead.machine.applied_index
                counted = np.bincount((due_ms - of_all.first_ms) // of_all.bucket_ms)
                assert list(of_all.counts[: len(counted)]) == counted.tolist()

    at_a_leader(tmp_path, steps)


def test_what_comes_and_goes_while_it_is_counted_changes_no_figure_of_an_answer(tmp_path: Path) -> None:
    async def steps(lead: Leader) -> None:
        calls = ForecastCalls(lead.node._core, Authorizer({}), lead.edge._calls)
        begin_ms, rng = lead.node.time.now_ms() + HOUR_MS, np.random.default_rng(7)
        seen = set[int]()

        async def change() -> None:
            for _ in range(40):
                due_ms = begin_ms + rng.integers(0, 20 * HOUR_MS, 400)
                done = await lead.schedule(400, due_ms, ["t", "u"])
                hour, index = (np.frombuffer(one, "<u4")[::3] for one in (done.hour, done.global_index))
                await lead.propose(log_pb.CancelCommand(hour=hour.tobytes(), global_index=index.tobytes()))

        async def ask(**request: Any) -> None:
            answer = await told(calls, **request)
            assert sum(answer.counts) == answer.pending, request
            seen.add(answer.applied_index)

        changing = asyncio.create_task(change())
        while not changing.done():
            for topic in ("", "t") if lead.machine.queues.find("t") else ("",):
                for resolution in (2, 3):
                    await ask(topic=topic, resolution=resolution)
        await changing
        assert len(seen) > 10
        answer = await told(calls, resolution=2)
        assert answer.pending == 40 * (400 - 134)

    at_a_leader(tmp_path, steps)


def at_a_leader(folder: Path, steps: Callable[[Leader], Awaitable[None]]) -> None:
    from tarry.replication.loop_holds import Holds

    async def run() -> None:
        async with leader(folder, Holds()) as lead:
            await steps(lead)

    asyncio.run(run())
