"""Columns of exported messages in Parquet files, and what the files say of themselves."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

FORMAT: Final = "tarry.pending.1"
"""Value of the key ``format`` in a file's metadata; other keys are those of ``Exported``."""

COLUMNS: Final = pa.schema(
    [
        ("id", pa.string()),
        ("topic", pa.string()),
        ("due_ms", pa.int64()),
        ("body", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("keys", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("ordering_key", pa.string()),
        ("idempotency_key", pa.string()),
    ]
)
"""Every row has a value in each of them, an empty one where the message has none."""

RECORD_COLUMNS: Final = COLUMNS.names[3:]
"""Those that are in a record, in the order of their fields there."""
