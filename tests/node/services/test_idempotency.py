"""Schedules with idempotency keys at a node that leads alone."""

from __future__ import annotations

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from tarry.node.config import Dispatch
from tarry.node.keys import used_keys
from tarry.node.keys.search import TURN_BYTES
from tarry.node.leader.dispatcher import Dispatcher
from tarry.node.services import idempotency
from tarry.node.services.idempotency import IdempotentSchedules
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.idempotency import DIGEST_BYTES
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import DURABILITY_ASYNC, DURABILITY_SYNC, Record
from tarry.proto.tarry_operator_pb2 import ClusterSettings, TopicSettings
from tarry.replication.errors import NotLeader
from tarry.replication.loop_holds import Holds
from tarry.replication.raft.elections import Role
from tarry.replication.state_machine.ready_queue import UNIT
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.hour_partition import folder_name
from tarry.wheel.state import HOUR_MS
from tests.node.decay import turn_bit
from tests.node.lone_leader import Leader, leader, until

QUIET = Dispatch(checkpoint_ms=3_600_000)
SHORT = Dispatch(checkpoint_ms=3_600_000, idempotency_window_ms=1)


class Answer(NamedTuple):
    """Ids and due times of a request's messages, and which of them were repeated."""

    ids: list[str]
    due_ms: list[int]
    repeats: list[int]
    overdue: list[int]


@asynccontextmanager
async def ready(folder: Path, dispatch: Dispatch = QUIET) -> AsyncIterator[Leader]:
    async with leader(folder, Holds(), dispatch=dispatch) as lead:
        await until(lambda: lead.node._core.keys.complete and lead.machine.level >= 2)
        yield lead


def request(
    named: Iterable[str], /, *, due_ms: Any, topics: list[str] | None = None, bodies: Any = None, **more: Any
) -> bytes:
    named = list(named)
    records = [
        Record(idempotency_key=key, body=body, **more).SerializeToString()
        for key, body in zip(named, bodies or [b"x"] * len(named), strict=True)
    ]
    return pb.ScheduleBatchRequest(
        topics=topics or ["t"],
        topic=np.arange(len(named)) % len(topics) if topics else None,
        due_ms=np.broadcast_to(due_ms, len(named)),
        records=records,
    ).SerializeToString()


async def answered(lead: Leader, raw: bytes) -> Answer:
    answer = await lead.edge.schedule(raw)
    assert isinstance(answer, bytes), answer
    told = pb.ScheduleBatchResponse.FromString(answer)
    ids = [str(MessageId(0, h, i)) for h, i in zip(told.hour, told.global_index, strict=True)]
    assert not told.repeated
    return Answer(ids, list(told.due_ms), list(told.repeats), list(told.overdue))


async def refused(lead: Leader, raw: bytes) -> Refusal:
    answer = await lead.edge.schedule(raw)
    assert isinstance(answer, Refusal), answer
    return answer


async def begin(turns: list[int]) -> None:
    """Append a 0 with each turn of the event loop, until cancelled."""
    while True:
        turns.append(0)
        await asyncio.sleep(0)


def stored(lead: Leader) -> int:
    """How many messages there are, whatever became of them."""
    return sum(map(lead.machine.wheel.units_in_hour, lead.machine.wheel.hours()))


async def test_the_same_key_gives_the_same_answer_and_stores_one_message(tmp_path: Path) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        first = await answered(lead, request("ab", due_ms=due_ms))
        assert first.repeats == []
        for _ in range(2):  # in memory, and on disk
            again = await answered(lead, request("bca", due_ms=due_ms + 5))
            assert again.ids[0] == first.ids[1]
            assert again.ids[2] == first.ids[0]
            assert (again.due_ms[0], again.due_ms[2]) == (due_ms, due_ms)
            await lead.node._core.keys.write()
        assert again.repeats == [0, 1, 2]
        assert stored(lead) == 3
        single = pb.ScheduleRequest(topic="t", record=Record(idempotency_key="a", body=b"x"), delay_ms=7)
        raw: Any = await lead.edge._producer._schedule(single.SerializeToString(), None)  # type: ignore[arg-type]
        told = pb.ScheduleResponse.FromString(raw)
        assert (told.id, told.due_ms, told.repeated) == (first.ids[0], due_ms, True)


