"""Refusals as RocketMQ's clients expect them: a code within an answer, never a status of gRPC."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tarry.client.errors import (
    CLASS_OF_REASON,
    IdempotencyConflict,
    InvalidBatch,
    InvalidSubscription,
    InvalidTime,
    NoRoom,
    NotFound,
    NotPermitted,
    OutcomeUnknown,
    Overloaded,
    Refused,
    TarryError,
    TooLarge,
    Unavailable,
    UpgradeRefused,
)
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code
from tarry.proto.reasons import Reason

TEXT_CHARS_MAX: Final = 500

_CODE_OF_REASON: Final[Mapping[str, int]] = {
    Reason.TOPIC_INVALID: Code.ILLEGAL_TOPIC,
    Reason.GROUP_INVALID: Code.ILLEGAL_CONSUMER_GROUP,
    Reason.TAG_INVALID: Code.ILLEGAL_MESSAGE_TAG,
    Reason.TOO_MANY_TAGS: Code.ILLEGAL_MESSAGE_TAG,
    Reason.TOO_MANY_KEYS: Code.ILLEGAL_MESSAGE_KEY,
    Reason.PROPERTY_RESERVED: Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
    Reason.TOO_MANY_PROPERTIES: Code.MESSAGE_PROPERTIES_TOO_LARGE,
    Reason.ORDERING_KEY_TOO_LONG: Code.ILLEGAL_MESSAGE_GROUP,
    Reason.IDEMPOTENCY_KEY_TOO_LONG: Code.ILLEGAL_MESSAGE_ID,
    Reason.RECORD_TOO_LARGE: Code.MESSAGE_BODY_TOO_LARGE,
    Reason.FILTER_INVALID: Code.ILLEGAL_FILTER_EXPRESSION,
    Reason.FILTER_DIFFERS: Code.ILLEGAL_FILTER_EXPRESSION,
    Reason.LEASE_INVALID: Code.ILLEGAL_INVISIBLE_TIME,
    Reason.RECEIVE_INVALID: Code.ILLEGAL_POLLING_TIME,
    Reason.OFFSET_NOT_DELIVERED: Code.INVALID_RECEIPT_HANDLE,
    Reason.QUEUE_UNKNOWN: Code.INVALID_RECEIPT_HANDLE,
    Reason.TOPIC_UNKNOWN: Code.TOPIC_NOT_FOUND,
    Reason.GROUP_UNKNOWN: Code.CONSUMER_GROUP_NOT_FOUND,
    Reason.MESSAGE_NOT_FOUND: Code.MESSAGE_NOT_FOUND,
    Reason.TRANSACTION_UNKNOWN: Code.INVALID_TRANSACTION_ID,
    Reason.TRANSACTION_ENDED: Code.INVALID_TRANSACTION_ID,
    Reason.TRANSACTION_DIFFERS: Code.ILLEGAL_MESSAGE_ID,
    Reason.UNAUTHENTICATED: Code.UNAUTHORIZED,
    Reason.DISK_FULL: Code.HA_NOT_AVAILABLE,
    Reason.NOT_AUDITED: Code.HA_NOT_AVAILABLE,
}
"""Reasons that are not answered as their class is."""

_CODE_OF_CLASS: Final[Mapping[type[TarryError], int]] = {
    NotPermitted: Code.FORBIDDEN,
    NotFound: Code.NOT_FOUND,
    IdempotencyConflict: Code.ILLEGAL_MESSAGE_ID,
    InvalidTime: Code.ILLEGAL_DELIVERY_TIME,
    TooLarge: Code.PAYLOAD_TOO_LARGE,
    NoRoom: Code.TOO_MANY_REQUESTS,
    InvalidSubscription: Code.BAD_REQUEST,
    InvalidBatch: Code.MESSAGE_CORRUPTED,
    UpgradeRefused: Code.UNSUPPORTED,
    Refused: Code.BAD_REQUEST,
    Overloaded: Code.TOO_MANY_REQUESTS,
    Unavailable: Code.HA_NOT_AVAILABLE,
    OutcomeUnknown: Code.HA_NOT_AVAILABLE,
    TarryError: Code.INTERNAL_SERVER_ERROR,
}
"""The first class that fits counts. What is answered with HA_NOT_AVAILABLE all clients send again at once."""


class Refusal(Exception):
    """The gateway refuses a request, or a part of it; the cluster is not asked."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code, self.text = code, text


def code_of_reason(reason: str, family: type[TarryError] | None = None) -> int:
    """Return the code of a reason; ``family`` is the class where no reason of ours tells it."""
    if reason in _CODE_OF_REASON:
        return _CODE_OF_REASON[reason]
    cls = CLASS_OF_REASON.get(reason) or family or Refused
    return next(code for each, code in _CODE_OF_CLASS.items() if issubclass(cls, each))


def status(code: int = Code.OK, text: str = "OK") -> definition.Status:
    """Return a status; its text is cut."""
    said = text.encode("utf-8", "backslashreplace").decode()
    return definition.Status(code=code, message=said[:TEXT_CHARS_MAX])  # type: ignore[arg-type]


def status_of_error(error: TarryError | Refusal | TimeoutError) -> definition.Status:
    """Return the status that an error is answered with."""
    match error:
        case Refusal():
            return status(error.code, error.text)
        case Unavailable() | OutcomeUnknown():  # whose texts name nodes
            return status(
                code_of_reason(error.reason, type(error)),
                f"{error.reason}: no node has answered in time: send it again",
            )
        case TarryError():
            return status(code_of_reason(error.reason, type(error)), str(error))
        case _:
            return status(Code.HA_NOT_AVAILABLE, "no node has answered in time: send it again")
