"""Foreign rows become messages as they are described, and a row that cannot says why."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarry.client.bulk import files
from tarry.client.bulk.files import FileSource
from tarry.client.bulk.mapping import Chunk, chunk_of, due_column, marked
from tarry.client.bulk.values import Columns, InvalidSource, RedisSet

DUE_MS = 1_800_000_000_123


PLAIN = Columns(topic="t")


def one(columns: Columns = PLAIN, overdue_before_ms: int | None = None, **data: Any) -> Chunk:
    return chunk_of(pa.RecordBatch.from_pydict(data), 10, columns, overdue_before_ms)


@pytest.mark.parametrize(
    ("values", "unit", "due_ms"),
    [
        (pa.array([DUE_MS]), "auto", DUE_MS),
        (pa.array([DUE_MS]), "ms", DUE_MS),
        (pa.array([1_800_000_000]), "auto", 1_800_000_000_000),
        (pa.array([1_800_000_000]), "ms", 1_800_000_000),
        (pa.array([1_800_000_000.1234]), "s", 1_800_000_000_123),
        (pa.array([datetime.fromtimestamp(1_800_000_000, UTC)]), "auto", 1_800_000_000_000),
        (pa.array([datetime(2027, 1, 15, 8)]), "auto", 1_800_000_000_000),
        (pa.array(["2027-01-15T08:00:00.123Z"]), "auto", DUE_MS),
        (pa.array(["2027-01-15 09:00:00.123999+01:00"]), "auto", DUE_MS),
        (pa.array(["2027-01-15T08:00:00"]), "auto", 1_800_000_000_000),
        (pa.array([" 1800000000.123 "]), "auto", DUE_MS),
        (pa.array(["soon"]), "auto", None),
        (pa.array([float("nan")]), "auto", None),
        (pa.array([1e300]), "ms", None),
        (pa.array([None]), "auto", None),
        (pa.array([2**60], pa.timestamp("s")), "auto", None),
        (pa.array([1_800_000_000], pa.timestamp("s", "UTC")), "auto", 1_800_000_000_000),
        (pa.array([date(2027, 1, 15)]), "auto", 1_799_971_200_000),
        (pa.array([2**31 - 1], pa.int32()).cast(pa.date32()), "auto", None),
        (pa.array(["9" * 400]), "auto", None),
    ],
)
def test_due_times_are_read_in_any_of_these_forms(values: pa.Array, unit: str, due_ms: int | None) -> None:
    assert due_column(values, unit).to_pylist() == [due_ms]
    doubled = pa.concat_arrays([values, values])
    assert due_column(doubled, unit).to_pylist() == [due_ms, due_ms]


def test_texts_that_are_read_one_by_one_stand_beside_numbers() -> None:
    read = due_column(pa.array(["1800000000", "2027-01-15T08:00:00Z", "?", None]), "auto")
    assert read.to_pylist() == [1_800_000_000_000, 1_800_000_000_000, None, None]


def test_columns_are_found_by_their_names_or_as_they_are_said() -> None:
    columns = Columns({"due": "run_at", "body": "payload", "id": "pk", "tags": "labels"})
    chunk = one(
        columns, topic=["a", "b"], run_at=[DUE_MS, DUE_MS + 1], payload=["x", None], pk=[7, 8],
        labels=["red,,green", None],
    )  # fmt: skip
    assert chunk.rows.tolist() == [10, 11]
    assert chunk.messages.select(["id", "topic", "due_ms", "body", "tags"]).to_pylist() == [
        {"id": "7", "topic": "a", "due_ms": DUE_MS, "body": b"x", "tags": ["red", "green"]},
        {"id": "8", "topic": "b", "due_ms": DUE_MS + 1, "body": b"", "tags": []},
    ]


def test_rows_that_cannot_be_messages_are_named_and_the_others_are_kept() -> None:
    chunk = one(
        Columns(body="base64"),
        topic=["a", "no name", None, "dlq.g.t", "a", "a", "b"],
        due=[DUE_MS, DUE_MS, DUE_MS, DUE_MS, None, DUE_MS, 2**60],
        body=["eA==", "eA==", "eA==", "eA==", "eA==", "?", "eA=="],
    )
    assert [(fault.row, fault.reason) for fault in chunk.faults] == [
        (11, "TOPIC_INVALID"),
        (12, "TOPIC_INVALID"),
        (13, "TOPIC_INVALID"),
        (14, "DUE_INVALID"),
        (15, "RECORD_INVALID"),
        (16, "DUE_INVALID"),
    ]
    assert (chunk.rows.tolist(), chunk.messages.column("body").to_pylist()) == ([10], [b"x"])


def test_overdue_rows_are_skipped_where_that_is_asked_for() -> None:
    data = {"due": [DUE_MS - 1, DUE_MS, DUE_MS + 1], "body": ["a", "b", "c"]}
    assert (one(**data).skipped, len(one(**data).rows)) == (0, 3)
    chunk = one(overdue_before_ms=DUE_MS, **data)
    assert (chunk.skipped, chunk.rows.tolist()) == (1, [11, 12])


def test_marks_come_to_the_properties_that_are_there() -> None:
    kind = pa.map_(pa.string(), pa.string())
    properties = pa.array([[("a", "1"), ("b", "2")], [], [("c", "3")]], kind)
    chunk = one(
        Columns(topic="t", mark="redis"), id=["x", "y", "z"], due=[DUE_MS] * 3, body=["1"] * 3,
        properties=properties,
    )  # fmt: skip
    assert [dict(row) for row in chunk.messages.column("properties").to_pylist()] == [
        {"a": "1", "b": "2", "imported_from": "redis", "imported_id": "x"},
        {"imported_from": "redis", "imported_id": "y"},
        {"c": "3", "imported_from": "redis", "imported_id": "z"},
    ]
    part = marked(chunk.messages.slice(1, 2), [("twice", "yes")])
    assert [dict(row)["twice"] for row in part.column("properties").to_pylist()] == ["yes"] * 2
    assert len(part.column("properties")[1]) == 4


def test_what_is_missing_in_a_list_or_a_map_is_left_out_or_empty() -> None:
    kind = pa.map_(pa.string(), pa.string())
    data = {
        "due": [DUE_MS] * 4,
        "body": ["x"] * 4,
        "tags": pa.array([[None, "a"], None, [None], ["b", None, "c"]], pa.list_(pa.string())),
        "properties": pa.array([[("p", None)], None, [("q", "1"), ("r", None)], []], kind),
    }
    for begin in (0, 1):
        batch = pa.RecordBatch.from_pydict(data).slice(begin)
        rows = chunk_of(batch, begin, PLAIN, None).messages.to_pylist()
        assert [row["tags"] for row in rows] == [["a"], [], [], ["b", "c"]][begin:]
        found = [dict(row["properties"]) for row in rows]
        assert found == [{"p": ""}, {}, {"q": "1", "r": ""}, {}][begin:]


def test_properties_may_be_json_objects_or_structs_and_are_never_dropped() -> None:
    texts = ['{"a": "1", "b": {"c": [2]}}', None, "", "[1]", "{", '{"a": "\\ud800"}']
    chunk = one(due=[DUE_MS] * 6, body=["x"] * 6, properties=texts)
    assert [dict(row["properties"]) for row in chunk.messages.to_pylist()] == [
        {"a": "1", "b": '{"c": [2]}'}, {}, {}
    ]  # fmt: skip
    assert [(fault.row, fault.reason) for fault in chunk.faults] == [
        (row, "RECORD_INVALID") for row in (13, 14, 15)
    ]
    chunk = one(due=[DUE_MS], body=["x"], properties=[{"a": "1", "b": 2}])
    assert dict(chunk.messages.to_pylist()[0]["properties"]) == {"a": "1", "b": "2"}
    with pytest.raises(InvalidSource, match="of properties is of type int64"):
        one(due=[DUE_MS], body=["x"], properties=[1])


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.large_binary()])
def test_bodies_are_decoded_of_whatever_type_their_column_is(kind: pa.DataType) -> None:
    bodies = pa.array([b"eA==", b"?"], pa.binary()).cast(kind)
    for column in (bodies, bodies.dictionary_encode()):
        chunk = one(Columns(topic="t", body="base64"), due=[DUE_MS] * 2, body=column)
        assert chunk.messages.column("body").to_pylist() == [b"x"]
        assert [fault.row for fault in chunk.faults] == [11]


@pytest.mark.parametrize(
    ("columns", "data", "text"),
    [
        (Columns(topic="t"), {"when": [1], "body": ["x"]}, "--column due=NAME; there are when, body"),
        (Columns(topic="t"), {"due": [1], "what": ["x"]}, "--column body=NAME"),
        (Columns(), {"due": [1], "body": ["x"]}, "--topic NAME"),
        (Columns({"due": "at"}, topic="t"), {"due": [1], "body": ["x"]}, "no column 'at' for due"),
        (Columns(topic="t"), {"due": [[1]], "body": ["x"]}, "numbers, timestamps or ISO 8601"),
    ],
)
def test_a_source_that_is_not_as_described_is_refused(
    columns: Columns, data: dict[str, Any], text: str
) -> None:
    with pytest.raises(InvalidSource, match=text):
        one(columns, **data)


def test_a_csv_file_is_read_as_texts_from_any_row_on(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    lines = [f'{row},{DUE_MS + row},"line {row}\nand ""more"""' for row in range(1_000)]
    path.write_text("\n".join(["id,due,body", *lines, ""]))
    source = FileSource(path, Columns(topic="t"))
    assert source.rows is None
    for begin in (0, 1, 700, 1_000):
        chunks = list(source.chunks(begin))
        rows = [row for chunk in chunks for row in chunk.rows.tolist()]
        assert rows == list(range(begin, 1_000))
        bodies = [body for chunk in chunks for body in chunk.messages.column("body").to_pylist()]
        assert bodies == [b'line %d\nand "more"' % row for row in rows]