async def test_who_asks_for_a_flush_has_it_of_what_was_scheduled_before_though_the_cluster_is_sync_by_now(
    tmp_path: Path,
) -> None:
    async with ready(tmp_path) as lead:
        defaults, journal = lead.machine.queues.defaults, lead.node._core.journal
        defaults.settings = ClusterSettings(durability=DURABILITY_ASYNC, flush_ms=10_000)
        due_ms = lead.node.time.now_ms() + HOUR_MS
        await answered(lead, request("b", due_ms=due_ms))  # after a lull a write is flushed
        first, written = await answered(lead, request("a", due_ms=due_ms)), journal.durable_index
        assert journal.flushed_index < written
        defaults.settings = ClusterSettings()
        asked = pb.ScheduleBatchRequest.FromString(request("a", due_ms=due_ms))
        asked.durability = DURABILITY_SYNC
        again = await answered(lead, asked.SerializeToString())
        assert again.ids == first.ids
        assert journal.flushed_index >= written


async def test_a_key_twice_in_one_request_is_one_message_and_other_topics_have_keys_of_their_own(
    tmp_path: Path,
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        one = await answered(lead, request("abab", due_ms=due_ms))
        assert (one.ids[2:], one.repeats) == (one.ids[:2], [2, 3])
        other = await answered(lead, request("aabb", due_ms=due_ms, topics=["t", "u"]))
        assert other.ids[0] == one.ids[0]
        assert other.ids[2] == one.ids[1]
        assert other.repeats == [0, 2]
        assert stored(lead) == 4


async def test_other_content_is_a_conflict_that_names_message_and_position_and_schedules_nothing(
    tmp_path: Path,
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        one = await answered(lead, request("a", due_ms=due_ms))
        for more in ({"bodies": [b"x", b"y"]}, {"tags": ["t"]}, {"keys": ["k"]}, {"properties": {"p": "v"}}):
            conflict = await refused(lead, request("ba", due_ms=due_ms, **more))
            assert conflict.reason is Reason.IDEMPOTENCY_CONFLICT
            assert conflict.facts == {"position": "1", "id": one.ids[0]}
            assert one.ids[0] in conflict.text
        within = await refused(lead, request("cc", due_ms=due_ms, bodies=[b"x", b"y"]))
        assert (within.reason, within.facts) == (Reason.IDEMPOTENCY_CONFLICT, {"position": "1"})
        assert "update" not in within.text  # the other one is not scheduled either
        assert stored(lead) == 1


async def test_where_new_ones_have_no_room_the_refusal_has_the_position_in_the_whole_request(
    tmp_path: Path,
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        await answered(lead, request("ab", due_ms=due_ms, topics=["t", "u"]))
        few = TopicSettings(pending_max=1)
        await lead.propose(log_pb.TopicCommand(topic="u", settings=few, now_ms=lead.node.time.now_ms()))
        full = await refused(lead, request("abcd", due_ms=due_ms, topics=["t", "u"]))
        assert (full.reason, full.facts["position"]) == (Reason.TOPIC_FULL, "3")
        assert stored(lead) == 2


async def test_a_request_that_cannot_be_as_it_is_is_refused(tmp_path: Path) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        mixed = await refused(lead, request(["a", ""], due_ms=due_ms))
        assert mixed.reason is Reason.IDEMPOTENCY_KEYS_MIXED
        most = lead.node._core.config.limits.idempotency_key_chars_max
        await answered(lead, request(["ü" * most], due_ms=due_ms))
        long = await refused(lead, request(["k" * (most + 1)], due_ms=due_ms))
        assert long.reason is Reason.IDEMPOTENCY_KEY_TOO_LONG
        assert f"more than {most}" in long.text
        forged = await refused(lead, request("a", due_ms=due_ms, scheduled_digest=b"d"))
        assert forged.reason is Reason.RECORD_INVALID
        assert stored(lead) == 1


async def test_a_key_counts_while_its_message_is_pending_and_for_the_window_behind_its_release(
    tmp_path: Path,
) -> None:
    async with ready(tmp_path, SHORT) as lead:
        now_ms = lead.node.time.now_ms()
        await answered(lead, request("ab", due_ms=[now_ms - 1, now_ms + HOUR_MS]))
        queue = lead.machine.queues.of("t")
        await until(lambda: queue.units == 1)
        await until(lambda: lead.node.time.now_ms() > now_ms + used_keys.SINCE_KEPT_MS + 100)
        again = await answered(lead, request("ab", due_ms=now_ms + HOUR_MS))
        assert again.repeats == [1]
        assert (await answered(lead, request("a", due_ms=now_ms))).ids == again.ids[:1]  # the last counts


def test_a_pending_message_keeps_its_key_however_late_it_is() -> None:
    search = used_keys._Search([], {1: "t"}, {1: 50})
    queue, due_ms = np.array([1, 1, 1, 1, 2, 2], np.uint32), np.array([49, 49, 50, 50, 99, 99])
    pending = np.array([True, False] * 3)
    assert search.counts(queue, due_ms, pending).tolist() == [True, False, True, True, False, False]


async def test_the_window_begins_with_the_release_also_where_that_is_late(tmp_path: Path) -> None:
    async with ready(tmp_path) as lead:
        now_ms = lead.node.time.now_ms()
        await answered(lead, request("a", due_ms=now_ms + HOUR_MS))
        queue, used = lead.machine.queues.of("t"), lead.edge._producer._idempotent._used
        assert await used._since_ms(queue) >= now_ms - HOUR_MS
        units = np.zeros(2, UNIT)
        units["due_ms"] = now_ms - np.array([9, 5]) * HOUR_MS
        units["released_after_ms"] = np.array([7, 5]) * HOUR_MS
        queue.append(units)
        used._since.clear()
        assert await used._since_ms(queue) == now_ms - 5 * HOUR_MS


async def test_a_message_that_is_released_late_just_after_a_look_keeps_its_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path, SHORT.model_copy(update={"idempotency_window_ms": 300})) as lead:
        real, may_release = Dispatcher._release, asyncio.Event()

        async def late(*args: Any) -> bool:
            await may_release.wait()
            return await real(*args)

        monkeypatch.setattr(Dispatcher, "_release", late)
        now_ms = lead.node.time.now_ms()
        first = await answered(lead, request("a", due_ms=now_ms))
        await until(lambda: lead.node.time.now_ms() > now_ms + 400)
        assert (await answered(lead, request("a", due_ms=now_ms))).repeats == [0]
        may_release.set()
        await until(lambda: lead.machine.queues.of("t").units == 1)
        again = await answered(lead, request("a", due_ms=now_ms))
        assert (again.ids, again.repeats) == (first.ids, [0])


async def test_a_cancelled_a_rescheduled_and_an_updated_message_keep_their_keys(tmp_path: Path) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        first = await answered(lead, request("abc", due_ms=due_ms))
        await lead.edge.cancel(pb.CancelRequest(ids=first.ids[:1]).SerializeToString())
        later = due_ms + 3 * HOUR_MS
        moved = pb.RescheduleRequest(ids=first.ids[1:2], due_ms=[later])
        await lead.edge.reschedule(moved.SerializeToString())
        for body in (b"y", b"z"):
            update = pb.UpdateRequest(id=first.ids[2], body=body, tags=pb.Texts(texts=["t"]))
            await lead.edge.update(update.SerializeToString())
        for _ in range(2):
            again = await answered(lead, request("abc", due_ms=due_ms))
            assert (again.ids, again.repeats) == (first.ids, [0, 1, 2])
            assert again.due_ms == [due_ms, later, due_ms]
            await lead.node._core.keys.write()
        conflict = await refused(lead, request("c", due_ms=due_ms, bodies=[b"z"], tags=["t"]))
        assert "was scheduled with" in conflict.text  # it contains the same by now
        assert (
            conflict.reason is Reason.IDEMPOTENCY_CONFLICT
        )  # that is what the update says, not the schedule


async def test_keys_are_known_after_a_start_and_refused_until_a_new_index_is_built(tmp_path: Path) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        first = await answered(lead, request("ab", due_ms=due_ms))
        state = lead.machine.folder / "keys"
    async with ready(tmp_path) as lead:
        assert (await answered(lead, request("ab", due_ms=due_ms))).ids == first.ids
    for path in state.iterdir():
        path.unlink()
    slow = QUIET.model_copy(update={"scrub_bytes_per_s": 1})
    async with leader(tmp_path, Holds(), dispatch=slow) as lead:
        incomplete = await refused(lead, request("ab", due_ms=due_ms))
        assert (incomplete.reason, incomplete.retry_ms) == (Reason.KEYS_INCOMPLETE, 1_000)
    async with ready(tmp_path) as lead:
        assert (await answered(lead, request("ab", due_ms=due_ms))).ids == first.ids


async def test_a_caller_that_goes_away_leaves_its_keys_under_way_until_what_is_proposed_is_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        await answered(lead, request("b", due_ms=due_ms))  # makes the topic
        raw = request("a", due_ms=due_ms)
        driver, proposed, may_go_on = lead.node.driver, asyncio.Event(), asyncio.Event()
        real = driver.propose

        async def later(*args: Any, **options: Any) -> Any:
            proposed.set()
            await may_go_on.wait()
            return await real(*args, **options)

        async def propose(*args: Any, **options: Any) -> Any:
            return await asyncio.shield(asyncio.ensure_future(later(*args, **options)))

        monkeypatch.setattr(driver, "propose", propose)
        gone = asyncio.ensure_future(lead.edge.schedule(raw))
        await proposed.wait()
        gone.cancel()
        again = asyncio.ensure_future(answered(lead, raw))
        for _ in range(2):  # whatever it looks up is looked up before these
            await asyncio.sleep(0)
            assert await lead.edge._producer._idempotent._used.find([("t", b"z")]) == {}
        may_go_on.set()
        assert (await again).repeats == [0]
        assert stored(lead) == 2


async def test_what_becomes_of_a_request_without_its_caller_is_no_fault_of_the_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path) as lead:
        faults: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, fault: faults.append(fault))
        idempotent, looked_up, may_go_on = lead.edge._producer._idempotent, asyncio.Event(), asyncio.Event()

        async def lost(_: Any) -> Any:
            looked_up.set()
            await may_go_on.wait()
            raise NotLeader(None)

        monkeypatch.setattr(idempotent._used, "find", lost)
        raw = request("a", due_ms=lead.node.time.now_ms() + HOUR_MS)
        gone = asyncio.ensure_future(idempotent.answer(idempotent_command(lead, raw)))
        await looked_up.wait()
        gone.cancel()
        await asyncio.wait((gone,))
        may_go_on.set()
        await until(lambda: not idempotent._deciding)
        del gone
        gc.collect()
        assert faults == []


