"""Refusals: the answers that say no, as values.

Inside the server a refusal is returned, never raised; the gRPC edge turns it
into a status with google.rpc.ErrorInfo.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Reason(StrEnum):
    """Why a request was refused; the value is ErrorInfo.reason on the wire."""

    TOPIC_INVALID = "TOPIC_INVALID"
    GROUP_INVALID = "GROUP_INVALID"
    CONSUMER_INVALID = "CONSUMER_INVALID"
    DUE_MISSING = "DUE_MISSING"
    DUE_AMBIGUOUS = "DUE_AMBIGUOUS"
    DUE_INVALID = "DUE_INVALID"
    DUE_TOO_FAR = "DUE_TOO_FAR"
    DELAY_NEGATIVE = "DELAY_NEGATIVE"
    DELAY_LEVEL_UNKNOWN = "DELAY_LEVEL_UNKNOWN"
    BATCH_EMPTY = "BATCH_EMPTY"
    BATCH_TOO_LARGE = "BATCH_TOO_LARGE"
    COLUMNS_DIFFER = "COLUMNS_DIFFER"
    RECORD_INVALID = "RECORD_INVALID"
    RECORD_TOO_LARGE = "RECORD_TOO_LARGE"
    TOO_MANY_PROPERTIES = "TOO_MANY_PROPERTIES"
    TOO_MANY_KEYS = "TOO_MANY_KEYS"
    TOO_MANY_TAGS = "TOO_MANY_TAGS"
    TAG_INVALID = "TAG_INVALID"
    PRODUCER_INVALID = "PRODUCER_INVALID"
    SEQUENCE_TOO_OLD = "SEQUENCE_TOO_OLD"
    ID_MALFORMED = "ID_MALFORMED"
    MESSAGE_NOT_FOUND = "MESSAGE_NOT_FOUND"
    MESSAGE_DAMAGED = "MESSAGE_DAMAGED"
    FILTER_DIFFERS = "FILTER_DIFFERS"
    RECEIVE_INVALID = "RECEIVE_INVALID"
    SUBSCRIBE_FIRST = "SUBSCRIBE_FIRST"
    SUBSCRIBED_TWICE = "SUBSCRIBED_TWICE"
    CREDIT_INVALID = "CREDIT_INVALID"
    LEASE_INVALID = "LEASE_INVALID"
    TOPIC_UNKNOWN = "TOPIC_UNKNOWN"
    GROUP_UNKNOWN = "GROUP_UNKNOWN"
    QUEUE_UNKNOWN = "QUEUE_UNKNOWN"
    OFFSET_NOT_DELIVERED = "OFFSET_NOT_DELIVERED"
    REQUEST_EMPTY = "REQUEST_EMPTY"
    NOT_LEADER = "NOT_LEADER"
    NO_LEADER = "NO_LEADER"
    OUTCOME_UNKNOWN = "OUTCOME_UNKNOWN"
    OVERLOADED = "OVERLOADED"
    TOO_MANY_STREAMS = "TOO_MANY_STREAMS"
    CONSUMER_TOO_SLOW = "CONSUMER_TOO_SLOW"
    CONSUMER_REPLACED = "CONSUMER_REPLACED"
    TRANSFER_REFUSED = "TRANSFER_REFUSED"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    UNAUTHENTICATED = "UNAUTHENTICATED"
    PERMISSION_DENIED = "PERMISSION_DENIED"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A no: why, in words what to do, and facts a program can use."""

    reason: Reason
    text: str
    facts: Mapping[str, str] = field(default_factory=dict)
    retry_ms: int | None = None
