from tarry.proto import tarry_message_pb2 as _tarry_message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OverlapPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OVERLAP_POLICY_UNSPECIFIED: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_ALLOW: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_SKIP: _ClassVar[OverlapPolicy]
    OVERLAP_POLICY_QUEUE: _ClassVar[OverlapPolicy]

class MissedPolicy(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MISSED_POLICY_UNSPECIFIED: _ClassVar[MissedPolicy]
    MISSED_POLICY_LAST: _ClassVar[MissedPolicy]
    MISSED_POLICY_ALL: _ClassVar[MissedPolicy]
    MISSED_POLICY_NONE: _ClassVar[MissedPolicy]

class FireOutcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FIRE_OUTCOME_UNSPECIFIED: _ClassVar[FireOutcome]
    FIRE_OUTCOME_FIRED: _ClassVar[FireOutcome]
    FIRE_OUTCOME_TRIGGERED: _ClassVar[FireOutcome]
    FIRE_OUTCOME_SKIPPED: _ClassVar[FireOutcome]
    FIRE_OUTCOME_MISSED: _ClassVar[FireOutcome]
    FIRE_OUTCOME_QUEUED: _ClassVar[FireOutcome]
    FIRE_OUTCOME_CANCELLED: _ClassVar[FireOutcome]
OVERLAP_POLICY_UNSPECIFIED: OverlapPolicy
OVERLAP_POLICY_ALLOW: OverlapPolicy
OVERLAP_POLICY_SKIP: OverlapPolicy
OVERLAP_POLICY_QUEUE: OverlapPolicy
MISSED_POLICY_UNSPECIFIED: MissedPolicy
MISSED_POLICY_LAST: MissedPolicy
MISSED_POLICY_ALL: MissedPolicy
MISSED_POLICY_NONE: MissedPolicy
FIRE_OUTCOME_UNSPECIFIED: FireOutcome
FIRE_OUTCOME_FIRED: FireOutcome
FIRE_OUTCOME_TRIGGERED: FireOutcome
FIRE_OUTCOME_SKIPPED: FireOutcome
FIRE_OUTCOME_MISSED: FireOutcome
FIRE_OUTCOME_QUEUED: FireOutcome
FIRE_OUTCOME_CANCELLED: FireOutcome

class RecurringSpec(_message.Message):
    __slots__ = ("topic", "record", "interval_ms", "cron", "zone", "start_ms", "end_ms", "jitter_ms", "overlap", "missed", "missed_after_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RECORD_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    JITTER_MS_FIELD_NUMBER: _ClassVar[int]
    OVERLAP_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    MISSED_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    record: _tarry_message_pb2.Record
    interval_ms: int
    cron: str
    zone: str
    start_ms: int
    end_ms: int
    jitter_ms: int
    overlap: OverlapPolicy
    missed: MissedPolicy
    missed_after_ms: int
    def __init__(self, topic: _Optional[str] = ..., record: _Optional[_Union[_tarry_message_pb2.Record, _Mapping]] = ..., interval_ms: _Optional[int] = ..., cron: _Optional[str] = ..., zone: _Optional[str] = ..., start_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., jitter_ms: _Optional[int] = ..., overlap: _Optional[_Union[OverlapPolicy, str]] = ..., missed: _Optional[_Union[MissedPolicy, str]] = ..., missed_after_ms: _Optional[int] = ...) -> None: ...

class Fire(_message.Message):
    __slots__ = ("outcome", "fire_ms", "id", "due_ms", "decided_ms", "fires")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    FIRE_MS_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DECIDED_MS_FIELD_NUMBER: _ClassVar[int]
    FIRES_FIELD_NUMBER: _ClassVar[int]
    outcome: FireOutcome
    fire_ms: int
    id: str
    due_ms: int
    decided_ms: int
    fires: int
    def __init__(self, outcome: _Optional[_Union[FireOutcome, str]] = ..., fire_ms: _Optional[int] = ..., id: _Optional[str] = ..., due_ms: _Optional[int] = ..., decided_ms: _Optional[int] = ..., fires: _Optional[int] = ...) -> None: ...

class Recurring(_message.Message):
    __slots__ = ("name", "spec", "number", "revision", "paused", "created_ms", "changed_ms", "next_ms", "ended", "waiting_ms", "fired", "triggered", "skipped", "missed", "history")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    CREATED_MS_FIELD_NUMBER: _ClassVar[int]
    CHANGED_MS_FIELD_NUMBER: _ClassVar[int]
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    WAITING_MS_FIELD_NUMBER: _ClassVar[int]
    FIRED_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    MISSED_FIELD_NUMBER: _ClassVar[int]
    HISTORY_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: RecurringSpec
    number: int
    revision: int
    paused: bool
    created_ms: int
    changed_ms: int
    next_ms: int
    ended: bool
    waiting_ms: int
    fired: int
    triggered: int
    skipped: int
    missed: int
    history: _containers.RepeatedCompositeFieldContainer[Fire]
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[RecurringSpec, _Mapping]] = ..., number: _Optional[int] = ..., revision: _Optional[int] = ..., paused: _Optional[bool] = ..., created_ms: _Optional[int] = ..., changed_ms: _Optional[int] = ..., next_ms: _Optional[int] = ..., ended: _Optional[bool] = ..., waiting_ms: _Optional[int] = ..., fired: _Optional[int] = ..., triggered: _Optional[int] = ..., skipped: _Optional[int] = ..., missed: _Optional[int] = ..., history: _Optional[_Iterable[_Union[Fire, _Mapping]]] = ...) -> None: ...

