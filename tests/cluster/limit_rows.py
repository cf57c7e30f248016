"""Requests at their limits: for each call, the most expensive that a client can make of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import chain
from threading import Event
from typing import Any, Final

import grpc
import numpy as np
import pytest

from tarry.client.local.free_ports import free_ports
from tarry.node.edge import request_bytes
from tarry.node.edge.audit_pages import LINES_MAX as AUDIT_LINES_MAX
from tarry.node.services.listed_page import PAGE_MAX
from tarry.node.services.subscriptions import NAME_CHARS_MAX, QUEUES_HELD_MAX
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_peer_pb2 as peer_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto import tarry_query_pb2 as query_pb
from tarry.proto import tarry_recurring_pb2 as recurring_pb
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.snapshot.transfer import KEPT_FILES_MAX
from tarry.replication.state_machine.cluster_settings import DELAY_LEVELS_MAX, TIME_MS_MAX
from tarry.replication.state_machine.group_policies import ATTEMPTS_MAX, TABLE_MAX, WAIT_MS_MAX
from tarry.replication.state_machine.levels import HIGHEST
from tests.cluster.floods import floods
from tests.cluster.limit_play import AUDITED_MS, LIMITS, PATIENCE_S, TINY, Play, hours_from, ids_of
from tests.cluster.wire import refusal

MOST: Final = LIMITS.batch_messages_max
IN_HAND: Final = LIMITS.credit_max
MILLION: Final = 1_000_000
NACKED: Final = 20_000
"""Some entries of retries; more are more of the same (all: tests/node/test_turn_bounds.py)."""
LARGEST: Final = Record(
    body=bytes(LIMITS.body_bytes_max),
    tags=[f"t{number}" for number in range(LIMITS.tags_max)],
    keys=[f"k{number}" for number in range(LIMITS.keys_max)],
    properties={f"p{number}": "v" * 900 for number in range(LIMITS.properties_max)},
)
GROUP: Final = "g" * LIMITS.group_chars_max
CONSUMER: Final = "c" * NAME_CHARS_MAX


@dataclass(frozen=True, slots=True)
class Row:
    """What is played, and which calls it brings to their limits."""

    calls: tuple[str, ...]
    play: Callable[[Play], None]

    @property
    def name(self) -> str:
        return self.play.__name__


ROWS: Final[list[Row]] = []
FILES: Final = (producer_pb, consumer_pb, query_pb, operator_pb, recurring_pb, peer_pb)
CALLS: Final = {
    f"{service.name}/{method.name}": method
    for file in FILES
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}
PLAIN: Final = {
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
}
"""What nodes are refused with."""
CLIENTS: Final = request_bytes.of_clients(LIMITS)


def row(*calls: str) -> Callable[[Callable[[Play], None]], Callable[[Play], None]]:
    """Add a row."""

    def add(play: Callable[[Play], None]) -> Callable[[Play], None]:
        ROWS.append(Row(calls, play))
        return play

    return add


# -- producers -----------------------------------------------------------------------------


@row("ProducerService/Schedule", "ProducerService/Get")
def the_largest_message_and_what_is_told_of_it(play: Play) -> None:
    request = producer_pb.ScheduleRequest(
        topic=play.name(), record=LARGEST, due_ms=int(hours_from(play.now_ms(), 1)[0]), jitter_ms=1
    )
    for _ in range(8):
        answer = play.node.producer.Schedule(request, timeout=PATIENCE_S)
    got = play.node.producer.Get(producer_pb.GetRequest(id=answer.id), timeout=PATIENCE_S)
    assert got.record.stored_ms > 0
    for time in ("born_ms", "stored_ms"):  # of the leader
        got.record.ClearField(time)
    assert got.record == LARGEST


@row("ProducerService/ScheduleBatch", "ProducerService/Cancel")
def as_many_messages_over_as_many_new_hours_and_their_cancellation(play: Play) -> None:
    due_ms = hours_from(play.now_ms(), MOST)
    answers = [play.schedule([play.name()], [TINY] * MOST, due_ms=due_ms) for _ in range(2)]
    assert len(set(answers[1].hour)) == MOST
    for answer in answers:
        cancelled = play.node.producer.Cancel(
            producer_pb.CancelRequest(ids=ids_of(answer)[: LIMITS.cancel_ids_max]), timeout=PATIENCE_S
        )
        assert set(cancelled.outcomes) == {producer_pb.CANCEL_OUTCOME_CANCELLED}


@row("ProducerService/Reschedule", "ProducerService/Update")
def as_many_reschedules_over_as_many_hours_and_the_largest_update(play: Play) -> None:
    most = LIMITS.reschedule_ids_max
    ids = ids_of(play.schedule([play.name()], [TINY] * most, due_ms=hours_from(play.now_ms(), most)))
    due_ms = hours_from(play.now_ms() + most * 3_600_000, most)
    request = producer_pb.RescheduleRequest(ids=ids, due_ms=due_ms.tolist())
    answer = play.node.producer.Reschedule(request, timeout=PATIENCE_S)
    assert set(answer.outcomes) == {producer_pb.CHANGE_OUTCOME_CHANGED}
    update = producer_pb.UpdateRequest(id=ids[0], body=LARGEST.body)
    changed = play.node.producer.Update(update, timeout=PATIENCE_S)
    assert changed.outcome == producer_pb.CHANGE_OUTCOME_CHANGED


@row("ProducerService/ScheduleBatch")
def as_many_bytes_over_as_many_hours(play: Play) -> None:
    filling = Record(body=bytes(LIMITS.batch_bytes_max // MOST - 40)).SerializeToString()
    play.schedule([play.name()], [filling] * MOST, due_ms=hours_from(play.now_ms(), MOST))


@row("ProducerService/ScheduleBatch")
def as_many_messages_at_once(play: Play) -> None:
    play.schedule([play.name()], [TINY] * MOST, delay_ms=[0] * MOST, jitter_ms=[1] * MOST)


@row("ProducerService/ScheduleBatch")
def as_many_new_topics(play: Play) -> None:
    names = [play.name() for _ in range(min(MOST, LIMITS.batch_topics_max))]
    due_ms = hours_from(play.now_ms(), MOST)
    play.schedule(names, [TINY] * MOST, topic=np.arange(MOST) % len(names), due_ms=due_ms)


@row("ProducerService/ScheduleBatch")
def as_many_properties_keys_and_tags(play: Play) -> None:
    record = Record(
        tags=[f"{number:x}" for number in range(LIMITS.tags_max)],
        keys=[f"{number:x}" for number in range(LIMITS.keys_max)],
        properties={f"{number:x}": "" for number in range(LIMITS.properties_max)},
    ).SerializeToString()
    count = min(MOST, LIMITS.batch_bytes_max // (len(record) + 20))
    play.schedule([play.name()], [record] * count, delay_ms=[60_000] * count)


@row("ProducerService/ScheduleBatch")
def as_many_ordering_keys(play: Play) -> None:
    chars = LIMITS.ordering_key_chars_max
    records = [Record(ordering_key=f"{n:0{chars}}").SerializeToString() for n in range(MOST)]
    topic = play.name()
    play.schedule([topic], records, delay_ms=[0] * MOST)
    holding = play.in_hand(topic, MOST)
    ((queue, offsets),) = holding.offsets.items()
    assert holding.say("ack", queue, offsets) == 0
    holding.end()


@row("ProducerService/ScheduleBatch", "QueryService/FindByKey")
def as_many_idempotency_keys_new_repeated_and_in_conflict(play: Play) -> None:
    chars, topic = LIMITS.idempotency_key_chars_max, play.name()
    room = LIMITS.batch_bytes_max // MOST - chars - 60
    keyed = [Record(body=bytes(room), idempotency_key=f"{n:0{chars}}") for n in range(MOST)]
    records = [record.SerializeToString() for record in keyed]
    due_ms = hours_from(play.now_ms(), MOST)
    play.until(lambda: {status.level for status in play.statuses()} == {HIGHEST})
    first = play.schedule([topic], records, due_ms=due_ms)
    again = play.schedule([topic], records, due_ms=due_ms)
    assert (ids_of(again), len(first.repeats), len(again.repeats)) == (ids_of(first), 0, MOST)
    keyed[-1].body = b"other"
    with pytest.raises(grpc.RpcError) as conflict:
        play.schedule([topic], [*records[:-1], keyed[-1].SerializeToString()], due_ms=due_ms)
    said = refusal(conflict.value)
    assert (said.reason, said.facts["position"]) == ("IDEMPOTENCY_CONFLICT", f"{MOST - 1}")
    request = query_pb.FindByKeyRequest(topic=topic, idempotency_key=f"{0:0{chars}}", records=True)
    (answer,) = play.call("QueryService/FindByKey", request.SerializeToString())
    found = query_pb.FindByKeyResponse.FromString(answer)
    assert [message.id for message in found.messages] == ids_of(first)[:1]


@row("ProducerService/ScheduleStream")
def as_many_requests_in_flight(play: Play) -> None:
    batch = producer_pb.ScheduleBatchRequest(
        topics=[play.name()], records=[TINY] * MOST, due_ms=hours_from(play.now_ms(), MOST)
    )
    play.stream([batch] * LIMITS.stream_requests_max)


# -- consumers -----------------------------------------------------------------------------


@row("ConsumerService/Consume")
def a_subscribe_that_names_as_much_as_it_may(play: Play) -> None:
    share = LIMITS.offsets_max // QUEUES_HELD_MAX
    subscribe = consumer_pb.Subscribe(
        topic=play.name(),
        group=GROUP,
        consumer=CONSUMER,
        credit=LIMITS.credit_max,
        tags=[f"{number}".ljust(100, "t") for number in range(LIMITS.filter_tags_max)],
        filter=" AND ".join(["a BETWEEN 1 AND 2"] * (LIMITS.filter_tests_max // 2)).ljust(
            LIMITS.filter_chars_max
        ),
        holding=[consumer_pb.Holding(queue=queue, offset=range(share)) for queue in range(QUEUES_HELD_MAX)],
    )
    requests = [consumer_pb.ConsumeRequest(subscribe=subscribe)]
    first = next(play.node.consumer.Consume(iter(requests), timeout=PATIENCE_S))
    assert first.HasField("subscribed")


@row("ConsumerService/Consume", "ConsumerService/Receive")
def as_many_topics_as_one_stream_may_have(play: Play) -> None:
    count, prefix = LIMITS.subscribed_topics_max, play.name(20)
    topics = [f"{prefix}{number}".ljust(LIMITS.topic_chars_max, "n") for number in range(count)]
    play.schedule(topics, [TINY] * count, topic=range(count), delay_ms=[0] * count)
    names: dict[str, Any] = {"topics": [f"{prefix}*"], "group": GROUP, "consumer": CONSUMER}
    subscribe = consumer_pb.Subscribe(**names, credit=count)
    left = Event()
    first_requests = chain([consumer_pb.ConsumeRequest(subscribe=subscribe)], iter(left.wait, True))
    stream = play.node.consumer.Consume(first_requests, timeout=4 * PATIENCE_S)
    given: dict[int, int] = {}
    while len(given) < count:
        response = next(stream)
        if response.HasField("deliveries"):
            given[response.deliveries.queue] = response.deliveries.offset[0]
    stream.cancel()
    left.set()
    holding = [consumer_pb.Holding(queue=queue, offset=[offset]) for queue, offset in given.items()]
    subscribe = consumer_pb.Subscribe(**{**names, "topics": topics}, credit=1, holding=holding)
    requests = [consumer_pb.ConsumeRequest(subscribe=subscribe)]
    first = next(play.node.consumer.Consume(iter(requests), timeout=PATIENCE_S))
    assert len(first.subscribed.resumed) == count
    patterns = [f"{topic[:-2]}x*" for topic in topics]
    subscribe = consumer_pb.Subscribe(**{**names, "topics": patterns, "consumer": "patterns"}, credit=1)
    requests = [consumer_pb.ConsumeRequest(subscribe=subscribe)]
    assert next(play.node.consumer.Consume(iter(requests), timeout=PATIENCE_S)).HasField("subscribed")
    receive = consumer_pb.ReceiveRequest(**names, messages_max=count)
    play.node.consumer.Receive(receive, timeout=PATIENCE_S)


@row("ConsumerService/Consume")
def all_that_a_consumer_may_hold_extended_and_acknowledged(play: Play) -> None:
    topic = play.ready(IN_HAND)
    holding = play.in_hand(topic, IN_HAND)
    ((queue, offsets),) = holding.offsets.items()
    strangers = range(10**9, 10**9 + LIMITS.offsets_max)
    assert holding.say("extend", queue, offsets, lease_ms=60_000) == 0
    assert holding.say("ack", queue, strangers) == len(strangers)
    assert holding.say("ack", queue, offsets[::-2]) == 0  # each second, backwards
    assert holding.say("ack", queue, offsets) == len(offsets[::-2])
    holding.end()


@row("ConsumerService/Consume", "OperatorService/Redrive")
def thousands_nacked_until_they_are_dead_and_redriven(play: Play) -> None:
    topic = play.ready(NACKED)
    holding = play.in_hand(topic, NACKED)
    ((queue, offsets),) = holding.offsets.items()
    assert holding.say("nack", queue, offsets, delay_ms=0) == 0
    holding.credit(NACKED)
    play.until(lambda: retrying(play, topic) == NACKED)
    holding.take(NACKED - sum(map(len, holding.offsets.values())) + len(offsets))
    retries = next(number for number in holding.offsets if number != queue)
    assert holding.say("nack", retries, holding.offsets[retries]) == 0
    dead = f"dlq.g.{topic}"
    play.until(lambda: play.released(dead) == NACKED)
    told = list(play.node.operator.Redrive(operator_pb.RedriveRequest(topic=dead), timeout=PATIENCE_S))
    assert told[-1].redriven == NACKED
    holding.end()


def retrying(play: Play, topic: str) -> int:
    """How many copies have been released to the group's retry queue."""
    answer = play.node.operator.DescribeTopic(operator_pb.DescribeTopicRequest(topic=topic))
    return int(answer.topic.groups[0].retrying)


