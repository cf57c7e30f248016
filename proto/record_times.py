"""Times of a record, which the leader that takes a message appends to it: of a field the last counts."""

from __future__ import annotations

import re
from typing import Final

from tarry.proto.tarry_message_pb2 import RecordTimes

BORN_TAG: Final = bytes([RecordTimes.BORN_MS_FIELD_NUMBER << 3])
STORED_TAG: Final = bytes([RecordTimes.STORED_MS_FIELD_NUMBER << 3])
_SIX: Final = b"[\x80-\xff]{5}[\x00-\x7f]"
"""A varint of six bytes."""
TIMES: Final = re.compile(BORN_TAG + b"(?:\x00|" + _SIX + b")" + STORED_TAG + _SIX, re.DOTALL)
"""Both times of TIMES_BYTES or STORED_BYTES, and nothing that a producer could have written between."""
TIMES_BYTES: Final = 14
"""Of both times, from 1971 to 2109: a tag and six bytes each."""
STORED_BYTES: Final = 9
"""Where it is not known when the message was born: two bytes say so."""


def times(born_ms: int, stored_ms: int) -> bytes:
    """Return what sets both times of the record to whose end it is appended; 0: not known."""
    born = RecordTimes(born_ms=born_ms).SerializeToString() if born_ms else BORN_TAG + b"\0"
    return born + RecordTimes(stored_ms=stored_ms).SerializeToString()
