"""The node's ledger: complete where the disk takes it, honest where it does not, and in nobody's way."""

from __future__ import annotations

import asyncio
import errno
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tarry.node.delivery.batch import DeliveryBatch
from tarry.node.delivery.waiting_messages import WAITING
from tarry.node.ledger import went_alone
from tarry.node.ledger.went_alone import RECOVERED, WentAlone, mark
from tarry.proto.ledger.arrow import SCHEMA, batch
from tarry.proto.ledger.chunk import Chunk, pack, unpack
from tarry.proto.ledger.schema import COLUMNS, Kind, Manifest, numbered
from tarry.proto.ledger.segment import closed
from tests.node.replica import Replica
from tests.replication.commands import NOW_MS, ack, release, schedule, subscribe

Rows = list[dict[str, Any]]


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Replica]]:
    made = []

    def one(**settings: Any) -> Replica:
        for before in made[-1:]:
            before.machine.close()
        made.append(Replica(tmp_path / "n1", **settings))
        return made[-1]

    yield one
    made[-1].machine.close()


def segments(replica: Replica) -> list[tuple[Manifest, Rows]]:
    return [(manifest, pq.read_table(path).to_pylist()) for path, manifest in closed(replica.ledger.folder)]


def gaps(replica: Replica) -> list[str]:
    rows = [row for _, rows in segments(replica) for row in rows]
    return [row["detail"] for row in rows if row["kind"] == Kind.GAP]


def spans(replica: Replica) -> list[tuple[int, int, int]]:
    """Return each segment's number and indices."""
    return [(one["segment"], one["first_index"], one["last_index"]) for one, _ in segments(replica)]


async def test_rows_of_a_node_s_own_are_written_also_behind_as_many_as_their_column_can_number(
    make: Callable[..., Replica],
) -> None:
    replica = make()
    replica.ledger._buffer._made = 2**31 - 2
    for detail in "abc":
        replica.ledger.leadership(detail, 1)
    await replica.ledger.close()
    rows = [row for _, rows in segments(replica) for row in rows if row["kind"] == Kind.LEADERSHIP]
    assert [(row["detail"], row["position"]) for row in rows] == [
        ("a", 2**31 - 2), ("b", 2**31 - 1), ("c", 0),
    ]  # fmt: skip


async def test_first_deliveries_are_written_with_the_hashes_of_their_ordering_keys(
    make: Callable[..., Replica],
) -> None:
    replica = make()
    units = np.zeros(3, dtype=WAITING)
    units["lane"] = [0, 7, 2**32 - 1]
    places = np.arange(3, dtype=np.uint32)
    for lanes in (units["lane"], None):  # of the topic's queue, then of retries
        first = DeliveryBatch(0, 0, units, places, places, places + 1, lanes, [b""] * 3, places, units[:0], 0)
        replica.ledger.delivered(first, "t", "g", "c", 1)
    await replica.ledger.close()
    rows = [row for _, rows in segments(replica) for row in rows if row["kind"] == Kind.DELIVERED]
    assert [row["order_key"] for row in rows] == [None, 7, 2**32 - 1, None, None, None]


async def test_a_delivery_to_a_group_with_a_delay_is_due_so_much_later_and_says_so(
    make: Callable[..., Replica],
) -> None:
    replica = make()
    units = np.zeros(2, dtype=WAITING)
    units["due_ms"] = [NOW_MS, NOW_MS + 5]
    places = np.arange(2, dtype=np.uint32)
    first = DeliveryBatch(0, 0, units, places, places, places + 1, None, [b""] * 2, places, units[:0], 0)
    for delay_ms in (1_800_000, 0):
        replica.ledger.delivered(first, "t", "g", "c", 1, delay_ms)
    await replica.ledger.close()
    rows = [row for _, rows in segments(replica) for row in rows if row["kind"] == Kind.DELIVERED]
    assert [row["due_ms"] - NOW_MS for row in rows] == [1_800_000, 1_800_005, 0, 5]
    assert [row["detail"] for row in rows] == ["DELAYED 1800000"] * 2 + [None] * 2


async def test_a_node_that_went_on_alone_tells_of_it_once_and_when_it_was(
    make: Callable[..., Replica], tmp_path: Path
) -> None:
    """However much later its ledger is written again, as where it was off."""
    (tmp_path / "n1").mkdir()
    mark(tmp_path / "n1", WentAlone(3, NOW_MS - 86_400_000, 0))
    replica = make()
    assert (tmp_path / "n1" / RECOVERED).exists()
    replica.apply(subscribe())
    for _ in range(2):
        await replica.ledger.close()
        assert not (tmp_path / "n1" / RECOVERED).exists()
        replica = make()
    rows = [row for _, rows in segments(replica) for row in rows if row["kind"] == Kind.GAP]
    assert [(row["detail"], row["at_ms"]) for row in rows] == [
        ("all 3..3 RECOVERED_ALONE", NOW_MS - 86_400_000)
    ]