@row("ConsumerService/Consume")
def the_largest_messages_nacked(play: Play) -> None:
    count = 200
    topic = play.ready(count, LARGEST.SerializeToString())
    holding = play.in_hand(topic, count)
    ((queue, offsets),) = holding.offsets.items()
    assert holding.say("nack", queue, offsets, delay_ms=3_600_000) == 0
    holding.end()


@row("ConsumerService/Receive", "ConsumerService/Ack", "ConsumerService/Nack", "ConsumerService/Extend")
def calls_that_name_as_many_offsets(play: Play) -> None:
    topic = play.ready(10_000)
    names: dict[str, Any] = {"topic": topic, "group": GROUP, "consumer": CONSUMER}
    taken = []
    for _ in range(10):
        request = consumer_pb.ReceiveRequest(**names, messages_max=1_000, wait_ms=30_000)
        for part in play.node.consumer.Receive(request, timeout=PATIENCE_S).deliveries:
            taken += part.offset
            queue = part.queue
    assert len(taken) == 10_000
    offsets = range(LIMITS.offsets_max)
    own = len(offsets) - len(taken)
    extend = consumer_pb.ExtendRequest(**names, queue=queue, offset=offsets, lease_ms=60_000)
    ack = consumer_pb.AckRequest(**names, queue=queue, offset=offsets[1::2])
    nack = consumer_pb.NackRequest(**names, queue=queue, offset=offsets, delay_ms=3_600_000)
    assert len(play.node.consumer.Extend(extend, timeout=PATIENCE_S).stale) == own
    assert len(play.node.consumer.Ack(ack, timeout=PATIENCE_S).stale) == own // 2
    assert len(play.node.consumer.Nack(nack, timeout=PATIENCE_S).stale) == own + len(taken) // 2


