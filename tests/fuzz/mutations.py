"""Requests as nobody should send them: valid ones with extreme, missing, repeated and oversized fields.

What is chosen comes from ``pick``: hypothesis's, so that a failure is made small, or a seeded generator's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol, TypeVar

import numpy as np
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.message import Message

from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import Record, Retried

T = TypeVar("T")
M = TypeVar("M", bound=Message)


class Pick(Protocol):
    """Chooses one of some values."""

    def __call__(self, values: Sequence[T], /) -> T: ...


EXTREMES: Final = sorted(
    {sign * (2**power + off) for power in (31, 32, 63, 64) for off in (-1, 0) for sign in (1, -1)}
    | {-1, 0, 1, 2, 7}
)
RANGES: Final = {
    Field.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    Field.CPPTYPE_UINT32: (0, 2**32 - 1),
    Field.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    Field.CPPTYPE_UINT64: (0, 2**64 - 1),
    Field.CPPTYPE_ENUM: (-(2**31), 2**31 - 1),
    Field.CPPTYPE_BOOL: (0, 1),
}
NAMES: Final = (
    "", "t", "u", "g", "t" * 200, "t" * 201, "g" * 100, "dlq.g.t", "dlq.misfired.t", "~redrive", "g~c", "~",
    "misfired", "tarry.origin_id", "a\0b", "ü", "..", "x" * 20_000,
    str(MessageId(0, 498_611, 0)), str(MessageId(0, 2**32 - 1, 2**32 - 2)), str(MessageId(4_095, 0, 0)),
)  # fmt: skip
FORGED: Final = Record(
    body=b"forged",
    properties={
        "tarry.origin_id": str(MessageId(0, 2**32 - 1, 2**32 - 2)),
        "tarry.origin_topic": "t",
        "tarry.origin_due_ms": "9" * 30,
        "tarry.group": "g",
        "tarry.attempts": "-1",
        "tarry.reason": "",
    },
    ordering_key="k",
).SerializeToString()
COPIES: Final = tuple(
    Retried(
        record=FORGED, hour=n, global_index=n, due_ms=n, attempt=n, topic="t", group="g"
    ).SerializeToString()
    for n in (0, 1, 2**31 - 1, 2**31, 2**32 - 1)
)
BYTES: Final = (
    b"", b"\0", b"\xff" * 3, bytes(8), bytes(300_000), FORGED, *COPIES,
    Record(body=b"x", tags=["red"], keys=["k"], properties={"p": "v"}).SerializeToString(),
    *(np.array(values, f"<u{width}").tobytes() for width in (4, 8)
      for values in ([0], [1], [0, 1], [2**31], [2**32 - 1], [0] * 9)),
    *(np.array(values, "<u8").tobytes() for values in ([2**63 - 1], [2**63], [2**64 - 1])),
)  # fmt: skip
OVERSIZED: Final = 5_000


def mutated(pick: Pick, message: M) -> M:
    """Return a copy with none to three fields changed."""
    copy = type(message)()
    copy.CopyFrom(message)
    for _ in range(pick((0, 0, 0, 1, 1, 2, 3))):
        _mutate(pick, copy)
    return copy


def wire(pick: Pick, message: Message) -> bytes:
    """Return the message's bytes, mostly as they should be."""
    raw = message.SerializeToString()
    at = pick(range(len(raw) + 1))
    match pick(("whole",) * 20 + ("cut", "flipped", "inserted", "twice", "unknown")):
        case "cut":
            return raw[:at]
        case "flipped":
            return raw[:at] + bytes(byte ^ pick((1, 0x80, 0xFF)) for byte in raw[at : at + 1]) + raw[at + 1 :]
        case "inserted":
            return raw[:at] + pick(BYTES) + raw[at:]
        case "twice":
            return raw + raw
        case "unknown":
            return raw + b"\xfa\xff\x03\x03abc"
        case _:
            return raw


def _mutate(pick: Pick, message: Message) -> None:
    fields: list[Any] = list(message.DESCRIPTOR.fields)
    if not fields:
        return
    field = pick(fields)
    if field.is_repeated:
        _mutate_repeated(pick, message, field)
    elif field.cpp_type == Field.CPPTYPE_MESSAGE:
        inner = getattr(message, field.name)
        if pick((True, True, True, False)):
            _mutate(pick, inner)
        else:
            message.ClearField(field.name)
    elif pick((True, True, True, True, False)):
        setattr(message, field.name, extreme(pick, field))
    else:
        message.ClearField(field.name)


def _mutate_repeated(pick: Pick, message: Message, field: Field) -> None:
    values: Any = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        values[pick(NAMES)] = pick(NAMES)
        return
    change = pick(("one more", "one more", "changed", "none", "twice", "oversized"))
    if change == "none":
        del values[:]
    elif change == "twice":
        values.extend(list(values))
    elif field.cpp_type == Field.CPPTYPE_MESSAGE:
        values.add()
        _mutate(pick, values[-1])
    elif change == "oversized":
        values.extend([extreme(pick, field, large=False)] * OVERSIZED)
    elif change == "changed" and len(values):
        values[pick(range(len(values)))] = extreme(pick, field)
    else:
        values.append(extreme(pick, field))


def extreme(pick: Pick, field: Field, *, large: bool = True) -> Any:
    """Return a value that the field can hold, and hardly should."""
    if field.cpp_type == Field.CPPTYPE_STRING:
        choices: Sequence[Any] = BYTES if field.type == Field.TYPE_BYTES else NAMES
        return pick([choice for choice in choices if large or len(choice) < 100])
    if field.cpp_type in RANGES:
        low, high = RANGES[field.cpp_type]
        return pick([number for number in EXTREMES if low <= number <= high])
    return pick((0.0, -1.0, 1e300, float("inf"), float("nan")))
