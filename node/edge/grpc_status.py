"""Refusals as gRPC statuses with google.rpc details."""

from __future__ import annotations

from collections import Counter
from typing import Final, NoReturn

import grpc
from google.protobuf import duration_pb2
from google.rpc import error_details_pb2, status_pb2

from tarry.node.edge.grpc_types import CallContext
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal

DOMAIN: Final = "tarry"
DETAILS_KEY: Final = "grpc-status-details-bin"
TEXT_BYTES_MAX: Final = 1_000
"""A text goes in a call's trailing metadata, twice and escaped, of which gRPC takes 8 KiB for certain."""
FACT_BYTES_MAX: Final = 300

CODES: Final[dict[Reason, grpc.StatusCode]] = {
    Reason.MESSAGE_NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    Reason.RECURRING_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Reason.TRANSACTION_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Reason.TOPIC_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Reason.GROUP_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Reason.QUEUE_UNKNOWN: grpc.StatusCode.NOT_FOUND,
    Reason.MESSAGE_DAMAGED: grpc.StatusCode.DATA_LOSS,
    Reason.FILTER_DIFFERS: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SUBSCRIBE_FIRST: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SUBSCRIBED_TWICE: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.MEMBERSHIP_REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.TRANSFER_REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.LEVEL_TOO_LOW: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.UPGRADE_REFUSED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.TRANSACTION_ENDED: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.SEQUENCE_TOO_OLD: grpc.StatusCode.FAILED_PRECONDITION,
    Reason.NOT_LEADER: grpc.StatusCode.UNAVAILABLE,
    Reason.NO_LEADER: grpc.StatusCode.UNAVAILABLE,
    Reason.OUTCOME_UNKNOWN: grpc.StatusCode.UNAVAILABLE,
    Reason.SHUTTING_DOWN: grpc.StatusCode.UNAVAILABLE,
    Reason.BACKUP_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.AUDIT_UNREADABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.EXPORT_UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    Reason.KEYS_INCOMPLETE: grpc.StatusCode.UNAVAILABLE,
    Reason.RIGHTS_CHANGED: grpc.StatusCode.UNAVAILABLE,
    Reason.OVERLOADED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.SECOND_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOPIC_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_QUEUES: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_GROUPS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_TOPICS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_PRODUCERS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_RECURRING: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_TRANSACTIONS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.DISK_FULL: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.NOT_AUDITED: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.TOO_MANY_STREAMS: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.CONSUMER_TOO_SLOW: grpc.StatusCode.RESOURCE_EXHAUSTED,
    Reason.CONSUMER_REPLACED: grpc.StatusCode.ABORTED,
    Reason.TRANSACTION_DIFFERS: grpc.StatusCode.ALREADY_EXISTS,
    Reason.IDEMPOTENCY_CONFLICT: grpc.StatusCode.ALREADY_EXISTS,
    Reason.UNAUTHENTICATED: grpc.StatusCode.UNAUTHENTICATED,
    Reason.PERMISSION_DENIED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.PEER_NOT_CERTIFIED: grpc.StatusCode.PERMISSION_DENIED,
    Reason.PEER_UNKNOWN: grpc.StatusCode.PERMISSION_DENIED,
}
"""Status code by reason; any other reason is INVALID_ARGUMENT."""


REFUSALS: Final[Counter[Reason]] = Counter()
"""Refusals that this process has told its callers, by reason; one that came from the leader, too."""

UNKNOWN_OUTCOME: Final = Refusal(
    Reason.OUTCOME_UNKNOWN,
    "leadership changed before the answer: the request may or may not have been done; "
    "repeat it with the same producer and sequence",
    retry_ms=100,
)


def _cut(text: str, bytes_max: int = TEXT_BYTES_MAX) -> str:
    """Return the text as it is told: one that repeats what a client sent may be too long to be sent back."""
    raw = text.encode()
    return text if len(raw) <= bytes_max else raw[:bytes_max].decode(errors="ignore") + " (cut)"


def status_of(refusal: Refusal) -> status_pb2.Status:
    """Count the refusal; return its google.rpc.Status.

    It has code, text, ErrorInfo and, where a retry helps, RetryInfo.
    """
    REFUSALS[refusal.reason] += 1
    code = CODES.get(refusal.reason, grpc.StatusCode.INVALID_ARGUMENT)
    status = status_pb2.Status(code=code.value[0], message=_cut(refusal.text))
    facts = {name: _cut(value, FACT_BYTES_MAX) for name, value in refusal.facts.items()}
    info = error_details_pb2.ErrorInfo(reason=refusal.reason.value, domain=DOMAIN, metadata=facts)
    status.details.add().Pack(info)
    if refusal.retry_ms is not None:
        delay = duration_pb2.Duration()
        delay.FromMilliseconds(refusal.retry_ms)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    return status


def refusal_in(details: bytes) -> Refusal | None:
    """Return the refusal that a serialized google.rpc.Status carries; None if it is none of ours."""
    status = status_pb2.Status.FromString(details)
    info, retry = error_details_pb2.ErrorInfo(), error_details_pb2.RetryInfo()
    known = [detail for detail in status.details if detail.Unpack(info) and info.reason in Reason.__members__]
    if not known:
        return None
    waits = any(detail.Unpack(retry) for detail in status.details)
    retry_ms = retry.retry_delay.ToMilliseconds() if waits else None
    return Refusal(Reason(info.reason), status.message, dict(info.metadata), retry_ms)


async def abort(context: CallContext, refusal: Refusal) -> NoReturn:
    """End the call with the refusal's status."""
    status = status_of(refusal)
    code = CODES.get(refusal.reason, grpc.StatusCode.INVALID_ARGUMENT)
    await context.abort(code, _cut(refusal.text), ((DETAILS_KEY, status.SerializeToString()),))
    raise AssertionError("abort returned")
