from tarry.proto import tarry_consumer_pb2 as _tarry_consumer_pb2
from tarry.proto import tarry_message_pb2 as _tarry_message_pb2
from tarry.proto import tarry_query_pb2 as _tarry_query_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class MisfirePolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISFIRE_POLICY_UNSPECIFIED: _ClassVar[MisfirePolicy]
    MISFIRE_POLICY_DROP: _ClassVar[MisfirePolicy]
    MISFIRE_POLICY_DEAD_LETTER: _ClassVar[MisfirePolicy]
    MISFIRE_POLICY_CATCH_UP: _ClassVar[MisfirePolicy]
MISFIRE_POLICY_UNSPECIFIED: MisfirePolicy
MISFIRE_POLICY_DROP: MisfirePolicy
MISFIRE_POLICY_DEAD_LETTER: MisfirePolicy
MISFIRE_POLICY_CATCH_UP: MisfirePolicy

class ReadAuditRequest(_message.Message):
    __slots__ = ("cursor", "from_ms", "to_ms", "token", "method", "lines_max")
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    LINES_MAX_FIELD_NUMBER: _ClassVar[int]
    cursor: str
    from_ms: int
    to_ms: int
    token: str
    method: str
    lines_max: int
    def __init__(self, cursor: _Optional[str] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., token: _Optional[str] = ..., method: _Optional[str] = ..., lines_max: _Optional[int] = ...) -> None: ...

class ReadAuditResponse(_message.Message):
    __slots__ = ("node", "has_audit", "lines", "cursor", "looked_to_ms", "unreadable")
    NODE_FIELD_NUMBER: _ClassVar[int]
    HAS_AUDIT_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LOOKED_TO_MS_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    node: str
    has_audit: bool
    lines: _containers.RepeatedScalarFieldContainer[str]
    cursor: str
    looked_to_ms: int
    unreadable: int
    def __init__(self, node: _Optional[str] = ..., has_audit: _Optional[bool] = ..., lines: _Optional[_Iterable[str]] = ..., cursor: _Optional[str] = ..., looked_to_ms: _Optional[int] = ..., unreadable: _Optional[int] = ...) -> None: ...

class ExportPendingRequest(_message.Message):
    __slots__ = ("topics", "due_from_ms", "due_to_ms", "index_min")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    DUE_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_TO_MS_FIELD_NUMBER: _ClassVar[int]
    INDEX_MIN_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    due_from_ms: int
    due_to_ms: int
    index_min: int
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., due_from_ms: _Optional[int] = ..., due_to_ms: _Optional[int] = ..., index_min: _Optional[int] = ...) -> None: ...

class ExportPendingResponse(_message.Message):
    __slots__ = ("head", "messages", "end")
    HEAD_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    head: PendingHead
    messages: PendingMessages
    end: PendingEnd
    def __init__(self, head: _Optional[_Union[PendingHead, _Mapping]] = ..., messages: _Optional[_Union[PendingMessages, _Mapping]] = ..., end: _Optional[_Union[PendingEnd, _Mapping]] = ...) -> None: ...

class PendingHead(_message.Message):
    __slots__ = ("cluster", "node", "version", "shard", "index", "now_ms", "topics", "pending")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    version: str
    shard: int
    index: int
    now_ms: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    pending: int
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., version: _Optional[str] = ..., shard: _Optional[int] = ..., index: _Optional[int] = ..., now_ms: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., pending: _Optional[int] = ...) -> None: ...

class PendingMessages(_message.Message):
    __slots__ = ("topic", "hour", "global_index", "due_ms", "records")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    topic: _containers.RepeatedScalarFieldContainer[int]
    hour: _containers.RepeatedScalarFieldContainer[int]
    global_index: _containers.RepeatedScalarFieldContainer[int]
    due_ms: _containers.RepeatedScalarFieldContainer[int]
    records: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, topic: _Optional[_Iterable[int]] = ..., hour: _Optional[_Iterable[int]] = ..., global_index: _Optional[_Iterable[int]] = ..., due_ms: _Optional[_Iterable[int]] = ..., records: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PendingEnd(_message.Message):
    __slots__ = ("messages", "retries", "unreadable", "unreadable_ids", "half_messages")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_IDS_FIELD_NUMBER: _ClassVar[int]
    HALF_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    retries: int
    unreadable: int
    unreadable_ids: _containers.RepeatedScalarFieldContainer[str]
    half_messages: int
    def __init__(self, messages: _Optional[int] = ..., retries: _Optional[int] = ..., unreadable: _Optional[int] = ..., unreadable_ids: _Optional[_Iterable[str]] = ..., half_messages: _Optional[int] = ...) -> None: ...

