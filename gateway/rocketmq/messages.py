"""Messages of RocketMQ's clients as the cluster keeps them, and back.

| of the client's message | in the cluster |
| --- | --- |
| tag, keys, user properties, body | tag, keys, properties, body |
| message group | ordering key |
| message id | idempotency key: the same message, sent twice, is stored once; of a transaction its name |
| delivery timestamp | due time |
| type, encoding, host of birth, delivery timestamp, a transaction's message id | the property ``rocketmq`` |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp

from tarry.client.consumers.message import View
from tarry.client.producers.new_message import NewMessage
from tarry.client.transactions.half import Half
from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Config
from tarry.gateway.rocketmq.names import topic_of
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code, DigestType, Encoding, MessageType

OWN_PROPERTY: Final = "rocketmq"
TRACE_PROPERTY: Final = "traceparent"
MAYBE_DUPLICATE: Final = "tarry.maybe_duplicate"
"""Property of a delivered message that may have been delivered before a failover."""
LETTER_ID: Final = "tarry.idempotency_key"
"""Property in which a dead letter has the id of its message."""
CHECKS: Final = "TRANSACTION_CHECK_TIMES"
TRANSACTION_ID: Final = "__transactionId__"
"""Properties of a message that a check asks about: how often it was asked about, and the transaction's id."""
MESSAGE_ID_CHARS_MAX: Final = 128
KEYS_MAX: Final = 1_000
"""Checked one by one; nodes take fewer, `limits.keys_max`."""
LABELS_CHARS_MAX: Final = 65_536
"""Of tag and keys; they do not count as a body does."""
GROUP_BYTES_MAX: Final = 63
HOST_CHARS_MAX: Final = 100
TIME_MS_MAX: Final = 253_402_300_799_999
"""The end of the year 9999: no timestamp of the protocol is later."""

RESERVED: Final = frozenset(
    """
    KEYS TAGS WAIT DELAY RETRY_TOPIC REAL_TOPIC REAL_QID TRAN_MSG PGROUP MIN_OFFSET MAX_OFFSET BUYER_ID
    ORIGIN_MESSAGE_ID TRANSFER_FLAG CORRECTION_FLAG MQ2_FLAG RECONSUME_TIME MSG_REGION TRACE_ON UNIQ_KEY
    EXTEND_UNIQ_INFO MAX_RECONSUME_TIMES CONSUME_START_TIME INNER_NUM INNER_BASE DUP_INFO CLUSTER MSG_TYPE
    CHECK_IMMUNITY_TIME_IN_SECONDS TRAN_PREPARED_QUEUE_OFFSET __transactionId__ TRANSACTION_CHECK_TIMES
    INSTANCE_ID CORRELATION_ID REPLY_TO_CLIENT TTL ARRIVE_TIME PUSH_REPLY_TIME POP_CK POP_CK_OFFSET
    1ST_POP_TIME TIMER_DELIVER_MS TIMER_IN_MS TIMER_OUT_MS TIMER_ENQUEUE_MS TIMER_DEQUEUE_MS TIMER_ROLL_TIMES
    TIMER_DELETE_UNIQUEKEY TIMER_DELAY_SEC TIMER_DELAY_MS TIMER_DEL_UNIQKEY TIMER_DELAY_LEVEL __SHARDINGKEY
    __CRC32# DLQ_ORIGIN_TOPIC DLQ_ORIGIN_MESSAGE_ID
    """.split()  # noqa: SIM905 - fewer lines than names
) | {OWN_PROPERTY, TRACE_PROPERTY}
"""Names of properties that RocketMQ's servers keep to themselves, and ours."""

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TRACE: Final = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_OWN: Final = re.compile(r"(?:1|2 (\S{1,128})) ([A-Z]{1,20}) (-?[0-9]{1,15}) ([A-Z]{1,20}) (.*)", re.DOTALL)
_TRANSACTION_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_TYPES: Final = (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION)


def types_of(topic: str, config: Config) -> list[int]:
    """Return the types of messages that a topic takes."""
    return [MessageType.Value(name) for name in config.types.get(topic, ())] or list(_TYPES)