async def test_requests_at_the_same_time_take_turns(tmp_path: Path) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        calls = [answered(lead, request(keys, due_ms=due_ms)) for keys in ("ab", "ba", "dcba", "ea", "e") * 4]
        answers = await asyncio.gather(*calls)
        assert stored(lead) == 5
        whole = dict(zip("dcba", answers[2].ids, strict=True)) | {"e": answers[4].ids[0]}
        for keys, answer in zip(("ab", "ba", "dcba", "ea", "e") * 4, answers, strict=True):
            assert answer.ids == [whole[key] for key in keys]
        idempotent = lead.edge._producer._idempotent
        assert not idempotent._under_way
        await until(lambda: not idempotent._deciding)


async def test_where_many_wait_for_one_few_go_on_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        named, turns = [f"k{at}" for at in range(150)], [0]
        real = IdempotentSchedules._decide

        async def decide(*args: Any, **options: Any) -> Any:
            turns[-1] += 1
            return await real(*args, **options)

        monkeypatch.setattr(IdempotentSchedules, "_decide", decide)
        counting = asyncio.ensure_future(begin(turns))
        raws = [request(keys, due_ms=due_ms) for keys in (named, *([key] for key in named))]
        answers = await asyncio.gather(*(answered(lead, raw) for raw in raws))
        counting.cancel()
        assert [one.ids[0] for one in answers[1:]] == answers[0].ids
        assert (sum(turns), max(turns)) == (151, idempotency.TURN_REQUESTS)


