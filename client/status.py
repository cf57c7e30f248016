"""Reads a gRPC status with google.rpc details into one of our errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import grpc
from google.rpc import error_details_pb2, status_pb2

from tarry.client.errors import (
    CLASS_OF_REASON,
    NotFound,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    Refused,
    TarryError,
    TooLarge,
    Unavailable,
)

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
