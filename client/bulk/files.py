"""Files as sources of an import: an export, foreign Parquet, CSV; in the same order each time."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from tarry.client.bulk.mapping import Chunk, chunk_of
from tarry.client.bulk.values import Columns, InvalidSource

CHUNK_ROWS: Final = 8_192
CHUNK_BYTES: Final = 8 << 20
"""Read at a time: so many rows, or as many as have these bytes by the average of their row group."""
CSV_BLOCK_BYTES: Final = 1 << 20


class FileSource:
    """Rows of one file, or of a folder of Parquet files in the order of their names."""

    def __init__(self, path: Path, columns: Columns, overdue_before_ms: int | None = None) -> None:
        """Take a path. Raises InvalidSource where there is nothing to read."""
        self.columns = columns
        self._path = path
        self._overdue_before_ms = overdue_before_ms
        self._files = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
        if not self._files or not all(file.is_file() for file in self._files):
            raise InvalidSource(f"{path} is no file, nor a folder of .parquet files: name one")
        self._is_csv = path.suffix.lower() in {".csv", ".tsv"}

    @property
    def rows(self) -> int | None:
        """Number of rows, as the files say; None: they do not. Raises InvalidSource."""
        if self._is_csv:
            return None
        return sum(int(self._opened(file).metadata.num_rows) for file in self._files)

    def identity(self) -> list[list[Any]]:
        """Return what tells whether the files are those of an earlier start of the import."""
        stats = [(file, file.stat()) for file in self._files]
        return [[str(file.resolve()), stat.st_size, stat.st_mtime_ns] for file, stat in stats]

    def chunks(self, begin: int = 0) -> Iterator[Chunk]:
        """Yield the rows from one on. Raises InvalidSource."""
        row = 0
        try:
            for row, batch in self._batches(begin):
                if row + len(batch) > begin:
                    rest = batch.slice(max(0, begin - row))
                    yield chunk_of(rest, max(row, begin), self.columns, self._overdue_before_ms)
        except (pa.ArrowException, csv.Error, UnicodeDecodeError) as error:
            raise InvalidSource(f"{self._path}, at row {row} or behind: {error}") from error

    def _batches(self, begin: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield rows, with the number of the first; of Parquet no row group that ends before ``begin``."""
        row = 0
        if self._is_csv:
            for batch in self._csv_batches():
                yield row, batch
                row += len(batch)
            return
        for file in self._files:
            with self._opened(file) as opened:
                for number in range(opened.num_row_groups):
                    group = opened.metadata.row_group(number)
                    if row + group.num_rows <= begin:
                        row += group.num_rows
                        continue
                    most = group.num_rows * CHUNK_BYTES // max(1, group.total_byte_size)
                    for batch in opened.iter_batches(max(1, min(CHUNK_ROWS, most)), row_groups=[number]):
                        yield row, batch
                        row += len(batch)

    def _opened(self, file: Path) -> pq.ParquetFile:
        try:
            return pq.ParquetFile(file)
        except pa.ArrowException as error:
            raise InvalidSource(
                f"{file} is no Parquet file; a CSV file is named .csv or .tsv: {error}"
            ) from error

    def _csv_batches(self) -> Iterator[pa.RecordBatch]:
        tab = "\t" if self._path.suffix.lower() == ".tsv" else ","
        with self._path.open(newline="", encoding="utf-8-sig") as file:
            names = next(csv.reader(file, delimiter=tab), [])
        if not names:
            raise InvalidSource(f"{self._path} is empty: its first line has to name the columns")
        reader = pa_csv.open_csv(
            self._path,
            pa_csv.ReadOptions(block_size=CSV_BLOCK_BYTES),
            pa_csv.ParseOptions(delimiter=tab, newlines_in_values=True),
            pa_csv.ConvertOptions(  # as texts: what they are is said by the mapping, not by the first block
                column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=True, null_values=[""]
            ),
        )
        with reader:
            yield from reader