# -- operators -----------------------------------------------------------------------------


@row("OperatorService/SeekGroup", "OperatorService/CreateGroup", "OperatorService/DeleteGroup")
def a_group_moved_over_a_million_messages(play: Play) -> None:
    topic = play.of_many(MILLION)
    start = consumer_pb.GroupStart(at="START_AT_TIME", time_ms=play.now_ms() - 1)
    create = operator_pb.CreateGroupRequest(topic=topic, group=GROUP, start=start)
    play.node.operator.CreateGroup(create, timeout=PATIENCE_S)
    holding = play.in_hand(topic, 0, GROUP)
    targets: list[dict[str, Any]] = [
        {"start": consumer_pb.GroupStart(at="START_AT_EARLIEST")},
        {"start": consumer_pb.GroupStart(at="START_AT_LATEST")},
        {"start": start},
        {"offset": 1},
        {"start": consumer_pb.GroupStart(at="START_AT_LATEST")},
        {"offset": 1},
    ]
    for target in targets:
        request = operator_pb.SeekGroupRequest(topic=topic, group=GROUP, **target)
        play.node.operator.SeekGroup(request, timeout=PATIENCE_S)
    holding.end()
    taken = play.in_hand(topic, IN_HAND, GROUP)
    for queue, offsets in taken.offsets.items():
        taken.say("ack", queue, offsets[::2])
    delete = operator_pb.DeleteGroupRequest(topic=topic, group=GROUP)
    play.node.operator.DeleteGroup(delete, timeout=PATIENCE_S)
    taken.end()


