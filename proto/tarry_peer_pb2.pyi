from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LeaveRequest(_message.Message):
    __slots__ = ("cluster", "node", "incarnation")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    incarnation: int
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class JoinRequest(_message.Message):
    __slots__ = ("cluster", "node", "address", "incarnation")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    address: str
    incarnation: int
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., address: _Optional[str] = ..., incarnation: _Optional[int] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class RecallRequest(_message.Message):
    __slots__ = ("cluster", "node")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class RecallResponse(_message.Message):
    __slots__ = ("fresh", "spoken", "members", "cluster_incarnation")
    FRESH_FIELD_NUMBER: _ClassVar[int]
    SPOKEN_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    fresh: bool
    spoken: _containers.RepeatedScalarFieldContainer[str]
    members: _containers.RepeatedScalarFieldContainer[str]
    cluster_incarnation: int
    def __init__(self, fresh: _Optional[bool] = ..., spoken: _Optional[_Iterable[str]] = ..., members: _Optional[_Iterable[str]] = ..., cluster_incarnation: _Optional[int] = ...) -> None: ...

class MeetRequest(_message.Message):
    __slots__ = ("cluster", "node")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ...) -> None: ...

class MeetResponse(_message.Message):
    __slots__ = ("port", "tickets")
    PORT_FIELD_NUMBER: _ClassVar[int]
    TICKETS_FIELD_NUMBER: _ClassVar[int]
    port: int
    tickets: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, port: _Optional[int] = ..., tickets: _Optional[_Iterable[bytes]] = ...) -> None: ...

class PeerFrame(_message.Message):
    __slots__ = ("cluster", "sender", "receiver", "incarnation", "boot", "epoch", "sequence", "crc32c", "messages", "bulk", "continued", "continues", "joined")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    SENDER_FIELD_NUMBER: _ClassVar[int]
    RECEIVER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    BULK_FIELD_NUMBER: _ClassVar[int]
    CONTINUED_FIELD_NUMBER: _ClassVar[int]
    CONTINUES_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    sender: str
    receiver: str
    incarnation: int
    boot: int
    epoch: int
    sequence: int
    crc32c: int
    messages: _containers.RepeatedScalarFieldContainer[bytes]
    bulk: bool
    continued: bool
    continues: bool
    joined: bool
    def __init__(self, cluster: _Optional[str] = ..., sender: _Optional[str] = ..., receiver: _Optional[str] = ..., incarnation: _Optional[int] = ..., boot: _Optional[int] = ..., epoch: _Optional[int] = ..., sequence: _Optional[int] = ..., crc32c: _Optional[int] = ..., messages: _Optional[_Iterable[bytes]] = ..., bulk: _Optional[bool] = ..., continued: _Optional[bool] = ..., continues: _Optional[bool] = ..., joined: _Optional[bool] = ...) -> None: ...

