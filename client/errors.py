"""Exceptions: one base, one class for each thing a caller can do about it.

Every error carries the server's reason (UPPER_SNAKE), its text, its facts (for
instance ``leader`` or ``due_ms_max``) and, where the server gave one, the time
after which trying again makes sense. They are read from a gRPC status with google.rpc details.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

import grpc
from google.rpc import error_details_pb2, status_pb2

from tarry.proto.reasons import Reason


class TarryError(Exception):
    """Base of all errors of the client. ``str()`` is a sentence for people."""

    def __init__(
        self,
        reason: str,
        text: str,
        facts: Mapping[str, str] = MappingProxyType({}),
        retry_ms: int | None = None,
    ) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text
        self.facts = facts
        self.retry_ms = retry_ms

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


class Refused(TarryError):
    """The cluster said no and did nothing. The same request would be refused again: change it."""


class InvalidTime(Refused):
    """The due time, delay or delay level cannot be used. Give exactly one, within its limits."""


class InvalidName(Refused):
    """A topic, group, consumer, producer or tag has an illegal name. Use the characters the text names."""


class InvalidBatch(Refused):
    """The request's columns or records do not fit together. A fault of the sending program."""


class TooLarge(Refused):
    """A body, a batch, or a number of tags, keys or properties is over its limit. Send less."""


class InvalidId(Refused):
    """This is no message id, or one with a typing error. Copy it whole."""


class InvalidSetting(Refused):
    """A topic's setting, or the place to move a group to, cannot be used. Give another."""


class InvalidQuery(Refused):
    """A filter, state, cursor or page size cannot be used. The text says what to give."""


class InvalidSchedule(Refused):
    """A schedule's name, timing, zone, bounds or policy is not valid. The text says which; correct it."""


class RevisionDiffers(Refused):
    """The schedule has been changed or triggered meanwhile. Read it again, and decide anew."""

    @property
    def revision(self) -> int | None:
        """The one that the schedule has now; 0: there is no schedule; None: it was about triggers."""
        revision = self.facts.get("revision")
        return None if revision is None else int(revision)


class NoRoom(Refused):
    """A second, topic, disk or table is full. Choose another due time, spread with a jitter, or wait."""

    @property
    def nearest_due_ms(self) -> int | None:
        """If the second is full: begin of the nearest second with room for as many, within a day."""
        nearest = self.facts.get("nearest_due_ms")
        return None if nearest is None else int(nearest)


class IdempotencyConflict(Refused):
    """Other content was scheduled with this idempotency key. Schedule the same, or give another key."""

    @property
    def id(self) -> str:
        """The message that has the key; empty: another one of the same batch."""
        return self.facts.get("id", "")


class InvalidTransaction(Refused):
    """The transaction, as it was given, cannot be prepared or ended. Change what the text names."""


class TransactionEnded(Refused):
    """The transaction has ended otherwise. What the application did for it has to follow that end."""

    @property
    def state(self) -> str:
        """COMMITTED, ROLLED_BACK or UNRESOLVED; empty: other content was prepared under its name."""
        return self.facts.get("state", "")


class NotFound(Refused):
    """There is no such message, topic, group, schedule or transaction: never made here, or gone meanwhile."""


class Damaged(Refused):
    """The message's stored bytes fail their checksum on the leader. Ask the operator to repair the node."""


class NotPermitted(Refused):
    """The bearer token is missing, unknown or lacks the right. Use another token."""


class InvalidSubscription(Refused):
    """Topic, group, credit, lease or an acked offset cannot be used. Change the consumer's settings."""


class ConsumerReplaced(Refused):
    """Another consumer has subscribed under this one's name. Give each its own name."""


class MembershipRefused(Refused):
    """The members stay as they are. The text says why; mend that, or try later."""


class TransferRefused(Refused):
    """Leadership stays where it is. The text says why; choose another target or try later."""


class UpgradeRefused(Refused):
    """The cluster's level is too low for this, or stays. The text names what has to be upgraded first."""


class Overloaded(TarryError):
    """The cluster has no room now and did nothing. Try again after ``retry_ms``, and send less at once."""


class Unavailable(TarryError):
    """No node could serve in time, and nothing was done. Try again later, or check the servers."""


class OutcomeUnknown(TarryError):
    """No answer came in time: it may have been done or not. Calling again may do it twice.

    What has idempotency keys may be scheduled again: the answer tells of what was scheduled before.
    """


