from tarry.proto import tarry_consumer_pb2 as _tarry_consumer_pb2
from tarry.proto import tarry_message_pb2 as _tarry_message_pb2
from tarry.proto import tarry_operator_pb2 as _tarry_operator_pb2
from tarry.proto import tarry_recurring_pb2 as _tarry_recurring_pb2
from tarry.proto import tarry_transaction_pb2 as _tarry_transaction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class RecurringChange(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RECURRING_CHANGE_UNSPECIFIED: _ClassVar[RecurringChange]
    RECURRING_CHANGE_PUT: _ClassVar[RecurringChange]
    RECURRING_CHANGE_DELETE: _ClassVar[RecurringChange]
    RECURRING_CHANGE_PAUSE: _ClassVar[RecurringChange]
    RECURRING_CHANGE_RESUME: _ClassVar[RecurringChange]

class GroupLife(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_LIFE_UNSPECIFIED: _ClassVar[GroupLife]
    GROUP_LIFE_EXPIRES: _ClassVar[GroupLife]
    GROUP_LIFE_TEMPORARY: _ClassVar[GroupLife]
RECURRING_CHANGE_UNSPECIFIED: RecurringChange
RECURRING_CHANGE_PUT: RecurringChange
RECURRING_CHANGE_DELETE: RecurringChange
RECURRING_CHANGE_PAUSE: RecurringChange
RECURRING_CHANGE_RESUME: RecurringChange
GROUP_LIFE_UNSPECIFIED: GroupLife
GROUP_LIFE_EXPIRES: GroupLife
GROUP_LIFE_TEMPORARY: GroupLife

class LogEntry(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, commands: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ScheduleColumns(_message.Message):
    __slots__ = ("producer", "sequence", "topics", "topic", "due_ms", "delay_ms", "delay_level", "tag_mask", "records", "jitter_ms", "born_ms", "durability")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    TAG_MASK_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    JITTER_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    producer: str
    sequence: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    topic: bytes
    due_ms: bytes
    delay_ms: bytes
    delay_level: bytes
    tag_mask: bytes
    records: _containers.RepeatedScalarFieldContainer[bytes]
    jitter_ms: bytes
    born_ms: int
    durability: _tarry_message_pb2.Durability
    def __init__(self, producer: _Optional[str] = ..., sequence: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., topic: _Optional[bytes] = ..., due_ms: _Optional[bytes] = ..., delay_ms: _Optional[bytes] = ..., delay_level: _Optional[bytes] = ..., tag_mask: _Optional[bytes] = ..., records: _Optional[_Iterable[bytes]] = ..., jitter_ms: _Optional[bytes] = ..., born_ms: _Optional[int] = ..., durability: _Optional[_Union[_tarry_message_pb2.Durability, str]] = ...) -> None: ...

class ScheduledColumns(_message.Message):
    __slots__ = ("shard", "hour", "global_index", "due_ms", "overdue", "repeated", "repeats")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    hour: bytes
    global_index: bytes
    due_ms: bytes
    overdue: bytes
    repeated: bool
    repeats: bytes
    def __init__(self, shard: _Optional[int] = ..., hour: _Optional[bytes] = ..., global_index: _Optional[bytes] = ..., due_ms: _Optional[bytes] = ..., overdue: _Optional[bytes] = ..., repeated: _Optional[bool] = ..., repeats: _Optional[bytes] = ...) -> None: ...

class ExportedColumns(_message.Message):
    __slots__ = ("head", "messages", "end")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    head: _tarry_operator_pb2.PendingHead
    messages: PendingColumns
    end: _tarry_operator_pb2.PendingEnd
    def __init__(self, head: _Optional[_Union[_tarry_operator_pb2.PendingHead, _Mapping]] = ..., messages: _Optional[_Union[PendingColumns, _Mapping]] = ..., end: _Optional[_Union[_tarry_operator_pb2.PendingEnd, _Mapping]] = ...) -> None: ...

class PendingColumns(_message.Message):
    __slots__ = ("topic", "hour", "global_index", "due_ms", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: bytes
    hour: bytes
    global_index: bytes
    due_ms: bytes
    records: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[bytes] = ..., hour: _Optional[bytes] = ..., global_index: _Optional[bytes] = ..., due_ms: _Optional[bytes] = ..., records: _Optional[_Iterable[bytes]] = ...) -> None: ...

class DeliveriesColumns(_message.Message):
    __slots__ = ("shard", "queue", "topic", "offset", "hour", "global_index", "due_ms", "released_ms", "attempt", "maybe_duplicate", "records", "stamp", "ordered", "delay_ms", "delivered_ms")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    RELEASED_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAYBE_DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    STAMP_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_MS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    queue: int
    topic: str
    offset: bytes
    hour: bytes
    global_index: bytes
    due_ms: bytes
    released_ms: bytes
    attempt: bytes
    maybe_duplicate: bytes
    records: _containers.RepeatedScalarFieldContainer[bytes]
    stamp: _tarry_consumer_pb2.DispatchStamp
    ordered: bool
    delay_ms: int
    delivered_ms: int
    def __init__(self, shard: _Optional[int] = ..., queue: _Optional[int] = ..., topic: _Optional[str] = ..., offset: _Optional[bytes] = ..., hour: _Optional[bytes] = ..., global_index: _Optional[bytes] = ..., due_ms: _Optional[bytes] = ..., released_ms: _Optional[bytes] = ..., attempt: _Optional[bytes] = ..., maybe_duplicate: _Optional[bytes] = ..., records: _Optional[_Iterable[bytes]] = ..., stamp: _Optional[_Union[_tarry_consumer_pb2.DispatchStamp, _Mapping]] = ..., ordered: _Optional[bool] = ..., delay_ms: _Optional[int] = ..., delivered_ms: _Optional[int] = ...) -> None: ...

class ConsumedColumns(_message.Message):
    __slots__ = ("subscribed", "deliveries", "acked")
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    subscribed: SubscribedColumns
    deliveries: DeliveriesColumns
    acked: AckedColumns
    def __init__(self, subscribed: _Optional[_Union[SubscribedColumns, _Mapping]] = ..., deliveries: _Optional[_Union[DeliveriesColumns, _Mapping]] = ..., acked: _Optional[_Union[AckedColumns, _Mapping]] = ...) -> None: ...

class SubscribedColumns(_message.Message):
    __slots__ = ("consumer", "lease_ms", "node", "term", "resumed", "incarnation")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    lease_ms: int
    node: str
    term: int
    resumed: _containers.RepeatedCompositeFieldContainer[HoldingColumns]
    incarnation: int
    def __init__(self, consumer: _Optional[str] = ..., lease_ms: _Optional[int] = ..., node: _Optional[str] = ..., term: _Optional[int] = ..., resumed: _Optional[_Iterable[_Union[HoldingColumns, _Mapping]]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class HoldingColumns(_message.Message):
    __slots__ = ("queue", "offset")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue: int
    offset: bytes
    def __init__(self, queue: _Optional[int] = ..., offset: _Optional[bytes] = ...) -> None: ...

class AckedColumns(_message.Message):
    __slots__ = ("request", "queue", "stale")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    request: int
    queue: int
    stale: bytes
    def __init__(self, request: _Optional[int] = ..., queue: _Optional[int] = ..., stale: _Optional[bytes] = ...) -> None: ...

class AckResponseColumns(_message.Message):
    __slots__ = ("stale",)
    STALE_FIELD_NUMBER: _ClassVar[int]
    stale: bytes
    def __init__(self, stale: _Optional[bytes] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("request", "batch")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    request: int
    batch: bytes
    def __init__(self, request: _Optional[int] = ..., batch: _Optional[bytes] = ...) -> None: ...

class StreamResponse(_message.Message):
    __slots__ = ("request", "accepted")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    request: int
    accepted: bytes
    def __init__(self, request: _Optional[int] = ..., accepted: _Optional[bytes] = ...) -> None: ...

class ReceivedColumns(_message.Message):
    __slots__ = ("deliveries", "incarnation")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[DeliveriesColumns]
    incarnation: int
    def __init__(self, deliveries: _Optional[_Iterable[_Union[DeliveriesColumns, _Mapping]]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class CheckedRecords(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[CheckedRecord]
    def __init__(self, records: _Optional[_Iterable[_Union[CheckedRecord, _Mapping]]] = ...) -> None: ...

class CheckedRecord(_message.Message):
    __slots__ = ("tags", "keys", "properties", "body", "ordering_key", "idempotency_key", "scheduled_digest")
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.RepeatedCompositeFieldContainer[CheckedProperty]
    body: bytes
    ordering_key: str
    idempotency_key: str
    scheduled_digest: bytes
    def __init__(self, tags: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Iterable[_Union[CheckedProperty, _Mapping]]] = ..., body: _Optional[bytes] = ..., ordering_key: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., scheduled_digest: _Optional[bytes] = ...) -> None: ...

class CheckedProperty(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: str
    def __init__(self, name: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...

class KeyedRecord(_message.Message):
    __slots__ = ("keys", "idempotency_key")
    KEYS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[bytes]
    idempotency_key: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, keys: _Optional[_Iterable[bytes]] = ..., idempotency_key: _Optional[_Iterable[bytes]] = ...) -> None: ...

class RecordBodies(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedCompositeFieldContainer[RecordBody]
    def __init__(self, records: _Optional[_Iterable[_Union[RecordBody, _Mapping]]] = ...) -> None: ...

class RecordBody(_message.Message):
    __slots__ = ("body",)
    BODY_FIELD_NUMBER: _ClassVar[int]
    body: bytes
    def __init__(self, body: _Optional[bytes] = ...) -> None: ...

class RecordColumn(_message.Message):
    __slots__ = ("records",)
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    records: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, records: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ScheduleCommand(_message.Message):
    __slots__ = ("now_ms", "request", "due_ms", "second_messages_max", "lane", "producers_max", "producer_silent_ms", "keys_noted", "key_message", "key_hash", "idempotent")
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    SECOND_MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_MAX_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    KEYS_NOTED_FIELD_NUMBER: _ClassVar[int]
    KEY_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    KEY_HASH_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    now_ms: int
    request: ScheduleColumns
    due_ms: bytes
    second_messages_max: int
    lane: bytes
    producers_max: int
    producer_silent_ms: int
    keys_noted: bool
    key_message: bytes
    key_hash: bytes
    idempotent: bool
    def __init__(self, now_ms: _Optional[int] = ..., request: _Optional[_Union[ScheduleColumns, _Mapping]] = ..., due_ms: _Optional[bytes] = ..., second_messages_max: _Optional[int] = ..., lane: _Optional[bytes] = ..., producers_max: _Optional[int] = ..., producer_silent_ms: _Optional[int] = ..., keys_noted: _Optional[bool] = ..., key_message: _Optional[bytes] = ..., key_hash: _Optional[bytes] = ..., idempotent: _Optional[bool] = ...) -> None: ...

class ReleaseCommand(_message.Message):
    __slots__ = ("until_ms", "count", "now_ms", "hour", "global_index")
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    until_ms: int
    count: int
    now_ms: int
    hour: bytes
    global_index: bytes
    def __init__(self, until_ms: _Optional[int] = ..., count: _Optional[int] = ..., now_ms: _Optional[int] = ..., hour: _Optional[bytes] = ..., global_index: _Optional[bytes] = ...) -> None: ...

class AckCommand(_message.Message):
    __slots__ = ("group", "queue", "offset", "now_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    queue: int
    offset: bytes
    now_ms: int
    def __init__(self, group: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[bytes] = ..., now_ms: _Optional[int] = ...) -> None: ...

class RetryCommand(_message.Message):
    __slots__ = ("group", "queue", "offset", "due_ms", "tag_mask", "records", "target_topic", "target_group", "now_ms", "reason", "lane", "dropped")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TAG_MASK_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    TARGET_TOPIC_FIELD_NUMBER: _ClassVar[int]
    TARGET_GROUP_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    group: str
    queue: int
    offset: bytes
    due_ms: bytes
    tag_mask: bytes
    records: _containers.RepeatedScalarFieldContainer[bytes]
    target_topic: str
    target_group: str
    now_ms: int
    reason: _tarry_message_pb2.RetryReason
    lane: bytes
    dropped: bool
    def __init__(self, group: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[bytes] = ..., due_ms: _Optional[bytes] = ..., tag_mask: _Optional[bytes] = ..., records: _Optional[_Iterable[bytes]] = ..., target_topic: _Optional[str] = ..., target_group: _Optional[str] = ..., now_ms: _Optional[int] = ..., reason: _Optional[_Union[_tarry_message_pb2.RetryReason, str]] = ..., lane: _Optional[bytes] = ..., dropped: _Optional[bool] = ...) -> None: ...

class TopicCommand(_message.Message):
    __slots__ = ("topic", "settings", "now_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    settings: _tarry_operator_pb2.TopicSettings
    now_ms: int
    def __init__(self, topic: _Optional[str] = ..., settings: _Optional[_Union[_tarry_operator_pb2.TopicSettings, _Mapping]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class DeleteTopicCommand(_message.Message):
    __slots__ = ("topic", "now_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    now_ms: int
    def __init__(self, topic: _Optional[str] = ..., now_ms: _Optional[int] = ...) -> None: ...

class DeleteGroupCommand(_message.Message):
    __slots__ = ("topic", "group", "now_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    now_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., now_ms: _Optional[int] = ...) -> None: ...

class GroupPolicyCommand(_message.Message):
    __slots__ = ("topic", "group", "policy", "unset", "now_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    policy: _tarry_operator_pb2.GroupPolicy
    unset: _containers.RepeatedScalarFieldContainer[str]
    now_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., policy: _Optional[_Union[_tarry_operator_pb2.GroupPolicy, _Mapping]] = ..., unset: _Optional[_Iterable[str]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class ClusterSettingsCommand(_message.Message):
    __slots__ = ("settings", "unset", "seed", "now_ms")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    settings: _tarry_operator_pb2.ClusterSettings
    unset: _containers.RepeatedScalarFieldContainer[str]
    seed: bool
    now_ms: int
    def __init__(self, settings: _Optional[_Union[_tarry_operator_pb2.ClusterSettings, _Mapping]] = ..., unset: _Optional[_Iterable[str]] = ..., seed: _Optional[bool] = ..., now_ms: _Optional[int] = ...) -> None: ...

class SeekCommand(_message.Message):
    __slots__ = ("topic", "group", "offset", "now_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    offset: int
    now_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., offset: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class TrimCommand(_message.Message):
    __slots__ = ("queue", "offset", "hour", "units", "now_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    queue: bytes
    offset: bytes
    hour: bytes
    units: bytes
    now_ms: int
    def __init__(self, queue: _Optional[bytes] = ..., offset: _Optional[bytes] = ..., hour: _Optional[bytes] = ..., units: _Optional[bytes] = ..., now_ms: _Optional[int] = ...) -> None: ...

class RaiseLevelCommand(_message.Message):
    __slots__ = ("level", "now_ms", "id_gap")
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    ID_GAP_FIELD_NUMBER: _ClassVar[int]
    level: int
    now_ms: int
    id_gap: int
    def __init__(self, level: _Optional[int] = ..., now_ms: _Optional[int] = ..., id_gap: _Optional[int] = ...) -> None: ...

class CancelCommand(_message.Message):
    __slots__ = ("hour", "global_index", "now_ms")
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    hour: bytes
    global_index: bytes
    now_ms: int
    def __init__(self, hour: _Optional[bytes] = ..., global_index: _Optional[bytes] = ..., now_ms: _Optional[int] = ...) -> None: ...

class RescheduleCommand(_message.Message):
    __slots__ = ("hour", "global_index", "place_hour", "place_index", "due_ms", "if_due_ms", "tag_mask", "records", "copies", "second_messages_max", "now_ms")
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    PLACE_HOUR_FIELD_NUMBER: _ClassVar[int]
    PLACE_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    IF_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TAG_MASK_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    SECOND_MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    hour: bytes
    global_index: bytes
    place_hour: bytes
    place_index: bytes
    due_ms: bytes
    if_due_ms: bytes
    tag_mask: bytes
    records: _containers.RepeatedScalarFieldContainer[bytes]
    copies: bool
    second_messages_max: int
    now_ms: int
    def __init__(self, hour: _Optional[bytes] = ..., global_index: _Optional[bytes] = ..., place_hour: _Optional[bytes] = ..., place_index: _Optional[bytes] = ..., due_ms: _Optional[bytes] = ..., if_due_ms: _Optional[bytes] = ..., tag_mask: _Optional[bytes] = ..., records: _Optional[_Iterable[bytes]] = ..., copies: _Optional[bool] = ..., second_messages_max: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class CancelReleasedCommand(_message.Message):
    __slots__ = ("queue", "offset", "hour", "global_index", "due_ms", "had_by", "now_ms")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    HAD_BY_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    queue: int
    offset: bytes
    hour: bytes
    global_index: bytes
    due_ms: bytes
    had_by: _containers.RepeatedScalarFieldContainer[str]
    now_ms: int
    def __init__(self, queue: _Optional[int] = ..., offset: _Optional[bytes] = ..., hour: _Optional[bytes] = ..., global_index: _Optional[bytes] = ..., due_ms: _Optional[bytes] = ..., had_by: _Optional[_Iterable[str]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class RecurringCommand(_message.Message):
    __slots__ = ("name", "change", "spec", "tag_mask", "lane", "paused", "if_revision", "schedules_max", "bytes_max", "now_ms", "record", "numbers", "topics")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CHANGE_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TAG_MASK_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    SCHEDULES_MAX_FIELD_NUMBER: _ClassVar[int]
    BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    name: str
    change: RecurringChange
    spec: bytes
    tag_mask: int
    lane: int
    paused: bool
    if_revision: int
    schedules_max: int
    bytes_max: int
    now_ms: int
    record: bytes
    numbers: _containers.RepeatedScalarFieldContainer[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, name: _Optional[str] = ..., change: _Optional[_Union[RecurringChange, str]] = ..., spec: _Optional[bytes] = ..., tag_mask: _Optional[int] = ..., lane: _Optional[int] = ..., paused: _Optional[bool] = ..., if_revision: _Optional[int] = ..., schedules_max: _Optional[int] = ..., bytes_max: _Optional[int] = ..., now_ms: _Optional[int] = ..., record: _Optional[bytes] = ..., numbers: _Optional[_Iterable[int]] = ..., topics: _Optional[_Iterable[str]] = ...) -> None: ...

class FireCommand(_message.Message):
    __slots__ = ("plans", "now_ms")
    PLANS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    plans: _containers.RepeatedCompositeFieldContainer[SchedulePlan]
    now_ms: int
    def __init__(self, plans: _Optional[_Iterable[_Union[SchedulePlan, _Mapping]]] = ..., now_ms: _Optional[int] = ...) -> None: ...

class SchedulePlan(_message.Message):
    __slots__ = ("number", "changes", "fires", "decided_ms", "next_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    FIRES_FIELD_NUMBER: _ClassVar[int]
    DECIDED_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    changes: int
    fires: _containers.RepeatedCompositeFieldContainer[PlannedFire]
    decided_ms: int
    next_ms: int
    def __init__(self, number: _Optional[int] = ..., changes: _Optional[int] = ..., fires: _Optional[_Iterable[_Union[PlannedFire, _Mapping]]] = ..., decided_ms: _Optional[int] = ..., next_ms: _Optional[int] = ...) -> None: ...

class PlannedFire(_message.Message):
    __slots__ = ("outcome", "fire_ms", "due_ms", "fires")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FIRE_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    FIRES_FIELD_NUMBER: _ClassVar[int]
    outcome: _tarry_recurring_pb2.FireOutcome
    fire_ms: int
    due_ms: int
    fires: int
    def __init__(self, outcome: _Optional[_Union[_tarry_recurring_pb2.FireOutcome, str]] = ..., fire_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., fires: _Optional[int] = ...) -> None: ...

class SubscribeCommand(_message.Message):
    __slots__ = ("topic", "group", "start", "now_ms", "life", "expiry_ms", "asked")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    ASKED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    start: _tarry_consumer_pb2.GroupStart
    now_ms: int
    life: GroupLife
    expiry_ms: int
    asked: bool
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., start: _Optional[_Union[_tarry_consumer_pb2.GroupStart, _Mapping]] = ..., now_ms: _Optional[int] = ..., life: _Optional[_Union[GroupLife, str]] = ..., expiry_ms: _Optional[int] = ..., asked: _Optional[bool] = ...) -> None: ...

class DispatchState(_message.Message):
    __slots__ = ("term", "tick", "local_index", "frontier_ms", "cursors", "now_ms", "sequence")
    TERM_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_MS_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    term: int
    tick: int
    local_index: int
    frontier_ms: int
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    now_ms: int
    sequence: int
    def __init__(self, term: _Optional[int] = ..., tick: _Optional[int] = ..., local_index: _Optional[int] = ..., frontier_ms: _Optional[int] = ..., cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ..., now_ms: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("group", "queue", "offset", "consumers", "doubtful", "leases")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    DOUBTFUL_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    group: str
    queue: int
    offset: int
    consumers: _containers.RepeatedScalarFieldContainer[str]
    doubtful: int
    leases: _containers.RepeatedCompositeFieldContainer[Lease]
    def __init__(self, group: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ..., consumers: _Optional[_Iterable[str]] = ..., doubtful: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[Lease, _Mapping]]] = ...) -> None: ...

class Lease(_message.Message):
    __slots__ = ("consumer", "offset", "until_ms")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    offset: bytes
    until_ms: bytes
    def __init__(self, consumer: _Optional[str] = ..., offset: _Optional[bytes] = ..., until_ms: _Optional[bytes] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("applied_index", "applied_term", "wheel", "queues", "groups", "producers", "blocked", "apply_version", "queue_proofs", "group_uses", "cancelled", "cluster", "keys_generation", "recurring", "recurring_number", "transactions", "transaction_number", "transaction_end")
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_TERM_FIELD_NUMBER: _ClassVar[int]
    WHEEL_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    APPLY_VERSION_FIELD_NUMBER: _ClassVar[int]
    QUEUE_PROOFS_FIELD_NUMBER: _ClassVar[int]
    GROUP_USES_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    KEYS_GENERATION_FIELD_NUMBER: _ClassVar[int]
    RECURRING_FIELD_NUMBER: _ClassVar[int]
    RECURRING_NUMBER_FIELD_NUMBER: _ClassVar[int]
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_NUMBER_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_END_FIELD_NUMBER: _ClassVar[int]
    applied_index: int
    applied_term: int
    wheel: bytes
    queues: _containers.RepeatedCompositeFieldContainer[QueueCheckpoint]
    groups: _containers.RepeatedCompositeFieldContainer[GroupCheckpoint]
    producers: _containers.RepeatedScalarFieldContainer[bytes]
    blocked: _containers.RepeatedCompositeFieldContainer[BlockedLane]
    apply_version: int
    queue_proofs: _containers.RepeatedCompositeFieldContainer[QueueProof]
    group_uses: _containers.RepeatedCompositeFieldContainer[GroupUse]
    cancelled: _containers.RepeatedCompositeFieldContainer[CancelledOffsets]
    cluster: ClusterCheckpoint
    keys_generation: int
    recurring: _containers.RepeatedScalarFieldContainer[bytes]
    recurring_number: int
    transactions: _containers.RepeatedScalarFieldContainer[bytes]
    transaction_number: int
    transaction_end: int
    def __init__(self, applied_index: _Optional[int] = ..., applied_term: _Optional[int] = ..., wheel: _Optional[bytes] = ..., queues: _Optional[_Iterable[_Union[QueueCheckpoint, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupCheckpoint, _Mapping]]] = ..., producers: _Optional[_Iterable[bytes]] = ..., blocked: _Optional[_Iterable[_Union[BlockedLane, _Mapping]]] = ..., apply_version: _Optional[int] = ..., queue_proofs: _Optional[_Iterable[_Union[QueueProof, _Mapping]]] = ..., group_uses: _Optional[_Iterable[_Union[GroupUse, _Mapping]]] = ..., cancelled: _Optional[_Iterable[_Union[CancelledOffsets, _Mapping]]] = ..., cluster: _Optional[_Union[ClusterCheckpoint, _Mapping]] = ..., keys_generation: _Optional[int] = ..., recurring: _Optional[_Iterable[bytes]] = ..., recurring_number: _Optional[int] = ..., transactions: _Optional[_Iterable[bytes]] = ..., transaction_number: _Optional[int] = ..., transaction_end: _Optional[int] = ...) -> None: ...

class RecurringCheckpoint(_message.Message):
    __slots__ = ("number", "name", "spec", "tag_mask", "lane", "revision", "changes", "paused", "created_ms", "changed_ms", "decided_ms", "next_ms", "waiting_ms", "fired_ms", "fired_before_ms", "record", "fired", "triggered", "skipped", "missed", "history", "has_last", "last_hour", "last_index", "last_due_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    TAG_MASK_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_MS_FIELD_NUMBER: _ClassVar[int]
    DECIDED_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_MS_FIELD_NUMBER: _ClassVar[int]
    FIRED_MS_FIELD_NUMBER: _ClassVar[int]
    FIRED_BEFORE_MS_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    HAS_LAST_FIELD_NUMBER: _ClassVar[int]
    LAST_HOUR_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    spec: bytes
    tag_mask: int
    lane: int
    revision: int
    changes: int
    paused: bool
    created_ms: int
    changed_ms: int
    decided_ms: int
    next_ms: int
    waiting_ms: int
    fired_ms: int
    fired_before_ms: int
    record: bytes
    fired: int
    triggered: int
    skipped: int
    missed: int
    history: _containers.RepeatedCompositeFieldContainer[FireCheckpoint]
    has_last: bool
    last_hour: int
    last_index: int
    last_due_ms: int
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., spec: _Optional[bytes] = ..., tag_mask: _Optional[int] = ..., lane: _Optional[int] = ..., revision: _Optional[int] = ..., changes: _Optional[int] = ..., paused: _Optional[bool] = ..., created_ms: _Optional[int] = ..., changed_ms: _Optional[int] = ..., decided_ms: _Optional[int] = ..., next_ms: _Optional[int] = ..., waiting_ms: _Optional[int] = ..., fired_ms: _Optional[int] = ..., fired_before_ms: _Optional[int] = ..., record: _Optional[bytes] = ..., fired: _Optional[int] = ..., triggered: _Optional[int] = ..., skipped: _Optional[int] = ..., missed: _Optional[int] = ..., history: _Optional[_Iterable[_Union[FireCheckpoint, _Mapping]]] = ..., has_last: _Optional[bool] = ..., last_hour: _Optional[int] = ..., last_index: _Optional[int] = ..., last_due_ms: _Optional[int] = ...) -> None: ...

class FireCheckpoint(_message.Message):
    __slots__ = ("outcome", "fire_ms", "hour", "global_index", "due_ms", "decided_ms", "fires")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FIRE_MS_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DECIDED_MS_FIELD_NUMBER: _ClassVar[int]
    FIRES_FIELD_NUMBER: _ClassVar[int]
    outcome: _tarry_recurring_pb2.FireOutcome
    fire_ms: int
    hour: int
    global_index: int
    due_ms: int
    decided_ms: int
    fires: int
    def __init__(self, outcome: _Optional[_Union[_tarry_recurring_pb2.FireOutcome, str]] = ..., fire_ms: _Optional[int] = ..., hour: _Optional[int] = ..., global_index: _Optional[int] = ..., due_ms: _Optional[int] = ..., decided_ms: _Optional[int] = ..., fires: _Optional[int] = ...) -> None: ...

class PrepareCommand(_message.Message):
    __slots__ = ("producer_group", "transaction", "topic", "record", "tag_mask", "lane", "due_ms", "delay_ms", "check_ms", "open_max", "second_messages_max", "now_ms", "born_ms")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    TAG_MASK_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    CHECK_MS_FIELD_NUMBER: _ClassVar[int]
    OPEN_MAX_FIELD_NUMBER: _ClassVar[int]
    SECOND_MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    transaction: str
    topic: str
    record: bytes
    tag_mask: int
    lane: int
    due_ms: int
    delay_ms: int
    check_ms: int
    open_max: int
    second_messages_max: int
    now_ms: int
    born_ms: int
    def __init__(self, producer_group: _Optional[str] = ..., transaction: _Optional[str] = ..., topic: _Optional[str] = ..., record: _Optional[bytes] = ..., tag_mask: _Optional[int] = ..., lane: _Optional[int] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., check_ms: _Optional[int] = ..., open_max: _Optional[int] = ..., second_messages_max: _Optional[int] = ..., now_ms: _Optional[int] = ..., born_ms: _Optional[int] = ...) -> None: ...

class EndCommand(_message.Message):
    __slots__ = ("number", "end", "place_hour", "place_index", "record", "ended_max", "now_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    PLACE_HOUR_FIELD_NUMBER: _ClassVar[int]
    PLACE_INDEX_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    ENDED_MAX_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    end: _tarry_transaction_pb2.TransactionEnd
    place_hour: int
    place_index: int
    record: bytes
    ended_max: int
    now_ms: int
    def __init__(self, number: _Optional[int] = ..., end: _Optional[_Union[_tarry_transaction_pb2.TransactionEnd, str]] = ..., place_hour: _Optional[int] = ..., place_index: _Optional[int] = ..., record: _Optional[bytes] = ..., ended_max: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class CheckCommand(_message.Message):
    __slots__ = ("offset", "checks", "ended_max", "now_ms", "hour", "global_index")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MAX_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    offset: bytes
    checks: _containers.RepeatedCompositeFieldContainer[PlannedCheck]
    ended_max: int
    now_ms: int
    hour: bytes
    global_index: bytes
    def __init__(self, offset: _Optional[bytes] = ..., checks: _Optional[_Iterable[_Union[PlannedCheck, _Mapping]]] = ..., ended_max: _Optional[int] = ..., now_ms: _Optional[int] = ..., hour: _Optional[bytes] = ..., global_index: _Optional[bytes] = ...) -> None: ...

class PlannedCheck(_message.Message):
    __slots__ = ("number", "place_hour", "place_index", "record", "due_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PLACE_HOUR_FIELD_NUMBER: _ClassVar[int]
    PLACE_INDEX_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    place_hour: int
    place_index: int
    record: bytes
    due_ms: int
    def __init__(self, number: _Optional[int] = ..., place_hour: _Optional[int] = ..., place_index: _Optional[int] = ..., record: _Optional[bytes] = ..., due_ms: _Optional[int] = ...) -> None: ...

class TransactionCheckpoint(_message.Message):
    __slots__ = ("number", "producer_group", "transaction", "topic", "state", "prepared_ms", "due_ms", "delay_ms", "tag_mask", "lane", "record_bytes", "record_crc", "queue", "place_hour", "place_index", "checks", "next_ms", "ended_ms", "end", "born_ms")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    TRANSACTION_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PREPARED_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    TAG_MASK_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    RECORD_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECORD_CRC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PLACE_HOUR_FIELD_NUMBER: _ClassVar[int]
    PLACE_INDEX_FIELD_NUMBER: _ClassVar[int]
    CHECKS_FIELD_NUMBER: _ClassVar[int]
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    number: int
    producer_group: str
    transaction: str
    topic: str
    state: _tarry_transaction_pb2.TransactionState
    prepared_ms: int
    due_ms: int
    delay_ms: int
    tag_mask: int
    lane: int
    record_bytes: int
    record_crc: int
    queue: int
    place_hour: int
    place_index: int
    checks: int
    next_ms: int
    ended_ms: int
    end: int
    born_ms: int
    def __init__(self, number: _Optional[int] = ..., producer_group: _Optional[str] = ..., transaction: _Optional[str] = ..., topic: _Optional[str] = ..., state: _Optional[_Union[_tarry_transaction_pb2.TransactionState, str]] = ..., prepared_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., tag_mask: _Optional[int] = ..., lane: _Optional[int] = ..., record_bytes: _Optional[int] = ..., record_crc: _Optional[int] = ..., queue: _Optional[int] = ..., place_hour: _Optional[int] = ..., place_index: _Optional[int] = ..., checks: _Optional[int] = ..., next_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., end: _Optional[int] = ..., born_ms: _Optional[int] = ...) -> None: ...

class ClusterCheckpoint(_message.Message):
    __slots__ = ("settings", "seeded")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SEEDED_FIELD_NUMBER: _ClassVar[int]
    settings: _tarry_operator_pb2.ClusterSettings
    seeded: bool
    def __init__(self, settings: _Optional[_Union[_tarry_operator_pb2.ClusterSettings, _Mapping]] = ..., seeded: _Optional[bool] = ...) -> None: ...

class CancelledOffsets(_message.Message):
    __slots__ = ("queue", "offsets")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSETS_FIELD_NUMBER: _ClassVar[int]
    queue: int
    offsets: bytes
    def __init__(self, queue: _Optional[int] = ..., offsets: _Optional[bytes] = ...) -> None: ...

class GroupUse(_message.Message):
    __slots__ = ("topic", "group", "used_ms", "life", "expiry_ms", "expired", "dropped")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    USED_MS_FIELD_NUMBER: _ClassVar[int]
    LIFE_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    used_ms: int
    life: GroupLife
    expiry_ms: int
    expired: int
    dropped: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., used_ms: _Optional[int] = ..., life: _Optional[_Union[GroupLife, str]] = ..., expiry_ms: _Optional[int] = ..., expired: _Optional[int] = ..., dropped: _Optional[int] = ...) -> None: ...

class WheelCheckpoint(_message.Message):
    __slots__ = ("hours", "cut_due_ms", "cut_global_index", "local_index", "floor_hour", "topics", "far", "moved", "id_gaps")
    HOURS_FIELD_NUMBER: _ClassVar[int]
    CUT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    CUT_GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    LOCAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    FLOOR_HOUR_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    FAR_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    ID_GAPS_FIELD_NUMBER: _ClassVar[int]
    hours: _containers.RepeatedCompositeFieldContainer[HourCheckpoint]
    cut_due_ms: int
    cut_global_index: int
    local_index: int
    floor_hour: int
    topics: _containers.RepeatedScalarFieldContainer[int]
    far: FarCheckpoint
    moved: _containers.RepeatedCompositeFieldContainer[MovedMessages]
    id_gaps: _containers.RepeatedCompositeFieldContainer[IdGap]
    def __init__(self, hours: _Optional[_Iterable[_Union[HourCheckpoint, _Mapping]]] = ..., cut_due_ms: _Optional[int] = ..., cut_global_index: _Optional[int] = ..., local_index: _Optional[int] = ..., floor_hour: _Optional[int] = ..., topics: _Optional[_Iterable[int]] = ..., far: _Optional[_Union[FarCheckpoint, _Mapping]] = ..., moved: _Optional[_Iterable[_Union[MovedMessages, _Mapping]]] = ..., id_gaps: _Optional[_Iterable[_Union[IdGap, _Mapping]]] = ...) -> None: ...

class IdGap(_message.Message):
    __slots__ = ("size", "hours", "units", "floor_hour")
    SIZE_FIELD_NUMBER: _ClassVar[int]
    HOURS_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    FLOOR_HOUR_FIELD_NUMBER: _ClassVar[int]
    size: int
    hours: bytes
    units: bytes
    floor_hour: int
    def __init__(self, size: _Optional[int] = ..., hours: _Optional[bytes] = ..., units: _Optional[bytes] = ..., floor_hour: _Optional[int] = ...) -> None: ...

class MovedMessages(_message.Message):
    __slots__ = ("ids", "places")
    IDS_FIELD_NUMBER: _ClassVar[int]
    PLACES_FIELD_NUMBER: _ClassVar[int]
    ids: bytes
    places: bytes
    def __init__(self, ids: _Optional[bytes] = ..., places: _Optional[bytes] = ...) -> None: ...

class FarCheckpoint(_message.Message):
    __slots__ = ("first", "segments", "dropped_hours")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_HOURS_FIELD_NUMBER: _ClassVar[int]
    first: int
    segments: _containers.RepeatedCompositeFieldContainer[FarSegmentCheckpoint]
    dropped_hours: bytes
    def __init__(self, first: _Optional[int] = ..., segments: _Optional[_Iterable[_Union[FarSegmentCheckpoint, _Mapping]]] = ..., dropped_hours: _Optional[bytes] = ...) -> None: ...

class FarSegmentCheckpoint(_message.Message):
    __slots__ = ("number", "log_bytes", "units", "index_crc", "cancelled")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    INDEX_CRC_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    number: int
    log_bytes: int
    units: int
    index_crc: int
    cancelled: bytes
    def __init__(self, number: _Optional[int] = ..., log_bytes: _Optional[int] = ..., units: _Optional[int] = ..., index_crc: _Optional[int] = ..., cancelled: _Optional[bytes] = ...) -> None: ...

class HourCheckpoint(_message.Message):
    __slots__ = ("hour", "log_bytes", "units", "index_crc", "slots_crc", "pending", "cancelled", "overtaken", "message_sum", "withdrawn")
    HOUR_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    INDEX_CRC_FIELD_NUMBER: _ClassVar[int]
    SLOTS_CRC_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    OVERTAKEN_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_SUM_FIELD_NUMBER: _ClassVar[int]
    WITHDRAWN_FIELD_NUMBER: _ClassVar[int]
    hour: int
    log_bytes: int
    units: int
    index_crc: int
    slots_crc: int
    pending: int
    cancelled: bytes
    overtaken: bytes
    message_sum: int
    withdrawn: bytes
    def __init__(self, hour: _Optional[int] = ..., log_bytes: _Optional[int] = ..., units: _Optional[int] = ..., index_crc: _Optional[int] = ..., slots_crc: _Optional[int] = ..., pending: _Optional[int] = ..., cancelled: _Optional[bytes] = ..., overtaken: _Optional[bytes] = ..., message_sum: _Optional[int] = ..., withdrawn: _Optional[bytes] = ...) -> None: ...

class QueueCheckpoint(_message.Message):
    __slots__ = ("queue", "topic", "group", "first", "units", "crc", "deleted", "settings", "misfires_dropped", "pace_anchor", "pace_at_us", "pace_catch_up_end", "policy", "letters")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    DELETED_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    MISFIRES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    PACE_ANCHOR_FIELD_NUMBER: _ClassVar[int]
    PACE_AT_US_FIELD_NUMBER: _ClassVar[int]
    PACE_CATCH_UP_END_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    queue: int
    topic: str
    group: str
    first: int
    units: int
    crc: int
    deleted: bool
    settings: _tarry_operator_pb2.TopicSettings
    misfires_dropped: int
    pace_anchor: int
    pace_at_us: int
    pace_catch_up_end: int
    policy: _tarry_operator_pb2.GroupPolicy
    letters: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queue: _Optional[int] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ..., first: _Optional[int] = ..., units: _Optional[int] = ..., crc: _Optional[int] = ..., deleted: _Optional[bool] = ..., settings: _Optional[_Union[_tarry_operator_pb2.TopicSettings, _Mapping]] = ..., misfires_dropped: _Optional[int] = ..., pace_anchor: _Optional[int] = ..., pace_at_us: _Optional[int] = ..., pace_catch_up_end: _Optional[int] = ..., policy: _Optional[_Union[_tarry_operator_pb2.GroupPolicy, _Mapping]] = ..., letters: _Optional[_Iterable[int]] = ...) -> None: ...

class QueueProof(_message.Message):
    __slots__ = ("queue", "base", "crcs")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    CRCS_FIELD_NUMBER: _ClassVar[int]
    queue: int
    base: int
    crcs: bytes
    def __init__(self, queue: _Optional[int] = ..., base: _Optional[int] = ..., crcs: _Optional[bytes] = ...) -> None: ...

class BlockedLane(_message.Message):
    __slots__ = ("queue", "lane", "hour", "global_index")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    queue: int
    lane: int
    hour: int
    global_index: int
    def __init__(self, queue: _Optional[int] = ..., lane: _Optional[int] = ..., hour: _Optional[int] = ..., global_index: _Optional[int] = ...) -> None: ...

class GroupCheckpoint(_message.Message):
    __slots__ = ("group", "queue", "floor", "acked")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    group: str
    queue: int
    floor: int
    acked: bytes
    def __init__(self, group: _Optional[str] = ..., queue: _Optional[int] = ..., floor: _Optional[int] = ..., acked: _Optional[bytes] = ...) -> None: ...

class ProducerCheckpoint(_message.Message):
    __slots__ = ("producer", "highest", "answers", "floor", "heard_ms")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    HIGHEST_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_FIELD_NUMBER: _ClassVar[int]
    producer: str
    highest: int
    answers: _containers.RepeatedScalarFieldContainer[bytes]
    floor: int
    heard_ms: int
    def __init__(self, producer: _Optional[str] = ..., highest: _Optional[int] = ..., answers: _Optional[_Iterable[bytes]] = ..., floor: _Optional[int] = ..., heard_ms: _Optional[int] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("sequence", "hours", "first", "which", "lengths")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    HOURS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    WHICH_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    hours: bytes
    first: bytes
    which: bytes
    lengths: bytes
    def __init__(self, sequence: _Optional[int] = ..., hours: _Optional[bytes] = ..., first: _Optional[bytes] = ..., which: _Optional[bytes] = ..., lengths: _Optional[bytes] = ...) -> None: ...
