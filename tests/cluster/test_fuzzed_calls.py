"""Every call of every service, with valid requests made absurd: typed refusals, and equal nodes after it."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.message import Message

from tarry.client.local.cluster import LocalCluster
from tarry.node.services.list_cursor import Phase, Place, key_of, text_of
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_peer_pb2 as peer_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto import tarry_query_pb2 as query_pb
from tarry.proto import tarry_recurring_pb2 as recurring_pb
from tarry.proto import tarry_transaction_pb2 as transaction_pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.levels import HIGHEST
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.wire import refusal
from tests.fuzz.mutations import mutated, wire

pytestmark = pytest.mark.beside

SEED = int(os.environ.get("FUZZ_SEED", "1"))  # `make fuzz` sets it
CALLS = 4_000 if "FUZZ_SEED" in os.environ else 400
PATIENCE_S = 30.0
CALL_S = 5.0
WAITS = {"OperatorService/AddMember", "OperatorService/TransferLeadership", "ConsumerService/Consume"}
"""These may have nothing to say for longer than this test waits."""
STREAMS = {"ProducerService/ScheduleStream", "ProducerService/Checks", "ConsumerService/Consume"}
ANSWERED_BY_STREAMS = {
    "OperatorService/Redrive",
    "OperatorService/ExportLedger",
    "OperatorService/Backup",
    "OperatorService/ExportPending",
    "QueryService/ReadHistory",
    "PeerService/FetchSnapshot",
}

RECORD = Record(body=b"x", tags=["red"], keys=["k"], properties={"p": "v"})
KEYED = Record(body=b"x", idempotency_key="i")
PEER: dict[str, Any] = {"cluster": "tarry", "node": "n2"}
GROUP: dict[str, Any] = {"topic": "t", "group": "g", "consumer": "c"}
BATCH = producer_pb.ScheduleBatchRequest(
    topics=["t"],
    delay_ms=[0, 50],
    records=[RECORD.SerializeToString()] * 2,
    tag_mask=[1, 2],
    jitter_ms=[0, 1],
    producer="p",
    sequence=1,
)
SUBSCRIBE = consumer_pb.ConsumeRequest(
    subscribe=consumer_pb.Subscribe(
        topic="t", group="g", consumer="s", credit=9, holding=[consumer_pb.Holding(queue=0, offset=[0, 1])]
    )
)
VALID: dict[str, list[Message]] = {
    "ProducerService/Schedule": [
        producer_pb.ScheduleRequest(topic="t", record=RECORD, delay_ms=0, producer="p", sequence=2),
        producer_pb.ScheduleRequest(topic="u", record=RECORD, due_ms=1, jitter_ms=1),
        producer_pb.ScheduleRequest(topic="u", record=RECORD, delay_level=1),
        producer_pb.ScheduleRequest(topic="t", record=KEYED, delay_ms=0),
    ],
    "ProducerService/ScheduleBatch": [
        BATCH,
        producer_pb.ScheduleBatchRequest(
            topics=["t"], delay_ms=[0, 50], records=[KEYED.SerializeToString()] * 2
        ),
    ],
    "ProducerService/Prepare": [
        transaction_pb.PrepareRequest(
            producer_group="p", transaction="n", topic="t", record=RECORD, delay_ms=9, check_after_ms=100
        ),
        transaction_pb.PrepareRequest(producer_group="p", transaction="m", topic="t", due_ms=2**42),
    ],
    "ProducerService/EndTransaction": [
        transaction_pb.EndTransactionRequest(
            producer_group="p", transaction="n", end=transaction_pb.TRANSACTION_END_COMMIT
        ),
        transaction_pb.EndTransactionRequest(
            producer_group="p", transaction="m", end=transaction_pb.TRANSACTION_END_ROLLBACK
        ),
    ],
    "ProducerService/ListTransactions": [
        transaction_pb.ListTransactionsRequest(
            producer_group="p", topic="t", ended=True, after=1, page_size=9
        )
    ],
    "ProducerService/Checks": [
        transaction_pb.ChecksRequest(subscribe=transaction_pb.ChecksSubscribe(producer_group="p")),
        transaction_pb.ChecksRequest(
            answer=transaction_pb.CheckAnswer(transaction="n", end=transaction_pb.TRANSACTION_END_COMMIT)
        ),
    ],
    "ProducerService/ScheduleStream": [producer_pb.ScheduleStreamRequest(request=1, batch=BATCH)],
    "ProducerService/Cancel": [producer_pb.CancelRequest(ids=[str(MessageId(0, 498_611, 0))])],
    "ProducerService/Reschedule": [
        producer_pb.RescheduleRequest(ids=[str(MessageId(0, 498_611, 0))], delay_ms=[1_000], if_due_ms=[1])
    ],
    "ProducerService/Update": [producer_pb.UpdateRequest(id=str(MessageId(0, 498_611, 0)), body=b"b")],
    "ProducerService/Get": [producer_pb.GetRequest(id=str(MessageId(0, 498_611, 0)))],
    "ConsumerService/Receive": [
        consumer_pb.ReceiveRequest(**GROUP, messages_max=9, wait_ms=20),
        consumer_pb.ReceiveRequest(topics=["t*"], group="g", consumer="several", messages_max=9),
    ],
    "ConsumerService/Ack": [consumer_pb.AckRequest(**GROUP, offset=[0, 1])],
    "ConsumerService/Nack": [consumer_pb.NackRequest(**GROUP, offset=[0, 1], delay_ms=0)],
    "ConsumerService/Extend": [consumer_pb.ExtendRequest(**GROUP, offset=[0, 1], lease_ms=1_000)],
    "ConsumerService/Consume": [
        SUBSCRIBE,
        consumer_pb.ConsumeRequest(
            subscribe=consumer_pb.Subscribe(
                topics=["t*", "u"],
                group="g",
                consumer="several",
                credit=9,
                holding=[consumer_pb.Holding(queue=0, offset=[0]), consumer_pb.Holding(queue=9, offset=[1])],
            )
        ),
        consumer_pb.ConsumeRequest(credit=consumer_pb.Credit(messages=1)),
        consumer_pb.ConsumeRequest(ack=consumer_pb.Ack(request=1, offset=[0])),
        consumer_pb.ConsumeRequest(nack=consumer_pb.Nack(request=2, offset=[1], delay_ms=0)),
        consumer_pb.ConsumeRequest(extend=consumer_pb.Extend(request=3, offset=[2], lease_ms=1_000)),
    ],
    "QueryService/ListMessages": [
        query_pb.ListMessagesRequest(
            filter=query_pb.MessageFilter(
                topic="t", tags=["red"], keys=["k"], key_prefix="k", due_to_ms=1 << 50
            ),
            states=["LISTED_STATE_PENDING", "LISTED_STATE_RETRYING", "LISTED_STATE_RELEASED"],
            group="g",
            page_size=9,
            bodies=True,
        ),
        query_pb.ListMessagesRequest(
            filter=query_pb.MessageFilter(topic="t"),
            cursor=text_of(
                Place(Phase.WHEEL, 0, 1, 2, 3),
                key_of(query_pb.ListMessagesRequest(filter=query_pb.MessageFilter(topic="t"))),
                0,
            ),
        ),
    ],
    "QueryService/CancelMatching": [
        query_pb.CancelMatchingRequest(filter=query_pb.MessageFilter(topic="t", tags=["red"], due_from_ms=1))
    ],
    "OperatorService/ClusterStatus": [operator_pb.ClusterStatusRequest(digest=True)],
    "OperatorService/TransferLeadership": [operator_pb.TransferLeadershipRequest(target="n9", deadline_ms=1)],
    "OperatorService/AddMember": [operator_pb.AddMemberRequest(node="n9", address="127.0.0.1:1")],
    "OperatorService/RemoveMember": [operator_pb.RemoveMemberRequest(node="n9")],
    "OperatorService/CreateTopic": [
        operator_pb.CreateTopicRequest(
            topic="t",
            settings=operator_pb.TopicSettings(
                retention_ms=1,
                pending_max=9,
                misfire="MISFIRE_POLICY_DEAD_LETTER",
                misfire_after_ms=1,
                release_per_s_max=9,
            ),
        )
    ],
    "OperatorService/DescribeTopic": [operator_pb.DescribeTopicRequest(topic="t")],
    "OperatorService/DeleteTopic": [operator_pb.DeleteTopicRequest(topic="u")],
    "OperatorService/PurgeTopic": [operator_pb.PurgeTopicRequest(topic="u")],
    "OperatorService/CreateGroup": [
        operator_pb.CreateGroupRequest(
            topic="t", group="h", start=consumer_pb.GroupStart(at="START_AT_TIME", time_ms=1)
        )
    ],
    "OperatorService/DeleteGroup": [operator_pb.DeleteGroupRequest(topic="t", group="h")],
    "OperatorService/SetGroup": [
        operator_pb.SetGroupRequest(
            topic="t",
            group="g",
            policy=operator_pb.GroupPolicy(
                attempts_max=3, back_off=operator_pb.BackOff(table=operator_pb.BackOffTable(wait_ms=[1, 2]))
            ),
            unset=["lease_ms"],
        )
    ],
    "OperatorService/SetCluster": [
        operator_pb.SetClusterRequest(
            settings=operator_pb.ClusterSettings(
                group_policy=operator_pb.GroupPolicy(attempts_max=3),
                retention_ms=1_000_000,
                delay_levels=operator_pb.DelayLevels(delay_ms=[1, 2]),
            ),
            unset=["lease_ms"],
        )
    ],
    "OperatorService/DescribeCluster": [operator_pb.DescribeClusterRequest()],
    "OperatorService/DescribeGroup": [operator_pb.DescribeGroupRequest(topic="t", group="g")],
    "OperatorService/SeekGroup": [
        operator_pb.SeekGroupRequest(topic="t", group="g", offset=1),
        operator_pb.SeekGroupRequest(
            topic="t", group="g", start=consumer_pb.GroupStart(at="START_AT_EARLIEST")
        ),
    ],
    "OperatorService/FinishUpgrade": [operator_pb.FinishUpgradeRequest()],
    "OperatorService/Redrive": [operator_pb.RedriveRequest(topic="dlq.g.t")],
    "OperatorService/ExportLedger": [operator_pb.ExportLedgerRequest(resume="1.0", open=True, rows_max=9)],
    "OperatorService/Backup": [
        operator_pb.BackupRequest(kept=[operator_pb.BackupFile(name="checkpoint.bin", size_bytes=1)])
    ],
    "OperatorService/ReadAudit": [
        operator_pb.ReadAuditRequest(cursor="0123456789abcdef.9", from_ms=1, to_ms=2**40, lines_max=9)
    ],
    "OperatorService/ExportPending": [
        operator_pb.ExportPendingRequest(),
        operator_pb.ExportPendingRequest(topics=["t"], due_from_ms=1, due_to_ms=2**42, index_min=1),
    ],
    "QueryService/GetLife": [query_pb.GetLifeRequest(id=str(MessageId(0, 498_611, 0)))],
    "QueryService/ReadHistory": [
        query_pb.ReadHistoryRequest(id=str(MessageId(0, 498_611, 0)), from_ms=1, until_ms=2**40)
    ],
    "QueryService/Forecast": [
        query_pb.ForecastRequest(),
        query_pb.ForecastRequest(topic="t", tags=["x"], resolution="FORECAST_RESOLUTION_MINUTE", buckets=9),
        query_pb.ForecastRequest(from_ms=1, resolution="FORECAST_RESOLUTION_HOUR", linearizable=True),
    ],
    "QueryService/FindByKey": [
        query_pb.FindByKeyRequest(
            topic="t", key="k", limit=9, states=["MESSAGE_STATE_PENDING"], records=True, due_to_ms=2**42
        ),
        query_pb.FindByKeyRequest(topic="t", key="k", begin=str(MessageId(0, 498_611, 0))),
        query_pb.FindByKeyRequest(topic="t", idempotency_key="i"),
    ],
    "RecurringService/PutRecurring": [
        recurring_pb.PutRecurringRequest(
            name="s",
            spec=recurring_pb.RecurringSpec(topic="t", interval_ms=1_000, jitter_ms=9),
            if_revision=0,
        ),
        recurring_pb.PutRecurringRequest(
            name="s",
            spec=recurring_pb.RecurringSpec(
                topic="t", cron="*/5 * * * *", zone="Europe/Berlin", record=Record(body=b"x"), start_ms=1
            ),
        ),
    ],
    "RecurringService/GetRecurring": [recurring_pb.GetRecurringRequest(name="s")],
    "RecurringService/ListRecurring": [
        recurring_pb.ListRecurringRequest(topic="t", name_prefix="s", page_size=9, cursor="s")
    ],
    "RecurringService/DeleteRecurring": [recurring_pb.DeleteRecurringRequest(name="s", if_revision=1)],
    "RecurringService/PauseRecurring": [recurring_pb.PauseRecurringRequest(name="s", if_revision=1)],
    "RecurringService/ResumeRecurring": [recurring_pb.ResumeRecurringRequest(name="s")],
    "RecurringService/TriggerRecurring": [recurring_pb.TriggerRecurringRequest(name="s", if_triggered=0)],
    "RecurringService/NextFires": [
        recurring_pb.NextFiresRequest(name="s", fires_max=9),
        recurring_pb.NextFiresRequest(spec=recurring_pb.RecurringSpec(cron="0 3 * * *"), after_ms=1),
    ],
    "PeerService/Meet": [peer_pb.MeetRequest(**PEER)],
    "PeerService/Recall": [peer_pb.RecallRequest(**PEER)],
    "PeerService/FetchSnapshot": [
        peer_pb.FetchSnapshotRequest(
            **PEER, kept=[peer_pb.SnapshotFile(name="checkpoint.bin", size_bytes=1)], level=HIGHEST
        )
    ],
    "RecordService/FetchRecords": [peer_pb.FetchRecordsRequest(**PEER, hour=498_611, global_index=[0])],
    "RecordService/FetchIndex": [peer_pb.FetchIndexRequest(**PEER, hour=498_611, count=9)],
    "RecordService/FetchReady": [peer_pb.FetchReadyRequest(**PEER, count=9)],
    "MembershipService/Leave": [peer_pb.LeaveRequest(cluster="tarry", node="n9")],
    "MembershipService/Join": [peer_pb.JoinRequest(cluster="tarry", node="n9", address="127.0.0.1:1")],
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    settings: Any = {"consensus": STEADY, "delivery": {"attempts_max": 2}, "dispatch": {"checkpoint_ms": 500}}
    with Disposable(3, tmp_path, settings) as three:
        three.start()
        three.wait_until_serving()
        yield three


def test_every_call_is_named_here() -> None:
    files = (producer_pb, consumer_pb, query_pb, operator_pb, recurring_pb, peer_pb)
    services = [one for file in files for one in file.DESCRIPTOR.services_by_name.values()]
    named = {f"{service.name}/{method.name}" for service in services for method in service.methods}
    assert named == set(VALID)


def test_absurd_requests_are_refused_by_type_and_leave_three_equal_nodes(cluster: LocalCluster) -> None:
    rng = random.Random(SEED)
    channels = [grpc.insecure_channel(node.address) for node in cluster.nodes.values()]
    told: Counter[str] = Counter()
    for _ in range(CALLS):
        path = rng.choice(list(VALID))
        requests = [wire(rng.choice, mutated(rng.choice, request)) for request in chosen(rng, path)]
        told[answered(rng.choice(channels), path, requests)] += 1
    for channel in channels:
        channel.close()
    assert told["OK"] > CALLS / 8
    assert all(node.running for node in cluster.nodes.values())
    wait_until_equal(cluster)
    for node in cluster.nodes.values():
        assert "Traceback" not in node.log.read_text(), node.log_tail(80)


def test_what_such_runs_have_found_is_refused_by_type(shared_cluster: LocalCluster) -> None:
    """A group without a name, an index beyond the ledger's, a name too long to repeat, half a request."""
    found: list[tuple[str, Message | bytes, str]] = [
        ("ConsumerService/Ack", consumer_pb.AckRequest(topic="found", offset=[0]), "GROUP_UNKNOWN"),
        (
            "OperatorService/ExportLedger",
            operator_pb.ExportLedgerRequest(from_index=2**64 - 1),
            "EXPORT_INVALID",
        ),
        ("OperatorService/Redrive", operator_pb.RedriveRequest(topic="x" * 20_000), "TOPIC_UNKNOWN"),
        ("PeerService/FetchSnapshot", b"\x0a\x01\xff", "INVALID_ARGUMENT"),
    ]
    with grpc.insecure_channel(shared_cluster.nodes[shared_cluster.wait_until_serving()].address) as channel:
        topic = operator_pb.CreateTopicRequest(topic="found").SerializeToString()
        assert answered(channel, "OperatorService/CreateTopic", [topic]) == "OK"
        for path, request, reason in found:
            raw = request if isinstance(request, bytes) else request.SerializeToString()
            assert answered(channel, path, [raw]) == reason