@row("OperatorService/SetGroup", "OperatorService/DescribeGroup")
def the_longest_policy_of_a_group_of_a_million_messages(play: Play) -> None:
    topic = play.of_many(MILLION)
    named: dict[str, Any] = {"topic": topic, "group": GROUP}
    play.node.operator.CreateGroup(operator_pb.CreateGroupRequest(**named), timeout=PATIENCE_S)
    longest = operator_pb.BackOffTable(wait_ms=[WAIT_MS_MAX] * TABLE_MAX)
    policy = operator_pb.GroupPolicy(attempts_max=ATTEMPTS_MAX, back_off=operator_pb.BackOff(table=longest))
    taken = play.in_hand(topic, IN_HAND, GROUP)
    play.node.operator.SetGroup(operator_pb.SetGroupRequest(**named, policy=policy), timeout=PATIENCE_S)
    describe = operator_pb.DescribeGroupRequest(**named)
    described = play.node.operator.DescribeGroup(describe, timeout=PATIENCE_S)
    assert list(described.policy.back_off.table.wait_ms) == list(longest.wait_ms)
    taken.end()
    play.node.operator.DeleteGroup(operator_pb.DeleteGroupRequest(**named), timeout=PATIENCE_S)


@row("OperatorService/SetCluster", "OperatorService/DescribeCluster")
def the_longest_settings_of_a_cluster_with_a_group_of_a_million_messages(play: Play) -> None:
    topic = play.of_many(MILLION)
    taken = play.in_hand(topic, IN_HAND, GROUP)
    table = operator_pb.BackOffTable(wait_ms=[WAIT_MS_MAX] * TABLE_MAX)
    settings = operator_pb.ClusterSettings(
        group_policy=operator_pb.GroupPolicy(back_off=operator_pb.BackOff(table=table)),
        delay_levels=operator_pb.DelayLevels(delay_ms=[TIME_MS_MAX] * DELAY_LEVELS_MAX),
    )
    set_all = operator_pb.SetClusterRequest(settings=settings)
    play.node.operator.SetCluster(set_all, timeout=PATIENCE_S)
    described = play.node.operator.DescribeCluster(operator_pb.DescribeClusterRequest(), timeout=PATIENCE_S)
    assert described.own.delay_levels == settings.delay_levels
    unset = operator_pb.SetClusterRequest(unset=["back_off", "delay_levels"])
    play.node.operator.SetCluster(unset, timeout=PATIENCE_S)
    taken.end()
    gone = operator_pb.DeleteGroupRequest(topic=topic, group=GROUP)
    play.node.operator.DeleteGroup(gone, timeout=PATIENCE_S)


