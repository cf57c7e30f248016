from tarry.proto import tarry_message_pb2 as _tarry_message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ForecastResolution(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FORECAST_RESOLUTION_UNSPECIFIED: _ClassVar[ForecastResolution]
    FORECAST_RESOLUTION_SECOND: _ClassVar[ForecastResolution]
    FORECAST_RESOLUTION_MINUTE: _ClassVar[ForecastResolution]
    FORECAST_RESOLUTION_HOUR: _ClassVar[ForecastResolution]

class ListedState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LISTED_STATE_UNSPECIFIED: _ClassVar[ListedState]
    LISTED_STATE_PENDING: _ClassVar[ListedState]
    LISTED_STATE_RETRYING: _ClassVar[ListedState]
    LISTED_STATE_RELEASED: _ClassVar[ListedState]
    LISTED_STATE_WAITING: _ClassVar[ListedState]
    LISTED_STATE_IN_HAND: _ClassVar[ListedState]
    LISTED_STATE_SETTLED: _ClassVar[ListedState]

class GroupState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    GROUP_STATE_UNSPECIFIED: _ClassVar[GroupState]
    GROUP_STATE_WAITING: _ClassVar[GroupState]
    GROUP_STATE_IN_HAND: _ClassVar[GroupState]
    GROUP_STATE_BLOCKED: _ClassVar[GroupState]
    GROUP_STATE_IN_BACK_OFF: _ClassVar[GroupState]
    GROUP_STATE_WITHHELD: _ClassVar[GroupState]
    GROUP_STATE_SETTLING: _ClassVar[GroupState]
    GROUP_STATE_DONE: _ClassVar[GroupState]
    GROUP_STATE_CANCELLED: _ClassVar[GroupState]
    GROUP_STATE_GONE: _ClassVar[GroupState]
    GROUP_STATE_DONE_OR_RETRIED: _ClassVar[GroupState]
FORECAST_RESOLUTION_UNSPECIFIED: ForecastResolution
FORECAST_RESOLUTION_SECOND: ForecastResolution
FORECAST_RESOLUTION_MINUTE: ForecastResolution
FORECAST_RESOLUTION_HOUR: ForecastResolution
LISTED_STATE_UNSPECIFIED: ListedState
LISTED_STATE_PENDING: ListedState
LISTED_STATE_RETRYING: ListedState
LISTED_STATE_RELEASED: ListedState
LISTED_STATE_WAITING: ListedState
LISTED_STATE_IN_HAND: ListedState
LISTED_STATE_SETTLED: ListedState
GROUP_STATE_UNSPECIFIED: GroupState
GROUP_STATE_WAITING: GroupState
GROUP_STATE_IN_HAND: GroupState
GROUP_STATE_BLOCKED: GroupState
GROUP_STATE_IN_BACK_OFF: GroupState
GROUP_STATE_WITHHELD: GroupState
GROUP_STATE_SETTLING: GroupState
GROUP_STATE_DONE: GroupState
GROUP_STATE_CANCELLED: GroupState
GROUP_STATE_GONE: GroupState
GROUP_STATE_DONE_OR_RETRIED: GroupState

class MessageFilter(_message.Message):
    __slots__ = ("topic", "tags", "keys", "key_prefix", "due_from_ms", "due_to_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    KEY_PREFIX_FIELD_NUMBER: _ClassVar[int]
    DUE_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_TO_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedScalarFieldContainer[str]
    key_prefix: str
    due_from_ms: int
    due_to_ms: int
    def __init__(self, topic: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., key_prefix: _Optional[str] = ..., due_from_ms: _Optional[int] = ..., due_to_ms: _Optional[int] = ...) -> None: ...

class ForecastRequest(_message.Message):
    __slots__ = ("topic", "tags", "from_ms", "resolution", "buckets", "linearizable")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    RESOLUTION_FIELD_NUMBER: _ClassVar[int]
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    LINEARIZABLE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    from_ms: int
    resolution: ForecastResolution
    buckets: int
    linearizable: bool
    def __init__(self, topic: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ..., from_ms: _Optional[int] = ..., resolution: _Optional[_Union[ForecastResolution, str]] = ..., buckets: _Optional[int] = ..., linearizable: _Optional[bool] = ...) -> None: ...

class ForecastResponse(_message.Message):
    __slots__ = ("first_ms", "bucket_ms", "counts", "pending", "overdue", "oldest_overdue_ms", "now_ms", "applied_index", "released_per_s", "released_measured", "lateness_ms", "upper_bound", "node", "heard_ms_ago", "leads")
    FIRST_MS_FIELD_NUMBER: _ClassVar[int]
    BUCKET_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    OLDEST_OVERDUE_MS_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    RELEASED_PER_S_FIELD_NUMBER: _ClassVar[int]
    RELEASED_MEASURED_FIELD_NUMBER: _ClassVar[int]
    LATENESS_MS_FIELD_NUMBER: _ClassVar[int]
    UPPER_BOUND_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    HEARD_MS_AGO_FIELD_NUMBER: _ClassVar[int]
    LEADS_FIELD_NUMBER: _ClassVar[int]
    first_ms: int
    bucket_ms: int
    counts: _containers.RepeatedScalarFieldContainer[int]
    pending: int
    overdue: int
    oldest_overdue_ms: int
    now_ms: int
    applied_index: int
    released_per_s: float
    released_measured: bool
    lateness_ms: _containers.RepeatedScalarFieldContainer[int]
    upper_bound: bool
    node: str
    heard_ms_ago: int
    leads: bool
    def __init__(self, first_ms: _Optional[int] = ..., bucket_ms: _Optional[int] = ..., counts: _Optional[_Iterable[int]] = ..., pending: _Optional[int] = ..., overdue: _Optional[int] = ..., oldest_overdue_ms: _Optional[int] = ..., now_ms: _Optional[int] = ..., applied_index: _Optional[int] = ..., released_per_s: _Optional[float] = ..., released_measured: _Optional[bool] = ..., lateness_ms: _Optional[_Iterable[int]] = ..., upper_bound: _Optional[bool] = ..., node: _Optional[str] = ..., heard_ms_ago: _Optional[int] = ..., leads: _Optional[bool] = ...) -> None: ...

class ListMessagesRequest(_message.Message):
    __slots__ = ("filter", "states", "group", "page_size", "cursor", "bodies")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    filter: MessageFilter
    states: _containers.RepeatedScalarFieldContainer[ListedState]
    group: str
    page_size: int
    cursor: str
    bodies: bool
    def __init__(self, filter: _Optional[_Union[MessageFilter, _Mapping]] = ..., states: _Optional[_Iterable[_Union[ListedState, str]]] = ..., group: _Optional[str] = ..., page_size: _Optional[int] = ..., cursor: _Optional[str] = ..., bodies: _Optional[bool] = ...) -> None: ...

class ListMessagesResponse(_message.Message):
    __slots__ = ("messages", "cursor", "looked_to_ms")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LOOKED_TO_MS_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ListedMessage]
    cursor: str
    looked_to_ms: int
    def __init__(self, messages: _Optional[_Iterable[_Union[ListedMessage, _Mapping]]] = ..., cursor: _Optional[str] = ..., looked_to_ms: _Optional[int] = ...) -> None: ...

class ListedMessage(_message.Message):
    __slots__ = ("id", "due_ms", "state", "group", "attempt", "reason", "offset", "released_ms", "damaged", "tags", "keys", "ordering_key", "properties", "body_bytes", "body", "idempotency_key", "born_ms", "stored_ms")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RELEASED_MS_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    due_ms: int
    state: ListedState
    group: str
    attempt: int
    reason: _tarry_message_pb2.RetryReason
    offset: int
    released_ms: int
    damaged: bool
    tags: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedScalarFieldContainer[str]
    ordering_key: str
    properties: _containers.ScalarMap[str, str]
    body_bytes: int
    body: bytes
    idempotency_key: str
    born_ms: int
    stored_ms: int
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., state: _Optional[_Union[ListedState, str]] = ..., group: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[_Union[_tarry_message_pb2.RetryReason, str]] = ..., offset: _Optional[int] = ..., released_ms: _Optional[int] = ..., damaged: _Optional[bool] = ..., tags: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., ordering_key: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., body_bytes: _Optional[int] = ..., body: _Optional[bytes] = ..., idempotency_key: _Optional[str] = ..., born_ms: _Optional[int] = ..., stored_ms: _Optional[int] = ...) -> None: ...

class GetLifeRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetLifeResponse(_message.Message):
    __slots__ = ("id", "topic", "due_ms", "state", "offset", "released_ms", "queue_topic", "groups", "groups_left_out", "now_ms", "applied_index", "not_searched")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    RELEASED_MS_FIELD_NUMBER: _ClassVar[int]
    QUEUE_TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    GROUPS_LEFT_OUT_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    NOT_SEARCHED_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    due_ms: int
    state: _tarry_message_pb2.MessageState
    offset: int
    released_ms: int
    queue_topic: str
    groups: _containers.RepeatedCompositeFieldContainer[MessageInGroup]
    groups_left_out: int
    now_ms: int
    applied_index: int
    not_searched: bool
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., due_ms: _Optional[int] = ..., state: _Optional[_Union[_tarry_message_pb2.MessageState, str]] = ..., offset: _Optional[int] = ..., released_ms: _Optional[int] = ..., queue_topic: _Optional[str] = ..., groups: _Optional[_Iterable[_Union[MessageInGroup, _Mapping]]] = ..., groups_left_out: _Optional[int] = ..., now_ms: _Optional[int] = ..., applied_index: _Optional[int] = ..., not_searched: _Optional[bool] = ...) -> None: ...

class MessageInGroup(_message.Message):
    __slots__ = ("group", "state", "why", "attempt", "consumer", "until_ms", "before", "reason", "retry_id", "retry_offset", "consumers", "maybe_delivered", "dead_letter_topic")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETRY_ID_FIELD_NUMBER: _ClassVar[int]
    RETRY_OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    MAYBE_DELIVERED_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    group: str
    state: GroupState
    why: str
    attempt: int
    consumer: str
    until_ms: int
    before: int
    reason: _tarry_message_pb2.RetryReason
    retry_id: str
    retry_offset: int
    consumers: int
    maybe_delivered: bool
    dead_letter_topic: str
    def __init__(self, group: _Optional[str] = ..., state: _Optional[_Union[GroupState, str]] = ..., why: _Optional[str] = ..., attempt: _Optional[int] = ..., consumer: _Optional[str] = ..., until_ms: _Optional[int] = ..., before: _Optional[int] = ..., reason: _Optional[_Union[_tarry_message_pb2.RetryReason, str]] = ..., retry_id: _Optional[str] = ..., retry_offset: _Optional[int] = ..., consumers: _Optional[int] = ..., maybe_delivered: _Optional[bool] = ..., dead_letter_topic: _Optional[str] = ...) -> None: ...