class PeerMessage(_message.Message):
    __slots__ = ("append", "appended", "vote_request", "vote", "pre_vote_request", "pre_vote", "term_notice", "timeout_now", "heartbeat", "heartbeat_reply", "need_snapshot")
    APPEND_FIELD_NUMBER: _ClassVar[int]
    APPENDED_FIELD_NUMBER: _ClassVar[int]
    VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    VOTE_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_REQUEST_FIELD_NUMBER: _ClassVar[int]
    PRE_VOTE_FIELD_NUMBER: _ClassVar[int]
    TERM_NOTICE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NOW_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_REPLY_FIELD_NUMBER: _ClassVar[int]
    NEED_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    append: Append
    appended: Appended
    vote_request: VoteRequest
    vote: Vote
    pre_vote_request: PreVoteRequest
    pre_vote: PreVote
    term_notice: TermNotice
    timeout_now: TimeoutNow
    heartbeat: Heartbeat
    heartbeat_reply: HeartbeatReply
    need_snapshot: NeedSnapshot
    def __init__(self, append: _Optional[_Union[Append, _Mapping]] = ..., appended: _Optional[_Union[Appended, _Mapping]] = ..., vote_request: _Optional[_Union[VoteRequest, _Mapping]] = ..., vote: _Optional[_Union[Vote, _Mapping]] = ..., pre_vote_request: _Optional[_Union[PreVoteRequest, _Mapping]] = ..., pre_vote: _Optional[_Union[PreVote, _Mapping]] = ..., term_notice: _Optional[_Union[TermNotice, _Mapping]] = ..., timeout_now: _Optional[_Union[TimeoutNow, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., heartbeat_reply: _Optional[_Union[HeartbeatReply, _Mapping]] = ..., need_snapshot: _Optional[_Union[NeedSnapshot, _Mapping]] = ...) -> None: ...

class LoggedEntry(_message.Message):
    __slots__ = ("term", "payload")
    TERM_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    term: int
    payload: bytes
    def __init__(self, term: _Optional[int] = ..., payload: _Optional[bytes] = ...) -> None: ...

class Append(_message.Message):
    __slots__ = ("term", "prev_index", "prev_term", "commit_index", "sequence", "entries", "prev_chain", "deferred", "members")
    TERM_FIELD_NUMBER: _ClassVar[int]
    PREV_INDEX_FIELD_NUMBER: _ClassVar[int]
    PREV_TERM_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    PREV_CHAIN_FIELD_NUMBER: _ClassVar[int]
    DEFERRED_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    term: int
    prev_index: int
    prev_term: int
    commit_index: int
    sequence: int
    entries: _containers.RepeatedCompositeFieldContainer[LoggedEntry]
    prev_chain: int
    deferred: bool
    members: MemberList
    def __init__(self, term: _Optional[int] = ..., prev_index: _Optional[int] = ..., prev_term: _Optional[int] = ..., commit_index: _Optional[int] = ..., sequence: _Optional[int] = ..., entries: _Optional[_Iterable[_Union[LoggedEntry, _Mapping]]] = ..., prev_chain: _Optional[int] = ..., deferred: _Optional[bool] = ..., members: _Optional[_Union[MemberList, _Mapping]] = ...) -> None: ...

class Appended(_message.Message):
    __slots__ = ("term", "sequence", "next_index", "success", "reset", "flushed_index")
    TERM_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NEXT_INDEX_FIELD_NUMBER: _ClassVar[int]
    SUCCESS_FIELD_NUMBER: _ClassVar[int]
    RESET_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_INDEX_FIELD_NUMBER: _ClassVar[int]
    term: int
    sequence: int
    next_index: int
    success: bool
    reset: bool
    flushed_index: int
    def __init__(self, term: _Optional[int] = ..., sequence: _Optional[int] = ..., next_index: _Optional[int] = ..., success: _Optional[bool] = ..., reset: _Optional[bool] = ..., flushed_index: _Optional[int] = ...) -> None: ...

class VoteRequest(_message.Message):
    __slots__ = ("term", "last_index", "last_term", "transfer", "transfer_number")
    TERM_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_NUMBER_FIELD_NUMBER: _ClassVar[int]
    term: int
    last_index: int
    last_term: int
    transfer: bool
    transfer_number: int
    def __init__(self, term: _Optional[int] = ..., last_index: _Optional[int] = ..., last_term: _Optional[int] = ..., transfer: _Optional[bool] = ..., transfer_number: _Optional[int] = ...) -> None: ...

class Vote(_message.Message):
    __slots__ = ("term", "state")
    TERM_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    term: int
    state: bytes
    def __init__(self, term: _Optional[int] = ..., state: _Optional[bytes] = ...) -> None: ...

class PreVoteRequest(_message.Message):
    __slots__ = ("term", "round", "last_index", "last_term", "address")
    TERM_FIELD_NUMBER: _ClassVar[int]
    ROUND_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_TERM_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    term: int
    round: int
    last_index: int
    last_term: int
    address: str
    def __init__(self, term: _Optional[int] = ..., round: _Optional[int] = ..., last_index: _Optional[int] = ..., last_term: _Optional[int] = ..., address: _Optional[str] = ...) -> None: ...

class PreVote(_message.Message):
    __slots__ = ("round",)
    ROUND_FIELD_NUMBER: _ClassVar[int]
    round: int
    def __init__(self, round: _Optional[int] = ...) -> None: ...

class TermNotice(_message.Message):
    __slots__ = ("term", "members")
    class MembersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    TERM_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    term: int
    members: _containers.ScalarMap[str, str]
    def __init__(self, term: _Optional[int] = ..., members: _Optional[_Mapping[str, str]] = ...) -> None: ...

class TimeoutNow(_message.Message):
    __slots__ = ("term", "transfer_number")
    TERM_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_NUMBER_FIELD_NUMBER: _ClassVar[int]
    term: int
    transfer_number: int
    def __init__(self, term: _Optional[int] = ..., transfer_number: _Optional[int] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("term", "sent", "wall_ms", "transfer_number", "state", "patience_ms", "address", "level", "asks_settings")
    TERM_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    TRANSFER_NUMBER_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_MS_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    ASKS_SETTINGS_FIELD_NUMBER: _ClassVar[int]
    term: int
    sent: float
    wall_ms: int
    transfer_number: int
    state: bytes
    patience_ms: int
    address: str
    level: int
    asks_settings: bool
    def __init__(self, term: _Optional[int] = ..., sent: _Optional[float] = ..., wall_ms: _Optional[int] = ..., transfer_number: _Optional[int] = ..., state: _Optional[bytes] = ..., patience_ms: _Optional[int] = ..., address: _Optional[str] = ..., level: _Optional[int] = ..., asks_settings: _Optional[bool] = ...) -> None: ...

class HeartbeatReply(_message.Message):
    __slots__ = ("term", "sent", "wall_ms", "applied_index", "patience_ms", "level", "version", "settings_digest", "flushed_index", "settings")
    TERM_FIELD_NUMBER: _ClassVar[int]
    SENT_FIELD_NUMBER: _ClassVar[int]
    WALL_MS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_INDEX_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_MS_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    FLUSHED_INDEX_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    term: int
    sent: float
    wall_ms: int
    applied_index: int
    patience_ms: int
    level: int
    version: str
    settings_digest: int
    flushed_index: int
    settings: bytes
    def __init__(self, term: _Optional[int] = ..., sent: _Optional[float] = ..., wall_ms: _Optional[int] = ..., applied_index: _Optional[int] = ..., patience_ms: _Optional[int] = ..., level: _Optional[int] = ..., version: _Optional[str] = ..., settings_digest: _Optional[int] = ..., flushed_index: _Optional[int] = ..., settings: _Optional[bytes] = ...) -> None: ...

class SettingList(_message.Message):
    __slots__ = ("names", "values")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    VALUES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedScalarFieldContainer[str]
    values: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, names: _Optional[_Iterable[str]] = ..., values: _Optional[_Iterable[str]] = ...) -> None: ...

class FetchSnapshotRequest(_message.Message):
    __slots__ = ("cluster", "node", "kept", "level")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    kept: _containers.RepeatedCompositeFieldContainer[SnapshotFile]
    level: int
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., kept: _Optional[_Iterable[_Union[SnapshotFile, _Mapping]]] = ..., level: _Optional[int] = ...) -> None: ...

class FetchSnapshotResponse(_message.Message):
    __slots__ = ("manifest", "chunk")
    MANIFEST_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    manifest: SnapshotManifest
    chunk: SnapshotChunk
    def __init__(self, manifest: _Optional[_Union[SnapshotManifest, _Mapping]] = ..., chunk: _Optional[_Union[SnapshotChunk, _Mapping]] = ...) -> None: ...

class SnapshotManifest(_message.Message):
    __slots__ = ("position", "files")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    position: LogPosition
    files: _containers.RepeatedCompositeFieldContainer[SnapshotFile]
    def __init__(self, position: _Optional[_Union[LogPosition, _Mapping]] = ..., files: _Optional[_Iterable[_Union[SnapshotFile, _Mapping]]] = ...) -> None: ...

class SnapshotFile(_message.Message):
    __slots__ = ("name", "size_bytes", "crc32c")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SIZE_BYTES_FIELD_NUMBER: _ClassVar[int]
    CRC32C_FIELD_NUMBER: _ClassVar[int]
    name: str
    size_bytes: int
    crc32c: int
    def __init__(self, name: _Optional[str] = ..., size_bytes: _Optional[int] = ..., crc32c: _Optional[int] = ...) -> None: ...

class SnapshotChunk(_message.Message):
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

class FetchRecordsRequest(_message.Message):
    __slots__ = ("cluster", "node", "hour", "global_index")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    hour: int
    global_index: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., hour: _Optional[int] = ..., global_index: _Optional[_Iterable[int]] = ...) -> None: ...