class PartlyScheduled(TarryError):
    """A batch sent in pieces was taken in part. With idempotency keys the whole of it may be scheduled again.

    ``pieces`` holds one ScheduledBatch or error for each, in order; ``starts``
    the position of each piece's first message in the batch.
    """

    def __init__(self, text: str, starts: list[int], pieces: list[object]) -> None:
        super().__init__("PARTLY_SCHEDULED", text)
        self.starts = starts
        self.pieces = pieces


class Closed(TarryError):
    """The producer, consumer or client was closed before this call. Open a new one."""

    def __init__(self, what: str) -> None:
        super().__init__("CLOSED", f"the {what} is closed")


_REASONS: Final[Mapping[type[TarryError], tuple[Reason, ...]]] = {
    InvalidTime: (
        Reason.DUE_MISSING,
        Reason.DUE_AMBIGUOUS,
        Reason.DUE_INVALID,
        Reason.DUE_TOO_FAR,
        Reason.DELAY_NEGATIVE,
        Reason.DELAY_LEVEL_UNKNOWN,
        Reason.JITTER_TOO_LARGE,
    ),
    InvalidName: (
        Reason.TOPIC_INVALID,
        Reason.GROUP_INVALID,
        Reason.CONSUMER_INVALID,
        Reason.PRODUCER_INVALID,
        Reason.PROPERTY_RESERVED,
        Reason.TAG_INVALID,
    ),
    InvalidBatch: (
        Reason.BATCH_EMPTY,
        Reason.COLUMNS_DIFFER,
        Reason.RECORD_INVALID,
        Reason.REQUEST_EMPTY,
        Reason.IDEMPOTENCY_KEYS_MIXED,
    ),
    TooLarge: (
        Reason.BATCH_TOO_LARGE,
        Reason.RECORD_TOO_LARGE,
        Reason.TOO_MANY_PROPERTIES,
        Reason.TOO_MANY_KEYS,
        Reason.TOO_MANY_TAGS,
        Reason.ORDERING_KEY_TOO_LONG,
        Reason.IDEMPOTENCY_KEY_TOO_LONG,
        Reason.TOO_MANY_OFFSETS,
        Reason.TOO_MANY_TOPICS,
    ),
    InvalidId: (Reason.ID_MALFORMED,),
    InvalidSetting: (
        Reason.SETTING_INVALID,
        Reason.SEEK_INVALID,
        Reason.EXPORT_INVALID,
        Reason.FIELD_UNKNOWN,
    ),
    InvalidQuery: (Reason.QUERY_INVALID,),
    InvalidSchedule: (Reason.RECURRING_INVALID,),
    RevisionDiffers: (Reason.RECURRING_CHANGED,),
    InvalidTransaction: (Reason.TRANSACTION_INVALID,),
    TransactionEnded: (Reason.TRANSACTION_ENDED, Reason.TRANSACTION_DIFFERS),
    NoRoom: (
        Reason.SECOND_FULL,
        Reason.TOPIC_FULL,
        Reason.TOO_MANY_QUEUES,
        Reason.TOO_MANY_GROUPS,
        Reason.TOO_MANY_PRODUCERS,
        Reason.TOO_MANY_RECURRING,
        Reason.TOO_MANY_TRANSACTIONS,
        Reason.DISK_FULL,
        Reason.NOT_AUDITED,
    ),
    IdempotencyConflict: (Reason.IDEMPOTENCY_CONFLICT,),
    NotFound: (
        Reason.MESSAGE_NOT_FOUND,
        Reason.TOPIC_UNKNOWN,
        Reason.GROUP_UNKNOWN,
        Reason.RECURRING_UNKNOWN,
        Reason.TRANSACTION_UNKNOWN,
    ),
    Damaged: (Reason.MESSAGE_DAMAGED,),
    NotPermitted: (
        Reason.UNAUTHENTICATED,
        Reason.PERMISSION_DENIED,
        Reason.PEER_NOT_CERTIFIED,
        Reason.PEER_UNKNOWN,
    ),
    InvalidSubscription: (
        Reason.FILTER_DIFFERS,
        Reason.FILTER_INVALID,
        Reason.RECEIVE_INVALID,
        Reason.SUBSCRIBE_FIRST,
        Reason.SUBSCRIBED_TWICE,
        Reason.CREDIT_INVALID,
        Reason.LEASE_INVALID,
        Reason.QUEUE_UNKNOWN,
        Reason.OFFSET_NOT_DELIVERED,
    ),
    ConsumerReplaced: (Reason.CONSUMER_REPLACED,),
    MembershipRefused: (Reason.MEMBER_INVALID, Reason.MEMBERSHIP_REFUSED),
    TransferRefused: (Reason.TRANSFER_REFUSED,),
    UpgradeRefused: (Reason.LEVEL_TOO_LOW, Reason.UPGRADE_REFUSED),
    Overloaded: (Reason.OVERLOADED, Reason.TOO_MANY_STREAMS, Reason.CONSUMER_TOO_SLOW),
    Unavailable: (
        Reason.NOT_LEADER,
        Reason.NO_LEADER,
        Reason.SHUTTING_DOWN,
        Reason.RIGHTS_CHANGED,
        Reason.BACKUP_UNAVAILABLE,
        Reason.EXPORT_UNAVAILABLE,
        Reason.KEYS_INCOMPLETE,
        Reason.AUDIT_UNREADABLE,
    ),
    OutcomeUnknown: (Reason.OUTCOME_UNKNOWN, Reason.SEQUENCE_TOO_OLD),
}