async def test_requests_that_wait_have_a_bound_and_more_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        raw = request("a", due_ms=due_ms)
        size = idempotent_command(lead, raw).ByteSize() + idempotency.NAME_BYTES
        for name, most, taken in (("REQUESTS_MAX", 3, 3), ("BYTES_MAX", 3 * size, 3), ("BYTES_MAX", 1, 1)):
            with monkeypatch.context() as patched:
                patched.setattr(idempotency, name, most)
                answers = await asyncio.gather(*(lead.edge.schedule(raw) for _ in range(5)))
            reasons = [one.reason for one in answers if isinstance(one, Refusal)]
            assert reasons == [Reason.OVERLOADED] * (5 - taken)
        await answered(lead, raw)
        assert lead.edge._producer._idempotent._deciding_bytes == 0
        assert stored(lead) == 1


async def test_what_was_looked_up_in_another_term_is_not_proposed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        idempotent = lead.edge._producer._idempotent
        real = idempotent._used.find

        async def led_again(names: Any) -> Any:
            found = await real(names)
            state = lead.node.driver.consensus.state
            monkeypatch.setattr(type(state), "term", state.term + 1, raising=False)
            return found

        monkeypatch.setattr(idempotent._used, "find", led_again)
        command = idempotent_command(lead, request("a", due_ms=due_ms))
        with pytest.raises(NotLeader):
            await idempotent.answer(command)
        monkeypatch.undo()
        assert lead.node.driver.consensus.state.role is Role.LEADER
        assert (await answered(lead, request("a", due_ms=due_ms))).repeats == []


