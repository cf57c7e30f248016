from google.rpc import status_pb2 as _status_pb2
from tarry.proto import tarry_message_pb2 as _tarry_message_pb2
from tarry.proto import tarry_transaction_pb2 as _tarry_transaction_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class CancelOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CANCEL_OUTCOME_UNSPECIFIED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_CANCELLED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_ALREADY_RELEASED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_NOT_FOUND: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_ALREADY_CANCELLED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_ALREADY_DELIVERED: _ClassVar[CancelOutcome]
    CANCEL_OUTCOME_ALREADY_DONE: _ClassVar[CancelOutcome]

class ChangeOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    CHANGE_OUTCOME_UNSPECIFIED: _ClassVar[ChangeOutcome]
    CHANGE_OUTCOME_CHANGED: _ClassVar[ChangeOutcome]
    CHANGE_OUTCOME_ALREADY_RELEASED: _ClassVar[ChangeOutcome]
    CHANGE_OUTCOME_NOT_FOUND: _ClassVar[ChangeOutcome]
    CHANGE_OUTCOME_ALREADY_CANCELLED: _ClassVar[ChangeOutcome]
    CHANGE_OUTCOME_ALREADY_SO: _ClassVar[ChangeOutcome]
    CHANGE_OUTCOME_DUE_DIFFERS: _ClassVar[ChangeOutcome]
CANCEL_OUTCOME_UNSPECIFIED: CancelOutcome
CANCEL_OUTCOME_CANCELLED: CancelOutcome
CANCEL_OUTCOME_ALREADY_RELEASED: CancelOutcome
CANCEL_OUTCOME_NOT_FOUND: CancelOutcome
CANCEL_OUTCOME_ALREADY_CANCELLED: CancelOutcome
CANCEL_OUTCOME_ALREADY_DELIVERED: CancelOutcome
CANCEL_OUTCOME_ALREADY_DONE: CancelOutcome
CHANGE_OUTCOME_UNSPECIFIED: ChangeOutcome
CHANGE_OUTCOME_CHANGED: ChangeOutcome
CHANGE_OUTCOME_ALREADY_RELEASED: ChangeOutcome
CHANGE_OUTCOME_NOT_FOUND: ChangeOutcome
CHANGE_OUTCOME_ALREADY_CANCELLED: ChangeOutcome
CHANGE_OUTCOME_ALREADY_SO: ChangeOutcome
CHANGE_OUTCOME_DUE_DIFFERS: ChangeOutcome

class ScheduleRequest(_message.Message):
    __slots__ = ("topic", "record", "due_ms", "delay_ms", "delay_level", "producer", "sequence", "jitter_ms", "born_ms", "durability")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_LEVEL_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    JITTER_MS_FIELD_NUMBER: _ClassVar[int]
    BORN_MS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    topic: str
    record: _tarry_message_pb2.Record
    due_ms: int
    delay_ms: int
    delay_level: int
    producer: str
    sequence: int
    jitter_ms: int
    born_ms: int
    durability: _tarry_message_pb2.Durability
    def __init__(self, topic: _Optional[str] = ..., record: _Optional[_Union[_tarry_message_pb2.Record, _Mapping]] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., delay_level: _Optional[int] = ..., producer: _Optional[str] = ..., sequence: _Optional[int] = ..., jitter_ms: _Optional[int] = ..., born_ms: _Optional[int] = ..., durability: _Optional[_Union[_tarry_message_pb2.Durability, str]] = ...) -> None: ...

class ScheduleResponse(_message.Message):
    __slots__ = ("id", "due_ms", "overdue", "repeated")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    id: str
    due_ms: int
    overdue: bool
    repeated: bool
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., overdue: _Optional[bool] = ..., repeated: _Optional[bool] = ...) -> None: ...

class ScheduleBatchRequest(_message.Message):
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
    topic: _containers.RepeatedScalarFieldContainer[int]
    due_ms: _containers.RepeatedScalarFieldContainer[int]
    delay_ms: _containers.RepeatedScalarFieldContainer[int]
    delay_level: _containers.RepeatedScalarFieldContainer[int]
    tag_mask: _containers.RepeatedScalarFieldContainer[int]
    records: _containers.RepeatedScalarFieldContainer[bytes]
    jitter_ms: _containers.RepeatedScalarFieldContainer[int]
    born_ms: int
    durability: _tarry_message_pb2.Durability
    def __init__(self, producer: _Optional[str] = ..., sequence: _Optional[int] = ..., topics: _Optional[_Iterable[str]] = ..., topic: _Optional[_Iterable[int]] = ..., due_ms: _Optional[_Iterable[int]] = ..., delay_ms: _Optional[_Iterable[int]] = ..., delay_level: _Optional[_Iterable[int]] = ..., tag_mask: _Optional[_Iterable[int]] = ..., records: _Optional[_Iterable[bytes]] = ..., jitter_ms: _Optional[_Iterable[int]] = ..., born_ms: _Optional[int] = ..., durability: _Optional[_Union[_tarry_message_pb2.Durability, str]] = ...) -> None: ...

