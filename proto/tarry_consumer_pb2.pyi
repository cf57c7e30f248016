from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StartAt(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    START_AT_UNSPECIFIED: _ClassVar[StartAt]
    START_AT_EARLIEST: _ClassVar[StartAt]
    START_AT_LATEST: _ClassVar[StartAt]
    START_AT_TIME: _ClassVar[StartAt]
START_AT_UNSPECIFIED: StartAt
START_AT_EARLIEST: StartAt
START_AT_LATEST: StartAt
START_AT_TIME: StartAt

class ReceiveRequest(_message.Message):
    __slots__ = ("topic", "group", "consumer", "messages_max", "wait_ms", "lease_ms", "tags", "start", "topics", "filter")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    consumer: str
    messages_max: int
    wait_ms: int
    lease_ms: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    start: GroupStart
    topics: _containers.RepeatedScalarFieldContainer[str]
    filter: str
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., messages_max: _Optional[int] = ..., wait_ms: _Optional[int] = ..., lease_ms: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., start: _Optional[_Union[GroupStart, _Mapping]] = ..., topics: _Optional[_Iterable[str]] = ..., filter: _Optional[str] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("deliveries", "incarnation")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Deliveries]
    incarnation: int
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Deliveries, _Mapping]]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("topic", "group", "consumer", "queue", "offset", "incarnation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    consumer: str
    queue: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    incarnation: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class NackRequest(_message.Message):
    __slots__ = ("topic", "group", "consumer", "queue", "offset", "delay_ms", "dead_letter", "incarnation", "at_least")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    consumer: str
    queue: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    delay_ms: int
    dead_letter: bool
    incarnation: int
    at_least: bool
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ..., delay_ms: _Optional[int] = ..., dead_letter: _Optional[bool] = ..., incarnation: _Optional[int] = ..., at_least: _Optional[bool] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("topic", "group", "consumer", "queue", "offset", "lease_ms", "incarnation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    consumer: str
    queue: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    lease_ms: int
    incarnation: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., queue: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ..., lease_ms: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class AckResponse(_message.Message):
    __slots__ = ("stale",)
    STALE_FIELD_NUMBER: _ClassVar[int]
    stale: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, stale: _Optional[_Iterable[int]] = ...) -> None: ...

class GroupStart(_message.Message):
    __slots__ = ("at", "time_ms")
    AT_FIELD_NUMBER: _ClassVar[int]
    TIME_MS_FIELD_NUMBER: _ClassVar[int]
    at: StartAt
    time_ms: int
    def __init__(self, at: _Optional[_Union[StartAt, str]] = ..., time_ms: _Optional[int] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("subscribe", "credit", "ack", "nack", "extend")
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    NACK_FIELD_NUMBER: _ClassVar[int]
    EXTEND_FIELD_NUMBER: _ClassVar[int]
    subscribe: Subscribe
    credit: Credit
    ack: Ack
    nack: Nack
    extend: Extend
    def __init__(self, subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., ack: _Optional[_Union[Ack, _Mapping]] = ..., nack: _Optional[_Union[Nack, _Mapping]] = ..., extend: _Optional[_Union[Extend, _Mapping]] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("topic", "group", "consumer", "credit", "lease_ms", "tags", "holding", "in_hand_bytes_max", "start", "broadcast", "temporary", "topics", "filter", "incarnation")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    IN_HAND_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    BROADCAST_FIELD_NUMBER: _ClassVar[int]
    TEMPORARY_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    group: str
    consumer: str
    credit: int
    lease_ms: int
    tags: _containers.RepeatedScalarFieldContainer[str]
    holding: _containers.RepeatedCompositeFieldContainer[Holding]
    in_hand_bytes_max: int
    start: GroupStart
    broadcast: bool
    temporary: bool
    topics: _containers.RepeatedScalarFieldContainer[str]
    filter: str
    incarnation: int
    def __init__(self, topic: _Optional[str] = ..., group: _Optional[str] = ..., consumer: _Optional[str] = ..., credit: _Optional[int] = ..., lease_ms: _Optional[int] = ..., tags: _Optional[_Iterable[str]] = ..., holding: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ..., in_hand_bytes_max: _Optional[int] = ..., start: _Optional[_Union[GroupStart, _Mapping]] = ..., broadcast: _Optional[bool] = ..., temporary: _Optional[bool] = ..., topics: _Optional[_Iterable[str]] = ..., filter: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Holding(_message.Message):
    __slots__ = ("queue", "offset")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    queue: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, queue: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: int
    def __init__(self, messages: _Optional[int] = ...) -> None: ...

class Ack(_message.Message):
    __slots__ = ("request", "queue", "offset")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    request: int
    queue: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., queue: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("request", "queue", "offset", "delay_ms", "dead_letter", "at_least")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    AT_LEAST_FIELD_NUMBER: _ClassVar[int]
    request: int
    queue: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    delay_ms: int
    dead_letter: bool
    at_least: bool
    def __init__(self, request: _Optional[int] = ..., queue: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ..., delay_ms: _Optional[int] = ..., dead_letter: _Optional[bool] = ..., at_least: _Optional[bool] = ...) -> None: ...

class Extend(_message.Message):
    __slots__ = ("request", "queue", "offset", "lease_ms")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    request: int
    queue: int
    offset: _containers.RepeatedScalarFieldContainer[int]
    lease_ms: int
    def __init__(self, request: _Optional[int] = ..., queue: _Optional[int] = ..., offset: _Optional[_Iterable[int]] = ..., lease_ms: _Optional[int] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("subscribed", "deliveries", "acked")
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    ACKED_FIELD_NUMBER: _ClassVar[int]
    subscribed: Subscribed
    deliveries: Deliveries
    acked: Acked
    def __init__(self, subscribed: _Optional[_Union[Subscribed, _Mapping]] = ..., deliveries: _Optional[_Union[Deliveries, _Mapping]] = ..., acked: _Optional[_Union[Acked, _Mapping]] = ...) -> None: ...

class Subscribed(_message.Message):
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
    resumed: _containers.RepeatedCompositeFieldContainer[Holding]
    incarnation: int
    def __init__(self, consumer: _Optional[str] = ..., lease_ms: _Optional[int] = ..., node: _Optional[str] = ..., term: _Optional[int] = ..., resumed: _Optional[_Iterable[_Union[Holding, _Mapping]]] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Deliveries(_message.Message):
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
    offset: _containers.RepeatedScalarFieldContainer[int]
    hour: _containers.RepeatedScalarFieldContainer[int]
    global_index: _containers.RepeatedScalarFieldContainer[int]
    due_ms: _containers.RepeatedScalarFieldContainer[int]
    released_ms: _containers.RepeatedScalarFieldContainer[int]
    attempt: _containers.RepeatedScalarFieldContainer[int]
    maybe_duplicate: _containers.RepeatedScalarFieldContainer[int]
    records: _containers.RepeatedScalarFieldContainer[bytes]
    stamp: DispatchStamp
    ordered: bool
    delay_ms: int
    delivered_ms: int
    def __init__(self, shard: _Optional[int] = ..., queue: _Optional[int] = ..., topic: _Optional[str] = ..., offset: _Optional[_Iterable[int]] = ..., hour: _Optional[_Iterable[int]] = ..., global_index: _Optional[_Iterable[int]] = ..., due_ms: _Optional[_Iterable[int]] = ..., released_ms: _Optional[_Iterable[int]] = ..., attempt: _Optional[_Iterable[int]] = ..., maybe_duplicate: _Optional[_Iterable[int]] = ..., records: _Optional[_Iterable[bytes]] = ..., stamp: _Optional[_Union[DispatchStamp, _Mapping]] = ..., ordered: _Optional[bool] = ..., delay_ms: _Optional[int] = ..., delivered_ms: _Optional[int] = ...) -> None: ...

class DispatchStamp(_message.Message):
    __slots__ = ("node", "term", "tick", "local_index")
    NODE_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    TICK_FIELD_NUMBER: _ClassVar[int]
    LOCAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    node: str
    term: int
    tick: int
    local_index: int
    def __init__(self, node: _Optional[str] = ..., term: _Optional[int] = ..., tick: _Optional[int] = ..., local_index: _Optional[int] = ...) -> None: ...

class Acked(_message.Message):
    __slots__ = ("request", "queue", "stale")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STALE_FIELD_NUMBER: _ClassVar[int]
    request: int
    queue: int
    stale: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, request: _Optional[int] = ..., queue: _Optional[int] = ..., stale: _Optional[_Iterable[int]] = ...) -> None: ...
