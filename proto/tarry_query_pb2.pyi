from tarry.proto import tarry_message_pb2 as _tarry_message_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ListedState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LISTED_STATE_UNSPECIFIED: _ClassVar[ListedState]
    LISTED_STATE_PENDING: _ClassVar[ListedState]
    LISTED_STATE_RETRYING: _ClassVar[ListedState]
    LISTED_STATE_RELEASED: _ClassVar[ListedState]
    LISTED_STATE_WAITING: _ClassVar[ListedState]
    LISTED_STATE_IN_HAND: _ClassVar[ListedState]
    LISTED_STATE_SETTLED: _ClassVar[ListedState]
LISTED_STATE_UNSPECIFIED: ListedState
LISTED_STATE_PENDING: ListedState
LISTED_STATE_RETRYING: ListedState
LISTED_STATE_RELEASED: ListedState
LISTED_STATE_WAITING: ListedState
LISTED_STATE_IN_HAND: ListedState
LISTED_STATE_SETTLED: ListedState

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
    __slots__ = ()
    def __init__(self) -> None: ...

class ForecastResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

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
    __slots__ = ("id", "due_ms", "state", "group", "attempt", "reason", "offset", "released_ms", "damaged", "tags", "keys", "ordering_key", "properties", "body_bytes", "body")
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
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., state: _Optional[_Union[ListedState, str]] = ..., group: _Optional[str] = ..., attempt: _Optional[int] = ..., reason: _Optional[_Union[_tarry_message_pb2.RetryReason, str]] = ..., offset: _Optional[int] = ..., released_ms: _Optional[int] = ..., damaged: _Optional[bool] = ..., tags: _Optional[_Iterable[str]] = ..., keys: _Optional[_Iterable[str]] = ..., ordering_key: _Optional[str] = ..., properties: _Optional[_Mapping[str, str]] = ..., body_bytes: _Optional[int] = ..., body: _Optional[bytes] = ...) -> None: ...

class GetLifeRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: str
    def __init__(self, id: _Optional[str] = ...) -> None: ...

class GetLifeResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CancelMatchingRequest(_message.Message):
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: MessageFilter
    def __init__(self, filter: _Optional[_Union[MessageFilter, _Mapping]] = ...) -> None: ...

class CancelMatchingResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
