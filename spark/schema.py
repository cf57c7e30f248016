"""Spark types of the ledger's columns, and small integers for kinds in shuffles."""

from __future__ import annotations

from functools import reduce
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tarry.proto.ledger.schema import ALWAYS, COLUMNS, DELAYED, Kind

_TYPES: Final[dict[str, DataType]] = {
    "string": StringType(),
    "int32": IntegerType(),
    "int64": LongType(),
    "bool": BooleanType(),
}

LEDGER: Final = StructType(
    [StructField(name, _TYPES[of], name not in ALWAYS) for name, of in COLUMNS.items()]
)
"""One row of the ledger."""

MANIFEST: Final = (
    "version int, source string, run string, segment long, first_index long, last_index long, "
    "first_at_ms long, last_at_ms long, `rows` long, kinds map<string, long>, bytes long, crc32c long, "
    "filtered boolean"
)
"""A manifest, as its JSON has it."""

NUMBERS: Final = {kind: number for number, kind in enumerate(Kind)}
"""Kind -> its number in shuffles; never written to a file."""


def kind_number(kind: Column) -> Column:
    """Return the number of a kind's name as int; -1 for one that this version does not know."""
    start = F.lit(-1)
    return reduce(
        lambda rest, one: F.when(kind == one[0].value, one[1]).otherwise(rest), NUMBERS.items(), start
    )


def is_kind(number: Column, *kinds: Kind) -> Column:
    """Return whether a kind's number is one of the kinds'."""
    return number.isin([NUMBERS[kind] for kind in kinds]) if len(kinds) > 1 else number == NUMBERS[kinds[0]]


def delay_ms() -> Column:
    """Return the delay that is in the due time of a ledger's row, ms; 0: none."""
    delay = F.substring("detail", len(DELAYED) + 1, 19).try_cast("long")
    of_delivery = F.col("kind") == Kind.DELIVERED.value
    return F.coalesce(F.when(of_delivery & F.col("detail").startswith(DELAYED), delay), F.lit(0))