def topic_of_all(messages: list[definition.Message], namespace: str) -> str:
    """Return the one topic of a request's messages, in this namespace if it names none. Raises Refusal."""
    if not messages:
        raise Refusal(Code.MESSAGE_CORRUPTED, "no message to send")
    topics = {topic_of(message.topic, namespace) for message in messages}
    if len(topics) > 1:
        raise Refusal(Code.MESSAGE_CORRUPTED, "topic in message is not same")
    return topics.pop()


def new_message(message: definition.Message, topic: str, config: Config) -> NewMessage:
    """Return a client's message as one to schedule. Raises Refusal."""
    system = message.system_properties
    _check_body(message, config)
    _check_labels(system)
    _check_properties(message, config)
    if not system.message_id.strip():
        raise Refusal(Code.ILLEGAL_MESSAGE_ID, "message id cannot be empty")
    if len(system.message_id) > MESSAGE_ID_CHARS_MAX:
        raise Refusal(Code.ILLEGAL_MESSAGE_ID, f"message id is longer than {MESSAGE_ID_CHARS_MAX} characters")
    kind = _type_of(system, types_of(topic, config))
    due_ms = None
    if system.HasField("delivery_timestamp"):
        due_ms = _milliseconds(system.delivery_timestamp)
    encoding = _encoding_of(system)
    host = system.born_host.strip()[:HOST_CHARS_MAX]
    version = "1"
    if kind == MessageType.TRANSACTION:  # its record has no idempotency key to have the id
        version = f"2 {_transaction_name(system.message_id)}"
    properties = dict(message.user_properties)
    properties[OWN_PROPERTY] = f"{version} {MessageType.Name(kind)} {due_ms or 0} {encoding} {host}"
    if _TRACE.fullmatch(system.trace_context):
        properties[TRACE_PROPERTY] = system.trace_context
    return NewMessage(
        topic,
        message.body,
        due_ms=due_ms,
        delay_ms=0 if due_ms is None else None,
        tags=[system.tag] if system.tag else (),
        keys=list(dict.fromkeys(system.keys)),
        properties=properties,
        ordering_key=system.message_group,
        idempotency_key=system.message_id,
    )


def _transaction_name(message_id: str) -> str:
    """Return the name of a message's transaction. Raises Refusal."""
    if _TRANSACTION_NAME.fullmatch(message_id) is None:
        text = "the message id of a transaction has other characters than letters, digits, '_', '-' and '.'"
        raise Refusal(Code.ILLEGAL_MESSAGE_ID, f"{text}, or begins with '-' or '.'")
    return message_id


def _check_body(message: definition.Message, config: Config) -> None:
    if not message.body:
        raise Refusal(Code.MESSAGE_BODY_EMPTY, "message body cannot be empty")
    most = config.limits.body_bytes_max
    if len(message.body) > most:
        raise Refusal(Code.MESSAGE_BODY_TOO_LARGE, f"message body cannot exceed the max {most}")


def _encoding_of(system: definition.SystemProperties) -> str:
    """Return how a body is encoded, for those who get it. Raises Refusal: unread is better than misread."""
    if system.body_encoding not in (Encoding.ENCODING_UNSPECIFIED, Encoding.IDENTITY, Encoding.GZIP):
        text = f"body encoding {system.body_encoding} is not known here: send IDENTITY or GZIP"
        raise Refusal(Code.MESSAGE_CORRUPTED, text)
    return "GZIP" if system.body_encoding == Encoding.GZIP else "IDENTITY"


