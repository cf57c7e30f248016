"""The keeper of a key index: what a checkpoint says it has is there, after a crash at any moment."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.node.config import Dispatch
from tarry.node.keys import keeper as module
from tarry.node.keys import rebuild
from tarry.node.keys.gathered import Gathered, find
from tarry.node.keys.keeper import KeyKeeper
from tarry.node.keys.rebuild import FAR_RECORD_BYTES, Rebuild
from tarry.node.keys.search import KeySearch, Step, Wanted
from tarry.node.recovery.checkpoints import Checkpoints
from tarry.node.repair.records import Damage
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.state_machine import keys
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.wheel.keys.key_index import MERGED_RUNS
from tarry.wheel.keys.run import PLACES_END, ROW, ROW_BYTES
from tarry.wheel.state import HOUR_MS, UnknownMessage
from tests.replication.commands import NOW_MS

KEYS = ["a", "b", "c"]


def command(key_list: list[str], hour: Any) -> bytes:
    """A schedule of one message for each key."""
    records = [Record(keys=[key]).SerializeToString() for key in key_list]
    due_ms = np.full(len(records), NOW_MS + hour * HOUR_MS, "<i8").tobytes()  # of one hour, or an array
    request = log_pb.ScheduleColumns(topics=["t"], due_ms=due_ms, records=records)
    return encode(log_pb.ScheduleCommand(now_ms=NOW_MS, request=request))


class Node:
    """A machine, the keeper of its keys, and its checkpoints, over a log that lasts."""

    def __init__(self, folder: Path, log: list[bytes]) -> None:
        self.folder, self.log = folder, log
        self.refuses = False
        self.machine = Machine(folder, MachineSettings())
        self.keeper = KeyKeeper(self.machine, Damage(self.machine, 0, self.blocking), 1 << 40, self.blocking)
        self.checkpoints = Checkpoints(
            self.machine, Dispatch(), lambda _: None, self.blocking, self.keeper.write
        )
        for entry in log[self.machine.applied_index :]:
            self._apply(entry)

    async def keys_blocking(self, work: Callable[[], Any]) -> Any:
        """Run disk work of the keeper, which the disk may refuse."""
        await asyncio.sleep(0)
        if self.refuses:
            raise OSError("no space left")
        return await self.blocking(work)

    async def blocking(self, work: Callable[[], Any]) -> Any:
        """Run disk work, with a turn before and one behind it."""
        await asyncio.sleep(0)
        done = work()
        await asyncio.sleep(0)
        return done

    def apply(self, entry: bytes) -> None:
        self.log.append(entry)
        self._apply(entry)

    def _apply(self, entry: bytes) -> None:
        self.machine.apply(self.machine.applied_index + 1, 1, [entry])
        self.keeper.applied()

    def crashed(self, to: Path) -> Node:
        """Return the node as it comes back after the power has gone, all that was written being there."""
        shutil.copytree(self.folder, to)
        self.machine.close()
        return Node(to, self.log)

    async def found(self) -> dict[str, int] | None:
        """Return how many messages each key has; None: the index is not complete."""
        queue = self.machine.queues.find("t")
        counts: dict[str, int] = {}
        for key in KEYS:
            number = np.array([queue.queue if queue else 0], np.uint32)
            wanted = int(keys.of_topic(keys.hashes([key.encode()]), number)[0])
            ids = await self.keeper.find(wanted, 0, PLACES_END, 1 << 20)
            if ids is None:
                return None
            counts[key] = len(ids)
        return counts


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_after_crashes_at_any_moment_every_key_is_found_or_the_index_says_that_it_is_not_complete(
    data: st.DataObject,
) -> None:
    steps = st.sampled_from(["apply", "apply", "write", "checkpoint", "merge", "build", "refuse", "crash"])
    expected: Counter[str] = Counter()

    async def play(folder: Path) -> None:
        starts, refused = 1, False
        node = Node(folder / "0", [])
        under_way: list[asyncio.Task[Any]] = []
        assert await node.keeper.build()
        for step in data.draw(st.lists(steps, max_size=25)):
            if step == "apply":
                some = data.draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=4))
                expected.update(some)
                node.apply(command(some, data.draw(st.sampled_from([1, 2, 500]))))
            elif step == "crash":
                node = node.crashed(folder / str(starts))
                for task in under_way:
                    task.cancel()
                under_way, starts = [], starts + 1
                assert refused or node.keeper.complete
            elif step == "refuse":
                node.refuses, refused = not node.refuses, True
            else:
                work = {
                    "write": node.keeper.write,
                    "checkpoint": node.checkpoints.write,
                    "merge": node.keeper.merge,
                    "build": node.keeper.build,
                }[step]
                if step != "build" or not node.keeper.complete:
                    under_way.append(asyncio.ensure_future(work()))
            for _ in range(data.draw(st.integers(0, 6))):
                await asyncio.sleep(0)
            counts = await node.found()
            assert counts is None or counts == {key: expected[key] for key in KEYS}
        node.refuses = False
        await asyncio.gather(*under_way, return_exceptions=True)
        if not node.keeper.complete:
            assert await node.keeper.build()
        assert await node.found() == {key: expected[key] for key in KEYS}
        await node.checkpoints.write()
        again = node.crashed(folder / "last")
        assert again.keeper.complete
        assert await again.found() == {key: expected[key] for key in KEYS}
        again.machine.close()

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(play(Path(folder)))


async def test_a_checkpoint_without_new_keys_writes_nothing_of_the_index(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", [])
    assert await node.keeper.build()
    node.apply(command(["a"], 1))
    await node.checkpoints.write()
    files = {path.name: path.stat().st_mtime_ns for path in (node.folder / "keys").iterdir()}
    assert len(files) == 2
    node.apply(command([], 1))
    await node.checkpoints.write()
    assert {path.name: path.stat().st_mtime_ns for path in (node.folder / "keys").iterdir()} == files
    node.machine.close()


async def test_where_the_disk_takes_keys_too_slowly_memory_has_a_bound_and_the_index_is_built_again(
    tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr(module, "GATHERED_MAX", 5)
    node = Node(tmp_path / "state", [])
    assert await node.keeper.build()
    node.apply(command(["a"] * 5, 1))
    assert node.keeper.complete
    node.apply(command(["a"], 1))
    assert not node.keeper.complete
    assert node.keeper.rows == 0
    assert node.machine.keyed.generation == 0
    assert await node.keeper.build()
    assert (await node.found() or {})["a"] == 6
    node.machine.close()


async def test_rows_of_hours_that_were_dropped_go_with_a_merge(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", [])
    assert await node.keeper.build()
    for hour in (1, 2) * 4:
        node.apply(command(["a"], hour))
        await node.keeper.write()
    wheel = node.machine.wheel
    wheel.take(NOW_MS + 5 * HOUR_MS, 100)
    wheel.drop_hour(NOW_MS // HOUR_MS + 1)
    assert await node.keeper.merge()
    assert (len(node.keeper._index.runs), node.keeper.rows) == (1, 4)
    assert not await node.keeper.merge()
    wheel.drop_hour(NOW_MS // HOUR_MS + 2)
    assert await node.keeper.merge()
    assert node.keeper._index.runs == ()
    node.machine.close()


def deletes_meanwhile(node: Node, hour: int) -> None:
    """Let the first read of records find its hour deleted, as where the disk was waited for."""
    reads = node.keeper._damage.reads
    real, deleted = reads.read, list[int]()

    async def read(hours: Any, index: Any) -> Any:
        if not deleted:
            deleted.append(hour)
            node.machine.wheel.drop_hour(hour)
        return await real(hours, index)

    reads.read = read  # type: ignore[method-assign]


async def test_what_is_deleted_while_records_are_read_hides_no_other_message(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", [])
    assert await node.keeper.build()
    for hour in (1, 2, 500):
        node.apply(command(["a"] * 3, hour))
    node.machine.wheel.take(NOW_MS + 5 * HOUR_MS, 100)
    first = NOW_MS // HOUR_MS + 1
    deletes_meanwhile(node, first)
    wanted = Wanted(node.machine.queues.of("t").queue, "a")
    step = await KeySearch(node.keeper, node.machine, node.keeper._damage).step(wanted, 0)
    assert isinstance(step, Step)
    assert [one.hour for one in step.found] == [first + 1] * 3 + [first + 499] * 3
    assert (step.examined, step.next) == (9, None)
    node.machine.close()


@given(
    st.lists(st.tuples(st.integers(1, 2), st.integers(0, 60)), max_size=80),
    st.tuples(st.integers(0, 60), st.integers(0, 60)),
    st.integers(1, 9),
)
def test_what_is_gathered_gives_the_first_ids_of_a_hash_each_once(
    pairs: list[tuple[int, int]], bounds: tuple[int, int], most: int
) -> None:
    gathered = Gathered()
    for start in range(0, len(pairs), 7):
        gathered.add(np.array(pairs[start : start + 7], ROW))
    rows = np.array(pairs, ROW)
    parts = [rows[:30], rows[30:]]
    for some in (gathered.parts(), parts):
        expected = sorted({at for key_hash, at in pairs if key_hash == 1 and bounds[0] <= at < bounds[1]})
        assert find(some, 1, *bounds, most).tolist() == expected[:most]


async def test_a_lookup_leaves_what_is_gathered_to_the_thread_of_lookups(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", [])
    looked: list[int] = []

    async def look_up(work: Callable[[], Any]) -> Any:
        looked.append(1)
        found = work()
        assert len(found) <= 5
        return found

    keeper = KeyKeeper(node.machine, node.keeper._damage, 1 << 40, node.blocking, look_up)
    node.keeper = keeper
    assert await keeper.build()
    node.apply(command(["a"] * 50, 1))
    queue = np.array([node.machine.queues.of("t").queue], np.uint32)
    wanted = int(keys.of_topic(keys.hashes([b"a"]), queue)[0])
    found = await keeper.find(wanted, 0, PLACES_END, 5)
    assert found is not None
    assert (len(found), looked) == (5, [1])
    node.machine.close()


async def test_what_is_far_off_is_read_at_the_rate_and_given_a_run_at_a_time(
    tmp_path: Path, monkeypatch: Any
) -> None:
    slept, real = list[float](), asyncio.sleep

    async def sleep(delay_s: float) -> None:
        slept.append(delay_s)
        await real(0)

    monkeypatch.setattr(rebuild, "RUN_ROWS", 50)
    node = Node(tmp_path / "state", [])
    node.apply(command(["a"] * 300, 500 + np.arange(300) % 30))
    assert node.machine.wheel._hours.far.live == 300
    rows = Rebuild(node.machine, node.keeper._damage, 1_000, node.blocking).rows()
    monkeypatch.setattr(asyncio, "sleep", sleep)
    assert [sum(map(len, parts)) async for parts in rows] == [50] * 6
    assert sum(slept) > 300 * FAR_RECORD_BYTES / 1_000
    node.machine.close()


async def test_a_message_that_is_thinned_while_an_index_is_built_leaves_no_other_out(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", [])
    node.apply(command(["a"] * 30, 500 + np.arange(30) % 10))
    assert node.machine.wheel._hours.far.live == 30
    reads = node.keeper._damage.reads
    real, asked = reads.read, list[int]()

    async def read(hours: Any, index: Any) -> Any:
        asked.append(len(hours))
        if len(asked) == 1:
            raise UnknownMessage("one of them is thinned out")
        return await real(hours, index)

    reads.read = read  # type: ignore[method-assign]
    node.keeper._fail("as if it were damaged")
    assert await node.keeper.build()
    assert (await node.found() or {})["a"] == 30
    node.machine.close()


async def test_where_the_disk_is_nearly_full_nothing_is_merged_or_built(
    tmp_path: Path, monkeypatch: Any
) -> None:
    node = Node(tmp_path / "state", [])
    keeper = KeyKeeper(node.machine, node.keeper._damage, 1 << 40, node.blocking, disk_free_bytes_min=1_000)
    node.keeper = keeper

    def free(size_bytes: int) -> None:
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=size_bytes, f_frsize=1))

    for _ in range(MERGED_RUNS):
        node.apply(command(["a"], 1))
        await keeper.write()
    free(1_000 + MERGED_RUNS * ROW_BYTES - 1)
    assert not await keeper.merge()
    assert keeper.complete
    free(1_000 + MERGED_RUNS * ROW_BYTES)
    assert await keeper.merge()
    keeper._fail("as if it were damaged")
    free(999)
    assert not await keeper.build()
    assert list((node.folder / "keys").iterdir()) == []
    assert "make room on the disk" in keeper.progress
    free(1_000)
    assert await keeper.build()
    assert (await node.found() or {})["a"] == MERGED_RUNS
    node.machine.close()


async def test_an_index_that_is_older_than_the_checkpoint_is_not_complete(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", [])
    node.apply(command(["a"], 1))
    await node.checkpoints.write()
    older = shutil.copytree(node.folder / "keys", tmp_path / "older")
    node.apply(command(["a"], 1))
    await node.checkpoints.write()
    shutil.rmtree(node.folder / "keys")
    shutil.copytree(older, node.folder / "keys")
    again = node.crashed(tmp_path / "again")
    assert not again.keeper.complete
    assert await again.found() is None
    again.machine.close()


async def test_a_checkpoint_that_is_ahead_of_what_is_written_needs_the_next_generation(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path / "state", [])
    node.apply(command(["a"], 1))
    await node.checkpoints.write()
    node.apply(command(["a"], 1))
    node.machine.write(node.machine.capture())  # with keys that came behind the last run
    again = node.crashed(tmp_path / "again")
    assert not again.keeper.complete
    again.machine.close()


async def test_an_index_that_is_being_built_is_none_for_the_next_start(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", [])
    node.apply(command(["a"] * 3, 1))
    await node.checkpoints.write()
    node.keeper._fail("as if it were damaged")
    node.apply(command(["b"], 1))
    await node.keeper.write()
    again = node.crashed(tmp_path / "again")
    found = await again.found()
    assert found is None or (found["a"], found["b"]) == (3, 1)
    again.machine.close()


async def test_what_is_on_its_way_to_the_disk_is_found(tmp_path: Path) -> None:
    node = Node(tmp_path / "state", [])
    node.apply(command(["a"], 1))
    writing = asyncio.ensure_future(node.keeper.write())
    for _ in range(100):  # until it is being written
        await asyncio.sleep(0)
        if len(node.keeper._writing):
            break
    assert (await node.found() or {})["a"] == 1
    await writing
    node.machine.close()
