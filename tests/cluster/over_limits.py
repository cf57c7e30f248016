"""For each call, a request just beyond each limit; how it is refused, and what the refusal says to do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf.message import Message

from tarry.node.config import Delivery
from tarry.node.edge import request_bytes
from tarry.node.recurring.timing import CRON_CHARS_MAX
from tarry.node.repair.records import ASKED_RECORDS_MAX
from tarry.node.services import transactions
from tarry.node.services.recurring import FIRES_MAX, PAGE_MAX
from tarry.node.services.subscriptions import NAME_CHARS_MAX, QUEUES_HELD_MAX
from tarry.node.services.topic_admin import RETENTION_MS_MAX
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto import tarry_peer_pb2 as peer_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto import tarry_recurring_pb2 as recurring_pb
from tarry.proto import tarry_transaction_pb2 as transaction_pb
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.snapshot.transfer import KEPT_FILES_MAX
from tarry.replication.state_machine.cluster_settings import DELAY_LEVELS_MAX
from tarry.replication.state_machine.group_policies import ATTEMPTS_MAX, TABLE_MAX, WAIT_MS_MAX
from tests.cluster.floods import delimited, tag
from tests.cluster.limit_play import LIMITS, TINY
from tests.cluster.limit_rows import CALLS

DELIVERY: Final = Delivery()
TOPIC: Final = "t" * (LIMITS.topic_chars_max + 1)
GROUP: Final = "g" * (LIMITS.group_chars_max + 1)
NAMES: Final[dict[str, Any]] = {"topic": "over", "group": "g", "consumer": "c"}
OFFSETS: Final = range(LIMITS.offsets_max + 1)
ID: Final = str(MessageId(0, 498_611, 0))


@dataclass(frozen=True, slots=True)
class Over:
    """One request, and its refusal."""

    path: str
    what: str
    request: bytes
    reason: str
    says: str

    @property
    def name(self) -> str:
        return f"{self.path.partition('/')[2]}, {self.what}"


def _schedules() -> Iterator[Over]:
    records = {
        "a body": (Record(body=bytes(LIMITS.body_bytes_max + 1)), "RECORD_TOO_LARGE", "keep it elsewhere"),
        "properties": (
            Record(properties={f"{number}": "" for number in range(LIMITS.properties_max + 1)}),
            "TOO_MANY_PROPERTIES",
            f"more than {LIMITS.properties_max}",
        ),
        "keys": (Record(keys=["k"] * (LIMITS.keys_max + 1)), "TOO_MANY_KEYS", f"more than {LIMITS.keys_max}"),
        "tags": (Record(tags=["t"] * (LIMITS.tags_max + 1)), "TOO_MANY_TAGS", f"more than {LIMITS.tags_max}"),
        "an ordering key": (
            Record(ordering_key="k" * (LIMITS.ordering_key_chars_max + 1)),
            "ORDERING_KEY_TOO_LONG",
            f"more than {LIMITS.ordering_key_chars_max}",
        ),
        "an idempotency key": (
            Record(idempotency_key="k" * (LIMITS.idempotency_key_chars_max + 1)),
            "IDEMPOTENCY_KEY_TOO_LONG",
            f"more than {LIMITS.idempotency_key_chars_max}",
        ),
    }
    for what, (record, reason, says) in records.items():
        one = producer_pb.ScheduleRequest(topic="over", record=record, delay_ms=1)
        yield _over("ProducerService/Schedule", what, one, reason, says)
        batch = _batch([record.SerializeToString()], delay_ms=[1])
        yield _over("ProducerService/ScheduleBatch", what, batch, reason, says)
    fields: dict[str, tuple[dict[str, Any], str, str]] = {
        "a topic": ({"topics": [TOPIC]}, "TOPIC_INVALID", "more than"),
        "a delay": ({"delay_ms": [LIMITS.due_horizon_ms + 1]}, "DUE_TOO_FAR", f"{LIMITS.due_horizon_ms}"),
        "a jitter": ({"jitter_ms": [LIMITS.jitter_ms_max + 1]}, "JITTER_TOO_LARGE", "more than"),
    }
    for what, (given, reason, says) in fields.items():
        batch = _batch([TINY], **{"delay_ms": [1], **given})
        yield _over("ProducerService/ScheduleBatch", what, batch, reason, says)
    many = LIMITS.batch_topics_max + 1
    batch = _batch(
        [TINY] * many, delay_ms=[1] * many, topics=[f"{n}" for n in range(many)], topic=range(many)
    )
    yield _over("ProducerService/ScheduleBatch", "topics", batch, "BATCH_TOO_LARGE", "split it")
    many = LIMITS.batch_messages_max + 1
    batch = _batch([TINY] * many, delay_ms=[1] * many)
    yield _over("ProducerService/ScheduleBatch", "messages", batch, "BATCH_TOO_LARGE", "split it")


def _batch(records: list[bytes], **fields: Any) -> producer_pb.ScheduleBatchRequest:
    return producer_pb.ScheduleBatchRequest(**{"topics": ["over"], "records": records, **fields})


def _consumers() -> Iterator[Over]:
    lease = {"lease_ms": DELIVERY.lease_ms_max + 1}
    split, within = "split the request", f"to {DELIVERY.lease_ms_max}"
    tags = [f"{number}" for number in range(LIMITS.filter_tags_max + 1)]
    many_tags = f"more than {LIMITS.filter_tags_max}"
    topics = [f"t{number}*" for number in range(LIMITS.subscribed_topics_max + 1)]
    condition = "a = 1"
    filters = {
        "a filter's characters": (condition.ljust(LIMITS.filter_chars_max + 1), LIMITS.filter_chars_max),
        "a filter's comparisons": (
            " OR ".join([condition] * (LIMITS.filter_tests_max + 1)),
            LIMITS.filter_tests_max,
        ),
        "a filter's depth": (
            "NOT " * (LIMITS.filter_depth_max + 1) + condition,
            LIMITS.filter_depth_max,
        ),
    }
    by_properties: dict[str, tuple[dict[str, Any], str, str]] = {
        what: ({"filter": text}, "FILTER_INVALID", f"more than {most}")
        for what, (text, most) in filters.items()
    }
    many_topics = f"more than {LIMITS.subscribed_topics_max}"
    path = "ConsumerService/Receive"
    receives: dict[str, tuple[dict[str, Any], str, str]] = {
        "messages": ({"messages_max": DELIVERY.batch_messages_max + 1}, "RECEIVE_INVALID", "at most"),
        "a wait": ({"wait_ms": DELIVERY.wait_ms_max + 1}, "RECEIVE_INVALID", "at most"),
        "a consumer": ({"consumer": "c" * (NAME_CHARS_MAX + 1)}, "CONSUMER_INVALID", "more than"),
        "a group": ({"group": GROUP}, "GROUP_INVALID", "more than"),
        "a lease": (lease, "LEASE_INVALID", within),
        "tags": ({"tags": tags}, "TOO_MANY_TAGS", many_tags),
        "topics": ({"topic": "", "topics": topics}, "TOO_MANY_TOPICS", many_topics),
        **by_properties,
    }
    for what, (given, reason, says) in receives.items():
        yield _over(path, what, consumer_pb.ReceiveRequest(**{**NAMES, **given}), reason, says)
    path = "ConsumerService/Consume"
    holding = [consumer_pb.Holding(queue=queue) for queue in range(QUEUES_HELD_MAX + 1)]
    subscribes: dict[str, tuple[dict[str, Any], str, str]] = {
        "credit": ({"credit": LIMITS.credit_max + 1}, "CREDIT_INVALID", "ask for less"),
        "offsets": ({"holding": [consumer_pb.Holding(offset=OFFSETS)]}, "TOO_MANY_OFFSETS", split),
        "queues": ({"holding": holding}, "TOO_MANY_OFFSETS", "a topic has two"),
        "a lease": (lease, "LEASE_INVALID", within),
        "tags": ({"tags": tags}, "TOO_MANY_TAGS", many_tags),
        "topics": ({"topic": "", "topics": topics}, "TOO_MANY_TOPICS", many_topics),
        **by_properties,
    }
    for what, (given, reason, says) in subscribes.items():
        subscribe = consumer_pb.Subscribe(**{**NAMES, "credit": 1, **given})
        yield _over(path, what, consumer_pb.ConsumeRequest(subscribe=subscribe), reason, says)


def _operators() -> Iterator[Over]:
    settings = {
        "a retention": operator_pb.TopicSettings(retention_ms=RETENTION_MS_MAX + 1),
        "bodies": operator_pb.TopicSettings(body_bytes_max=LIMITS.body_bytes_max + 1),
    }
    for what, given in settings.items():
        request = operator_pb.CreateTopicRequest(topic="over", settings=given)
        yield _over("OperatorService/CreateTopic", what, request, "SETTING_INVALID", "at most")
    for name in ("CreateTopic", "DescribeTopic", "DeleteTopic"):
        request = getattr(operator_pb, f"{name}Request")(topic=TOPIC)
        yield _over(f"OperatorService/{name}", "a topic", request, "TOPIC_INVALID", "more than")
    table = operator_pb.BackOffTable(wait_ms=[1] * (TABLE_MAX + 1))
    policies = {
        "attempts": (operator_pb.GroupPolicy(attempts_max=ATTEMPTS_MAX + 1), f"is 1 to {ATTEMPTS_MAX}"),
        "a lease": (operator_pb.GroupPolicy(lease_ms=DELIVERY.lease_ms_max + 1), "is not within"),
        "a wait": (operator_pb.GroupPolicy(back_off={"fixed_ms": WAIT_MS_MAX + 1}), f"{WAIT_MS_MAX} ms"),
        "waits": (operator_pb.GroupPolicy(back_off={"table": table}), f"{TABLE_MAX} waits at most"),
    }
    for what, (policy, says) in policies.items():
        cluster = operator_pb.SetClusterRequest(settings=operator_pb.ClusterSettings(group_policy=policy))
        yield _over("OperatorService/SetCluster", what, cluster, "SETTING_INVALID", says)
        own = operator_pb.SetGroupRequest(topic="over", group="g", policy=policy)
        yield _over("OperatorService/SetGroup", what, own, "SETTING_INVALID", says)
        shaped = operator_pb.TopicSettings(group_policy=policy)
        of_topic = operator_pb.CreateTopicRequest(topic="over", settings=shaped)
        yield _over("OperatorService/CreateTopic", f"{what} of groups", of_topic, "SETTING_INVALID", says)
    levels = operator_pb.DelayLevels(delay_ms=[1] * (DELAY_LEVELS_MAX + 1))
    longer = operator_pb.SetClusterRequest(settings=operator_pb.ClusterSettings(delay_levels=levels))
    says = f"1 to {DELAY_LEVELS_MAX} delays"
    yield _over("OperatorService/SetCluster", "delay levels", longer, "SETTING_INVALID", says)
    for name in ("CreateGroup", "DeleteGroup", "SetGroup", "DescribeGroup", "SeekGroup"):
        request = getattr(operator_pb, f"{name}Request")(topic="over", group=GROUP)
        yield _over(f"OperatorService/{name}", "a group", request, "GROUP_INVALID", "more than")


def _others() -> Iterator[Over]:
    ids = producer_pb.CancelRequest(ids=[ID] * (LIMITS.cancel_ids_max + 1))
    says = f"give 1 to {LIMITS.cancel_ids_max}"
    yield _over("ProducerService/Cancel", "ids", ids, "BATCH_TOO_LARGE", says)
    moved = producer_pb.RescheduleRequest(ids=[ID] * (LIMITS.reschedule_ids_max + 1), delay_ms=[1])
    says = f"give 1 to {LIMITS.reschedule_ids_max}"
    yield _over("ProducerService/Reschedule", "ids", moved, "BATCH_TOO_LARGE", says)
    update = producer_pb.UpdateRequest(id=ID)
    yield _over("ProducerService/Update", "parts", update, "REQUEST_EMPTY", "give a body")
    numbers = range(ASKED_RECORDS_MAX + 1)
    fetch = peer_pb.FetchRecordsRequest(cluster="tarry", node="n2", hour=1, global_index=numbers)
    yield _over("RecordService/FetchRecords", "records", fetch, "", f"{ASKED_RECORDS_MAX} at most")
    kept = [peer_pb.SnapshotFile(size_bytes=1)] * (KEPT_FILES_MAX + 1)
    snapshot = peer_pb.FetchSnapshotRequest(cluster="tarry", node="n2", kept=kept)
    yield _over("PeerService/FetchSnapshot", "files", snapshot, "", f"{KEPT_FILES_MAX} at most")
    files = [operator_pb.BackupFile(size_bytes=1)] * (KEPT_FILES_MAX + 1)
    backup = operator_pb.BackupRequest(kept=files)
    yield _over("OperatorService/Backup", "files", backup, "BATCH_TOO_LARGE", f"{KEPT_FILES_MAX} at most")
    clients = request_bytes.of_clients(LIMITS)
    for path in CALLS:
        client = not path.startswith(("PeerService", "RecordService", "MembershipService"))
        most = clients(path) if client else request_bytes.of_nodes(path)
        unknown = delimited(1_000, bytes(most + 1 - len(tag(1_000, 2)) - 4))
        yield Over(path, "bytes", unknown + bytes(4), "BATCH_TOO_LARGE", "split it")


def _over(path: str, what: str, request: Message, reason: str, says: str) -> Over:
    return Over(path, what, request.SerializeToString(), reason, says)


def _recurring() -> Iterator[Over]:
    says, every = f"more than {LIMITS.topic_chars_max}", {"interval_ms": 60_000, "topic": "over"}
    for kind in (
        recurring_pb.GetRecurringRequest,
        recurring_pb.DeleteRecurringRequest,
        recurring_pb.PauseRecurringRequest,
        recurring_pb.ResumeRecurringRequest,
        recurring_pb.TriggerRecurringRequest,
    ):
        path = f"RecurringService/{kind.DESCRIPTOR.name.removesuffix('Request')}"
        yield _over(path, "a name", kind(name=TOPIC), "RECURRING_INVALID", says)
    specs: dict[str, tuple[dict[str, Any], str, str]] = {
        "an interval": (
            {"interval_ms": LIMITS.recurring_interval_ms_min - 1},
            "RECURRING_INVALID",
            f"give {LIMITS.recurring_interval_ms_min} at least",
        ),
        "a jitter": ({"jitter_ms": LIMITS.jitter_ms_max + 1}, "JITTER_TOO_LARGE", "more than"),
        "a topic": ({"topic": TOPIC}, "TOPIC_INVALID", "more than"),
        "a body": ({"record": Record(body=bytes(LIMITS.body_bytes_max + 1))}, "RECORD_TOO_LARGE", "keep it"),
    }
    path = "RecurringService/PutRecurring"
    for what, (given, reason, told) in specs.items():
        spec = recurring_pb.RecurringSpec(**{**every, **given})
        yield _over(path, what, recurring_pb.PutRecurringRequest(name="s", spec=spec), reason, told)
    crons = {
        "a cron expression": ("*" * (CRON_CHARS_MAX + 1), f"at most {CRON_CHARS_MAX}"),
        "what never comes": ("0 0 */31 * 1#2", "within ten years"),
    }
    for what, (text, told) in crons.items():
        spec = recurring_pb.RecurringSpec(topic="over", cron=text)
        request = recurring_pb.PutRecurringRequest(name="s", spec=spec)
        yield _over(path, what, request, "RECURRING_INVALID", told)
    page = recurring_pb.ListRecurringRequest(page_size=PAGE_MAX + 1)
    yield _over(
        "RecurringService/ListRecurring", "a page", page, "RECURRING_INVALID", f"ask for {PAGE_MAX} at most"
    )
    many = recurring_pb.NextFiresRequest(name="s", fires_max=FIRES_MAX + 1)
    yield _over(
        "RecurringService/NextFires", "fires", many, "RECURRING_INVALID", f"ask for {FIRES_MAX} fires at most"
    )


def _transactions() -> Iterator[Over]:
    invalid, commit = "TRANSACTION_INVALID", transaction_pb.TRANSACTION_END_COMMIT
    asked: dict[str, Any] = {"producer_group": "over", "transaction": "t"}
    path, says = "ProducerService/Prepare", f"more than {transactions.NAME_CHARS_MAX}"
    long = {**asked, "transaction": "n" * (transactions.NAME_CHARS_MAX + 1)}
    times: dict[str, Any] = {"topic": "over", "delay_ms": 0}
    yield _over(path, "a name", transaction_pb.PrepareRequest(**long, **times), invalid, says)
    later = transaction_pb.PrepareRequest(
        **asked, **times, check_after_ms=transactions.CHECK_AFTER_MS_MAX + 1
    )
    yield _over(path, "a first check", later, invalid, "at most")
    body = Record(body=bytes(LIMITS.body_bytes_max + 1))
    large = transaction_pb.PrepareRequest(**asked, **times, record=body)
    yield _over(path, "a body", large, "RECORD_TOO_LARGE", "keep it")
    path = "ProducerService/EndTransaction"
    yield _over(path, "a name", transaction_pb.EndTransactionRequest(**long, end=commit), invalid, says)
    page = transaction_pb.ListTransactionsRequest(page_size=transactions.PAGE_MAX + 1)
    says = f"ask for {transactions.PAGE_MAX} at most"
    yield _over("ProducerService/ListTransactions", "a page", page, invalid, says)


OVER: Final = [*_schedules(), *_consumers(), *_operators(), *_others(), *_recurring(), *_transactions()]