def _check_labels(system: definition.SystemProperties) -> None:
    """Check tag, keys and group of a message. Raises Refusal."""
    if system.HasField("tag"):
        _check_text("tag", system.tag, Code.ILLEGAL_MESSAGE_TAG)
        if "|" in system.tag:
            raise Refusal(Code.ILLEGAL_MESSAGE_TAG, "tag cannot contain '|'")
    if len(system.keys) > KEYS_MAX:
        raise Refusal(Code.ILLEGAL_MESSAGE_KEY, f"too many keys, max is {KEYS_MAX}")
    if len(system.tag) + sum(map(len, system.keys)) > LABELS_CHARS_MAX:
        text = f"tag and keys have too many characters, max is {LABELS_CHARS_MAX}"
        raise Refusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    for key in system.keys:
        _check_text("key", key, Code.ILLEGAL_MESSAGE_KEY)
        if not key:
            raise Refusal(Code.ILLEGAL_MESSAGE_KEY, "key cannot be empty")
    if system.HasField("message_group"):
        group = system.message_group
        _check_text("message group", group, Code.ILLEGAL_MESSAGE_GROUP)
        if len(group.encode()) > GROUP_BYTES_MAX:
            text = f"message group exceed the max size {GROUP_BYTES_MAX + 1}"
            raise Refusal(Code.ILLEGAL_MESSAGE_GROUP, text)


def _check_text(what: str, text: str, code: int) -> None:
    if text and not text.strip():
        raise Refusal(code, f"{what} cannot be the char sequence of whitespace")
    if _CONTROL.search(text):
        raise Refusal(code, f"{what} cannot contain control character")


def _check_properties(message: definition.Message, config: Config) -> None:
    limits, properties = config.limits, message.user_properties
    if len(properties) > limits.properties_max:
        text = f"too many user properties, max is {limits.properties_max}"
        raise Refusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    for name, value in properties.items():
        if name in RESERVED:
            raise Refusal(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, f"property is used by system: {name}")
        for what, text in (("key", name), ("value", value)):
            if _CONTROL.search(text):
                said = f"the {what} of property cannot contain control character"
                raise Refusal(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, said)
    size = sum(len(name.encode()) + len(value.encode()) for name, value in properties.items())
    if size > limits.properties_bytes_max:
        text = f"the total size of user property is too large, max is {limits.properties_bytes_max}"
        raise Refusal(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)


def _type_of(system: definition.SystemProperties, allowed: list[int]) -> int:
    """Return the type of a message, which its fields have to fit. Raises Refusal."""
    given, delayed, grouped = (
        system.message_type,
        system.HasField("delivery_timestamp"),
        bool(system.message_group),
    )
    actual = MessageType.DELAY if delayed else MessageType.FIFO if grouped else MessageType.NORMAL
    if given in (MessageType.TRANSACTION, MessageType.LITE, MessageType.PRIORITY):
        actual = given
    elif given == MessageType.FIFO and grouped:
        actual = given  # with a delivery timestamp as well
    elif (
        given in _TYPES and given != actual and not (given == MessageType.NORMAL and grouped and not delayed)
    ):
        raise _conflict([given], actual)
    both = actual in (MessageType.DELAY, MessageType.FIFO) and delayed and grouped
    if actual not in allowed and not (both and MessageType.DELAY in allowed):
        raise _conflict(allowed, actual)
    return actual


def _conflict(expected: list[int], actual: int) -> Refusal:
    names = " or ".join(map(MessageType.Name, expected))
    known = actual in MessageType.values()
    shown = MessageType.Name(actual) if known else str(actual)
    text = f"TopicMessageType validate failed, the expected type is {names}, but actual type is {shown}"
    return Refusal(Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, text)