@row("OperatorService/CreateTopic", "OperatorService/DescribeTopic")
def a_million_messages_behind_a_rate(play: Play) -> None:
    topic = play.of_many(MILLION)
    for rate in (1, 1_000_000, 0):
        settings = operator_pb.TopicSettings(release_per_s_max=rate, pending_max=1, body_bytes_max=1)
        request = operator_pb.CreateTopicRequest(topic=topic, settings=settings)
        play.node.operator.CreateTopic(request, timeout=PATIENCE_S)
    play.node.operator.CreateTopic(operator_pb.CreateTopicRequest(topic=topic), timeout=PATIENCE_S)
    play.node.operator.DescribeTopic(operator_pb.DescribeTopicRequest(topic=topic), timeout=PATIENCE_S)


@row("OperatorService/CreateTopic")
def what_all_groups_are_past_trimmed_from_a_million(play: Play) -> None:
    topic = play.of_many(MILLION)
    request = operator_pb.CreateTopicRequest(topic=topic, settings=operator_pb.TopicSettings(retention_ms=1))
    play.node.operator.CreateTopic(request, timeout=PATIENCE_S)
    describe = operator_pb.DescribeTopicRequest(topic=topic)
    play.until(
        lambda: (
            play.node.operator.DescribeTopic(describe, timeout=PATIENCE_S).topic.first_offset
            > MILLION - 8_192
        )
    )


