"""A copy of a table of PostgreSQL, or of a query's rows, as rows of a Parquet file.

One transaction sees one state of the database, counts the rows, and reads them through a cursor of the
server; what is written or deleted meanwhile changes nothing of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
from psycopg import sql

from tarry.client.bulk.values import Columns, InvalidSource, PostgresqlTable

ROWS_AT_ONCE: Final = 5_000
_KINDS: Final = {
    **dict.fromkeys((20, 21, 23), pa.int64()),
    **dict.fromkeys((700, 701, 1700), pa.float64()),
    17: pa.binary(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
    1082: pa.timestamp("us"),
    **dict.fromkeys((1009, 1015), pa.list_(pa.string())),
}
"""Of columns, by PostgreSQL's numbers of types: int, float, bytea, timestamp, date, text[]; others: texts."""


def copied(source: PostgresqlTable, columns: Columns, path: Path) -> Iterator[int]:
    """Write the file, and yield how many rows are read. Raises InvalidSource, OSError."""
    try:
        with psycopg.connect(source.url) as connection:
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            connection.read_only = True
            rows = _rows(source, columns)
            counting = sql.SQL("SELECT count(*) FROM ({}) AS counted").format(rows)
            (total,) = connection.execute(counting).fetchone() or (0,)
            read = 0
            with connection.cursor("tarry_import") as cursor:
                cursor.itersize = ROWS_AT_ONCE
                cursor.execute(rows)
                for read in _written(cursor, path):
                    yield read
            if read != total:
                raise InvalidSource(f"{read} rows were read, where PostgreSQL counted {total}: begin anew")
    except (psycopg.Error, pa.ArrowException) as error:
        raise InvalidSource(f"PostgreSQL at {source.told()['url']}: {error}") from error


def _rows(source: PostgresqlTable, columns: Columns) -> sql.Composable:
    if source.query:
        return sql.SQL(source.query.rstrip().rstrip(";"))
    where = sql.SQL(f" WHERE {source.where}") if source.where else sql.SQL("")
    order = columns.names.get("id") or columns.names.get("due", "")
    by = sql.SQL(" ORDER BY {}").format(sql.Identifier(order)) if order else sql.SQL("")
    table = sql.Identifier(*source.table.split("."))
    return sql.SQL("SELECT * FROM {}{}{}").format(table, where, by)


def _written(cursor: Any, path: Path) -> Iterator[int]:
    writer: pq.ParquetWriter | None = None
    read = 0
    try:
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            table = _table(rows, cursor.description)
            if writer is None:
                writer = pq.ParquetWriter(path, table.schema, compression="zstd")
            writer.write_table(table)
            read += len(rows)
            yield read
        if writer is None:
            pq.write_table(_table([], cursor.description), path)
    finally:
        if writer is not None:
            writer.close()


def _table(rows: Sequence[Sequence[Any]], description: Sequence[Any]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(description)
    arrays = []
    for column, told in zip(columns, description, strict=True):
        kind = _KINDS.get(told.type_code, pa.string())
        values = list(map(_text, column)) if pa.types.is_string(kind) else list(map(_plain, column))
        arrays.append(pa.array(values, kind))
    return pa.Table.from_arrays(arrays, [told.name for told in description])


def _plain(value: Any) -> Any:
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    if isinstance(value, list):  # of texts, in however many dimensions
        return [text for one in value for text in (_plain(one) if isinstance(one, list) else [one])]
    return float(value) if type(value).__name__ == "Decimal" else value


def _text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, dict | list):
        return json.dumps(value, ensure_ascii=False)
    return str(value.total_seconds()) if isinstance(value, timedelta) else str(value)