class FetchIndexRequest(_message.Message):
    __slots__ = ("cluster", "node", "hour", "first", "count")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    HOUR_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    hour: int
    first: int
    count: int
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., hour: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class FetchIndexResponse(_message.Message):
    __slots__ = ("units",)
    UNITS_FIELD_NUMBER: _ClassVar[int]
    units: bytes
    def __init__(self, units: _Optional[bytes] = ...) -> None: ...

class FetchReadyRequest(_message.Message):
    __slots__ = ("cluster", "node", "queue", "first", "count")
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    cluster: str
    node: str
    queue: int
    first: int
    count: int
    def __init__(self, cluster: _Optional[str] = ..., node: _Optional[str] = ..., queue: _Optional[int] = ..., first: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class FetchReadyResponse(_message.Message):
    __slots__ = ("units",)
    UNITS_FIELD_NUMBER: _ClassVar[int]
    units: bytes
    def __init__(self, units: _Optional[bytes] = ...) -> None: ...

class FetchRecordsResponse(_message.Message):
    __slots__ = ("global_index", "records")
    GLOBAL_INDEX_FIELD_NUMBER: _ClassVar[int]
    RECORDS_FIELD_NUMBER: _ClassVar[int]
    global_index: _containers.RepeatedScalarFieldContainer[int]
    records: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, global_index: _Optional[_Iterable[int]] = ..., records: _Optional[_Iterable[bytes]] = ...) -> None: ...