@row("OperatorService/DeleteTopic")
def a_topic_of_a_million_messages_deleted(play: Play) -> None:
    topic = play.of_many(MILLION)
    request = operator_pb.DeleteTopicRequest(topic=topic)
    play.node.operator.DeleteTopic(request, timeout=PATIENCE_S)
    play.forget_many()


@row("OperatorService/CreateGroup", "OperatorService/DeleteTopic")
def a_topic_of_a_thousand_groups_deleted(play: Play) -> None:
    topic = play.ready(1_000)
    pending = [
        play.node.operator.CreateGroup.future(
            operator_pb.CreateGroupRequest(topic=topic, group=f"{number}".ljust(100, "g")),
            timeout=PATIENCE_S,
        )
        for number in range(1_000)
    ]
    for one in pending:
        one.result()
    describe = operator_pb.DescribeTopicRequest(topic=topic)
    described = play.node.operator.DescribeTopic(describe, timeout=PATIENCE_S)
    assert len(described.topic.groups) == 1_000
    request = operator_pb.DeleteTopicRequest(topic=topic)
    assert play.node.operator.DeleteTopic(request, timeout=PATIENCE_S).groups == 1_000


@row("OperatorService/ClusterStatus")
def all_that_there_is_told(play: Play) -> None:
    for node in play.cluster.nodes:
        status = play.cluster.status(node, PATIENCE_S, digest=True)
        assert status is not None


@row("OperatorService/FinishUpgrade")
def an_upgrade_that_is_finished(play: Play) -> None:
    request = operator_pb.FinishUpgradeRequest()
    assert play.node.operator.FinishUpgrade(request, timeout=PATIENCE_S).level == HIGHEST