def test_a_folder_of_parquet_files_is_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for number in (2, 0, 1):
        rows = [{"id": f"{number}-{row}", "due": DUE_MS, "body": b"x"} for row in range(3)]
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / f"part-{number}.parquet")
    source = FileSource(tmp_path, Columns(topic="t"))
    ids = [one for chunk in source.chunks(2) for one in chunk.messages.column("id").to_pylist()]
    assert (source.rows, ids) == (9, ["0-2", "1-0", "1-1", "1-2", "2-0", "2-1", "2-2"])


def test_rows_are_read_by_their_bytes_and_row_groups_before_the_first_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 4_096)
    path = tmp_path / "jobs.parquet"
    rows = [{"due": DUE_MS + row, "body": f"{row:0512}"} for row in range(100)]
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=30, use_dictionary=False)
    source = FileSource(path, Columns(topic="t"))
    for begin in (0, 29, 30, 31, 60, 99, 100):
        chunks = list(source.chunks(begin))
        assert [row for chunk in chunks for row in chunk.rows.tolist()] == list(range(begin, 100))
        due_ms = [due for chunk in chunks for due in chunk.messages.column("due_ms").to_pylist()]
        assert due_ms == [DUE_MS + row for row in range(begin, 100)]
        assert all(len(chunk.rows) <= 8 for chunk in chunks)
    read: list[int] = []
    batches = pq.ParquetFile.iter_batches

    def noted(self: Any, *arguments: Any, row_groups: list[int]) -> Any:
        read.extend(row_groups)
        return batches(self, *arguments, row_groups=row_groups)

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", noted)
    assert list(source.chunks(60)) and read == [2, 3]


