from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

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
    __slots__ = ("filter",)
    FILTER_FIELD_NUMBER: _ClassVar[int]
    filter: MessageFilter
    def __init__(self, filter: _Optional[_Union[MessageFilter, _Mapping]] = ...) -> None: ...

class ListMessagesResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

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
