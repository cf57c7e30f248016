"""Intake: a schedule request as it came, checked against the limits, becomes a command.

The checks cost a few C calls a batch, not a statement a message: one protobuf
parse proves that every record parses, and columns are looked at whole.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress, repeat
from operator import add, attrgetter
from typing import Any, Final, NamedTuple

import google_crc32c
import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.unknown_fields import UnknownFieldSet
from numpy.typing import NDArray

from tarry.node.config import Limits
from tarry.node.edge.field_count import more_fields
from tarry.node.edge.names import check_topic
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto.dead_letters import DEAD_LETTERS, RESERVED
from tarry.proto.reasons import Reason
from tarry.proto.record_times import times
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine.keys import NO_KEYS, KeyColumns, of_few
from tarry.replication.state_machine.lanes import lane_of
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.schedule import DUE_MS_MAX
from tarry.wheel.columns import portions

PRODUCER_CHARS_MAX: Final = 64
SEQUENCE_MAX: Final = 2**63 - 1
BODY_TAG: Final = Record.BODY_FIELD_NUMBER << 3 | 2
DENSE_BYTES: Final = 512 << 10
"""Of nothing but empty fields, so much is parsed within 6 ms; what is larger is looked at first."""
PIECE_BYTES: Final = 256 << 10
"""Of tags, keys and properties, looked at at once where there are many: what is wrong ends it."""
KEYS_OF_MESSAGE: Final = 2
"""As many times a batch's most messages a command has room for hashes of keys; of more it has none."""
KEY_TAG: Final = bytes([Record.KEYS_FIELD_NUMBER << 3 | 2])
I8: Final = np.dtype("<i8")
U4: Final = np.dtype("<u4")
WIDTHS: Final = {"topic": 4, "due_ms": 8, "delay_ms": 8, "delay_level": 4, "tag_mask": 8, "jitter_ms": 4}
TOPIC_AND_RECORD_TAGS: Final = 0x0A
"""Of both fields' tags, in the bits that they share, whichever way they are written."""


class Checked(NamedTuple):
    """Parts of a request's records that are not in their bodies."""

    ordering_keys: list[str]
    """One for each; none where no record has one."""
    keys: KeyColumns | None
    """None: they are too many for this turn, and for the command."""
    idempotent: bool
    """They have idempotency keys, all of them."""