def chosen(rng: random.Random, path: str) -> list[Message]:
    """The requests of one call, valid ones."""
    valid = VALID[path]
    if path not in STREAMS:
        return [rng.choice(valid)]
    return [valid[0], *rng.choices(valid, k=rng.randrange(4))]


def answered(channel: grpc.Channel, path: str, requests: Sequence[bytes]) -> str:
    """Make a call; return OK, or the reason of its refusal, which must be one."""
    method, timeout = f"/tarry.v1.{path}", 0.3 if path in WAITS else CALL_S
    if path in ANSWERED_BY_STREAMS:
        timeout = PATIENCE_S  # read by a process of low priority
    try:
        if path in STREAMS:
            list(channel.stream_stream(method, None, None)(iter(requests), timeout=timeout))
        elif path in ANSWERED_BY_STREAMS:
            list(channel.unary_stream(method, None, None)(requests[0], timeout=timeout))
        else:
            channel.unary_unary(method, None, None)(requests[0], timeout=timeout)
    except grpc.RpcError as error:
        said = refusal(error)
        if said.code is grpc.StatusCode.DEADLINE_EXCEEDED and path in WAITS:
            return "WAITS"
        plain = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION}
        if not path.startswith(("ProducerService", "ConsumerService", "QueryService", "OperatorService")):
            plain.add(grpc.StatusCode.PERMISSION_DENIED)
        assert said.reason or said.code in plain, (path, requests, said)
        return said.reason or said.code.name
    return "OK"


def wait_until_equal(cluster: LocalCluster) -> None:
    ends = time.monotonic() + PATIENCE_S
    while True:
        stands = [(status.applied_index, status.state_digest) for status in cluster.statuses(digest=True)]
        if len(stands) == 3 and len(set(stands)) == 1:
            return
        assert time.monotonic() < ends, stands
        time.sleep(0.1)