class ReadHistoryRequest(_message.Message):
    __slots__ = ("id", "from_ms", "until_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    FROM_MS_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    from_ms: int
    until_ms: int
    def __init__(self, id: _Optional[str] = ..., from_ms: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class ReadHistoryResponse(_message.Message):
    __slots__ = ("node", "has_ledger", "rows", "since_ms", "rows_looked", "rows_left", "complete", "from_beginning", "gaps")
    NODE_FIELD_NUMBER: _ClassVar[int]
    HAS_LEDGER_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    ROWS_LOOKED_FIELD_NUMBER: _ClassVar[int]
    ROWS_LEFT_FIELD_NUMBER: _ClassVar[int]
    COMPLETE_FIELD_NUMBER: _ClassVar[int]
    FROM_BEGINNING_FIELD_NUMBER: _ClassVar[int]
    GAPS_FIELD_NUMBER: _ClassVar[int]
    node: str
    has_ledger: bool
    rows: _containers.RepeatedCompositeFieldContainer[HistoryRow]
    since_ms: int
    rows_looked: int
    rows_left: int
    complete: bool
    from_beginning: bool
    gaps: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, node: _Optional[str] = ..., has_ledger: _Optional[bool] = ..., rows: _Optional[_Iterable[_Union[HistoryRow, _Mapping]]] = ..., since_ms: _Optional[int] = ..., rows_looked: _Optional[int] = ..., rows_left: _Optional[int] = ..., complete: _Optional[bool] = ..., from_beginning: _Optional[bool] = ..., gaps: _Optional[_Iterable[str]] = ...) -> None: ...

class HistoryRow(_message.Message):
    __slots__ = ("kind", "source", "term", "index", "position", "at_ms", "topic", "group", "due_ms", "offset", "attempt", "maybe_duplicate", "consumer", "detail", "run")
    KIND_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    MAYBE_DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    kind: str
    source: str
    term: int
    index: int
    position: int
    at_ms: int
    topic: str
    group: str
    due_ms: int
    offset: int
    attempt: int
    maybe_duplicate: bool
    consumer: str
    detail: str
    run: str
    def __init__(self, kind: _Optional[str] = ..., source: _Optional[str] = ..., term: _Optional[int] = ..., index: _Optional[int] = ..., position: _Optional[int] = ..., at_ms: _Optional[int] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ..., due_ms: _Optional[int] = ..., offset: _Optional[int] = ..., attempt: _Optional[int] = ..., maybe_duplicate: _Optional[bool] = ..., consumer: _Optional[str] = ..., detail: _Optional[str] = ..., run: _Optional[str] = ...) -> None: ...

class CancelMatchingRequest(_message.Message):
    __slots__ = ("filter", "dry_run", "cursor")
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    filter: MessageFilter
    dry_run: bool
    cursor: str
    def __init__(self, filter: _Optional[_Union[MessageFilter, _Mapping]] = ..., dry_run: _Optional[bool] = ..., cursor: _Optional[str] = ...) -> None: ...

class CancelMatchingResponse(_message.Message):
    __slots__ = ("progress",)
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    progress: BulkCancel
    def __init__(self, progress: _Optional[_Union[BulkCancel, _Mapping]] = ...) -> None: ...

class BulkCancel(_message.Message):
    __slots__ = ("done", "cursor", "looked_at", "total", "matched", "cancelled", "released", "unreadable", "ready", "retries", "in_hand", "not_found")
    DONE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    LOOKED_AT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    RETRIES_FIELD_NUMBER: _ClassVar[int]
    IN_HAND_FIELD_NUMBER: _ClassVar[int]
    NOT_FOUND_FIELD_NUMBER: _ClassVar[int]
    done: bool
    cursor: str
    looked_at: int
    total: int
    matched: int
    cancelled: int
    released: int
    unreadable: int
    ready: int
    retries: int
    in_hand: int
    not_found: int
    def __init__(self, done: _Optional[bool] = ..., cursor: _Optional[str] = ..., looked_at: _Optional[int] = ..., total: _Optional[int] = ..., matched: _Optional[int] = ..., cancelled: _Optional[int] = ..., released: _Optional[int] = ..., unreadable: _Optional[int] = ..., ready: _Optional[int] = ..., retries: _Optional[int] = ..., in_hand: _Optional[int] = ..., not_found: _Optional[int] = ...) -> None: ...

class BulkCursor(_message.Message):
    __slots__ = ("request", "queue", "phase", "hour", "place", "chosen", "counts", "key")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    CHOSEN_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    request: int
    queue: int
    phase: int
    hour: int
    place: int
    chosen: bytes
    counts: BulkCancel
    key: int
    def __init__(self, request: _Optional[int] = ..., queue: _Optional[int] = ..., phase: _Optional[int] = ..., hour: _Optional[int] = ..., place: _Optional[int] = ..., chosen: _Optional[bytes] = ..., counts: _Optional[_Union[BulkCancel, _Mapping]] = ..., key: _Optional[int] = ...) -> None: ...

class FindByKeyRequest(_message.Message):
    __slots__ = ("topic", "key", "due_from_ms", "due_to_ms", "states", "limit", "records", "begin", "idempotency_key", "stored_from_ms", "stored_to_ms", "born_from_ms", "born_to_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    DUE_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_TO_MS_FIELD_NUMBER: _ClassVar[int]
    STATES_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    BEGIN_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    STORED_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_TO_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_FROM_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_TO_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    key: str
    due_from_ms: int
    due_to_ms: int
    states: _containers.RepeatedScalarFieldContainer[_tarry_message_pb2.MessageState]
    limit: int
    records: bool
    begin: str
    idempotency_key: str
    stored_from_ms: int
    stored_to_ms: int
    born_from_ms: int
    born_to_ms: int
    def __init__(self, topic: _Optional[str] = ..., key: _Optional[str] = ..., due_from_ms: _Optional[int] = ..., due_to_ms: _Optional[int] = ..., states: _Optional[_Iterable[_Union[_tarry_message_pb2.MessageState, str]]] = ..., limit: _Optional[int] = ..., records: _Optional[bool] = ..., begin: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., stored_from_ms: _Optional[int] = ..., stored_to_ms: _Optional[int] = ..., born_from_ms: _Optional[int] = ..., born_to_ms: _Optional[int] = ...) -> None: ...

class FindByKeyResponse(_message.Message):
    __slots__ = ("messages", "next", "unreadable")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    UNREADABLE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[FoundMessage]
    next: str
    unreadable: int
    def __init__(self, messages: _Optional[_Iterable[_Union[FoundMessage, _Mapping]]] = ..., next: _Optional[str] = ..., unreadable: _Optional[int] = ...) -> None: ...

class FoundMessage(_message.Message):
    __slots__ = ("id", "due_ms", "state", "record", "born_ms", "stored_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    due_ms: int
    state: _tarry_message_pb2.MessageState
    record: _tarry_message_pb2.Record
    born_ms: int
    stored_ms: int
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., state: _Optional[_Union[_tarry_message_pb2.MessageState, str]] = ..., record: _Optional[_Union[_tarry_message_pb2.Record, _Mapping]] = ..., born_ms: _Optional[int] = ..., stored_ms: _Optional[int] = ...) -> None: ...