class ScheduleBatchResponse(_message.Message):
    __slots__ = ("shard", "hour", "global_index", "due_ms", "overdue", "repeated", "repeats")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    OVERDUE_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    REPEATS_FIELD_NUMBER: _ClassVar[int]
    shard: int
    hour: _containers.RepeatedScalarFieldContainer[int]
    global_index: _containers.RepeatedScalarFieldContainer[int]
    due_ms: _containers.RepeatedScalarFieldContainer[int]
    overdue: _containers.RepeatedScalarFieldContainer[int]
    repeated: bool
    repeats: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, shard: _Optional[int] = ..., hour: _Optional[_Iterable[int]] = ..., global_index: _Optional[_Iterable[int]] = ..., due_ms: _Optional[_Iterable[int]] = ..., overdue: _Optional[_Iterable[int]] = ..., repeated: _Optional[bool] = ..., repeats: _Optional[_Iterable[int]] = ...) -> None: ...

class ScheduleStreamRequest(_message.Message):
    __slots__ = ("request", "batch")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    request: int
    batch: ScheduleBatchRequest
    def __init__(self, request: _Optional[int] = ..., batch: _Optional[_Union[ScheduleBatchRequest, _Mapping]] = ...) -> None: ...

class ScheduleStreamResponse(_message.Message):
    __slots__ = ("request", "accepted", "refused")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    request: int
    accepted: ScheduleBatchResponse
    refused: _status_pb2.Status
    def __init__(self, request: _Optional[int] = ..., accepted: _Optional[_Union[ScheduleBatchResponse, _Mapping]] = ..., refused: _Optional[_Union[_status_pb2.Status, _Mapping]] = ...) -> None: ...

class CancelRequest(_message.Message):
    __slots__ = ("ids", "remaining_groups", "every_outcome")
    IDS_FIELD_NUMBER: _ClassVar[int]
    REMAINING_GROUPS_FIELD_NUMBER: _ClassVar[int]
    EVERY_OUTCOME_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    remaining_groups: bool
    every_outcome: bool
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., remaining_groups: _Optional[bool] = ..., every_outcome: _Optional[bool] = ...) -> None: ...

class CancelResponse(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[CancelOutcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[CancelOutcome, str]]] = ...) -> None: ...

class RescheduleRequest(_message.Message):
    __slots__ = ("ids", "due_ms", "delay_ms", "if_due_ms", "group", "topic")
    IDS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    IF_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    due_ms: _containers.RepeatedScalarFieldContainer[int]
    delay_ms: _containers.RepeatedScalarFieldContainer[int]
    if_due_ms: _containers.RepeatedScalarFieldContainer[int]
    group: str
    topic: str
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., due_ms: _Optional[_Iterable[int]] = ..., delay_ms: _Optional[_Iterable[int]] = ..., if_due_ms: _Optional[_Iterable[int]] = ..., group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class RescheduleResponse(_message.Message):
    __slots__ = ("outcomes", "due_ms")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[ChangeOutcome]
    due_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[ChangeOutcome, str]]] = ..., due_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class UpdateRequest(_message.Message):
    __slots__ = ("id", "body", "tags", "keys", "properties", "if_due_ms", "group", "topic")
    ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    KEYS_FIELD_NUMBER: _ClassVar[int]
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    IF_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    id: str
    body: bytes
    tags: Texts
    keys: Texts
    properties: Properties
    if_due_ms: int
    group: str
    topic: str
    def __init__(self, id: _Optional[str] = ..., body: _Optional[bytes] = ..., tags: _Optional[_Union[Texts, _Mapping]] = ..., keys: _Optional[_Union[Texts, _Mapping]] = ..., properties: _Optional[_Union[Properties, _Mapping]] = ..., if_due_ms: _Optional[int] = ..., group: _Optional[str] = ..., topic: _Optional[str] = ...) -> None: ...

class Texts(_message.Message):
    __slots__ = ("texts",)
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    texts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, texts: _Optional[_Iterable[str]] = ...) -> None: ...

class Properties(_message.Message):
    __slots__ = ("properties",)
    class PropertiesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PROPERTIES_FIELD_NUMBER: _ClassVar[int]
    properties: _containers.ScalarMap[str, str]
    def __init__(self, properties: _Optional[_Mapping[str, str]] = ...) -> None: ...

class UpdateResponse(_message.Message):
    __slots__ = ("outcome", "due_ms")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    outcome: ChangeOutcome
    due_ms: int
    def __init__(self, outcome: _Optional[_Union[ChangeOutcome, str]] = ..., due_ms: _Optional[int] = ...) -> None: ...

class GetRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetResponse(_message.Message):
    __slots__ = ("id", "topic", "due_ms", "state", "record")
    ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    id: str
    topic: str
    due_ms: int
    state: _tarry_message_pb2.MessageState
    record: _tarry_message_pb2.Record
    def __init__(self, id: _Optional[str] = ..., topic: _Optional[str] = ..., due_ms: _Optional[int] = ..., state: _Optional[_Union[_tarry_message_pb2.MessageState, str]] = ..., record: _Optional[_Union[_tarry_message_pb2.Record, _Mapping]] = ...) -> None: ...