def idempotent_command(lead: Leader, raw: bytes) -> log_pb.ScheduleCommand:
    command = lead.edge._producer._intake.batch(raw, lead.node.time.now_ms())
    assert isinstance(command, log_pb.ScheduleCommand)
    assert command.idempotent
    return command


async def test_a_message_that_moves_while_its_key_is_looked_up_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        first = await answered(lead, request("a", due_ms=due_ms))
        keeper = lead.node._core.keys
        real, moves = keeper.find_any, iter(range(1, 4))

        async def moved_meanwhile(*asked: Any) -> Any:
            found = await real(*asked)
            if (hours := next(moves, None)) is not None:
                moved = pb.RescheduleRequest(ids=first.ids, due_ms=[due_ms + hours * HOUR_MS])
                await lead.edge.reschedule(moved.SerializeToString())
            return found

        monkeypatch.setattr(keeper, "find_any", moved_meanwhile)
        again = await answered(lead, request("a", due_ms=due_ms))
        assert (again.ids, again.repeats, again.due_ms) == (first.ids, [0], [due_ms + 3 * HOUR_MS])
        assert next(moves, None) is None


async def test_a_damaged_record_that_may_have_the_key_refuses_until_it_is_mended_or_cancelled(
    tmp_path: Path,
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        first = await answered(lead, request("a", due_ms=due_ms))
        await lead.node._core.checkpoints.write()
        log = lead.machine.folder / "hours" / folder_name(MessageId.parse(first.ids[0]).hour) / "delay.log"
        body_at = log.stat().st_size - 4
        turn_bit(log, body_at)
        damaged = await refused(lead, request("a", due_ms=due_ms))
        assert damaged.reason is Reason.KEYS_INCOMPLETE
        assert damaged.facts == {"id": first.ids[0]}
        assert (await answered(lead, request("b", due_ms=due_ms))).repeats == []
        turn_bit(log, body_at)
        assert (await answered(lead, request("a", due_ms=due_ms))).ids == first.ids
        turn_bit(log, body_at)
        await lead.edge.cancel(pb.CancelRequest(ids=first.ids).SerializeToString())
        assert (await answered(lead, request("a", due_ms=due_ms))).repeats == []


async def test_of_large_messages_few_are_read_in_a_turn_and_none_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path) as lead:
        due_ms = lead.node.time.now_ms() + HOUR_MS
        await answered(lead, request("abcdef", due_ms=due_ms, bodies=[bytes(200_000)] * 6))
        reads, turns = lead.node._core.damage.reads, [0]
        real = reads.read

        async def read(*places: Any) -> list[bytes | None]:
            records = await real(*places)
            turns[-1] += sum(len(record or b"") for record in records)
            return records

        monkeypatch.setattr(reads, "read", read)
        counting = asyncio.ensure_future(begin(turns))
        found = await lead.edge._producer._idempotent._used.find([("t", bytes([key])) for key in b"abcdef"])
        counting.cancel()
        assert not isinstance(found, Refusal)
        assert {len(one.digest) for one in found.values()} == {DIGEST_BYTES}
        assert sum(turns) > len(found) * 200_000 == 1_200_000
        assert max(turns) <= TURN_BYTES


