"""Handles of deliveries, scheduled messages, transactions: what a later call at any gateway needs, signed.

They give no right: nodes check the caller's token, and that the consumer has the delivery. With a secret of
the operator's, nobody can make them up either, and so settle what another consumer of the group was given.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from tarry.gateway.handle import Holder, are_in_range, decoded, encoded

CHARACTERS_MAX: Final = 4_096
"""More than the longest names, and a message id of any characters, make."""
_MAC_BYTES: Final = 16
_WITHOUT_A_SECRET: Final = b"tarry gateway rocketmq: no secret is configured"
_RECEIPT: Final = "r1"
_RECALL: Final = "c1"
_TRANSACTION: Final = "t1"


@dataclass(frozen=True, slots=True)
class Receipt:
    """A delivery to a consumer."""

    holder: Holder
    offset: int
    push: bool
    """To a push consumer, for which a new duration means that it has failed."""


@dataclass(frozen=True, slots=True)
class Recall:
    """A scheduled message."""

    topic: str
    id: str
    """The cluster's id."""
    message_id: str
    """The client's."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A transaction."""

    topic: str
    name: str
    """In the producer group of the topic: the client's message id."""


class Handles:
    """Signs handles, and reads those that any gateway with the same secrets has signed."""

    def __init__(self, secrets: Sequence[str]) -> None:
        self._keys = [secret.encode() for secret in secrets] or [_WITHOUT_A_SECRET]

    def receipt(self, receipt: Receipt) -> str:
        """Return the handle of a delivery."""
        holder = receipt.holder
        fields = [holder.topic, holder.group, holder.consumer, holder.queue, holder.incarnation]
        fields += [receipt.offset, receipt.push]
        return self._signed(_RECEIPT, fields)

    def parse_receipt(self, text: str) -> Receipt:
        """Return the delivery of a handle. Raises ValueError."""
        match self._read(_RECEIPT, text):
            case [
                str(topic),
                str(group),
                str(consumer),
                int(queue),
                int(incarnation),
                int(offset),
                bool(push),
            ]:
                if are_in_range(queue, incarnation, offset):
                    return Receipt(Holder(topic, group, consumer, queue, incarnation), offset, push)
        raise ValueError("receipt handle is invalid")

    def recall(self, recall: Recall) -> str:
        """Return the handle of a scheduled message."""
        return self._signed(_RECALL, [recall.topic, recall.id, recall.message_id])

    def parse_recall(self, text: str) -> Recall:
        """Return the scheduled message of a handle. Raises ValueError."""
        match self._read(_RECALL, text):
            case [str(topic), str(message_id), str(given)]:
                return Recall(topic, message_id, given)
        raise ValueError("recall handle is invalid")

    def transaction(self, prepared: Prepared) -> str:
        """Return the handle of a transaction: what clients call its id."""
        return self._signed(_TRANSACTION, [prepared.topic, prepared.name])

    def parse_transaction(self, text: str) -> Prepared:
        """Return the transaction of a handle. Raises ValueError."""
        match self._read(_TRANSACTION, text):
            case [str(topic), str(name)]:
                return Prepared(topic, name)
        raise ValueError("transaction id is invalid")

    def _signed(self, version: str, fields: list[Any]) -> str:
        content = json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()
        mac = _mac(self._keys[0], version, content)
        return encoded(version, mac + content)

    def _read(self, version: str, text: str) -> list[Any] | None:
        """Return the fields of a handle; None: it is none, or nobody of us has signed it."""
        begin, _, signed = text.partition(".")
        if begin != version or len(text) > CHARACTERS_MAX:
            return None
        try:
            raw = decoded(signed)
        except ValueError:
            return None
        mac, content = raw[:_MAC_BYTES], raw[_MAC_BYTES:]
        if not any(hmac.compare_digest(mac, _mac(key, version, content)) for key in self._keys):
            return None
        try:  # without a secret anybody can sign
            fields = json.loads(content)
            json.dumps(fields, ensure_ascii=False).encode()  # no halves of characters, which no request has
        except (ValueError, RecursionError):
            return None
        return fields if isinstance(fields, list) else None


def _mac(key: bytes, version: str, content: bytes) -> bytes:
    return hmac.digest(key, version.encode() + content, hashlib.sha256)[:_MAC_BYTES]