@dataclass(frozen=True, slots=True)
class Intake:
    """Checks requests; knows the limits and the table of delay levels, no clock."""

    limits: Limits
    delay_levels_ms: Sequence[int]

    def batch(self, raw: bytes, now_ms: int) -> log_pb.ScheduleCommand | Refusal:
        """Return the command for a serialized ScheduleBatchRequest."""
        if len(raw) > self.limits.batch_bytes_max:
            text = f"the batch has {len(raw)} bytes, more than {self.limits.batch_bytes_max}: split it"
            return Refusal(Reason.BATCH_TOO_LARGE, text)
        if self._too_many_fields(raw):
            text = f"the batch has more fields than {self.limits.batch_messages_max} messages may: split it"
            return Refusal(Reason.BATCH_TOO_LARGE, text)
        try:
            request = log_pb.ScheduleColumns.FromString(raw)
        except DecodeError:
            return Refusal(Reason.RECORD_INVALID, "the request is not a ScheduleBatchRequest")
        return self._columns(request, raw, now_ms)

    def one(self, request: producer_pb.ScheduleRequest, now_ms: int) -> log_pb.ScheduleCommand | Refusal:
        """Return the command for a single message."""
        record = request.record.SerializeToString()
        columns = log_pb.ScheduleColumns(
            producer=request.producer,
            sequence=request.sequence,
            topics=[request.topic],
            due_ms=_column(request, "due_ms", I8),
            delay_ms=_column(request, "delay_ms", I8),
            delay_level=_column(request, "delay_level", U4),
            tag_mask=np.array(
                [tag_mask(request.record.tags, request.record.ordering_key)], dtype="<u8"
            ).tobytes(),
            records=[record],
            jitter_ms=np.array([request.jitter_ms], U4).tobytes() if request.jitter_ms else b"",
            born_ms=request.born_ms,
            durability=request.durability,
        )
        return self._columns(columns, columns.SerializeToString(), now_ms)

    def record(self, record: Record) -> Refusal | None:
        """Return why a single record will not do, apart from what the cluster has set in it."""
        given = Record()
        given.CopyFrom(record)
        for name in ("scheduled_digest", "born_ms", "stored_ms"):
            given.ClearField(name)
        columns = log_pb.ScheduleColumns(records=[given.SerializeToString()])
        sizes = np.fromiter(map(len, columns.records), dtype=np.int64)
        found = self._records(columns.records, columns.SerializeToString(), sizes)
        return found if isinstance(found, Refusal) else None

    def _columns(
        self, request: log_pb.ScheduleColumns, raw: bytes, now_ms: int
    ) -> log_pb.ScheduleCommand | Refusal:
        records = list(request.records)  # once: each reading of the field makes them anew
        n = len(records)
        sizes = np.fromiter(map(len, records), np.int64, n)
        spare = len(raw) - _known_bytes(request, sizes)
        if spare > 64 * n + DENSE_BYTES:
            text = f"{spare} bytes of fields that this version does not know: leave them out"
            return Refusal(Reason.COLUMNS_DIFFER, text)
        # legal protobuf may come unpacked (then unknown here) or in pieces: pack it
        if (
            spare > n + 2 * len(request.topics) + 1_024
            or not _aligned(request, n)
            or len(UnknownFieldSet(request))
        ):
            try:
                request = _repacked(raw)
            except DecodeError:
                text = "a column is no whole number of values: it cannot be parsed"
                return Refusal(Reason.COLUMNS_DIFFER, text)
            if not _aligned(request, n):
                text = f"{n} records, and a column that has another length: one value for each record"
                return Refusal(Reason.COLUMNS_DIFFER, text)
        due = self._due(request, n, now_ms)
        refusal = self._size(n) or self._names(request, n) or (due if isinstance(due, Refusal) else None)
        refusal = refusal or self._jitter(request) or _born(request)
        checked = self._records(records, raw, sizes) if refusal is None else refusal
        if isinstance(checked, Refusal) or isinstance(due, Refusal):
            return checked  # type: ignore[return-value]
        _put_times(request, records, now_ms)
        return self._command(request, due, checked, raw, now_ms)

    def _command(
        self,
        request: log_pb.ScheduleColumns,
        due: NDArray[np.int64],
        checked: Checked,
        raw: bytes,
        now_ms: int,
    ) -> log_pb.ScheduleCommand:
        found = checked.keys
        command = log_pb.ScheduleCommand(
            now_ms=now_ms,
            request=request,
            second_messages_max=self.limits.second_messages_max,
            keys_noted=found is not None,
            idempotent=checked.idempotent,
        )
        if found is not None and len(found.message):
            command.key_message, command.key_hash = found.message.tobytes(), found.key_hash.tobytes()
        if checked.idempotent:  # a retry finds what it scheduled by the keys
            command.request.ClearField("producer")
            command.request.ClearField("sequence")
        elif request.producer:
            command.producers_max = self.limits.producers_max
            command.producer_silent_ms = self.limits.producer_silent_ms
        if checked.ordering_keys:
            command.lane = np.fromiter(map(lane_of, checked.ordering_keys), U4, len(due)).tobytes()
        if request.jitter_ms:
            due = spread(due, np.frombuffer(request.jitter_ms, U4), google_crc32c.value(raw))
        if not request.due_ms or request.jitter_ms:
            command.due_ms = due.tobytes()
            for name in ("due_ms", "delay_ms", "delay_level", "jitter_ms"):
                command.request.ClearField(name)
        return command

    def _too_many_fields(self, raw: bytes) -> bool:
        """Return whether a request has more fields than any that is allowed: to parse it would take long."""
        if len(raw) <= DENSE_BYTES:
            return False
        octets = np.frombuffer(raw, np.uint8)
        tags = int(
            np.count_nonzero((octets & 0x2F) == TOPIC_AND_RECORD_TAGS)
        )  # and what else looks like them
        most = 8 * self.limits.batch_messages_max + 64  # each of seven columns, and the records
        return tags > most + len(raw) // 16 and more_fields(raw, most)

    def _size(self, n: int) -> Refusal | None:
        if n == 0:
            return Refusal(Reason.BATCH_EMPTY, "the batch holds no record")
        if n > self.limits.batch_messages_max:
            text = f"the batch has {n} messages, more than {self.limits.batch_messages_max}: split it"
            return Refusal(Reason.BATCH_TOO_LARGE, text)
        return None

    def _names(self, request: log_pb.ScheduleColumns, n: int) -> Refusal | None:
        if len(request.producer) > PRODUCER_CHARS_MAX or (request.producer and request.sequence == 0):
            text = f"a producer has 1 to {PRODUCER_CHARS_MAX} characters and numbers its requests from 1"
            return Refusal(Reason.PRODUCER_INVALID, text)
        if request.sequence > SEQUENCE_MAX:
            text = f"the sequence {request.sequence} is more than {SEQUENCE_MAX}: number requests from 1"
            return Refusal(Reason.PRODUCER_INVALID, text)
        if not request.topics:
            return Refusal(Reason.TOPIC_INVALID, "the topic is empty: name one")
        if len(request.topics) > self.limits.batch_topics_max:
            most = self.limits.batch_topics_max
            text = f"the batch names {len(request.topics)} topics, more than {most}: split it"
            return Refusal(Reason.BATCH_TOO_LARGE, text)
        if len(request.topics) > n:
            text = f"{len(request.topics)} topics for {n} messages: name each topic that a message has once"
            return Refusal(Reason.COLUMNS_DIFFER, text)
        if request.topic and int(np.frombuffer(request.topic, U4).max()) >= len(request.topics):
            return Refusal(Reason.COLUMNS_DIFFER, "a message's topic is not in the request's topics")
        for topic in request.topics:
            refusal = check_topic(topic, self.limits) or _dead_letters(topic)
            if refusal is not None:
                return refusal
        return None

    def _due(self, request: log_pb.ScheduleColumns, n: int, now_ms: int) -> NDArray[np.int64] | Refusal:
        given = [name for name in ("due_ms", "delay_ms", "delay_level") if getattr(request, name)]
        if len(given) > 1:
            return Refusal(Reason.DUE_AMBIGUOUS, f"{' and '.join(given)} are given: give one of them")
        if not given:
            return Refusal(Reason.DUE_MISSING, "give one of due_ms, delay_ms and delay_level")
        horizon = self.limits.due_horizon_ms
        if request.delay_level:
            levels = np.frombuffer(request.delay_level, U4)
            wrong = (levels < 1) | (levels > len(self.delay_levels_ms))
            if wrong.any():
                text = f"delay level {levels[wrong.argmax()]} is none of 1 to {len(self.delay_levels_ms)}"
                return _at(wrong, Reason.DELAY_LEVEL_UNKNOWN, text)
            return now_ms + np.array(self.delay_levels_ms, dtype=I8)[levels.astype(np.intp) - 1]
        if request.delay_ms:
            delay = np.frombuffer(request.delay_ms, I8)
            if (wrong := delay < 0).any():
                text = f"the delay {delay[wrong.argmax()]} ms is negative: 0 is at once"
                return _at(wrong, Reason.DELAY_NEGATIVE, text)
            if (wrong := delay > horizon).any():
                text = f"the delay {delay[wrong.argmax()]} ms is more than {horizon} ms"
                return _at(wrong, Reason.DUE_TOO_FAR, text)
            return now_ms + delay
        due = np.frombuffer(request.due_ms, I8)
        if (wrong := due < 0).any():
            text = f"due_ms {due[wrong.argmax()]} is negative: it counts from the epoch, UTC"
            return _at(wrong, Reason.DUE_INVALID, text)
        if (wrong := due > now_ms + horizon).any():
            text = f"due_ms {due[wrong.argmax()]} is more than {horizon} ms ahead: is it in ms?"
            return _at(wrong, Reason.DUE_TOO_FAR, text)
        return due

    def _jitter(self, request: log_pb.ScheduleColumns) -> Refusal | None:
        if not request.jitter_ms:
            return None
        wrong = np.frombuffer(request.jitter_ms, U4) > self.limits.jitter_ms_max
        if not wrong.any():
            return None
        return _at(wrong, Reason.JITTER_TOO_LARGE, f"a jitter of more than {self.limits.jitter_ms_max} ms")

    def _records(self, records: Sequence[bytes], raw: bytes, sizes: NDArray[np.int64]) -> Checked | Refusal:
        bare = _bare(records, sizes)
        if bool(bare.all()) and int(sizes.max()) <= self.limits.body_bytes_max:
            return Checked([], NO_KEYS, idempotent=False)  # nothing is in them that would have to be parsed
        keys: list[str] = []
        keyed, idempotent = False, 0
        try:
            for part, checked in self._checked(records, raw, sizes):
                found = self._parts(records[part], checked, bare[part], sizes[part], part.start)
                if isinstance(found, Refusal):
                    return found
                keyed |= bool(found)
                keys += found or [""] * len(checked)
                idempotent += sum(map(bool, map(attrgetter("idempotency_key"), checked)))
        except DecodeError:
            return Refusal(Reason.RECORD_INVALID, "a record is not a serialized tarry.v1.Record")
        if 0 < idempotent < len(records):
            text = f"{idempotent} of {len(records)} messages have an idempotency key: give all one, or none"
            return Refusal(Reason.IDEMPOTENCY_KEYS_MIXED, text)
        of_command = of_few(records, keys_of_command(self.limits))
        return Checked(keys if keyed else [], of_command, idempotent=idempotent > 0)

    def _checked(
        self, records: Sequence[bytes], raw: bytes, sizes: NDArray[np.int64]
    ) -> Iterator[tuple[slice, Sequence[log_pb.CheckedRecord]]]:
        """Yield the records as messages, all at once unless what they have beside their bodies is much.

        Raises DecodeError.
        """
        beside = sizes
        if len(raw) > DENSE_BYTES:
            bodies = log_pb.RecordBodies.FromString(raw).records
            beside = sizes - np.fromiter(map(len, map(attrgetter("body"), bodies)), dtype=np.int64)
        if int(beside.sum()) <= DENSE_BYTES:
            yield slice(0, len(sizes)), log_pb.CheckedRecords.FromString(raw).records
            return
        for part in portions(beside.astype(np.uint32), PIECE_BYTES):
            piece = log_pb.RecordColumn(records=records[part]).SerializeToString()
            yield part, log_pb.CheckedRecords.FromString(piece).records

    def _parts(
        self,
        records: Sequence[bytes],
        checked: Sequence[log_pb.CheckedRecord],
        bare: NDArray[np.bool_],
        sizes: NDArray[np.int64],
        first: int,
    ) -> list[str] | Refusal:
        """Return the ordering keys of some of the records, none where no record has one."""
        limits = self.limits
        more = (~bare).tolist()
        searched = b"".join(compress(records, more))
        if RESERVED.encode() in searched and (
            refusal := _reserved(checked, first)
        ):  # hardly ever: so one search
            return refusal
        # Most records are too small beside their bodies to have too many of anything: each takes two bytes.
        few = 2 * min(limits.properties_max, limits.keys_max, limits.tags_max)
        suspect = ~bare & (sizes > few) | (sizes > limits.body_bytes_max)
        if suspect.any():
            bodies = map(attrgetter("body"), compress(checked, suspect.tolist()))
            body_sizes = np.fromiter(map(len, bodies), dtype=np.int64)
            suspect[suspect] = (sizes[suspect] - body_sizes > few) | (body_sizes > limits.body_bytes_max)
        suspects = list(compress(checked, suspect.tolist()))
        ordering_key = attrgetter("ordering_key")
        keyed = any(map(ordering_key, compress(checked, more)))
        keys = list(map(ordering_key, checked)) if keyed else []
        return (
            _most(map(len, map(attrgetter("body"), suspects)), limits.body_bytes_max, Reason.RECORD_TOO_LARGE,
                  "a body of {} bytes, more than {}: keep it elsewhere and send where")
            or _most(sizes.tolist(), limits.body_bytes_max + limits.record_overhead_bytes_max,
                     Reason.RECORD_TOO_LARGE, "a record of {} bytes, more than {}")
            or _most(map(len, map(attrgetter("properties"), suspects)), limits.properties_max,
                     Reason.TOO_MANY_PROPERTIES, "{} properties, more than {}")
            or _most(map(len, map(attrgetter("keys"), suspects)), limits.keys_max,
                     Reason.TOO_MANY_KEYS, "{} keys, more than {}")
            or _most(map(len, map(attrgetter("tags"), suspects)), limits.tags_max,
                     Reason.TOO_MANY_TAGS, "{} tags, more than {}")
            or _most(map(len, keys or ("",)), limits.ordering_key_chars_max, Reason.ORDERING_KEY_TOO_LONG,
                     "an ordering key of {} characters, more than {}")
            or _idempotency(compress(checked, more), limits.idempotency_key_chars_max)
            or keys
        )  # fmt: skip


