"""Bounds on the bytes of a request, by its method: what it can name, and some more.

A request is parsed in one turn of the event loop, and one of nothing but empty fields takes 13 ns a byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tarry.node.config import Limits
from tarry.proto import message_id
from tarry.replication.snapshot.transfer import KEPT_FILE_BYTES, KEPT_FILES_MAX

OVERHEAD_BYTES: Final = 64 << 10
"""Of names, and what else there is few of; of most requests that is all."""
OFFSET_BYTES: Final = 9
"""Of an offset in a column that is not packed."""
TOPIC_BYTES: Final = 64
"""Of a topic's name beside its characters, and of what is resumed of its two queues beside the offsets."""
FILTER_TAG_BYTES: Final = 128
"""Of a tag to filter by; fewer may be longer."""
NUMBER_BYTES: Final = 11
"""Of any number in a column that is not packed."""
ID_BYTES: Final = message_id.LENGTH + 2
CHAR_BYTES: Final = 4
"""Of a character in UTF-8, at most."""
FILTER_NAMES_MAX: Final = 100
"""Tags, and as many keys, of a filter of messages."""
FILTER_CHARS_MAX: Final = 1_024
"""Of one of them, and of a prefix."""
NAMES_BYTES: Final = FILTER_NAMES_MAX * (CHAR_BYTES * FILTER_CHARS_MAX + 3)
FILTER_BYTES: Final = 2 * NAMES_BYTES + CHAR_BYTES * FILTER_CHARS_MAX
CURSOR_BYTES: Final = 64 << 10
"""Of a cancel of many messages; a listing's is short."""
EXPORT_TOPICS_MAX: Final = 128
"""Topics of one export of what is pending; without any it is of all."""
KEY_BYTES: Final = CHAR_BYTES << 16
"""Of a key by which messages are found, which may be as long as a message has one."""


def of_clients(limits: Limits) -> Callable[[str], int]:
    """Return the bound of each method that clients call, by its path."""
    batch = limits.batch_bytes_max
    offsets = OFFSET_BYTES * limits.offsets_max
    topic_bytes = limits.topic_chars_max + limits.group_chars_max + TOPIC_BYTES
    topics = topic_bytes * limits.subscribed_topics_max
    more = {
        "Schedule": limits.body_bytes_max + limits.record_overhead_bytes_max,
        "ScheduleBatch": batch,
        "ScheduleStream": batch,
        "Reschedule": (ID_BYTES + 3 * NUMBER_BYTES) * limits.reschedule_ids_max,
        "Update": limits.body_bytes_max + limits.record_overhead_bytes_max,
        "Cancel": ID_BYTES * limits.cancel_ids_max,
        "Consume": offsets + topics + CHAR_BYTES * limits.filter_chars_max,
        "Receive": FILTER_TAG_BYTES * limits.filter_tags_max + topics + CHAR_BYTES * limits.filter_chars_max,
        "Ack": offsets,
        "Nack": offsets,
        "Extend": offsets,
        "ListMessages": FILTER_BYTES,
        "CancelMatching": FILTER_BYTES + CURSOR_BYTES,
        "PurgeTopic": CURSOR_BYTES,
        "Forecast": NAMES_BYTES,
        "FindByKey": KEY_BYTES,
        "PutRecurring": limits.body_bytes_max + limits.record_overhead_bytes_max,
        "Prepare": limits.body_bytes_max + limits.record_overhead_bytes_max,
        "NextFires": limits.body_bytes_max + limits.record_overhead_bytes_max,
        "Backup": KEPT_FILE_BYTES * KEPT_FILES_MAX,
        "ExportPending": EXPORT_TOPICS_MAX * (CHAR_BYTES * FILTER_CHARS_MAX + 3),
    }
    return lambda path: more.get(path.rpartition("/")[2], 0) + OVERHEAD_BYTES


def of_nodes(path: str) -> int:
    """Return the bound of a method that nodes call."""
    kept = KEPT_FILE_BYTES * KEPT_FILES_MAX if path.endswith("/FetchSnapshot") else 0
    return kept + OVERHEAD_BYTES
