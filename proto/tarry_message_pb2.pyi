from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Durability(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DURABILITY_UNSPECIFIED: _ClassVar[Durability]
    DURABILITY_SYNC: _ClassVar[Durability]
    DURABILITY_ASYNC: _ClassVar[Durability]

class RetryReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    RETRY_REASON_UNSPECIFIED: _ClassVar[RetryReason]
    RETRY_REASON_NACKED: _ClassVar[RetryReason]
    RETRY_REASON_LEASE_EXPIRED: _ClassVar[RetryReason]

class MessageState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MESSAGE_STATE_UNSPECIFIED: _ClassVar[MessageState]
    MESSAGE_STATE_PENDING: _ClassVar[MessageState]
    MESSAGE_STATE_RELEASED: _ClassVar[MessageState]
    MESSAGE_STATE_CANCELLED: _ClassVar[MessageState]
DURABILITY_UNSPECIFIED: Durability
DURABILITY_SYNC: Durability
DURABILITY_ASYNC: Durability
RETRY_REASON_UNSPECIFIED: RetryReason
RETRY_REASON_NACKED: RetryReason
RETRY_REASON_LEASE_EXPIRED: RetryReason
MESSAGE_STATE_UNSPECIFIED: MessageState
MESSAGE_STATE_PENDING: MessageState
MESSAGE_STATE_RELEASED: MessageState
MESSAGE_STATE_CANCELLED: MessageState

class Record(_message.Message):
    __slots__ = ("tags", "keys", "properties", "body", "ordering_key", "idempotency_key", "scheduled_digest", "born_ms", "stored_ms")
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    ORDERING_KEY_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENCY_KEY_FIELD_NUMBER: _ClassVar[int]
    SCHEDULED_DIGEST_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    tags: _containers.RepeatedScalarFieldContainer[str]
    keys: _containers.RepeatedScalarFieldContainer[str]
    properties: _containers.ScalarMap[str, str]
    body: bytes
    ordering_key: str
    idempotency_key: str
    scheduled_digest: bytes
    born_ms: int
    stored_ms: int
    def __init__(self, tags: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., properties: _Optional[_Mapping[str, str]] = ..., body: _Optional[bytes] = ..., ordering_key: _Optional[str] = ..., idempotency_key: _Optional[str] = ..., scheduled_digest: _Optional[bytes] = ..., born_ms: _Optional[int] = ..., stored_ms: _Optional[int] = ...) -> None: ...

class RecordTimes(_message.Message):
    __slots__ = ("born_ms", "stored_ms")
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    STORED_MS_FIELD_NUMBER: _ClassVar[int]
    born_ms: int
    stored_ms: int
    def __init__(self, born_ms: _Optional[int] = ..., stored_ms: _Optional[int] = ...) -> None: ...

class Retried(_message.Message):
    __slots__ = ("record", "hour", "global_index", "due_ms", "attempt", "topic", "group", "reason")
    RECORD_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    record: bytes
    hour: int
    global_index: int
    due_ms: int
    attempt: int
    topic: str
    group: str
    reason: RetryReason
    def __init__(self, record: _Optional[bytes] = ..., hour: _Optional[int] = ..., global_index: _Optional[int] = ..., due_ms: _Optional[int] = ..., attempt: _Optional[int] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ..., reason: _Optional[_Union[RetryReason, str]] = ...) -> None: ...