def _born(request: log_pb.ScheduleColumns) -> Refusal | None:
    """Return why the caller's now will not do; it is only told, so it need not be right."""
    if 0 <= request.born_ms <= DUE_MS_MAX:
        return None
    text = (
        f"born_ms {request.born_ms} is no time: give the caller's now in ms since the epoch, or leave it out"
    )
    return Refusal(Reason.RECORD_INVALID, text)


def _put_times(request: log_pb.ScheduleColumns, records: Sequence[bytes], stored_ms: int) -> None:
    """Append to each record when it was born and stored."""
    timed = list(map(add, records, repeat(times(request.born_ms, stored_ms))))
    del request.records[:]
    request.records.extend(timed)
    request.ClearField("born_ms")


def keys_of_command(limits: Limits) -> int:
    """Return the number of keys whose hashes a command has at most."""
    return KEYS_OF_MESSAGE * limits.batch_messages_max


def body_too_large(request: log_pb.ScheduleColumns, bytes_max: Sequence[int]) -> Refusal | None:
    """Return why a body is too large for its own topic; limits by place in the request's topics, 0: none."""
    bodies = log_pb.RecordBodies.FromString(request.SerializeToString()).records
    sizes = np.fromiter(map(len, map(attrgetter("body"), bodies)), dtype=np.int64)
    topic = np.frombuffer(request.topic, U4) if request.topic else np.zeros(len(sizes), U4)
    most = np.array(bytes_max, dtype=np.int64)[topic]
    wrong = (most > 0) & (sizes > most)
    if not wrong.any():
        return None
    at = int(wrong.argmax())
    text = (
        f"a body of {sizes[at]} bytes is over the {most[at]} that topic {request.topics[topic[at]]!r} allows"
    )
    return _at(wrong, Reason.RECORD_TOO_LARGE, text)