async def test_a_node_that_went_on_alone_tells_of_it_though_its_buffer_was_full_at_first(
    make: Callable[..., Replica], tmp_path: Path
) -> None:
    (tmp_path / "n1").mkdir()
    mark(tmp_path / "n1", WentAlone(3, NOW_MS, 0))
    replica = make()
    buffer = replica.ledger._buffer
    buffer._hole = 0  # rows of a long replay have been dropped
    replica.apply(subscribe())
    await replica.ledger.write()
    assert (tmp_path / "n1" / RECOVERED).exists()
    replica.apply(subscribe())
    await replica.ledger.close()
    assert not (tmp_path / "n1" / RECOVERED).exists()
    assert gaps(replica).count("all 3..3 RECOVERED_ALONE") == 1


async def test_a_mark_that_cannot_be_deleted_ends_nothing_and_is_deleted_later(
    make: Callable[..., Replica], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Path) -> None:
        raise OSError(30, "Read-only file system")

    (tmp_path / "n1").mkdir()
    mark(tmp_path / "n1", WentAlone(3, NOW_MS, 0))
    replica = make()
    replica.apply(subscribe())
    with monkeypatch.context() as broken:
        broken.setattr(went_alone, "forget", refused)
        await replica.ledger.write()
    replica.apply(subscribe())
    await replica.ledger.close()
    assert not (tmp_path / "n1" / RECOVERED).exists()
    assert gaps(replica).count("all 3..3 RECOVERED_ALONE") == 1


@pytest.mark.parametrize(("made", "rows", "first"), [(2**31 - 3, 3, 2**31 - 3), (2**31 - 2, 3, 0), (0, 1, 0)])
def test_rows_that_are_numbered_together_stay_so(made: int, rows: int, first: int) -> None:
    assert numbered(made, rows) == (first, first + rows)


async def test_a_closed_segment_holds_every_row_and_its_manifest_proves_it(
    make: Callable[..., Replica],
) -> None:
    replica = make()
    replica.apply(subscribe())
    replica.apply(schedule([NOW_MS + 1, NOW_MS + 2]), schedule([NOW_MS + 3], topic="other"))
    replica.apply(release(NOW_MS + 9))
    replica.apply(ack([1]))
    await replica.ledger.close()
    ((manifest, rows),) = segments(replica)
    path = closed(replica.ledger.folder)[0][0]
    assert list(rows[0]) == list(COLUMNS)
    told = [(row["kind"], row["index"], row["position"], row["topic"], row["global_index"]) for row in rows]
    first = rows[1]["global_index"]
    assert told == [
        ("group_moved", 1, 0, "t", None),
        ("scheduled", 2, 0, "t", first),
        ("scheduled", 2, 1, "t", first + 1),
        ("scheduled", 2, 2, "other", first + 2),
        ("released", 3, 0, "t", first),
        ("released", 3, 1, "t", first + 1),
        ("released", 3, 2, "other", first + 2),
        ("acked", 4, 0, "t", first + 1),
    ]
    assert (rows[-1]["group"], rows[-1]["offset"], rows[-1]["attempt"]) == ("g", 1, 1)
    assert {row["source"] for row in rows} == {"n1"}
    data = path.read_bytes()
    assert (manifest["rows"], manifest["bytes"], manifest["crc32c"]) == (
        8,
        len(data),
        google_crc32c.value(data),
    )
    assert (manifest["first_index"], manifest["last_index"]) == (0, 4)
    assert (manifest["first_at_ms"], manifest["last_at_ms"]) == (0, NOW_MS)
    assert manifest["kinds"] == {"group_moved": 1, "scheduled": 3, "released": 3, "acked": 1}
    assert path.stem == f"n1-{manifest['run']}-0-4-1"
    assert list((replica.ledger.folder / "open").iterdir()) == []


async def test_segments_join_when_the_open_one_is_full_by_rows_or_by_age(
    make: Callable[..., Replica],
) -> None:
    replica = make(segment_rows_max=2, segment_ms=1_000)
    for at in range(3):
        replica.apply(schedule([NOW_MS + at]))
        await replica.ledger.write()
    replica.now_ms += 999
    await replica.ledger.write()
    assert replica.ledger.disk.open is not None
    assert replica.ledger.disk.open.first_index == 2
    replica.now_ms += 1
    await replica.ledger.write()
    await replica.ledger.close()
    spans = [(manifest["first_index"], manifest["last_index"]) for manifest, _ in segments(replica)]
    assert spans == [(0, 2), (2, 3)]


