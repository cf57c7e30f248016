from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ClusterStatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ClusterStatusResponse(_message.Message):
    __slots__ = ("node", "leader", "term", "commit_index", "applied_index", "members", "pending", "ready", "frontier_ms", "tick", "local_index", "now_ms", "topics", "version", "lease", "state_digest")
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
    def __init__(self, node: _Optional[str] = ..., leader: _Optional[str] = ..., term: _Optional[int] = ..., commit_index: _Optional[int] = ..., applied_index: _Optional[int] = ..., members: _Optional[_Iterable[_Union[Member, _Mapping]]] = ..., pending: _Optional[int] = ..., ready: _Optional[int] = ..., frontier_ms: _Optional[int] = ..., tick: _Optional[int] = ..., local_index: _Optional[int] = ..., now_ms: _Optional[int] = ..., topics: _Optional[_Iterable[_Union[TopicStatus, _Mapping]]] = ..., version: _Optional[str] = ..., lease: _Optional[bool] = ..., state_digest: _Optional[bytes] = ...) -> None: ...

class Member(_message.Message):
    __slots__ = ("node", "address", "connected", "match_index", "clock_offset_ms")
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    MATCH_INDEX_FIELD_NUMBER: _ClassVar[int]
    CLOCK_OFFSET_MS_FIELD_NUMBER: _ClassVar[int]
    node: str
    address: str
    connected: bool
    match_index: int
    clock_offset_ms: int
    def __init__(self, node: _Optional[str] = ..., address: _Optional[str] = ..., connected: _Optional[bool] = ..., match_index: _Optional[int] = ..., clock_offset_ms: _Optional[int] = ...) -> None: ...

class TopicStatus(_message.Message):
    __slots__ = ("topic", "released", "groups")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RELEASED_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    released: int
    groups: _containers.RepeatedCompositeFieldContainer[GroupStatus]
    def __init__(self, topic: _Optional[str] = ..., released: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[GroupStatus, _Mapping]]] = ...) -> None: ...

class GroupStatus(_message.Message):
    __slots__ = ("group", "floor", "acked_above_floor", "retrying", "consumers", "in_hand")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    FLOOR_FIELD_NUMBER: _ClassVar[int]
    ACKED_ABOVE_FLOOR_FIELD_NUMBER: _ClassVar[int]
    RETRYING_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    IN_HAND_FIELD_NUMBER: _ClassVar[int]
    group: str
    floor: int
    acked_above_floor: int
    retrying: int
    consumers: int
    in_hand: int
    def __init__(self, group: _Optional[str] = ..., floor: _Optional[int] = ..., acked_above_floor: _Optional[int] = ..., retrying: _Optional[int] = ..., consumers: _Optional[int] = ..., in_hand: _Optional[int] = ...) -> None: ...

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