def _dead_letters(topic: str) -> Refusal | None:
    """Return why nothing can be scheduled to a topic of dead letters."""
    if not topic.startswith(DEAD_LETTERS):
        return None
    text = (
        f"topics that begin with {DEAD_LETTERS!r} hold dead letters, which only the cluster places: "
        "schedule to another topic; `tarry redrive` gives dead letters back to their groups"
    )
    return Refusal(Reason.TOPIC_INVALID, text)


def _reserved(checked: Iterable[log_pb.CheckedRecord], first: int) -> Refusal | None:
    """Return why a property's name will not do, of records from the first on."""
    for position, record in enumerate(checked, first):
        for name in (each.name for each in record.properties):
            if name.startswith(RESERVED):
                text = (
                    f"the property {name[:80]!r}: names that begin with {RESERVED!r} are set by the cluster "
                    "alone, to tell of a dead letter: leave it out, or name it otherwise"
                )
                return Refusal(Reason.PROPERTY_RESERVED, text, {"position": str(position)})
    return None


def _idempotency(checked: Iterable[log_pb.CheckedRecord], chars_max: int) -> Refusal | None:
    """Return why the idempotency keys of records will not do."""
    records = list(checked)
    if any(map(attrgetter("scheduled_digest"), records)):
        text = "a record has a scheduled_digest, which the cluster alone sets: leave it out"
        return Refusal(Reason.RECORD_INVALID, text)
    keys = map(attrgetter("idempotency_key"), records)
    text = "an idempotency key of {} characters, more than {}: use a digest of it"
    return _most(map(len, keys), chars_max, Reason.IDEMPOTENCY_KEY_TOO_LONG, text)


