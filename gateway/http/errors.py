"""Refusals as answers: which HTTP status each reason has, and their form in JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from starlette.responses import JSONResponse

from tarry.client.errors import (
    CLASS_OF_REASON,
    Closed,
    Damaged,
    IdempotencyConflict,
    NoRoom,
    NotFound,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    PartlyScheduled,
    Refused,
    TarryError,
    TooLarge,
    TransactionEnded,
    Unavailable,
)
from tarry.proto.reasons import Reason

RETRY_MS: Final = 1_000
"""Time after which to try again where the cluster named none."""


class GatewayReason(StrEnum):
    """Reason of a refusal that the gateway itself makes."""

    JSON_INVALID = "JSON_INVALID"
    REQUEST_INVALID = "REQUEST_INVALID"
    HANDLE_INVALID = "HANDLE_INVALID"
    BODY_TOO_LARGE = "BODY_TOO_LARGE"
    BODY_TOO_SLOW = "BODY_TOO_SLOW"
    CONTENT_TYPE_UNKNOWN = "CONTENT_TYPE_UNKNOWN"
    QUERY_TOO_LONG = "QUERY_TOO_LONG"
    PATH_UNKNOWN = "PATH_UNKNOWN"
    METHOD_UNKNOWN = "METHOD_UNKNOWN"
    HOST_UNKNOWN = "HOST_UNKNOWN"
    ORIGIN_REFUSED = "ORIGIN_REFUSED"
    TOKEN_INVALID = "TOKEN_INVALID"
    GATEWAY_BUSY = "GATEWAY_BUSY"
    GATEWAY_ENDING = "GATEWAY_ENDING"
    INTERNAL = "INTERNAL"


STATUS_OF_OWN: Final[Mapping[GatewayReason, tuple[int, str]]] = {
    GatewayReason.JSON_INVALID: (
        400,
        "Send one JSON object, UTF-8, without duplicate names, NaN or Infinity.",
    ),
    GatewayReason.REQUEST_INVALID: (400, "Change the fields that the text names; /openapi.json has all."),
    GatewayReason.HANDLE_INVALID: (400, "Send the handles of messages whole, as they were received."),
    GatewayReason.BODY_TOO_LARGE: (413, "Send less in one request."),
    GatewayReason.BODY_TOO_SLOW: (408, "Send the body without pauses."),
    GatewayReason.CONTENT_TYPE_UNKNOWN: (415, "Send content-type: application/json, not compressed."),
    GatewayReason.QUERY_TOO_LONG: (414, "Ask with a shorter query."),
    GatewayReason.PATH_UNKNOWN: (404, "The page / lists all paths."),
    GatewayReason.METHOD_UNKNOWN: (405, "The page / lists the methods of each path."),
    GatewayReason.HOST_UNKNOWN: (421, "Start the gateway with --host and the name by which it is called."),
    GatewayReason.ORIGIN_REFUSED: (
        403,
        "Start the gateway with --origin and the origin of the web site. Browsers tell none of a GET over "
        "plain HTTP: use HTTPS or localhost, and in a program a user-agent that does not begin as theirs do.",
    ),
    GatewayReason.TOKEN_INVALID: (401, "Send authorization: Bearer and one of the cluster's tokens."),
    GatewayReason.GATEWAY_BUSY: (
        429,
        "Try again after the time of Retry-After, and have fewer requests open.",
    ),
    GatewayReason.GATEWAY_ENDING: (503, "Try again, at another gateway or once this one has started again."),
    GatewayReason.INTERNAL: (500, "A defect of the gateway: its log has the details."),
}
"""Status, and what to do, of each reason of the gateway's own."""

_STATUS_OF_CLASS: Final[Mapping[type[TarryError], int]] = {
    NotPermitted: 403,
    NotFound: 404,
    IdempotencyConflict: 409,
    TransactionEnded: 409,
    TooLarge: 413,
    NoRoom: 409,
    Damaged: 502,
    Refused: 400,
    Overloaded: 429,
    Unavailable: 503,
    OutcomeUnknown: 504,
    PartlyScheduled: 504,
    Closed: 503,
    TarryError: 502,
}
"""The first class that fits counts."""

_STATUS_OF_REASON: Final[Mapping[str, int]] = {
    Reason.UNAUTHENTICATED: 401,
    Reason.FILTER_DIFFERS: 409,
    Reason.CONSUMER_REPLACED: 409,
    Reason.MEMBERSHIP_REFUSED: 409,
    Reason.TRANSFER_REFUSED: 409,
    Reason.LEVEL_TOO_LOW: 409,
    Reason.UPGRADE_REFUSED: 409,
    Reason.DISK_FULL: 507,
    Reason.NOT_AUDITED: 507,
    "UNIMPLEMENTED": 501,
}
"""Reasons that are not answered as their class is."""

_TRY_AGAIN: Final = frozenset({429, 503})


class RequestRefused(Exception):
    """The gateway refuses a request; the cluster is not asked."""

    def __init__(self, reason: GatewayReason, text: str, facts: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.reason, self.text, self.facts = reason, text, facts or {}


def status_of_reason(reason: str, family: type[TarryError] | None = None) -> int:
    """Return the HTTP status of a reason; ``family`` is the class where no reason of ours tells it."""
    if reason in _STATUS_OF_REASON:
        return _STATUS_OF_REASON[reason]
    cls = CLASS_OF_REASON.get(reason) or family or Refused
    return next(status for each, status in _STATUS_OF_CLASS.items() if issubclass(cls, each))


def fields_of_error(error: TarryError | RequestRefused) -> tuple[int, dict[str, Any]]:
    """Return the status of an error and its fields in JSON."""
    retry_ms: int | None
    if isinstance(error, TarryError):
        status = status_of_reason(error.reason, type(error))
        advice = (type(error).__doc__ or "").split("\n\n", maxsplit=1)[0]
        retry_ms = error.retry_ms
    else:
        (status, advice), retry_ms = STATUS_OF_OWN[error.reason], None
    if status in _TRY_AGAIN and retry_ms is None:
        retry_ms = RETRY_MS
    told: dict[str, Any] = {"reason": str(error.reason), "text": _clean(error.text), "advice": advice}
    told["facts"] = {name: _clean(value) for name, value in error.facts.items()}
    if retry_ms is not None:
        told["retry_ms"] = retry_ms
    return status, told


def answer_of_error(error: TarryError | RequestRefused) -> JSONResponse:
    """Return an error as an answer."""
    status, told = fields_of_error(error)
    headers = {}
    if "retry_ms" in told:
        headers["retry-after"] = str(max(1, math.ceil(told["retry_ms"] / 1_000)))
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="tarry"'
    return JSONResponse({"error": told}, status, headers)


def _clean(text: str) -> str:
    """Return a text that JSON and UTF-8 can hold, whatever a request put into it."""
    return text.encode("utf-8", "backslashreplace").decode()
