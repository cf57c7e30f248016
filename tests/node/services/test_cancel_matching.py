"""Who may cancel many messages, what the audit log has of it, and what a deleted topic leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tarry.node.config import AuditSettings, Token
from tarry.node.edge.audit import Audit, AuditStatus
from tarry.node.edge.auth import Authorizer
from tarry.node.leader import leftovers
from tarry.node.leader.leftovers import deleted_with_pending, pending_of_live
from tarry.node.leader.pending_cancels import PendingCancels
from tarry.node.services import bulk_cancel, bulk_cursor
from tarry.node.services.cancel_matching import CancelCalls, PurgeCalls
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.blocking import in_thread
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS
from tests.node.lone_leader import Leader, until
from tests.node.services.bulk_play import Bulk, led
from tests.simulation.edge import Context

TOKENS = {
    "of-t": Token(name="t", produce=("t",)),
    "reads-t": Token(name="reader", consume=("t",)),
    "of-u": Token(name="u", produce=("u",)),
    "root": Token(name="root", operate=True),
}
ALL = Token(name="all", produce=("*",), operate=True)


class Bearer(Context):
    def __init__(self, token: str) -> None:
        self._token = token

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._token}"),)


def reason(answer: bytes | Refusal) -> Reason | None:
    return answer.reason if isinstance(answer, Refusal) else None


def test_a_producer_of_the_topic_cancels_who_sees_it_counts_and_operators_purge(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        await bulk.schedule("t", [bulk.lead.node.time.now_ms() + HOUR_MS])
        core, authorizer = bulk.lead.node._core, Authorizer(TOKENS)
        cancels = CancelCalls(core, authorizer, bulk.lead.edge._calls)
        purges = PurgeCalls(core, authorizer, bulk.lead.edge._calls, Audit.none(authorizer))
        found: dict[str, list[Reason | None]] = {}
        for token in TOKENS:
            context: Any = Bearer(token)
            asked = [
                pb.CancelMatchingRequest(filter=pb.MessageFilter(topic="t"), dry_run=n) for n in (True, False)
            ]
            found[token] = [reason(await cancels._cancel(one, context)) for one in asked]
            purge = operator_pb.PurgeTopicRequest(topic="t").SerializeToString()
            found[token].append(reason(await purges._told(purge, context)))
        denied = Reason.PERMISSION_DENIED
        assert found == {
            "of-t": [None, None, denied],
            "reads-t": [None, denied, denied],
            "of-u": [Reason.TOPIC_UNKNOWN, denied, denied],
            "root": [None, denied, None],
        }

    led(tmp_path, act)


def test_the_audit_log_has_the_beginning_of_each_purge_and_not_its_every_call(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        core, authorizer = bulk.lead.node._core, Authorizer({})
        file = tmp_path / "audit.log"
        audit = Audit(
            AuditSettings(file=file), "n1", authorizer, lambda _: False, AuditStatus(), in_thread, lambda: 0
        )
        purges = PurgeCalls(core, authorizer, bulk.lead.edge._calls, audit)
        await bulk.schedule("t", [bulk.lead.node.time.now_ms() + HOUR_MS] * 4_000)
        context: Any = Context()
        cursor, calls = "", 0
        while True:
            request = operator_pb.PurgeTopicRequest(topic="t", cursor=cursor)
            answer = await purges._told(request.SerializeToString(), context)
            assert isinstance(answer, bytes), answer
            told = operator_pb.PurgeTopicResponse.FromString(answer).progress
            calls += 1
            if told.done:
                break
            cursor = told.cursor
        assert told.cancelled == 4_000
        assert calls > 2
        another = PurgeCalls(core, authorizer, bulk.lead.edge._calls, audit)  # as another leader's
        await another._told(request.SerializeToString(), context)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert [line["stage"] for line in lines] == ["asked", "answered"] * 2
        assert {line["method"] for line in lines} == {"PurgeTopic"}

    led(tmp_path / "data", act)


def test_a_purge_with_a_cursor_of_an_earlier_one_is_in_the_audit_log_too(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        core, authorizer = bulk.lead.node._core, Authorizer({})
        file = tmp_path / "audit.log"
        audit = Audit(
            AuditSettings(file=file), "n1", authorizer, lambda _: False, AuditStatus(), in_thread, lambda: 0
        )
        purges = PurgeCalls(core, authorizer, bulk.lead.edge._calls, audit)
        context: Any = Context()

        async def step(cursor: str) -> pb.BulkCancel:
            request = operator_pb.PurgeTopicRequest(topic="t", cursor=cursor)
            answer = await purges._told(request.SerializeToString(), context)
            assert isinstance(answer, bytes), answer
            return operator_pb.PurgeTopicResponse.FromString(answer).progress

        async def purged(cursor: str) -> list[str]:
            cursors = [cursor]
            while not (told := await step(cursors[-1])).done:
                cursors.append(told.cursor)
            return cursors

        def lines() -> int:
            return file.read_text().count("\n")

        due_ms = [bulk.lead.node.time.now_ms() + HOUR_MS]
        await bulk.schedule("t", due_ms * 4_000)
        cursors = await purged("")
        before = lines()
        fresh = await bulk.schedule("t", due_ms * 3)
        await purged(cursors[1])
        assert {await bulk.state(one) for one in fresh} == {"CANCELLED"}
        assert lines() == before + 2
        await bulk.schedule("t", due_ms * 4_000)
        await step("")
        await step(cursors[2])  # not the one that was given now
        assert lines() == before + 6

    led(tmp_path / "data", act)


def test_who_may_not_operate_is_not_told_how_many_messages_all_topics_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk_cancel, "LOOK_NS_MAX", 1)

    async def act(bulk: Bulk) -> None:
        soon_ms = bulk.lead.node.time.now_ms() + 2 * HOUR_MS
        await bulk.schedule("u", [soon_ms] * 3_000)
        await bulk.schedule("t", [soon_ms + number * HOUR_MS for number in range(10)])
        core, authorizer = bulk.lead.node._core, Authorizer(TOKENS | {"all": ALL})
        cancels = CancelCalls(core, authorizer, bulk.lead.edge._calls)
        for token, total in (("of-t", 1_000), ("reads-t", 1_000), ("all", 3_010)):
            context: Any = Bearer(token)
            request = pb.CancelMatchingRequest(filter=pb.MessageFilter(topic="t"), dry_run=True)
            past = [0]
            while True:
                answer = await cancels._cancel(request, context)
                assert isinstance(answer, bytes), answer
                told = pb.CancelMatchingResponse.FromString(answer).progress
                assert told.total == total
                past.append(told.looked_at)
                cursor = bulk_cursor._decoded(told.cursor)
                assert cursor is not None
                assert (cursor.counts.looked_at, cursor.counts.total) == (0, 0)
                if told.done:
                    break
                request.cursor = told.cursor
            assert (past, past[-1]) == (sorted(past), total)
            assert len(set(past)) > 3

    led(tmp_path, act)


def test_a_purge_s_progress_grows_until_it_is_done_and_its_groups_are_looked_up_once_a_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(bulk: Bulk) -> None:
        lead, queues = bulk.lead, bulk.lead.machine.queues
        await bulk.schedule("t", [lead.node.time.now_ms() - 1] * 15)
        await lead.propose(log_pb.SubscribeCommand(topic="t", group="g"))
        await until(lambda: queues.of("t").units == 15)
        for offset in range(10):
            await waits_for_a_retry(lead, lead.node.time.now_ms() + (offset + 2) * HOUR_MS, offset)
        await bulk.schedule("t", [lead.node.time.now_ms() + 2 * HOUR_MS] * 5)
        looked_up, find = list[str](), queues.find
        monkeypatch.setattr(queues, "find", lambda *name: (looked_up.append(name[-1]), find(*name))[1])
        told = await bulk.step(purge=True, dry_run=True, topic="t")
        assert (told.done, told.matched, looked_up.count("g")) == (True, 20, 1)
        monkeypatch.undo()
        monkeypatch.setattr(bulk_cancel, "LOOK_NS_MAX", 1)
        cursor, shares = "", [0.0]
        while True:
            told = await bulk.step(cursor, purge=True, topic="t")
            shares.append(told.looked_at / told.total)
            if told.done:
                break
            cursor = told.cursor
        assert (shares, shares[-1]) == (sorted(shares), 1.0)
        assert len({share for share in shares if 0.4 < share < 0.9}) > 5  # of the retries
        assert (told.cancelled, told.retries) == (5, 10)

    led(tmp_path, act)


async def waits_for_a_retry(lead: Leader, due_ms: int, offset: int = 0) -> None:
    """Let group g have a message of topic t again then."""
    await lead.propose(
        log_pb.RetryCommand(
            group="g",
            queue=lead.machine.queues.of("t").queue,
            offset=offset.to_bytes(8, "little"),
            due_ms=due_ms.to_bytes(8, "little"),
            tag_mask=bytes(8),
            lane=bytes(4),
            records=[b""],
            target_topic="t",
            target_group="g",
            now_ms=lead.node.time.now_ms(),
        )
    )


def test_what_is_left_and_cannot_be_cancelled_is_not_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refuse(*_: Any, **__: Any) -> Refusal:
        return Refusal(Reason.COLUMNS_DIFFER, "no")

    async def act(bulk: Bulk) -> None:
        await bulk.schedule("t", [bulk.lead.node.time.now_ms() + 2 * HOUR_MS] * 3)
        monkeypatch.setattr(PendingCancels, "cancel", refuse)
        told = list[dict[str, Any]]()
        monkeypatch.setattr(leftovers.log, "info", lambda event, **more: told.append(more))
        monkeypatch.setattr(leftovers.log, "error", lambda event, **more: told.append(more))
        await bulk.lead.delete_topic("t")
        await until(lambda: any("cancelled" in line for line in told))
        assert told[:2] == [{"error": "no"}, {"cancelled": 0}]

    led(tmp_path, act)


def test_a_deleted_topic_s_pending_messages_are_counted_and_go_and_another_topic_of_its_name_has_none(
    tmp_path: Path,
) -> None:
    async def act(bulk: Bulk) -> None:
        lead, wheel = bulk.lead, bulk.lead.machine.wheel
        soon_ms = lead.node.time.now_ms() + 2 * HOUR_MS
        old = await bulk.schedule("t", [soon_ms + number * HOUR_MS // 3 for number in range(3_000)])
        kept = await bulk.schedule("u", [soon_ms] * 3)
        deleted = await lead.delete_topic("t")
        assert (deleted.pending, deleted.released) == (3_000, 0)
        assert pending_of_live(lead.machine) == 3
        status = operator_pb.ClusterStatusResponse.FromString(await lead.status())
        assert status.pending == 3
        made = await bulk.schedule("t", [soon_ms])
        assert wheel.pending_of(lead.machine.queues.of("t").queue) == 1
        await until(lambda: wheel.pending == 4)
        assert not len(deleted_with_pending(lead.machine))
        assert [await bulk.state(one) for one in (*kept, *made, old[0], old[-1])] == [
            *["PENDING"] * 4,
            *["CANCELLED"] * 2,
        ]

    led(tmp_path, act)


def test_a_new_leader_goes_on_with_what_is_left_of_a_deleted_topic(tmp_path: Path) -> None:
    async def before(bulk: Bulk) -> None:
        await bulk.schedule("t", [bulk.lead.node.time.now_ms() + 2 * HOUR_MS] * 100)
        await bulk.lead.delete_topic("t")
        assert bulk.lead.machine.wheel.pending == 100

    async def after(bulk: Bulk) -> None:
        numbers = np.arange(len(bulk.lead.machine.queues), dtype=np.uint32)
        deleted = [bulk.lead.machine.queues[number].deleted for number in numbers.tolist()]
        assert any(deleted)
        assert bulk.lead.machine.queues.deleted(numbers).tolist() == deleted
        await until(lambda: bulk.lead.machine.wheel.pending == 0)

    led(tmp_path, before)
    led(tmp_path, after, level=1)


def test_retries_of_a_deleted_group_go_too(tmp_path: Path) -> None:
    async def act(bulk: Bulk) -> None:
        lead = bulk.lead
        await bulk.schedule("t", [lead.node.time.now_ms() - 1])
        await lead.propose(log_pb.SubscribeCommand(topic="t", group="g"))
        await until(lambda: lead.machine.queues.of("t").units == 1)
        await waits_for_a_retry(lead, lead.node.time.now_ms() + HOUR_MS)
        assert lead.machine.wheel.pending == 1
        await lead.propose(log_pb.DeleteGroupCommand(topic="t", group="g"))
        await until(lambda: lead.machine.wheel.pending == 0)

    led(tmp_path, act)