@pytest.mark.parametrize(
    ("url", "noted"),
    [
        ("redis://:secret@host:6379/0", "redis://host:6379/0"),
        ("postgresql://user:secret@host/db?sslmode=require", "postgresql://user@host/db?sslmode=require"),
        ("postgresql://host/db?user=me&password=secret", "postgresql://host/db"),
        ("redis://host?%70assword=secret", "redis://host"),
        ("redis://:secret@[host", "redis://…"),
    ],
)
def test_no_password_is_noted(url: str, noted: str) -> None:
    assert RedisSet(url, "key").told()["url"] == noted


def test_what_is_no_source_is_refused_with_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(InvalidSource, match="name one"):
        FileSource(tmp_path / "none", Columns())
    (tmp_path / "jobs.txt").write_text("x")
    with pytest.raises(InvalidSource, match=r"named \.csv or \.tsv"):
        list(FileSource(tmp_path / "jobs.txt", Columns()).chunks())
    (tmp_path / "empty.csv").write_text("")
    with pytest.raises(InvalidSource, match="name the columns"):
        list(FileSource(tmp_path / "empty.csv", Columns()).chunks())
    (tmp_path / "latin.csv").write_bytes("due,körper\n1,2\n".encode("latin-1"))
    with pytest.raises(InvalidSource, match="at row 0 or behind"):
        list(FileSource(tmp_path / "latin.csv", Columns(topic="t")).chunks())
    (tmp_path / "odd.csv").write_text("due,body\n1,2,3\n")
    with pytest.raises(InvalidSource, match="at row 0 or behind"):
        list(FileSource(tmp_path / "odd.csv", Columns(topic="t")).chunks())