class PutRecurringRequest(_message.Message):
    __slots__ = ("name", "spec", "if_revision", "paused")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: RecurringSpec
    if_revision: int
    paused: bool
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[RecurringSpec, _Mapping]] = ..., if_revision: _Optional[int] = ..., paused: _Optional[bool] = ...) -> None: ...

class RecurringResponse(_message.Message):
    __slots__ = ("recurring",)
    RECURRING_FIELD_NUMBER: _ClassVar[int]
    recurring: Recurring
    def __init__(self, recurring: _Optional[_Union[Recurring, _Mapping]] = ...) -> None: ...

class GetRecurringRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListRecurringRequest(_message.Message):
    __slots__ = ("topic", "name_prefix", "page_size", "cursor")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_PREFIX_FIELD_NUMBER: _ClassVar[int]
    PAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name_prefix: str
    page_size: int
    cursor: str
    def __init__(self, topic: _Optional[str] = ..., name_prefix: _Optional[str] = ..., page_size: _Optional[int] = ..., cursor: _Optional[str] = ...) -> None: ...

class ListRecurringResponse(_message.Message):
    __slots__ = ("recurring", "cursor", "total")
    RECURRING_FIELD_NUMBER: _ClassVar[int]
    CURSOR_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    recurring: _containers.RepeatedCompositeFieldContainer[Recurring]
    cursor: str
    total: int
    def __init__(self, recurring: _Optional[_Iterable[_Union[Recurring, _Mapping]]] = ..., cursor: _Optional[str] = ..., total: _Optional[int] = ...) -> None: ...

class DeleteRecurringRequest(_message.Message):
    __slots__ = ("name", "if_revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    if_revision: int
    def __init__(self, name: _Optional[str] = ..., if_revision: _Optional[int] = ...) -> None: ...

class DeleteRecurringResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PauseRecurringRequest(_message.Message):
    __slots__ = ("name", "if_revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    if_revision: int
    def __init__(self, name: _Optional[str] = ..., if_revision: _Optional[int] = ...) -> None: ...

class ResumeRecurringRequest(_message.Message):
    __slots__ = ("name", "if_revision")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IF_REVISION_FIELD_NUMBER: _ClassVar[int]
    name: str
    if_revision: int
    def __init__(self, name: _Optional[str] = ..., if_revision: _Optional[int] = ...) -> None: ...

class TriggerRecurringRequest(_message.Message):
    __slots__ = ("name", "if_triggered")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IF_TRIGGERED_FIELD_NUMBER: _ClassVar[int]
    name: str
    if_triggered: int
    def __init__(self, name: _Optional[str] = ..., if_triggered: _Optional[int] = ...) -> None: ...

class TriggerRecurringResponse(_message.Message):
    __slots__ = ("id", "due_ms", "triggered")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    TRIGGERED_FIELD_NUMBER: _ClassVar[int]
    id: str
    due_ms: int
    triggered: int
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., triggered: _Optional[int] = ...) -> None: ...

class NextFiresRequest(_message.Message):
    __slots__ = ("name", "spec", "fires_max", "after_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SPEC_FIELD_NUMBER: _ClassVar[int]
    FIRES_MAX_FIELD_NUMBER: _ClassVar[int]
    AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    spec: RecurringSpec
    fires_max: int
    after_ms: int
    def __init__(self, name: _Optional[str] = ..., spec: _Optional[_Union[RecurringSpec, _Mapping]] = ..., fires_max: _Optional[int] = ..., after_ms: _Optional[int] = ...) -> None: ...

class NextFiresResponse(_message.Message):
    __slots__ = ("fire_ms", "local", "ended")
    FIRE_MS_FIELD_NUMBER: _ClassVar[int]
    LOCAL_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    fire_ms: _containers.RepeatedScalarFieldContainer[int]
    local: _containers.RepeatedScalarFieldContainer[str]
    ended: bool
    def __init__(self, fire_ms: _Optional[_Iterable[int]] = ..., local: _Optional[_Iterable[str]] = ..., ended: _Optional[bool] = ...) -> None: ...