def _bare(records: Iterable[bytes], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which records are a short body and nothing else, by the field's tag and length ahead of it."""
    joined = np.frombuffer(b"".join(records) + bytes(3), dtype=np.uint8)
    starts = np.cumsum(sizes) - sizes
    tag, low, high = (joined[starts + at].astype(np.int64) for at in range(3))
    short = (low < 128) & (sizes == low + 2)
    longer = (low >= 128) & (high < 128) & (sizes == (low & 127 | high << 7) + 3)
    bare: NDArray[np.bool_] = (tag == BODY_TAG) & (short | longer)
    return bare


def _most(values: Iterable[int], limit: int, reason: Reason, text: str) -> Refusal | None:
    most = max(values, default=0)
    return Refusal(reason, text.format(most, limit)) if most > limit else None


def _at(wrong: NDArray[np.bool_], reason: Reason, text: str) -> Refusal:
    return Refusal(reason, text, {"position": str(int(wrong.argmax()))})


def spread(due_ms: NDArray[np.int64], jitter_ms: NDArray[np.uint32], seed: int) -> NDArray[np.int64]:
    """Return due times, shape (n,), each put off by 0 to jitter_ms, the same for the same seed.

    Source: the output function of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
    Generators, 2014), over seed and position.
    """
    mixed = np.arange(len(due_ms), dtype=np.uint64) + np.uint64(seed << 32)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    later = ((mixed >> np.uint64(32)) * (jitter_ms.astype(np.uint64) + np.uint64(1))) >> np.uint64(32)
    moved: NDArray[np.int64] = due_ms + later.astype(np.int64)
    return moved


def _aligned(request: log_pb.ScheduleColumns, n: int) -> bool:
    return all(len(getattr(request, name)) in (0, n * width) for name, width in WIDTHS.items())


def _known_bytes(request: log_pb.ScheduleColumns, sizes: NDArray[np.int64]) -> int:
    """Return how many bytes of a request are of fields that are known here, at least."""
    columns = sum(len(getattr(request, name)) for name in WIDTHS)
    names = sum(map(len, request.topics)) + len(request.producer)
    return int(sizes.sum()) + columns + names + 2 * (len(sizes) + len(request.topics))


def _repacked(raw: bytes) -> log_pb.ScheduleColumns:
    packed = producer_pb.ScheduleBatchRequest.FromString(raw).SerializeToString()
    return log_pb.ScheduleColumns.FromString(packed)


def _column(request: Any, name: str, dtype: np.dtype[Any]) -> bytes:
    return np.array([getattr(request, name)], dtype=dtype).tobytes() if request.HasField(name) else b""
