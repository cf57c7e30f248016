"""The cluster as one node sees it, as values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Self, TypeAlias, get_args, get_type_hints

from tarry.client.errors import TarryError
from tarry.proto.topic_patterns import matches

if TYPE_CHECKING:
    from google.protobuf.message import Message

_hints: Callable[[type], dict[str, Any]] = cache(get_type_hints)


class Part:
    """A dataclass of fields that a message has under the same names; parts of the message are parts of it.

    Bytes are in hexadecimal, and times that the message has in µs are in ms.
    """

    __slots__ = ()

    @classmethod
    def of(cls, message: Message) -> Self:
        """Return the part of an answer."""
        return cls(**{name: _field(message, name, hint) for name, hint in _hints(cls).items()})


def _field(message: Message, name: str, hint: Any) -> object:
    if name not in message.DESCRIPTOR.fields_by_name:
        return getattr(message, name.replace("_ms", "_us")) / 1_000
    value = getattr(message, name)
    if parts := get_args(hint):
        return tuple(map(parts[0].of, value)) if issubclass(parts[0], Part) else tuple(value)
    if isinstance(value, bytes):
        return value.hex()
    return hint.of(value) if issubclass(hint, Part) else value


@dataclass(frozen=True, slots=True)
class Member(Part):
    """A node as the answering node sees it."""

    node: str
    address: str
    connected: bool
    match_index: int
    """Highest log index known to be on it; known to the leader only."""
    clock_offset_ms: int
    """Its clock minus the answering node's."""
    blocked: str = ""
    """Its port for streams that the answering node cannot reach, and why; empty: none is known."""
    version: str = ""
    """Known to the leader and itself only, as ``level_max``."""
    level_max: int = 0
    """The highest level that it can apply; 0: not known."""


@dataclass(frozen=True, slots=True)
class GroupStatus(Part):
    """Progress of a group in a topic."""

    group: str
    floor: int
    """Every offset below is acknowledged."""
    acked_above_floor: int
    retrying: int
    consumers: int
    in_hand: int
    held_bytes: int = 0
    """On disk, of what lies behind the floor, as of the leader's last look; known to the leader only."""
    used_ms: int = 0
    """Time of its last use, to an eighth of its expiry; 0: not known."""
    expiry_ms: int = 0
    """Without use for so long it is deleted; 0: never."""
    expired: int = 0
    """Messages that it had yet to acknowledge after ``retention_max_ms``."""
    dropped: int = 0
    """Messages whose attempts were used up, where its dead-letter topic is ``none``."""
    backing_off: int = 0
    """Messages that wait for their retry; once that is due they are ``retrying``."""
    credit: int = 0
    """Messages that its consumers would take, together; known to the leader only."""
    delayed: int = 0
    """Released messages that are due and wait for the group's delay."""
    delay_ms: int = 0
    """Of its policy as it counts."""


@dataclass(frozen=True, slots=True)
class Consumer(Part):
    """A consumer of a group that has a stream open, or a call under way, or messages in hand."""

    consumer: str
    """Its name."""
    address: str
    """``host:port`` of its connection, as the node saw it that took the call; empty: not known, where only
    the leader before has delivered to it."""
    since_ms: int
    """Time at which its stream, or the last of its calls, began; 0: not known."""
    polls: bool
    """It receives call by call; False: from a stream, or not known."""
    connected: bool
    """Its stream is open, or a call of it waits; False: it only has messages in hand."""
    credit: int
    """Messages that it would take beside those in hand."""
    in_hand: int
    """Messages delivered and not settled."""
    lease_end_ms: int
    """Of the first of their leases to end; 0: none is in hand."""
    tags: tuple[str, ...]
    """It asks for messages with any of these, the first 16; none: for all."""
    tags_left_out: int = 0
    """How many more of them there are."""
    topics: tuple[str, ...] = ()
    """Names and patterns of its stream or call, the first 16; none: it has this topic alone."""
    topics_left_out: int = 0
    filter: str = ""
    """By properties, its first 256 characters; empty: none."""

    @property
    def tags_shown(self) -> tuple[str, ...]:
        """Its tags, and how many more there are, to be shown."""
        more = (f"and {self.tags_left_out:,} more",) if self.tags_left_out else ()
        return (*self.tags, *more)

    @property
    def topics_shown(self) -> tuple[str, ...]:
        """Its names and patterns, where its stream has several topics, and how many more, to be shown."""
        more = (f"and {self.topics_left_out:,} more",) if self.topics_left_out else ()
        return (*self.topics, *more)


@dataclass(frozen=True, slots=True)
class Lateness(Part):
    """Lateness of the releases of the last minute; known to the leader only."""

    released: int = 0
    """Number of messages; 0: nothing is known."""
    p50_ms: int = 0
    """Half of them were so late at most, to an eighth; what is in time is 0 ms late."""
    p99_ms: int = 0
    max_ms: int = 0