def _milliseconds(timestamp: Timestamp) -> int:
    """Return a time in milliseconds, rounded up: never early. Raises Refusal."""
    if not 0 <= timestamp.nanos < 1_000_000_000 or not 0 <= timestamp.seconds < 1 << 50:
        raise Refusal(Code.ILLEGAL_DELIVERY_TIME, "the delivery timestamp is no time")
    return timestamp.seconds * 1_000 - (-timestamp.nanos // 1_000_000)


@dataclass(frozen=True, slots=True)
class _Own:
    """The property ``rocketmq`` of a message."""

    type: int = MessageType.NORMAL
    due_ms: int = 0
    encoding: int = Encoding.IDENTITY
    host: str = ""
    message_id: str = ""
    ours: bool = False


def _own(text: str) -> _Own:
    """Return what the property tells; other programs may have written anything into it."""
    found = _OWN.fullmatch(text)
    if found is None:
        return _Own()
    message_id, kind, due_ms, encoding, host = found.groups()
    if not 0 <= int(due_ms) <= TIME_MS_MAX:
        return _Own()
    if kind not in MessageType.keys() or encoding not in Encoding.keys():  # noqa: SIM118 - of an enumeration
        return _Own()
    return _Own(
        MessageType.Value(kind), int(due_ms), Encoding.Value(encoding), host, message_id or "", ours=True
    )


def delivered_message(
    view: View, topic: definition.Resource, handle: str, lease_ms: int, queue_id: int
) -> definition.Message:
    """Return a delivery as a client gets it, on the topic by the name that it has asked for."""
    properties = dict(view.properties)
    own = _own(properties.pop(OWN_PROPERTY, ""))
    if view.maybe_duplicate:
        properties[MAYBE_DUPLICATE] = "true"
    message = _message(own, topic, view.body, view.tags, view.keys, properties, view.ordering_key)
    system = message.system_properties
    given_id = own.message_id or view.idempotency_key or properties.get(LETTER_ID, "")
    system.message_id = given_id if own.ours and given_id else view.id
    system.receipt_handle = handle
    system.queue_id, system.queue_offset, system.delivery_attempt = queue_id, view.offset, view.attempt
    stored_ms = view.stored_ms or view.released_ms
    born_ms = view.born_ms or stored_ms  # by its producer's clock
    system.born_timestamp.FromMilliseconds(born_ms if 0 < born_ms <= TIME_MS_MAX else stored_ms)
    system.store_timestamp.FromMilliseconds(stored_ms)
    if own.due_ms or not own.ours:
        due_ms = view.due_ms - view.delay_ms if view.attempt == 1 or not own.due_ms else own.due_ms
        system.delivery_timestamp.FromMilliseconds(due_ms)
    system.invisible_duration.FromMilliseconds(lease_ms)
    return message


def half_message(half: Half, topic: definition.Resource, transaction_id: str) -> definition.Message:
    """Return what a check asks about, as a producer gets it, on the topic by the name that it has told."""
    properties = dict(half.properties)
    own = _own(properties.pop(OWN_PROPERTY, ""))
    properties[CHECKS] = str(half.transaction.checks)
    properties[TRANSACTION_ID] = transaction_id
    message = _message(own, topic, half.body, half.tags, half.keys, properties, half.ordering_key)
    system = message.system_properties
    system.message_id, system.message_type = half.name, MessageType.TRANSACTION
    system.born_timestamp.FromMilliseconds(half.transaction.prepared_ms)
    system.store_timestamp.FromMilliseconds(half.transaction.prepared_ms)
    if half.transaction.due_ms is not None:
        system.delivery_timestamp.FromMilliseconds(half.transaction.due_ms)
    return message


def _message(
    own: _Own,
    topic: definition.Resource,
    body: bytes,
    tags: Sequence[str],
    keys: Sequence[str],
    properties: dict[str, str],
    ordering_key: str,
) -> definition.Message:
    """Return what a delivery and a check have in common; a trace leaves the properties."""
    trace = properties.pop(TRACE_PROPERTY, "")
    kind = own.type
    if not own.ours and ordering_key:
        kind = MessageType.FIFO
    system = definition.SystemProperties(
        keys=keys,
        body_digest=definition.Digest(
            type=DigestType.MD5, checksum=hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
        ),
        body_encoding=own.encoding,  # type: ignore[arg-type]
        message_type=kind,  # type: ignore[arg-type]
        born_host=own.host,
    )
    if tags:
        system.tag = tags[0]
    if ordering_key:
        system.message_group = ordering_key
    if trace:
        system.trace_context = trace
    return definition.Message(topic=topic, system_properties=system, user_properties=properties, body=body)


__all__ = ["OWN_PROPERTY", "delivered_message", "half_message", "new_message", "topic_of_all", "types_of"]