CLASS_OF_REASON: Final[Mapping[str, type[TarryError]]] = {
    reason: family for family, reasons in _REASONS.items() for reason in reasons
}


_DETAILS_KEY: Final = "grpc-status-details-bin"

_DOMAIN: Final = "tarry"

# For statuses that carry no reason of ours: made by gRPC itself or by a proxy.
_CLASS_OF_CODE: Final[Mapping[grpc.StatusCode, type[TarryError]]] = {
    grpc.StatusCode.UNAVAILABLE: OutcomeUnknown,
    grpc.StatusCode.DEADLINE_EXCEEDED: OutcomeUnknown,
    grpc.StatusCode.CANCELLED: OutcomeUnknown,
    grpc.StatusCode.ABORTED: OutcomeUnknown,
    grpc.StatusCode.INTERNAL: OutcomeUnknown,
    grpc.StatusCode.UNKNOWN: OutcomeUnknown,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.UNAUTHENTICATED: NotPermitted,
    grpc.StatusCode.PERMISSION_DENIED: NotPermitted,
    grpc.StatusCode.NOT_FOUND: NotFound,
}

_CODE_OF_NUMBER: Final[Mapping[int, grpc.StatusCode]] = {code.value[0]: code for code in grpc.StatusCode}


def error_of_call(error: grpc.aio.AioRpcError) -> TarryError:
    """Return the error that a failed call means."""
    code, text = error.code(), error.details() or ""
    metadata: Iterable[tuple[str, str | bytes]] = error.trailing_metadata() or ()  # type: ignore[assignment]
    for key, value in metadata:
        if key == _DETAILS_KEY and isinstance(value, bytes):
            return error_of_status(status_pb2.Status.FromString(value))
    if code is grpc.StatusCode.UNAVAILABLE and _never_sent(text):
        return Unavailable("UNREACHABLE", text)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return TooLarge("MESSAGE_TOO_LARGE", text)  # gRPC's own limit: waiting would not help
    if code is grpc.StatusCode.UNIMPLEMENTED:  # gRPC's own words are no help in an upgrade
        text = "the node runs a version without this call: upgrade it, tarry upgrade status shows them all"
    return _CLASS_OF_CODE.get(code, Refused)(code.name, text)


def error_of_status(status: status_pb2.Status) -> TarryError:
    """Return the error that a google.rpc.Status means; one inside an answer of a stream, too."""
    code = _CODE_OF_NUMBER.get(status.code, grpc.StatusCode.UNKNOWN)
    reason, facts, retry_ms = code.name, {}, None
    family = _CLASS_OF_CODE.get(code, Refused)
    for detail in status.details:
        info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
        if detail.Unpack(info) and info.domain == _DOMAIN:
            reason, facts = info.reason, dict(info.metadata)
            family = CLASS_OF_REASON.get(reason, family)
        elif detail.Unpack(retry):
            retry_ms = retry.retry_delay.ToMilliseconds()
    return family(reason, status.message, facts, retry_ms)


def _never_sent(text: str) -> bool:
    # gRPC core's words for "no connection, so no byte of the request has left".
    return text.startswith(("failed to connect", "empty address list", "DNS resolution failed")) or (
        "Failed to connect to remote host" in text
    )
