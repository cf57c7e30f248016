"""The cluster as one node sees it, as values."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from tarry.proto import tarry_operator_pb2 as operator_pb

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from google.protobuf.message import Message

Value = TypeVar("Value", bound="DataclassInstance")


def _value(kind: type[Value], message: Message, **converted: Any) -> Value:
    """Return a value with the fields of a message of the same names, except those given converted."""
    names = {field.name for field in fields(kind)} - converted.keys()
    return kind(**{name: getattr(message, name) for name in names}, **converted)


@dataclass(frozen=True, slots=True)
class Member:
    """A node as the answering node sees it."""

    node: str
    address: str
    connected: bool
    match_index: int
    """Highest log index known to be on it; known to the leader only."""
    clock_offset_ms: int
    """Its clock minus the answering node's."""


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """Progress of a group in a topic."""

    group: str
    floor: int
    """Every offset below is acknowledged."""
    acked_above_floor: int
    retrying: int
    consumers: int
    in_hand: int


@dataclass(frozen=True, slots=True)
class TopicStatus:
    """A topic that has released messages or groups."""

    topic: str
    released: int
    """So far: the offset of what is released next."""
    first_offset: int
    """Offsets below are deleted."""
    groups: tuple[GroupStatus, ...]
    pending: int = 0
    """In the wheel."""
    held_back: int = 0
    """Released, and held back by the topic's rate."""
    held_until_ms: int = 0
    """Time at which the last of them is opened; 0: none is held back."""
    misfires_dropped: int = 0
    """Released too late, and dropped as the topic's settings say."""

    @classmethod
    def of(cls, topic: operator_pb.TopicStatus) -> TopicStatus:
        """Return the part of an answer."""
        return _value(cls, topic, groups=tuple(_value(GroupStatus, group) for group in topic.groups))


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """The answering node's ledger."""

    enabled: bool
    segments: int
    """Closed ones."""
    bytes: int
    """Of them."""
    dropped: int
    """Rows that could not be written, since the node started."""
    covered_index: int
    """Every applied entry up to here is written."""
    failure: str
    """Why nothing can be written now; empty: it can."""
    last_segment: int
    """Number of the last that is closed; 0: none."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A turn of a node's event loop, or a part of one."""

    cause: str
    """Part that took most of it."""
    held_ms: float
    cpu_ms: float
    at_ms: int
    """End, by the node's own clock."""

    @classmethod
    def of(cls, hold: operator_pb.Hold) -> Hold:
        """Return the part of an answer."""
        return _value(cls, hold, held_ms=hold.held_us / 1000, cpu_ms=hold.cpu_us / 1000)


@dataclass(frozen=True, slots=True)
class TurnStatus:
    """For how long the answering node's event loop has been held at once since it started."""

    longest: Hold
    busiest: Hold
    """By CPU time: on a busy machine a turn takes longer than it works."""
    over_20_ms: int
    """Number of turns."""
    over_100_ms: int
    causes: tuple[Hold, ...]
    """The longest part of a turn by each cause, longest first."""

    @classmethod
    def of(cls, turns: operator_pb.TurnStatus) -> TurnStatus:
        """Return the part of an answer."""
        return _value(
            cls,
            turns,
            longest=Hold.of(turns.longest),
            busiest=Hold.of(turns.busiest),
            causes=tuple(map(Hold.of, turns.causes)),
        )


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """The cluster as one node sees it."""

    node: str
    leader: str
    """Name of the node that leads; empty where none is known."""
    term: int
    commit_index: int
    applied_index: int
    members: tuple[Member, ...]
    pending: int
    """Messages in the wheel."""
    ready: int
    """Messages released and not yet acknowledged by every group."""
    frontier_ms: int
    tick: int
    local_index: int
    now_ms: int
    topics: tuple[TopicStatus, ...]
    version: str
    lease: bool
    """The answering node leads and may serve."""
    state_digest: str
    """Equal on nodes of equal applied_index; hexadecimal; empty where it was not asked for."""
    damaged_found: int
    """Records of the answering node, since it started."""
    damaged_repaired: int
    """Of them, by a peer's copy."""
    damaged_left: int
    """Known to be damaged now: no peer in reach has them whole."""
    ledger: LedgerStatus
    turns: TurnStatus

    @classmethod
    def of(cls, response: operator_pb.ClusterStatusResponse) -> ClusterStatus:
        """Return the answer to one request."""
        return _value(
            cls,
            response,
            members=tuple(_value(Member, member) for member in response.members),
            topics=tuple(map(TopicStatus.of, response.topics)),
            state_digest=response.state_digest.hex(),
            ledger=_value(LedgerStatus, response.ledger),
            turns=TurnStatus.of(response.turns),
        )