class LogPosition(_message.Message):
    __slots__ = ("index", "term", "chain", "members")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    CHAIN_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    index: int
    term: int
    chain: int
    members: MemberList
    def __init__(self, index: _Optional[int] = ..., term: _Optional[int] = ..., chain: _Optional[int] = ..., members: _Optional[_Union[MemberList, _Mapping]] = ...) -> None: ...

class NeedSnapshot(_message.Message):
    __slots__ = ("term", "first_index", "sequence")
    TERM_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    term: int
    first_index: int
    sequence: int
    def __init__(self, term: _Optional[int] = ..., first_index: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class MembershipChange(_message.Message):
    __slots__ = ("remove", "node", "address", "returns", "incarnation")
    REMOVE_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RETURNS_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    remove: bool
    node: str
    address: str
    returns: bool
    incarnation: int
    def __init__(self, remove: _Optional[bool] = ..., node: _Optional[str] = ..., address: _Optional[str] = ..., returns: _Optional[bool] = ..., incarnation: _Optional[int] = ...) -> None: ...

class MemberList(_message.Message):
    __slots__ = ("addresses", "added", "returning", "incarnations")
    class AddressesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    class IncarnationsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ADDRESSES_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    RETURNING_FIELD_NUMBER: _ClassVar[int]
    INCARNATIONS_FIELD_NUMBER: _ClassVar[int]
    addresses: _containers.ScalarMap[str, str]
    added: _containers.RepeatedScalarFieldContainer[str]
    returning: _containers.RepeatedScalarFieldContainer[str]
    incarnations: _containers.ScalarMap[str, int]
    def __init__(self, addresses: _Optional[_Mapping[str, str]] = ..., added: _Optional[_Iterable[str]] = ..., returning: _Optional[_Iterable[str]] = ..., incarnations: _Optional[_Mapping[str, int]] = ...) -> None: ...

class NodeList(_message.Message):
    __slots__ = ("nodes",)
    NODES_FIELD_NUMBER: _ClassVar[int]
    nodes: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, nodes: _Optional[_Iterable[str]] = ...) -> None: ...

class JournalHead(_message.Message):
    __slots__ = ("incarnation", "boot", "term", "voted_for", "commit_index", "first_index", "last_index", "last_chain", "members", "installing", "spoken", "joined", "cluster_incarnation", "level")
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    TERM_FIELD_NUMBER: _ClassVar[int]
    VOTED_FOR_FIELD_NUMBER: _ClassVar[int]
    COMMIT_INDEX_FIELD_NUMBER: _ClassVar[int]
    FIRST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_INDEX_FIELD_NUMBER: _ClassVar[int]
    LAST_CHAIN_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    INSTALLING_FIELD_NUMBER: _ClassVar[int]
    SPOKEN_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_INCARNATION_FIELD_NUMBER: _ClassVar[int]
    LEVEL_FIELD_NUMBER: _ClassVar[int]
    incarnation: int
    boot: int
    term: int
    voted_for: str
    commit_index: int
    first_index: int
    last_index: int
    last_chain: int
    members: MemberList
    installing: LogPosition
    spoken: NodeList
    joined: bool
    cluster_incarnation: int
    level: int
    def __init__(self, incarnation: _Optional[int] = ..., boot: _Optional[int] = ..., term: _Optional[int] = ..., voted_for: _Optional[str] = ..., commit_index: _Optional[int] = ..., first_index: _Optional[int] = ..., last_index: _Optional[int] = ..., last_chain: _Optional[int] = ..., members: _Optional[_Union[MemberList, _Mapping]] = ..., installing: _Optional[_Union[LogPosition, _Mapping]] = ..., spoken: _Optional[_Union[NodeList, _Mapping]] = ..., joined: _Optional[bool] = ..., cluster_incarnation: _Optional[int] = ..., level: _Optional[int] = ...) -> None: ...