@row("OperatorService/ExportLedger")
def a_whole_ledger(play: Play) -> None:
    rows = sum(
        part.count
        for part in play.node.operator.ExportLedger(
            operator_pb.ExportLedgerRequest(open=True), timeout=PATIENCE_S
        )
    )
    assert rows


@row("OperatorService/ReadAudit")
def a_piece_of_an_audit_log_in_which_nothing_is_found(play: Play) -> None:
    nothing = operator_pb.ReadAuditRequest(method="x" * 60_000, from_ms=1, to_ms=1 << 60, lines_max=1 << 31)
    answer = play.node.operator.ReadAudit(nothing, timeout=PATIENCE_S)
    assert (answer.has_audit, len(answer.lines)) == (True, 0)
    most = operator_pb.ReadAuditRequest(to_ms=AUDITED_MS + 900_000, lines_max=1 << 31)
    assert len(play.node.operator.ReadAudit(most, timeout=PATIENCE_S).lines) == AUDIT_LINES_MAX


@row("OperatorService/Backup")
def a_whole_state_backed_up(play: Play) -> None:
    kept = [operator_pb.BackupFile(name=f"hours/{number}", size_bytes=1) for number in range(KEPT_FILES_MAX)]
    request = operator_pb.BackupRequest(kept=kept)
    assert sum(part.HasField("chunk") for part in play.node.operator.Backup(request, timeout=PATIENCE_S))


@row("OperatorService/ExportPending")
def all_that_is_pending_of_as_many_topics_as_may_be_named(play: Play) -> None:
    topics = [play.name() for _ in range(request_bytes.EXPORT_TOPICS_MAX)]
    place = np.arange(MOST) % len(topics)
    due_ms = hours_from(play.now_ms(), MOST)
    for _ in range(8):
        play.schedule(topics, [TINY] * MOST, topic=place, due_ms=due_ms)
    request = operator_pb.ExportPendingRequest(topics=topics, index_min=play.statuses()[0].applied_index)
    *_, last = play.node.operator.ExportPending(request, timeout=PATIENCE_S)
    assert last.end.messages == 8 * MOST
    request.topics.append(play.name())
    refused(lambda: list(play.node.operator.ExportPending(request, timeout=PATIENCE_S)), "EXPORT_INVALID")


@row(
    "OperatorService/AddMember",
    "OperatorService/RemoveMember",
    "MembershipService/Leave",
    "MembershipService/Join",
)
def members_that_are_none(play: Play) -> None:
    name, address = "n" * 63, f"127.0.0.1:{free_ports(1)[0]}"
    add = operator_pb.AddMemberRequest(node=name, address=address, deadline_ms=500)
    refused(lambda: play.node.operator.AddMember(add, timeout=PATIENCE_S), "MEMBERSHIP_REFUSED")
    remove = operator_pb.RemoveMemberRequest(node=name)
    refused(lambda: play.node.operator.RemoveMember(remove, timeout=PATIENCE_S), "MEMBERSHIP_REFUSED")
    leave = peer_pb.LeaveRequest(cluster="tarry", node=name)
    play.call("MembershipService/Leave", leave.SerializeToString())
    join = peer_pb.JoinRequest(cluster="tarry", node=name, address=address)
    refused(lambda: play.call("MembershipService/Join", join.SerializeToString()), "PEER_UNKNOWN")


@row("OperatorService/TransferLeadership")
def leadership_for_a_stranger(play: Play) -> None:
    request = operator_pb.TransferLeadershipRequest(target="n" * 63)
    refused(lambda: play.node.operator.TransferLeadership(request, timeout=PATIENCE_S), "TRANSFER_REFUSED")


# -- queries -------------------------------------------------------------------------------