class BackupRequest(_message.Message):
    __slots__ = ("kept", "index_min")
    KEPT_FIELD_NUMBER: _ClassVar[int]
    INDEX_MIN_FIELD_NUMBER: _ClassVar[int]
    kept: _containers.RepeatedCompositeFieldContainer[BackupFile]
    index_min: int
    def __init__(self, kept: _Optional[_Iterable[_Union[BackupFile, _Mapping]]] = ..., index_min: _Optional[int] = ...) -> None: ...

class BackupResponse(_message.Message):
    __slots__ = ("manifest", "chunk")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    manifest: BackupManifest
    chunk: BackupChunk
    def __init__(self, manifest: _Optional[_Union[BackupManifest, _Mapping]] = ..., chunk: _Optional[_Union[BackupChunk, _Mapping]] = ...) -> None: ...

class BackupManifest(_message.Message):
    __slots__ = ("cluster", "node", "version", "shard", "index", "term", "chain", "now_ms", "digest", "files")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    version: str
    shard: int
    index: int
    term: int
    chain: int
    now_ms: int
    digest: bytes
    files: _containers.RepeatedCompositeFieldContainer[BackupFile]
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., version: _Optional[str] = ..., shard: _Optional[int] = ..., index: _Optional[int] = ..., term: _Optional[int] = ..., chain: _Optional[int] = ..., now_ms: _Optional[int] = ..., digest: _Optional[bytes] = ..., files: _Optional[_Iterable[_Union[BackupFile, _Mapping]]] = ...) -> None: ...