async def test_what_a_killed_process_had_written_is_closed_by_the_next_and_the_doubt_is_a_gap(
    make: Callable[..., Replica],
) -> None:
    replica = make()
    replica.apply(schedule([NOW_MS + 1]))
    await replica.ledger.write()
    replica.apply(schedule([NOW_MS + 2]))
    await replica.ledger.write()
    (left,) = (replica.ledger.folder / "open").iterdir()
    left.write_bytes(left.read_bytes()[:-3])  # the second write never got there whole
    await make().ledger.close()  # its state begins at 0 too: it would be told both again
    (manifest, rows), (_, after) = segments(replica)[:2]
    assert [row["kind"] for row in rows] == ["scheduled"]
    assert (manifest["first_index"], manifest["last_index"]) == (0, 1)
    assert [row["detail"] for row in after] == ["node_made 1..1 KILLED"]


async def test_a_state_that_is_ahead_of_the_ledger_leaves_a_gap_and_one_behind_none(
    make: Callable[..., Replica],
) -> None:
    replica = make()
    replica.apply(schedule([NOW_MS + 1]))
    replica.machine.write(replica.machine.capture())
    await make().ledger.close()
    assert gaps(replica) == ["all 0..1 BEGUN"]
    replica = make()
    replica.apply(schedule([NOW_MS + 2]))  # not in the checkpoint: told once more after the next start
    await replica.ledger.close()
    await make().ledger.close()
    assert gaps(replica) == ["all 0..1 BEGUN"]
    replica = make()
    replica.apply(schedule([NOW_MS + 2]))
    replica.apply(schedule([NOW_MS + 3]))
    replica.machine.write(replica.machine.capture())
    await make().ledger.close()
    assert gaps(replica) == ["all 0..1 BEGUN", "all 2..3 UNWRITTEN"]


async def test_a_disk_that_refuses_stops_nothing_and_leaves_a_gap_only_of_what_had_to_be_dropped(
    make: Callable[..., Replica], tmp_path: Path
) -> None:
    (tmp_path / "n1").mkdir()
    obstacle = tmp_path / "n1" / "ledger"
    obstacle.touch()
    replica = make(buffer_bytes_max=2_000)
    replica.apply(schedule([NOW_MS + 1]))
    await replica.ledger.write()
    assert "ledger" in replica.ledger.status().failure
    replica.apply(schedule([NOW_MS + 2] * 20))
    replica.apply(schedule([NOW_MS + 4]))
    assert replica.ledger.status().dropped == 21
    obstacle.unlink()
    await replica.ledger.write()
    assert replica.ledger.status().failure == ""
    replica.apply(schedule([NOW_MS + 5]))
    await replica.ledger.close()
    rows = [row for _, rows in segments(replica) for row in rows]
    assert [(row["kind"], row["index"], row["detail"]) for row in rows] == [
        ("scheduled", 1, None),
        ("gap", 3, "all 1..3 WRITE_FAILED"),
        ("scheduled", 4, None),
    ]
    assert spans(replica) == [(1, 0, 1), (2, 3, 4)]


async def test_too_little_free_space_counts_as_a_full_disk(make: Callable[..., Replica]) -> None:
    replica = make()
    replica.apply(schedule([NOW_MS + 1]))
    await replica.ledger.write()
    settings = replica.config.ledger.model_copy(update={"disk_free_bytes_min": 1 << 60})
    replica.ledger.disk._settings = settings
    replica.apply(schedule([NOW_MS + 2]))
    await replica.ledger.write()
    assert "disk_free_bytes_min" in replica.ledger.status().failure
    assert replica.ledger.status().covered_index == 1


async def test_a_peers_state_in_place_of_entries_leaves_a_gap(make: Callable[..., Replica]) -> None:
    replica = make()
    replica.ledger.applied(5, 2, [], replica.machine.queues)
    await replica.ledger.close()
    assert gaps(replica) == ["all 0..4 SNAPSHOT"]
    assert spans(replica) == [(1, 4, 5)]


async def test_a_segment_has_no_hole_and_the_next_begins_behind_it(make: Callable[..., Replica]) -> None:
    replica = make()
    replica.apply(schedule([NOW_MS + 1]))
    replica.ledger.applied(9, 2, [], replica.machine.queues)
    replica.ledger.applied(20, 2, [], replica.machine.queues)
    obstacle = replica.ledger.folder
    obstacle.touch()
    await replica.ledger.write()
    obstacle.unlink()
    await replica.ledger.close()
    assert gaps(replica) == ["all 1..8 SNAPSHOT", "all 9..19 SNAPSHOT"]
    assert spans(replica) == [(1, 0, 1), (2, 8, 9), (3, 19, 20)]