@dataclass(frozen=True, slots=True)
class TopicStatus(Part):
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
    lateness: Lateness = Lateness()
    """Its percentiles to a power of two."""
    overdue: int = 0
    """In the wheel, due and not released; in a backlog only those that the node has in memory."""
    oldest_overdue_ms: int = 0
    """Duration since the first of them was due; 0: none is."""


@dataclass(frozen=True, slots=True)
class LedgerStatus(Part):
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
class ReloadStatus(Part):
    """Certificates and tokens of the answering node, read again since it started."""

    done: int
    """Number of reloads."""
    at_ms: int
    """Time of the last, by the node's own clock; 0: none."""
    failure: str
    """Why the last try changed nothing; empty: it did not fail."""


@dataclass(frozen=True, slots=True)
class AuditStatus(Part):
    """The answering node's record of operators' calls."""

    enabled: bool
    lines: int
    """Written since the node started."""
    lost: int
    """Lines that could not be written."""
    failure: str
    """Why the last could not be; empty: it was."""


@dataclass(frozen=True, slots=True)
class Hold(Part):
    """A turn of a node's event loop, or a part of one."""

    cause: str
    """Part that took most of it."""
    held_ms: float
    cpu_ms: float
    at_ms: int
    """End, by the node's own clock."""


@dataclass(frozen=True, slots=True)
class TurnStatus(Part):
    """For how long the answering node's event loop has been held at once since it started."""

    longest: Hold
    busiest: Hold
    """By CPU time: on a busy machine a turn takes longer than it works."""
    over_20_ms: int
    """Number of turns."""
    over_100_ms: int
    causes: tuple[Hold, ...]
    """The longest part of a turn by each cause, longest first."""


@dataclass(frozen=True, slots=True)
class SettingDifference(Part):
    """A key of the configuration that has to be equal on all nodes, and is not."""

    key: str
    node: str
    value: str
    other: str
    """Another node."""
    other_value: str


@dataclass(frozen=True, slots=True)
class Rights(Part):
    """Rights of the caller's token. Topics by name, or by what names begin with and then ``*``.

    A node of a version before 0.3.0 tells of none.
    """

    token: str = ""
    """Its name in the audit log; empty: the cluster has no tokens."""
    produce: tuple[str, ...] = ()
    consume: tuple[str, ...] = ()
    operate: bool = False

    def may_produce(self, topic: str) -> bool:
        """Return whether messages of a topic may be scheduled and cancelled."""
        return any(matches(pattern, topic) for pattern in self.produce)

    def may_consume(self, topic: str) -> bool:
        """Return whether messages of a topic may be received."""
        return any(matches(pattern, topic) for pattern in self.consume)


@dataclass(frozen=True, slots=True)
class ClusterStatus(Part):
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
    reload: ReloadStatus
    audit: AuditStatus
    level: int
    """The cluster's, as the answering node has applied it; 0: it is of a version that knows of none."""
    level_max: int
    """The highest that the answering node can apply; 0: likewise."""
    upgrade_finish: str
    """The answering node's ``upgrade.finish``."""
    differing: tuple[SettingDifference, ...] = ()
    """Known to the leader only; 100 at most."""
    overdue: int = 0
    """Messages in the wheel that are due and not released."""
    oldest_overdue_ms: int = 0
    """Duration since the first of them was due; 0: none is."""
    lateness: Lateness = Lateness()
    """Of all topics, with groups' retries."""
    pending_ahead: tuple[int, ...] = ()
    """Messages in the wheel by the second in which they are due, the present one first; empty where none was
    asked for, and where the node has an hour of them not in memory."""
    rights: Rights = Rights()
    """Of who has asked."""
    flush_ms: int = 0
    """Of async durability: what a majority's loss of power takes back is not older; 0: it is sync."""
    unflushed: int = 0
    """Entries that the answering node has written, and not flushed yet."""
    no_boot_id: bool = False
    """The answering node would not notice a loss of power, and so flushes each write."""


Answers: TypeAlias = Mapping[str, ClusterStatus | TarryError]
"""What each node says, or why it says nothing, by address."""


def best_of(answers: Answers) -> ClusterStatus | None:
    """Return the answer of the leader, or of the node that is nearest to being one; None: nobody answers."""
    told = (answer for answer in answers.values() if isinstance(answer, ClusterStatus))
    return max(told, key=lambda answer: (answer.lease, answer.term, answer.applied_index), default=None)


def released_per_s(before: ClusterStatus | None, now: ClusterStatus) -> dict[str, float]:
    """Return the rate of each topic since an answer before, which had it and not just one of that name."""
    if before is None or now.now_ms <= before.now_ms:
        return {}
    known = {topic.topic: topic.released for topic in before.topics}
    passed_s = (now.now_ms - before.now_ms) / 1_000
    return {
        topic.topic: (topic.released - known[topic.topic]) / passed_s
        for topic in now.topics
        if topic.released >= known.get(topic.topic, math.inf)
    }