class BackupFile(_message.Message):
    __slots__ = ("name", "size_bytes", "crc32c")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    name: str
    size_bytes: int
    crc32c: int
    def __init__(self, name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class BackupChunk(_message.Message):
    __slots__ = ("file", "offset", "data", "crc32c")
    FILE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    file: int
    offset: int
    data: bytes
    crc32c: int
    def __init__(self, file: _Optional[int] = ..., offset: _Optional[int] = ..., data: _Optional[bytes] = ..., crc32c: _Optional[int] = ...) -> None: ...

class ExportLedgerRequest(_message.Message):
    __slots__ = ("resume", "from_ms", "to_ms", "from_index", "to_index", "kinds", "open", "rows_max")
    RESUME_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    TO_MS_FIELD_NUMBER: _ClassVar[int]
    FROM_INDEX_FIELD_NUMBER: _ClassVar[int]
    TO_INDEX_FIELD_NUMBER: _ClassVar[int]
    KINDS_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ROWS_MAX_FIELD_NUMBER: _ClassVar[int]
    resume: str
    from_ms: int
    to_ms: int
    from_index: int
    to_index: int
    kinds: _containers.RepeatedScalarFieldContainer[str]
    open: bool
    rows_max: int
    def __init__(self, resume: _Optional[str] = ..., from_ms: _Optional[int] = ..., to_ms: _Optional[int] = ..., from_index: _Optional[int] = ..., to_index: _Optional[int] = ..., kinds: _Optional[_Iterable[str]] = ..., open: _Optional[bool] = ..., rows_max: _Optional[int] = ...) -> None: ...

class ExportLedgerResponse(_message.Message):
    __slots__ = ("segment", "rows", "count", "resume")
    SEGMENT_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    segment: str
    rows: bytes
    count: int
    resume: str
    def __init__(self, segment: _Optional[str] = ..., rows: _Optional[bytes] = ..., count: _Optional[int] = ..., resume: _Optional[str] = ...) -> None: ...

class AddMemberRequest(_message.Message):
    __slots__ = ("node", "address", "deadline_ms")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    deadline_ms: int
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class RemoveMemberRequest(_message.Message):
    __slots__ = ("node",)
    NODE_FIELD_NUMBER: _ClassVar[int]
    node: str
    def __init__(self, node: _Optional[str] = ...) -> None: ...

class MembersResponse(_message.Message):
    __slots__ = ("members",)
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    members: _containers.RepeatedCompositeFieldContainer[Member]
    def __init__(self, members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ...) -> None: ...

class FinishUpgradeRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FinishUpgradeResponse(_message.Message):
    __slots__ = ("level",)
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    level: int
    def __init__(self, level: _Optional[int] = ...) -> None: ...

class TopicSettings(_message.Message):
    __slots__ = ("retention_ms", "body_bytes_max", "release_per_s_max", "pending_max", "misfire", "misfire_after_ms", "catch_up_per_s_max", "retention_bytes", "retention_max_ms", "group_policy")
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    RELEASE_PER_S_MAX_FIELD_NUMBER: _ClassVar[int]
    PENDING_MAX_FIELD_NUMBER: _ClassVar[int]
    MISFIRE_FIELD_NUMBER: _ClassVar[int]
    MISFIRE_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_PER_S_MAX_FIELD_NUMBER: _ClassVar[int]
    RETENTION_BYTES_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MAX_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_POLICY_FIELD_NUMBER: _ClassVar[int]
    retention_ms: int
    body_bytes_max: int
    release_per_s_max: int
    pending_max: int
    misfire: MisfirePolicy
    misfire_after_ms: int
    catch_up_per_s_max: int
    retention_bytes: int
    retention_max_ms: int
    group_policy: GroupPolicy
    def __init__(self, retention_ms: _Optional[int] = ..., body_bytes_max: _Optional[int] = ..., release_per_s_max: _Optional[int] = ..., pending_max: _Optional[int] = ..., misfire: _Optional[_Union[MisfirePolicy, str]] = ..., misfire_after_ms: _Optional[int] = ..., catch_up_per_s_max: _Optional[int] = ..., retention_bytes: _Optional[int] = ..., retention_max_ms: _Optional[int] = ..., group_policy: _Optional[_Union[GroupPolicy, _Mapping]] = ...) -> None: ...

class ClusterSettings(_message.Message):
    __slots__ = ("group_policy", "retention_ms", "group_expiry_ms", "temporary_group_ms", "delay_levels", "idempotency_window_ms", "durability", "flush_ms")
    GROUP_POLICY_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_GROUP_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVELS_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MS_FIELD_NUMBER: _ClassVar[int]
    group_policy: GroupPolicy
    retention_ms: int
    group_expiry_ms: int
    temporary_group_ms: int
    delay_levels: DelayLevels
    idempotency_window_ms: int
    durability: _tarry_message_pb2.Durability
    flush_ms: int
    def __init__(self, group_policy: _Optional[_Union[GroupPolicy, _Mapping]] = ..., retention_ms: _Optional[int] = ..., group_expiry_ms: _Optional[int] = ..., temporary_group_ms: _Optional[int] = ..., delay_levels: _Optional[_Union[DelayLevels, _Mapping]] = ..., idempotency_window_ms: _Optional[int] = ..., durability: _Optional[_Union[_tarry_message_pb2.Durability, str]] = ..., flush_ms: _Optional[int] = ...) -> None: ...

class DelayLevels(_message.Message):
    __slots__ = ("delay_ms",)
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    delay_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, delay_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupPolicy(_message.Message):
    __slots__ = ("attempts_max", "back_off", "lease_ms", "dead_letter_topic", "dead_letter_retention_ms", "delivery_per_s_max", "delay_ms")
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    BACK_OFF_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    DELIVERY_PER_S_MAX_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    attempts_max: int
    back_off: BackOff
    lease_ms: int
    dead_letter_topic: str
    dead_letter_retention_ms: int
    delivery_per_s_max: int
    delay_ms: int
    def __init__(self, attempts_max: _Optional[int] = ..., back_off: _Optional[_Union[BackOff, _Mapping]] = ..., lease_ms: _Optional[int] = ..., dead_letter_topic: _Optional[str] = ..., dead_letter_retention_ms: _Optional[int] = ..., delivery_per_s_max: _Optional[int] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class BackOff(_message.Message):
    __slots__ = ("fixed_ms", "exponential", "table")
    FIXED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPONENTIAL_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    fixed_ms: int
    exponential: ExponentialBackOff
    table: BackOffTable
    def __init__(self, fixed_ms: _Optional[int] = ..., exponential: _Optional[_Union[ExponentialBackOff, _Mapping]] = ..., table: _Optional[_Union[BackOffTable, _Mapping]] = ...) -> None: ...

class ExponentialBackOff(_message.Message):
    __slots__ = ("first_ms", "max_ms", "factor_percent")
    FIRST_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    FACTOR_PERCENT_FIELD_NUMBER: _ClassVar[int]
    first_ms: int
    max_ms: int
    factor_percent: int
    def __init__(self, first_ms: _Optional[int] = ..., max_ms: _Optional[int] = ..., factor_percent: _Optional[int] = ...) -> None: ...

class BackOffTable(_message.Message):
    __slots__ = ("wait_ms",)
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    wait_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, wait_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("topic", "settings")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    settings: TopicSettings
    def __init__(self, topic: _Optional[str] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DescribeTopicResponse(_message.Message):
    __slots__ = ("topic", "settings", "policy", "retention_ms", "set_by")
    class SetByEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    RETENTION_MS_FIELD_NUMBER: _ClassVar[int]
    SET_BY_FIELD_NUMBER: _ClassVar[int]
    topic: TopicStatus
    settings: TopicSettings
    policy: GroupPolicy
    retention_ms: int
    set_by: _containers.ScalarMap[str, str]
    def __init__(self, topic: _Optional[_Union[TopicStatus, _Mapping]] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ..., policy: _Optional[_Union[GroupPolicy, _Mapping]] = ..., retention_ms: _Optional[int] = ..., set_by: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("released", "groups", "pending", "recurring")
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    RECURRING_FIELD_NUMBER: _ClassVar[int]
    released: int
    groups: int
    pending: int
    recurring: int
    def __init__(self, released: _Optional[int] = ..., groups: _Optional[int] = ..., pending: _Optional[int] = ..., recurring: _Optional[int] = ...) -> None: ...

class PurgeTopicRequest(_message.Message):
    __slots__ = ("topic", "dry_run", "cursor")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    dry_run: bool
    cursor: str
    def __init__(self, topic: _Optional[str] = ..., dry_run: _Optional[bool] = ..., cursor: _Optional[str] = ...) -> None: ...

class PurgeTopicResponse(_message.Message):
    __slots__ = ("progress",)
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    progress: _tarry_query_pb2.BulkCancel
    def __init__(self, progress: _Optional[_Union[_tarry_query_pb2.BulkCancel, _Mapping]] = ...) -> None: ...

class CreateGroupRequest(_message.Message):
    __slots__ = ("topic", "group", "start", "expiry_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    start: _tarry_consumer_pb2.GroupStart
    expiry_ms: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., start: _Optional[_Union[_tarry_consumer_pb2.GroupStart, _Mapping]] = ..., expiry_ms: _Optional[int] = ...) -> None: ...

class CreateGroupResponse(_message.Message):
    __slots__ = ("offset",)
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    offset: int
    def __init__(self, offset: _Optional[int] = ...) -> None: ...

class DeleteGroupRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class DeleteGroupResponse(_message.Message):
    __slots__ = ("unacknowledged",)
    UNACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    unacknowledged: int
    def __init__(self, unacknowledged: _Optional[int] = ...) -> None: ...

class SetGroupRequest(_message.Message):
    __slots__ = ("topic", "group", "policy", "unset")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    policy: GroupPolicy
    unset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., policy: _Optional[_Union[GroupPolicy, _Mapping]] = ..., unset: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeGroupRequest(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class DescribeGroupResponse(_message.Message):
    __slots__ = ("group", "policy", "own", "set_by", "consumers", "consumers_left_out")
    class SetByEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GROUP_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    SET_BY_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    group: GroupStatus
    policy: GroupPolicy
    own: GroupPolicy
    set_by: _containers.ScalarMap[str, str]
    consumers: _containers.RepeatedCompositeFieldContainer[Consumer]
    consumers_left_out: int
    def __init__(self, group: _Optional[_Union[GroupStatus, _Mapping]] = ..., policy: _Optional[_Union[GroupPolicy, _Mapping]] = ..., own: _Optional[_Union[GroupPolicy, _Mapping]] = ..., set_by: _Optional[_Mapping[str, str]] = ..., consumers: _Optional[_Iterable[_Union[Consumer, _Mapping]]] = ..., consumers_left_out: _Optional[int] = ...) -> None: ...

class Consumer(_message.Message):
    __slots__ = ("consumer", "address", "since_ms", "polls", "connected", "credit", "in_hand", "lease_end_ms", "tags", "tags_left_out", "topics", "topics_left_out", "filter")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    POLLS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    IN_HAND_FIELD_NUMBER: _ClassVar[int]
    LEASE_END_MS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    TAGS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    address: str
    since_ms: int
    polls: bool
    connected: bool
    credit: int
    in_hand: int
    lease_end_ms: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    tags_left_out: int
    topics: _containers.RepeatedScalarFieldContainer[str]
    topics_left_out: int
    filter: str
    def __init__(self, consumer: _Optional[str] = ..., address: _Optional[str] = ..., since_ms: _Optional[int] = ..., polls: _Optional[bool] = ..., connected: _Optional[bool] = ..., credit: _Optional[int] = ..., in_hand: _Optional[int] = ..., lease_end_ms: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., tags_left_out: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., topics_left_out: _Optional[int] = ..., filter: _Optional[str] = ...) -> None: ...

class SetClusterRequest(_message.Message):
    __slots__ = ("settings", "unset")
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    settings: ClusterSettings
    unset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, settings: _Optional[_Union[ClusterSettings, _Mapping]] = ..., unset: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeClusterRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DescribeClusterResponse(_message.Message):
    __slots__ = ("settings", "own", "set_by")
    class SetByEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    SET_BY_FIELD_NUMBER: _ClassVar[int]
    settings: ClusterSettings
    own: ClusterSettings
    set_by: _containers.ScalarMap[str, str]
    def __init__(self, settings: _Optional[_Union[ClusterSettings, _Mapping]] = ..., own: _Optional[_Union[ClusterSettings, _Mapping]] = ..., set_by: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SeekGroupRequest(_message.Message):
    __slots__ = ("topic", "group", "offset", "start", "dry_run")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    offset: int
    start: _tarry_consumer_pb2.GroupStart
    dry_run: bool
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., offset: _Optional[int] = ..., start: _Optional[_Union[_tarry_consumer_pb2.GroupStart, _Mapping]] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class SeekGroupResponse(_message.Message):
    __slots__ = ("from_offset", "to_offset", "delivered_again", "skipped")
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    TO_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_AGAIN_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    from_offset: int
    to_offset: int
    delivered_again: int
    skipped: int
    def __init__(self, from_offset: _Optional[int] = ..., to_offset: _Optional[int] = ..., delivered_again: _Optional[int] = ..., skipped: _Optional[int] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("topic", "reason", "tags", "messages_max", "dry_run")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    topic: str
    reason: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    messages_max: int
    dry_run: bool
    def __init__(self, topic: _Optional[str] = ..., reason: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., messages_max: _Optional[int] = ..., dry_run: _Optional[bool] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("looked_at", "redriven", "done")
    LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    REDRIVEN_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    looked_at: int
    redriven: int
    done: bool
    def __init__(self, looked_at: _Optional[int] = ..., redriven: _Optional[int] = ..., done: _Optional[bool] = ...) -> None: ...

class ClusterStatusRequest(_message.Message):
    __slots__ = ("digest", "brief", "seconds_ahead")
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    BRIEF_FIELD_NUMBER: _ClassVar[int]
    SECONDS_AHEAD_FIELD_NUMBER: _ClassVar[int]
    digest: bool
    brief: bool
    seconds_ahead: int
    def __init__(self, digest: _Optional[bool] = ..., brief: _Optional[bool] = ..., seconds_ahead: _Optional[int] = ...) -> None: ...

class ClusterStatusResponse(_message.Message):
    __slots__ = ("node", "leader", "term", "commit_index", "applied_index", "members", "pending", "ready", "frontier_ms", "tick", "local_index", "now_ms", "topics", "version", "lease", "state_digest", "damaged_found", "damaged_repaired", "damaged_left", "ledger", "turns", "level", "level_max", "upgrade_finish", "reload", "audit", "differing", "overdue", "oldest_overdue_ms", "lateness", "pending_ahead", "rights", "flush_ms", "unflushed", "no_boot_id")
    NODE_FIELD_NUMBER: _ClassVar[int]
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_MS_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEASE_FIELD_NUMBER: _ClassVar[int]
    STATE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FOUND_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_REPAIRED_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_LEFT_FIELD_NUMBER: _ClassVar[int]
    LEDGER_FIELD_NUMBER: _ClassVar[int]
    TURNS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    LEVEL_MAX_FIELD_NUMBER: _ClassVar[int]
    UPGRADE_FINISH_FIELD_NUMBER: _ClassVar[int]
    RELOAD_FIELD_NUMBER: _ClassVar[int]
    AUDIT_FIELD_NUMBER: _ClassVar[int]
    DIFFERING_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_OVERDUE_MS_FIELD_NUMBER: _ClassVar[int]
    LATENESS_FIELD_NUMBER: _ClassVar[int]
    PENDING_AHEAD_FIELD_NUMBER: _ClassVar[int]
    RIGHTS_FIELD_NUMBER: _ClassVar[int]
    FLUSH_MS_FIELD_NUMBER: _ClassVar[int]
    UNFLUSHED_FIELD_NUMBER: _ClassVar[int]
    NO_BOOT_ID_FIELD_NUMBER: _ClassVar[int]
    node: str
    leader: str
    term: int
    commit_index: int
    applied_index: int
    members: _containers.RepeatedCompositeFieldContainer[Member]
    pending: int
    ready: int
    frontier_ms: int
    tick: int
    local_index: int
    now_ms: int
    topics: _containers.RepeatedCompositeFieldContainer[TopicStatus]
    version: str
    lease: bool
    state_digest: bytes
    damaged_found: int
    damaged_repaired: int
    damaged_left: int
    ledger: LedgerStatus
    turns: TurnStatus
    level: int
    level_max: int
    upgrade_finish: str
    reload: ReloadStatus
    audit: AuditStatus
    differing: _containers.RepeatedCompositeFieldContainer[SettingDifference]
    overdue: int
    oldest_overdue_ms: int
    lateness: Lateness
    pending_ahead: _containers.RepeatedScalarFieldContainer[int]
    rights: Rights
    flush_ms: int
    unflushed: int
    no_boot_id: bool
    def __init__(self, node: _Optional[str] = ..., leader: _Optional[str] = ..., term: _Optional[int] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., pending: _Optional[int] = ..., ready: _Optional[int] = ..., frontier_ms: _Optional[int] = ..., tick: _Optional[int] = ..., local_index: _Optional[int] = ..., now_ms: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicStatus, _Mapping]]] = ..., version: _Optional[str] = ..., lease: _Optional[bool] = ..., state_digest: _Optional[bytes] = ..., damaged_found: _Optional[int] = ..., damaged_repaired: _Optional[int] = ..., damaged_left: _Optional[int] = ..., ledger: _Optional[_Union[LedgerStatus, _Mapping]] = ..., turns: _Optional[_Union[TurnStatus, _Mapping]] = ..., level: _Optional[int] = ..., level_max: _Optional[int] = ..., upgrade_finish: _Optional[str] = ..., reload: _Optional[_Union[ReloadStatus, _Mapping]] = ..., audit: _Optional[_Union[AuditStatus, _Mapping]] = ..., differing: _Optional[_Iterable[_Union[SettingDifference, _Mapping]]] = ..., overdue: _Optional[int] = ..., oldest_overdue_ms: _Optional[int] = ..., lateness: _Optional[_Union[Lateness, _Mapping]] = ..., pending_ahead: _Optional[_Iterable[int]] = ..., rights: _Optional[_Union[Rights, _Mapping]] = ..., flush_ms: _Optional[int] = ..., unflushed: _Optional[int] = ..., no_boot_id: _Optional[bool] = ...) -> None: ...

class Rights(_message.Message):
    __slots__ = ("token", "produce", "consume", "operate")
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    PRODUCE_FIELD_NUMBER: _ClassVar[int]
    CONSUME_FIELD_NUMBER: _ClassVar[int]
    OPERATE_FIELD_NUMBER: _ClassVar[int]
    token: str
    produce: _containers.RepeatedScalarFieldContainer[str]
    consume: _containers.RepeatedScalarFieldContainer[str]
    operate: bool
    def __init__(self, token: _Optional[str] = ..., produce: _Optional[_Iterable[str]] = ..., consume: _Optional[_Iterable[str]] = ..., operate: _Optional[bool] = ...) -> None: ...

class Lateness(_message.Message):
    __slots__ = ("released", "p50_ms", "p99_ms", "max_ms")
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    P50_MS_FIELD_NUMBER: _ClassVar[int]
    P99_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_MS_FIELD_NUMBER: _ClassVar[int]
    released: int
    p50_ms: int
    p99_ms: int
    max_ms: int
    def __init__(self, released: _Optional[int] = ..., p50_ms: _Optional[int] = ..., p99_ms: _Optional[int] = ..., max_ms: _Optional[int] = ...) -> None: ...

class SettingDifference(_message.Message):
    __slots__ = ("key", "node", "value", "other", "other_value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    OTHER_FIELD_NUMBER: _ClassVar[int]
    OTHER_VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    node: str
    value: str
    other: str
    other_value: str
    def __init__(self, key: _Optional[str] = ..., node: _Optional[str] = ..., value: _Optional[str] = ..., other: _Optional[str] = ..., other_value: _Optional[str] = ...) -> None: ...

class ReloadStatus(_message.Message):
    __slots__ = ("done", "at_ms", "failure")
    DONE_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    done: int
    at_ms: int
    failure: str
    def __init__(self, done: _Optional[int] = ..., at_ms: _Optional[int] = ..., failure: _Optional[str] = ...) -> None: ...

class AuditStatus(_message.Message):
    __slots__ = ("enabled", "lines", "lost", "failure")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    lines: int
    lost: int
    failure: str
    def __init__(self, enabled: _Optional[bool] = ..., lines: _Optional[int] = ..., lost: _Optional[int] = ..., failure: _Optional[str] = ...) -> None: ...

class TurnStatus(_message.Message):
    __slots__ = ("longest", "busiest", "over_20_ms", "over_100_ms", "causes")
    LONGEST_FIELD_NUMBER: _ClassVar[int]
    BUSIEST_FIELD_NUMBER: _ClassVar[int]
    OVER_20_MS_FIELD_NUMBER: _ClassVar[int]
    OVER_100_MS_FIELD_NUMBER: _ClassVar[int]
    CAUSES_FIELD_NUMBER: _ClassVar[int]
    longest: Hold
    busiest: Hold
    over_20_ms: int
    over_100_ms: int
    causes: _containers.RepeatedCompositeFieldContainer[Hold]
    def __init__(self, longest: _Optional[_Union[Hold, _Mapping]] = ..., busiest: _Optional[_Union[Hold, _Mapping]] = ..., over_20_ms: _Optional[int] = ..., over_100_ms: _Optional[int] = ..., causes: _Optional[_Iterable[_Union[Hold, _Mapping]]] = ...) -> None: ...

class Hold(_message.Message):
    __slots__ = ("cause", "held_us", "cpu_us", "at_ms")
    CAUSE_FIELD_NUMBER: _ClassVar[int]
    HELD_US_FIELD_NUMBER: _ClassVar[int]
    CPU_US_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    cause: str
    held_us: int
    cpu_us: int
    at_ms: int
    def __init__(self, cause: _Optional[str] = ..., held_us: _Optional[int] = ..., cpu_us: _Optional[int] = ..., at_ms: _Optional[int] = ...) -> None: ...

class LedgerStatus(_message.Message):
    __slots__ = ("enabled", "segments", "bytes", "dropped", "covered_index", "failure", "last_segment")
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    COVERED_INDEX_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    LAST_SEGMENT_FIELD_NUMBER: _ClassVar[int]
    enabled: bool
    segments: int
    bytes: int
    dropped: int
    covered_index: int
    failure: str
    last_segment: int
    def __init__(self, enabled: _Optional[bool] = ..., segments: _Optional[int] = ..., bytes: _Optional[int] = ..., dropped: _Optional[int] = ..., covered_index: _Optional[int] = ..., failure: _Optional[str] = ..., last_segment: _Optional[int] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("node", "address", "connected", "match_index", "clock_offset_ms", "blocked", "version", "level_max")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    MATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    LEVEL_MAX_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    connected: bool
    match_index: int
    clock_offset_ms: int
    blocked: str
    version: str
    level_max: int
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ..., connected: _Optional[bool] = ..., match_index: _Optional[int] = ..., clock_offset_ms: _Optional[int] = ..., blocked: _Optional[str] = ..., version: _Optional[str] = ..., level_max: _Optional[int] = ...) -> None: ...

class TopicStatus(_message.Message):
    __slots__ = ("topic", "released", "first_offset", "pending", "held_back", "held_until_ms", "misfires_dropped", "lateness", "overdue", "oldest_overdue_ms", "groups")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    FIRST_OFFSET_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    HELD_BACK_FIELD_NUMBER: _ClassVar[int]
    HELD_UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    MISFIRES_DROPPED_FIELD_NUMBER: _ClassVar[int]
    LATENESS_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_OVERDUE_MS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    released: int
    first_offset: int
    pending: int
    held_back: int
    held_until_ms: int
    misfires_dropped: int
    lateness: Lateness
    overdue: int
    oldest_overdue_ms: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    def __init__(self, topic: _Optional[str] = ..., released: _Optional[int] = ..., first_offset: _Optional[int] = ..., pending: _Optional[int] = ..., held_back: _Optional[int] = ..., held_until_ms: _Optional[int] = ..., misfires_dropped: _Optional[int] = ..., lateness: _Optional[_Union[Lateness, _Mapping]] = ..., overdue: _Optional[int] = ..., oldest_overdue_ms: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ...) -> None: ...

class GroupStatus(_message.Message):
    __slots__ = ("group", "floor", "acked_above_floor", "retrying", "consumers", "in_hand", "held_bytes", "used_ms", "expiry_ms", "expired", "dropped", "backing_off", "credit", "delayed", "delay_ms")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    ACKED_ABOVE_FLOOR_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    IN_HAND_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    USED_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRY_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRED_FIELD_NUMBER: _ClassVar[int]
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    BACKING_OFF_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    group: str
    floor: int
    acked_above_floor: int
    retrying: int
    consumers: int
    in_hand: int
    held_bytes: int
    used_ms: int
    expiry_ms: int
    expired: int
    dropped: int
    backing_off: int
    credit: int
    delayed: int
    delay_ms: int
    def __init__(self, group: _Optional[str] = ..., floor: _Optional[int] = ..., acked_above_floor: _Optional[int] = ..., retrying: _Optional[int] = ..., consumers: _Optional[int] = ..., in_hand: _Optional[int] = ..., held_bytes: _Optional[int] = ..., used_ms: _Optional[int] = ..., expiry_ms: _Optional[int] = ..., expired: _Optional[int] = ..., dropped: _Optional[int] = ..., backing_off: _Optional[int] = ..., credit: _Optional[int] = ..., delayed: _Optional[int] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class TransferLeadershipRequest(_message.Message):
    __slots__ = ("target", "deadline_ms")
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DEADLINE_MS_FIELD_NUMBER: _ClassVar[int]
    target: str
    deadline_ms: int
    def __init__(self, target: _Optional[str] = ..., deadline_ms: _Optional[int] = ...) -> None: ...

class TransferLeadershipResponse(_message.Message):
    __slots__ = ("leader", "term", "pause_ms")
    LEADER_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    PAUSE_MS_FIELD_NUMBER: _ClassVar[int]
    leader: str
    term: int
    pause_ms: int
    def __init__(self, leader: _Optional[str] = ..., term: _Optional[int] = ..., pause_ms: _Optional[int] = ...) -> None: ...
