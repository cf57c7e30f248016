"""Two state machines for hypothesis: everything that passes the API's checks, and what no check has seen."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf.message import Message
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tarry.node.delivery import retries
from tarry.node.delivery.retries import Delay
from tarry.node.leader.retention import Kept
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_consumer_pb2 import GroupStart
from tarry.proto.tarry_message_pb2 import Record, RetryReason
from tarry.proto.tarry_recurring_pb2 import RecurringSpec
from tarry.replication.state_machine.commands import PAYLOADS, encode
from tarry.replication.state_machine.ready_queue import ReadyQueue
from tarry.wheel.state import HOUR_MS
from tests.fuzz.edge import Edge, Ended
from tests.fuzz.mutations import BYTES, COPIES, EXTREMES, FORGED, Pick, T, mutated, wire
from tests.fuzz.replicas import Replicas
from tests.node.policies import exponential, policy

RECORD: Final = Record(body=b"x", tags=["red"], keys=["k"], properties={"p": "v"})
SETTINGS: Final = operator_pb.TopicSettings(
    retention_ms=1, pending_max=5, misfire=2, misfire_after_ms=1, release_per_s_max=2**32 - 1
)
SHAPED: Final = operator_pb.TopicSettings(
    group_policy={"back_off": {"fixed_ms": 1}, "dead_letter_topic": "none"}
)
POLICY: Final = operator_pb.GroupPolicy(
    attempts_max=2,
    back_off=exponential(1, 2**40),
    dead_letter_topic="dlq.a",
    dead_letter_retention_ms=2**40,
    delivery_per_s_max=2**32 - 1,
    delay_ms=2**34,
)
CLUSTER: Final = operator_pb.ClusterSettings(
    group_policy=POLICY,
    group_expiry_ms=0,
    temporary_group_ms=2**40,
    idempotency_window_ms=1,
    delay_levels={"delay_ms": [1, 2]},
)
TIMES: Final = (0, 1, 20, 1_000, HOUR_MS, 30 * 24 * HOUR_MS, 100 * 365 * 24 * HOUR_MS)


class Play(RuleBasedStateMachine):
    """Replicas, and what any play does with them."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory(prefix="tarry-fuzz-")
        self.replicas = Replicas(Path(self._folder.name))
        self.machine = self.replicas.one.machine

    def teardown(self) -> None:
        self.replicas.close()
        self._folder.cleanup()
        del self.replicas, self.machine
        gc.collect()  # machines hold tens of MB each, in cycles

    @initialize()
    def begin(self) -> None:
        """There is a topic with a group, and something in it."""
        now_ms = self.replicas.now_ms
        request = log_pb.ScheduleColumns(
            topics=["t"],
            due_ms=np.full(3, now_ms, "<i8").tobytes(),
            records=[FORGED, RECORD.SerializeToString(), b""],  # 0.1.0 took the first
        )
        self.commit(
            log_pb.SubscribeCommand(topic="t", group="g", now_ms=now_ms),
            log_pb.ScheduleCommand(now_ms=now_ms, request=request),
            log_pb.ReleaseCommand(now_ms=now_ms, until_ms=now_ms, count=10),
        )

    def commit(self, *commands: Message) -> list[Any]:
        return self.replicas.commit([encode(command) for command in commands])

    @rule(what=st.sampled_from(("wait", "checkpoint", "checkpoint", "restart", "snapshot", "tell")))
    def happen(self, what: str) -> None:
        """One rule for all of these, for rules are chosen alike."""
        match what:
            case "checkpoint":
                self.replicas.checkpoint()
            case "restart":
                self.replicas.restart()
            case "snapshot":
                self.replicas.send_snapshot()
            case "tell":
                self.replicas.tell()
            case _:
                self.replicas.now_ms += HOUR_MS