async def test_the_oldest_segments_go_when_there_are_too_many_bytes_or_they_are_too_old(
    make: Callable[..., Replica],
) -> None:
    replica = make(segment_rows_max=1, retention_ms=10_000)
    for at in range(4):
        replica.apply(schedule([NOW_MS + at], now_ms=NOW_MS + 5_000 * at))
        await replica.ledger.write()
    await replica.ledger.close()
    kept = closed(replica.ledger.folder)
    assert [manifest["last_index"] for _, manifest in kept] == [1, 2, 3, 4]
    disk = make(retention_ms=10_000, disk_bytes_max=kept[0][1]["bytes"] * 2 + 9).ledger.disk
    disk.begin(NOW_MS + 10_001, 4)
    assert [path for path, _ in closed(replica.ledger.folder)] == [path for path, _ in kept[2:]]
    disk.begin(NOW_MS + 365 * 24 * 3_600_000, 4)  # a clock that nobody has confirmed yet deletes nothing
    assert [path for path, _ in closed(replica.ledger.folder)] == [path for path, _ in kept[2:]]
    disk.close_sealed(NOW_MS + 20_001)
    assert [path for path, _ in closed(replica.ledger.folder)] == [path for path, _ in kept[3:]]


async def test_a_ledger_that_is_off_writes_nothing(make: Callable[..., Replica]) -> None:
    replica = make(enabled=False)
    replica.apply(schedule([NOW_MS + 1]))
    await replica.ledger.write(sync=True)
    await replica.ledger.close()
    assert not replica.ledger.folder.exists()


async def test_who_cancels_a_write_waits_for_the_thread_so_that_closing_never_begins_beside_it(
    make: Callable[..., Replica],
) -> None:
    replica = make()
    replica.apply(subscribe())
    disk, begun, goes_on = replica.ledger.disk, threading.Event(), threading.Event()
    begin = disk.begin

    def slow(now_ms: int, first_index: int) -> Any:
        begun.set()
        assert goes_on.wait(60)
        return begin(now_ms, first_index)

    disk.begin = slow  # type: ignore[method-assign]
    writing = asyncio.create_task(replica.ledger.write())
    assert await asyncio.to_thread(begun.wait, 60)
    writing.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    waits = not writing.done()
    goes_on.set()
    assert waits
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert disk.open is not None


@pytest.mark.parametrize("fails", [False, True])
async def test_a_write_that_is_cancelled_loses_neither_its_rows_nor_the_gap_of_a_kill(
    make: Callable[..., Replica], monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """A node that is told to stop right after its start, or a reader whose time is over."""
    killed = make()
    killed.apply(schedule([NOW_MS + 1]))
    await killed.ledger.write()
    replica = make()
    replica.apply(schedule([NOW_MS + 1]))
    disk, at, goes_on = replica.ledger.disk, threading.Event(), threading.Event()

    async def cancelled(name: str) -> None:
        """Cancel a write while the disk does this."""
        does: Callable[..., Any] = getattr(disk, name)

        def slow(*given: Any, **named: Any) -> Any:
            at.set()
            assert goes_on.wait(60)
            if fails and name == "write":
                raise OSError(errno.EIO, "the disk hangs, and then fails")
            return does(*given, **named)

        with monkeypatch.context() as patched:
            patched.setattr(disk, name, slow)
            writing = asyncio.create_task(replica.ledger.write())
            assert await asyncio.to_thread(at.wait, 60)
            writing.cancel()
            goes_on.set()
            with pytest.raises(asyncio.CancelledError):
                await writing
        at.clear()
        goes_on.clear()

    await cancelled("begin")
    await cancelled("write")
    await replica.ledger.close()
    told = [row for _, rows in segments(replica) for row in rows]
    assert [row["detail"] for row in told if row["kind"] == "gap"] == ["node_made 1..1 KILLED"]
    assert (
        sum(row["kind"] == "scheduled" for row in told) == 2
    )  # what was killed, and this one, told once each


def test_a_node_does_without_pyarrow_until_somebody_asks_for_its_ledger() -> None:
    code = "import sys, tarry.node.app; raise SystemExit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_chunks_survive_being_packed() -> None:
    numbers = np.arange(3)
    topics = (np.array([0, 1, 0]), ["a", "b"])
    every = [
        Chunk(1, Kind.GAP, 5, 7, 1, 0, detail="all 1..2 OVERFLOW"),
        Chunk(3, Kind.ACKED, 5, 8, 1, 0, 0, topics, "g", numbers, numbers + 5, attempt=1),
        Chunk(3, Kind.DELIVERED, numbers, 8, 1, 1, 0, "a", "g", 4, numbers, maybe_duplicate=numbers > 1),
    ]
    found = unpack(pack(every))
    assert batch(found, "n1", "r").equals(batch(every, "n1", "r"))


def test_the_rows_are_of_the_agreed_types() -> None:
    types = [of.value_type if pa.types.is_dictionary(of) else of for of in SCHEMA.types]
    assert dict(zip(SCHEMA.names, map(str, types), strict=True)) == COLUMNS
