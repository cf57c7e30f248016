from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LogEntry(_message.Message):
    __slots__ = ("commands",)
    COMMANDS_FIELD_NUMBER: _ClassVar[int]
    commands: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, commands: _Optional[_Iterable[bytes]] = ...) -> None: ...

class ScheduleCommand(_message.Message):
    __slots__ = ("now_ms", "request", "due_ms")
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    now_ms: int
    request: bytes
    due_ms: bytes
    def __init__(self, now_ms: _Optional[int] = ..., request: _Optional[bytes] = ..., due_ms: _Optional[bytes] = ...) -> None: ...

class ReleaseCommand(_message.Message):
    __slots__ = ("until_ms", "count", "now_ms")
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    until_ms: int
    count: int
    now_ms: int
    def __init__(self, until_ms: _Optional[int] = ..., count: _Optional[int] = ..., now_ms: _Optional[int] = ...) -> None: ...

class AckCommand(_message.Message):
    __slots__ = ("group", "queue", "offset")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    group: str
    queue: int
    offset: bytes
    def __init__(self, group: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[bytes] = ...) -> None: ...

class RetryCommand(_message.Message):
    __slots__ = ("group", "queue", "offset", "due_ms", "attempt", "reason", "now_ms", "attempts_max")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    NOW_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_MAX_FIELD_NUMBER: _ClassVar[int]
    group: str
    queue: int
    offset: bytes
    due_ms: bytes
    attempt: bytes
    reason: int
    now_ms: int
    attempts_max: int
    def __init__(self, group: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[bytes] = ..., due_ms: _Optional[bytes] = ..., attempt: _Optional[bytes] = ..., reason: _Optional[int] = ..., now_ms: _Optional[int] = ..., attempts_max: _Optional[int] = ...) -> None: ...

class CancelCommand(_message.Message):
    __slots__ = ("hour", "global_index")
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    hour: bytes
    global_index: bytes
    def __init__(self, hour: _Optional[bytes] = ..., global_index: _Optional[bytes] = ...) -> None: ...

class SubscribeCommand(_message.Message):
    __slots__ = ("topic", "group")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ...) -> None: ...

class ReadCommand(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DispatchState(_message.Message):
    __slots__ = ("term", "tick", "local_index", "frontier_ms", "cursors")
    TERM_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    FRONTIER_MS_FIELD_NUMBER: _ClassVar[int]
    CURSORS_FIELD_NUMBER: _ClassVar[int]
    term: int
    tick: int
    local_index: int
    frontier_ms: int
    cursors: _containers.RepeatedCompositeFieldContainer[Cursor]
    def __init__(self, term: _Optional[int] = ..., tick: _Optional[int] = ..., local_index: _Optional[int] = ..., frontier_ms: _Optional[int] = ..., cursors: _Optional[_Iterable[_Union[Cursor, _Mapping]]] = ...) -> None: ...

class Cursor(_message.Message):
    __slots__ = ("group", "queue", "offset", "consumers")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    group: str
    queue: int
    offset: int
    consumers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, group: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[int] = ..., consumers: _Optional[_Iterable[str]] = ...) -> None: ...

class Checkpoint(_message.Message):
    __slots__ = ("applied_index", "applied_term", "wheel", "queues", "groups", "producers", "tick", "local_index", "pending")
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    APPLIED_TERM_FIELD_NUMBER: _ClassVar[int]
    WHEEL_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    PENDING_FIELD_NUMBER: _ClassVar[int]
    applied_index: int
    applied_term: int
    wheel: WheelCheckpoint
    queues: _containers.RepeatedCompositeFieldContainer[QueueCheckpoint]
    groups: _containers.RepeatedCompositeFieldContainer[GroupCheckpoint]
    producers: _containers.RepeatedCompositeFieldContainer[ProducerCheckpoint]
    tick: int
    local_index: int
    pending: int
    def __init__(self, applied_index: _Optional[int] = ..., applied_term: _Optional[int] = ..., wheel: _Optional[_Union[WheelCheckpoint, _Mapping]] = ..., queues: _Optional[_Iterable[_Union[QueueCheckpoint, _Mapping]]] = ..., groups: _Optional[_Iterable[_Union[GroupCheckpoint, _Mapping]]] = ..., producers: _Optional[_Iterable[_Union[ProducerCheckpoint, _Mapping]]] = ..., tick: _Optional[int] = ..., local_index: _Optional[int] = ..., pending: _Optional[int] = ...) -> None: ...

class WheelCheckpoint(_message.Message):
    __slots__ = ("hours", "cut_due_ms", "cut_global_index")
    HOURS_FIELD_NUMBER: _ClassVar[int]
    CUT_DUE_MS_FIELD_NUMBER: _ClassVar[int]
    CUT_GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    hours: _containers.RepeatedCompositeFieldContainer[HourCheckpoint]
    cut_due_ms: int
    cut_global_index: int
    def __init__(self, hours: _Optional[_Iterable[_Union[HourCheckpoint, _Mapping]]] = ..., cut_due_ms: _Optional[int] = ..., cut_global_index: _Optional[int] = ...) -> None: ...

class HourCheckpoint(_message.Message):
    __slots__ = ("hour", "log_bytes", "units", "index_crc", "cancelled")
    HOUR_FIELD_NUMBER: _ClassVar[int]
    LOG_BYTES_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    INDEX_CRC_FIELD_NUMBER: _ClassVar[int]
    CANCELLED_FIELD_NUMBER: _ClassVar[int]
    hour: int
    log_bytes: int
    units: int
    index_crc: int
    cancelled: bytes
    def __init__(self, hour: _Optional[int] = ..., log_bytes: _Optional[int] = ..., units: _Optional[int] = ..., index_crc: _Optional[int] = ..., cancelled: _Optional[bytes] = ...) -> None: ...

class QueueCheckpoint(_message.Message):
    __slots__ = ("queue", "topic", "group", "units", "crc")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    UNITS_FIELD_NUMBER: _ClassVar[int]
    CRC_FIELD_NUMBER: _ClassVar[int]
    queue: int
    topic: str
    group: str
    units: int
    crc: int
    def __init__(self, queue: _Optional[int] = ..., topic: _Optional[str] = ..., group: _Optional[str] = ..., units: _Optional[int] = ..., crc: _Optional[int] = ...) -> None: ...

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
    __slots__ = ("producer", "seen_ms", "answers")
    PRODUCER_FIELD_NUMBER: _ClassVar[int]
    SEEN_MS_FIELD_NUMBER: _ClassVar[int]
    ANSWERS_FIELD_NUMBER: _ClassVar[int]
    producer: str
    seen_ms: int
    answers: _containers.RepeatedCompositeFieldContainer[Answer]
    def __init__(self, producer: _Optional[str] = ..., seen_ms: _Optional[int] = ..., answers: _Optional[_Iterable[_Union[Answer, _Mapping]]] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("sequence", "response")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    response: bytes
    def __init__(self, sequence: _Optional[int] = ..., response: _Optional[bytes] = ...) -> None: ...