class EdgePlay(Play):
    """What clients, consumers, the dispatcher and retention can bring into the log, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        one = self.replicas.one
        now = lambda: self.replicas.now_ms  # noqa: E731
        self.edge = Edge(one.config, one.machine, one.ledger, now, self.replicas.commit)
        self.kept = Kept(one.machine, retention_ms=1)
        self.ids = [str(MessageId(0, now() // HOUR_MS, 0))]

    def call(self, path: str, raw: bytes) -> list[bytes]:
        try:
            return self.replicas.run(self.edge.call(f"/tarry.v1.{path}", raw))  # type: ignore[no-any-return]
        except Ended as ended:
            assert ended.refusal is not None, ended.code
            assert ended.refusal.text
            return []

    @rule(data=st.data())
    def schedule(self, data: st.DataObject) -> None:
        pick = picking(data)
        request = producer_pb.ScheduleRequest(topic=pick(("t", "u")), record=RECORD)
        if pick((True, False)):
            request.delay_ms = pick(TIMES)
        else:
            request.due_ms = self.replicas.now_ms + pick(TIMES) - pick((0, HOUR_MS))
        if pick((True, False)):
            request.producer, request.sequence = pick(("p", "q" * 64)), pick((1, 2, 70, 2**63 - 1))
        if pick((True, False, False)):
            request.record.ordering_key = "k"
        for answer in self.call("ProducerService/Schedule", wire(pick, mutated(pick, request))):
            self.ids.append(producer_pb.ScheduleResponse.FromString(answer).id)

    @rule(data=st.data())
    def schedule_batch(self, data: st.DataObject) -> None:
        pick = picking(data)
        n = pick((1, 2, 40))
        request = producer_pb.ScheduleBatchRequest(
            topics=["t", "u"][:n],
            topic=[number % 2 for number in range(n)],
            delay_ms=[pick(TIMES) for _ in range(min(n, 4))] + [20] * (n - 4),
            tag_mask=[pick([number for number in EXTREMES if 0 <= number < 2**64])] * n,
            records=[pick((FORGED, RECORD.SerializeToString(), b"", *BYTES[-3:]))]
            + [RECORD.SerializeToString()] * (n - 1),
            jitter_ms=[pick((0, 1, 60_000))] * n,
            producer=pick(("", "p")),
            sequence=pick((1, 3, 2**63 - 1)),
        )
        self.call("ProducerService/ScheduleBatch", wire(pick, mutated(pick, request)))

    @rule(data=st.data())
    def cancel_or_get(self, data: st.DataObject) -> None:
        pick = picking(data)
        some = [pick(self.ids), pick((*self.ids, str(MessageId(0, 2**32 - 1, 2**32 - 2))))]
        cancel = producer_pb.CancelRequest(ids=some)
        self.call("ProducerService/Cancel", wire(pick, mutated(pick, cancel)))
        self.call("ProducerService/Get", wire(pick, mutated(pick, producer_pb.GetRequest(id=some[0]))))

    @rule(data=st.data())
    def reschedule_or_update(self, data: st.DataObject) -> None:
        pick = picking(data)
        some = [pick(self.ids), pick((*self.ids, str(MessageId(0, 2**32 - 1, 2**32 - 2))))]
        group, delay_ms = pick(("", "", "g")), pick(TIMES)
        reschedule = producer_pb.RescheduleRequest(ids=dict.fromkeys(some), delay_ms=[delay_ms], group=group)
        self.call("ProducerService/Reschedule", wire(pick, mutated(pick, reschedule)))
        update = producer_pb.UpdateRequest(id=some[0], body=pick(BYTES), group=group)
        self.call("ProducerService/Update", wire(pick, mutated(pick, update)))

    @rule(data=st.data())
    def operate(self, data: st.DataObject) -> None:
        pick = picking(data)
        topic, group = pick(("t", "t", "u", "dlq.g.t", "dlq.a")), pick(("g", "g", "h"))
        request = pick(
            (
                operator_pb.CreateTopicRequest(topic=topic, settings=SETTINGS),
                operator_pb.CreateTopicRequest(topic=topic),
                operator_pb.CreateTopicRequest(topic=topic, settings=SHAPED),
                operator_pb.DescribeTopicRequest(topic=topic),
                operator_pb.DeleteTopicRequest(topic=topic),
                operator_pb.PurgeTopicRequest(topic=topic, cursor=pick(("", "AAAA"))),
                operator_pb.CreateGroupRequest(topic=topic, group=group),
                operator_pb.DeleteGroupRequest(topic=topic, group=group),
                operator_pb.SetGroupRequest(topic=topic, group=group, policy=POLICY, unset=["lease_ms"]),
                operator_pb.DescribeGroupRequest(topic=topic, group=group),
                operator_pb.SetClusterRequest(settings=CLUSTER, unset=["lease_ms"]),
                operator_pb.DescribeClusterRequest(),
                operator_pb.SeekGroupRequest(topic=topic, group=group, offset=1),
                operator_pb.SeekGroupRequest(topic=topic, group=group, start=GroupStart(at=3, time_ms=1)),
                operator_pb.RedriveRequest(topic=pick(("dlq.g.t", "dlq.a"))),
                operator_pb.RedriveRequest(topic="dlq.g.t", messages_max=1),
            )
        )
        name = type(request).__name__.removesuffix("Request")
        self.call(f"OperatorService/{name}", wire(pick, mutated(pick, request)))

    @rule(ms=st.sampled_from(TIMES[:4]), count=st.sampled_from((1, 1_000)))
    def release(self, ms: int, count: int) -> None:
        self.replicas.now_ms += ms
        now_ms, ahead_ms = self.replicas.now_ms, 50
        self.commit(log_pb.ReleaseCommand(until_ms=now_ms + ahead_ms, count=count, now_ms=now_ms))

    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """As a leader does for consumers: acknowledge some of what is out, or send it round again."""
        pick = picking(data)
        queues = [queue for queue in self.machine.queues if self._groups(queue)]
        if not queues:
            return
        queue = pick(queues)
        group = pick(self._groups(queue))
        out = self.machine.queues.acknowledged[group, queue.queue].missing(queue.first, queue.units)
        offsets = out[pick((0, 0, 1, 3)) :][: pick((4, 1, 400))]
        if not len(offsets):
            return
        now_ms = self.replicas.now_ms
        if pick((True, False, False)):
            self.commit(
                log_pb.AckCommand(group=group, queue=queue.queue, offset=offsets.tobytes(), now_ms=now_ms)
            )
            return
        units = queue.at(offsets)
        records = self.machine.wheel.read(units["hour"], units["global_index"])
        assert None not in records
        reason = pick((RetryReason.RETRY_REASON_NACKED, RetryReason.RETRY_REASON_LEASE_EXPIRED))
        delay_ms = pick((None, 0, 1, 2**32 - 1))
        name = pick((f"dlq.{group}.{queue.topic}", "dlq.a", "none"))
        raised = self.machine.level >= 2
        kept = policy(attempts_max=pick((1, 2)), dead_letter_topic=name if raised else "dlq.g.t")
        whole = [record for record in records if record is not None]
        self.commit(
            *retries.commands(0, queue, group, offsets, units, whole, reason, Delay(delay_ms), now_ms, kept),
        )

    def _groups(self, queue: ReadyQueue) -> list[str]:
        return [group for group in self.machine.queues.groups_of(queue.queue) if not group.startswith("~")]

    @rule()
    def trim(self) -> None:
        for command in self.replicas.run(self.kept.plan(self.replicas.now_ms)):
            self.commit(command)


class RawPlay(Play):
    """What a leader's bug could log: a refusal, or something done, on all replicas alike."""

    @rule(data=st.data())
    def log(self, data: st.DataObject) -> None:
        pick = picking(data)
        commands = [self._command(pick) for _ in range(pick((1, 1, 3)))]
        self.commit(*commands)

    def _command(self, pick: Pick) -> Message:
        now_ms = self.replicas.now_ms
        hour, n = now_ms // HOUR_MS, pick((1, 1, 2, 9))
        column = {
            "offset": np.arange(n, dtype="<u8").tobytes(),
            "due_ms": np.full(n, now_ms + pick(TIMES), "<i8").tobytes(),
            "tag_mask": np.full(n, pick((0, 2**64 - 1)), "<u8").tobytes(),
            "lane": np.full(n, pick((0, 7, 2**32 - 1)), "<u4").tobytes(),
            "hour": np.full(n, hour, "<u4").tobytes(),
            "global_index": np.arange(n, dtype="<u4").tobytes(),
        }
        topic, group = pick(("t", "t", "u", "")), pick(("g", "g", ""))
        name = "t" if topic else ""
        request = log_pb.ScheduleColumns(
            producer=pick(("", "p")),
            sequence=pick((0, 1, 2**64 - 1)),
            topics=[topic],
            due_ms=column["due_ms"],
            records=[pick(BYTES) for _ in range(n)],
        )
        where = {"hour": column["hour"], "global_index": column["global_index"], "now_ms": now_ms}
        candidates: Sequence[Message] = (
            log_pb.ScheduleCommand(now_ms=now_ms, request=request, lane=column["lane"]),
            log_pb.ReleaseCommand(until_ms=now_ms, count=pick((0, 1, 1_000)), **where),
            log_pb.AckCommand(group="g", queue=pick((0, 1, 2)), offset=column["offset"], now_ms=now_ms),
            log_pb.RetryCommand(
                group="g",
                queue=pick((0, 1, 2)),
                offset=column["offset"],
                due_ms=column["due_ms"],
                tag_mask=column["tag_mask"],
                lane=pick((b"", column["lane"])),
                records=[pick((*COPIES, FORGED, b"\xff")) for _ in range(n)],
                target_topic=name,
                target_group=group,
                now_ms=now_ms,
                reason=pick((0, 1, 99)),
            ),
            log_pb.RetryCommand(
                group="g", queue=pick((0, 1, 2)), offset=column["offset"], now_ms=now_ms, dropped=True
            ),
            log_pb.CancelCommand(**where),
            log_pb.CancelReleasedCommand(
                queue=pick((0, 1, 2, 2**32 - 1)),
                offset=column["offset"],
                due_ms=column["due_ms"],
                had_by=pick(([], ["g"], [""])),
                **where,
            ),
            log_pb.RescheduleCommand(
                place_hour=column["hour"],
                place_index=column["global_index"],
                due_ms=column["due_ms"],
                if_due_ms=pick((b"", np.full(n, -1, "<i8").tobytes(), column["due_ms"])),
                tag_mask=pick((b"", column["tag_mask"])),
                records=[pick((*COPIES, FORGED, b"\xff")) for _ in range(n)],
                copies=pick((False, False, True)),
                second_messages_max=pick((0, 1, 2**64 - 1)),
                **where,
            ),
            log_pb.SubscribeCommand(topic=topic, group=group, start=GroupStart(at=pick((0, 2, 3, 99)))),
            log_pb.TopicCommand(topic=topic, settings=SETTINGS, now_ms=now_ms),
            log_pb.DeleteTopicCommand(topic=topic, now_ms=now_ms),
            log_pb.DeleteGroupCommand(topic=topic, group=group, now_ms=now_ms),
            log_pb.GroupPolicyCommand(
                topic=topic, group=group, policy=POLICY, unset=pick(([], ["lease_ms"], ["x"])), now_ms=now_ms
            ),
            log_pb.ClusterSettingsCommand(
                settings=CLUSTER,
                unset=pick(([], ["lease_ms", "retention_ms"], ["x"])),
                seed=pick((False, True)),
                now_ms=now_ms,
            ),
            log_pb.SeekCommand(topic=topic, group=group, offset=pick((0, 1, 2**64 - 1)), now_ms=now_ms),
            log_pb.TrimCommand(
                queue=np.array([0, 1], "<u4").tobytes(),
                offset=np.array([1, 1], "<u8").tobytes(),
                hour=column["hour"],
                now_ms=now_ms,
            ),
            log_pb.RaiseLevelCommand(
                level=pick((0, 1, 2)), id_gap=pick((0, 1, 1 << 26, 2**32 - 1)), now_ms=now_ms
            ),
            log_pb.RecurringCommand(
                name=name,
                change=pick((0, 1, 1, 1, 2, 3, 4, 99)),
                spec=RecurringSpec(topic=pick((topic, "")), interval_ms=1_000).SerializeToString(),
                record=pick((*COPIES, FORGED, b"\xff")),
                tag_mask=pick((0, 2**64 - 1)),
                lane=pick((0, 2**32 - 1)),
                bytes_max=pick((0, 1, 2**64 - 1)),
                schedules_max=pick((0, 1, 2**64 - 1)),
                numbers=pick(([], [], [1, 1, 2**64 - 1])),
                now_ms=now_ms,
            ),
            log_pb.FireCommand(plans=[_plan(pick, now_ms) for _ in range(n)], now_ms=now_ms),
            _prepare(pick, topic, now_ms),
            log_pb.EndCommand(
                number=pick((1, 2, 3, 2**64 - 1)),
                end=pick((0, 1, 2, 99)),
                place_hour=pick((now_ms // 3_600_000, 0, 2**32 - 1)),
                place_index=pick((0, 1, 2**32 - 1)),
                record=pick((*COPIES, FORGED, b"\xff")),
                ended_max=pick((0, 1, 2**64 - 1)),
                now_ms=now_ms,
            ),
            log_pb.CheckCommand(
                offset=column["offset"],
                hour=column["hour"],
                global_index=column["global_index"],
                checks=[_check(pick, now_ms) for _ in range(n)],
                ended_max=pick((0, 1, 2**64 - 1)),
                now_ms=now_ms,
            ),
        )
        assert {type(command) for command in candidates} == set(PAYLOADS.values())
        chosen = pick(candidates)
        if isinstance(chosen, log_pb.RaiseLevelCommand):
            return chosen  # any higher level ends a replica that cannot apply it, as it has to
        return mutated(pick, chosen)


def picking(data: st.DataObject) -> Pick:
    """Return a choice that hypothesis makes."""

    def pick(values: Sequence[T], /) -> T:
        return data.draw(st.sampled_from(values))  # type: ignore[no-any-return]

    return pick


def _prepare(pick: Pick, topic: str, now_ms: int) -> log_pb.PrepareCommand:
    command = log_pb.PrepareCommand(
        producer_group=pick(("p", "p", "")),
        transaction=pick(("a", "b", "")),
        topic=pick((topic, "~transactions")),
        record=pick((*COPIES, FORGED, b"\xff")),
        tag_mask=pick((0, 2**64 - 1)),
        lane=pick((0, 2**32 - 1)),
        check_ms=pick((now_ms, -1, 2**63 - 1)),
        open_max=pick((0, 1, 2**64 - 1)),
        second_messages_max=pick((0, 1, 2**64 - 1)),
        now_ms=now_ms,
        born_ms=pick((0, now_ms, -1, 2**63 - 1)),
    )
    setattr(command, pick(("due_ms", "delay_ms")), pick((0, now_ms, -1, 2**63 - 1)))
    return command


def _check(pick: Pick, now_ms: int) -> log_pb.PlannedCheck:
    """Of one of the first transactions."""
    return log_pb.PlannedCheck(
        number=pick((1, 2, 3)),
        place_hour=pick((now_ms // 3_600_000, 0, 2**32 - 1)),
        place_index=pick((0, 1, 2**32 - 1)),
        record=pick((*COPIES, FORGED, b"\xff")),
        due_ms=pick((0, now_ms, now_ms + 1_000, -1, 2**63 - 1)),
    )


def _plan(pick: Pick, now_ms: int) -> log_pb.SchedulePlan:
    """Of one of the first schedules, and now and then as it is."""
    fire = log_pb.PlannedFire(
        outcome=pick((0, 1, 1, 2, 3, 4, 5, 6, 99)),
        fire_ms=now_ms + pick((0, 1, 1_000, 2**62)),
        due_ms=pick((now_ms, -1, 2**63 - 1)),
        fires=pick((0, 1, 2**64 - 1)),
    )
    return log_pb.SchedulePlan(
        number=pick((1, 2, 3)),
        changes=pick((1, 2, 3)),
        fires=[fire],
        decided_ms=pick((0, now_ms, now_ms + 1_000, 2**63 - 1)),
        next_ms=pick((0, -1, now_ms + 2_000, 2**63 - 1)),
    )