@row(
    "QueryService/ListMessages",
    "QueryService/FindByKey",
    "QueryService/Forecast",
    "QueryService/GetLife",
    "QueryService/ReadHistory",
)
def the_largest_filters_and_pages(play: Play) -> None:
    topic, due_ms = play.name(), hours_from(play.now_ms(), MOST)
    record = Record(keys=["k"], tags=["t"]).SerializeToString()
    answer = play.schedule([topic], [record] * MOST, due_ms=due_ms, tag_mask=[tag_mask(["t"])] * MOST)
    most, chars = request_bytes.FILTER_NAMES_MAX, request_bytes.FILTER_CHARS_MAX
    names = [f"{number}".ljust(chars, "n") for number in range(most - 1)]
    wanted = query_pb.MessageFilter(topic=topic, tags=[*names, "t"], keys=[*names, "k"], key_prefix="k")
    listed = query_pb.ListMessagesRequest(filter=wanted, page_size=PAGE_MAX, bodies=True)
    (page,) = play.call("QueryService/ListMessages", listed.SerializeToString())
    assert query_pb.ListMessagesResponse.FromString(page).messages
    find = query_pb.FindByKeyRequest(topic=topic, key="k", limit=1_000, records=True)
    (found,) = play.call("QueryService/FindByKey", find.SerializeToString())
    assert query_pb.FindByKeyResponse.FromString(found).messages
    hourly: query_pb.ForecastResolution = query_pb.FORECAST_RESOLUTION_HOUR
    begin: dict[str, Any] = {"from_ms": int(due_ms[0]), "resolution": hourly, "buckets": 1_000}
    forecast = query_pb.ForecastRequest(topic=topic, tags=["t"], **begin)
    (told,) = play.call("QueryService/Forecast", forecast.SerializeToString())
    assert sum(query_pb.ForecastResponse.FromString(told).counts) >= 100
    last = ids_of(answer)[-1]
    play.call("QueryService/GetLife", query_pb.GetLifeRequest(id=last).SerializeToString())
    assert play.call("QueryService/ReadHistory", query_pb.ReadHistoryRequest(id=last).SerializeToString())


@row("QueryService/CancelMatching", "OperatorService/PurgeTopic")
def cancels_of_what_lies_over_many_hours(play: Play) -> None:
    count = 256  # more are more of the same, and wait for their turns
    for path, of in (
        ("QueryService/CancelMatching", query_pb.CancelMatchingRequest),
        ("OperatorService/PurgeTopic", operator_pb.PurgeTopicRequest),
    ):
        topic = play.name()
        play.schedule([topic], [TINY] * count, due_ms=hours_from(play.now_ms(), count))
        asked = {"filter": query_pb.MessageFilter(topic=topic)} if "Query" in path else {"topic": topic}
        progress, cursor = query_pb.BulkCancel(), ""
        while not progress.done:
            (told,) = play.call(path, of(**asked, cursor=cursor).SerializeToString())
            progress = query_pb.CancelMatchingResponse.FromString(told).progress
            cursor = progress.cursor
        assert progress.cancelled == count


# -- all calls -----------------------------------------------------------------------------


@row()
def nothing_but_the_smallest_fields(play: Play) -> None:
    for path, method in CALLS.items():
        if path == "OperatorService/TransferLeadership":  # it names none, so whom it may
            continue
        nodes = path.startswith(("PeerService", "RecordService", "MembershipService"))
        bytes_max = request_bytes.of_nodes(path) if nodes else CLIENTS(path)
        for what, raw in floods(method.input_type, bytes_max):
            try:
                play.call(path, raw)
            except grpc.RpcError as error:
                said = refusal(error)
                assert said.reason or (nodes and said.code in PLAIN), (path, what, said)


def refused(call: Callable[[], object], reason: str) -> None:
    """Make a call that is refused."""
    with pytest.raises(grpc.RpcError) as raised:
        call()
    assert refusal(raised.value).reason == reason