async def test_of_many_topics_few_are_looked_at_in_a_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ready(tmp_path) as lead:
        topics, turns, used = [f"t{at}" for at in range(40)], [0], lead.edge._producer._idempotent._used
        await answered(lead, request("a" * 40, due_ms=lead.node.time.now_ms() + HOUR_MS, topics=topics))
        real = used._since_ms

        async def since_ms(queue: Any) -> int:
            turns[-1] += 1
            return await real(queue)

        monkeypatch.setattr(used, "_since_ms", since_ms)
        counting = asyncio.ensure_future(begin(turns))
        used._since.clear()
        assert await used.find([(topic, b"b") for topic in topics]) == {}
        counting.cancel()
        assert (sum(turns), max(turns)) == (40, used_keys.TURN_QUEUES)


async def test_any_requests_answer_as_a_dict_does(tmp_path: Path) -> None:
    async with ready(tmp_path) as lead:
        for seed in range(40):
            await play(lead, random.Random(seed), [f"t{seed}", f"u{seed}"])


async def play(lead: Leader, rng: random.Random, named: list[str]) -> None:
    """Schedule batches of a few keys, and prove every answer by what a dict has."""
    due_ms, before = lead.node.time.now_ms() + HOUR_MS, stored(lead)
    model: dict[tuple[str, str], tuple[str, bytes]] = {}
    for _ in range(rng.randint(1, 8)):
        topics = named[: rng.randint(1, 2)]
        count = rng.randint(len(topics), 9)
        bodies = rng.choices([b"x", b"y"], [9, 1], k=count)
        keys = rng.choices("abcdef", k=count)
        names = [(topics[row % len(topics)], key) for row, key in enumerate(keys)]
        said = {name: body for name, (_, body) in model.items()}
        repeats, conflicts = [], []
        for row, (name, body) in enumerate(zip(names, bodies, strict=True)):
            if name in said:
                repeats.append(row)
            if said.setdefault(name, body) != body:
                conflicts.append(row)
        if rng.random() < 0.3:
            await lead.node._core.keys.write()
        later_ms = due_ms + rng.randint(0, 3) * HOUR_MS
        raw = request(keys, due_ms=later_ms, topics=topics, bodies=bodies)
        if conflicts:
            assert (await refused(lead, raw)).facts["position"] == str(conflicts[0])
            continue
        answer = await answered(lead, raw)
        assert answer.repeats == repeats
        for row, name in enumerate(names):
            assert model.setdefault(name, (answer.ids[row], bodies[row])) == (answer.ids[row], bodies[row])
    assert stored(lead) - before == len(model)
