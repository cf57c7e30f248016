"""Exports and imports by the real commands: from a cluster, from files, and from real databases."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import redis

from tarry.chaos.cluster.cluster import now_ms
from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster
from tarry.client.sync import connect as connect_blocking
from tests.cluster.databases import postgresql_server, redis_server
from tests.cluster.disposable import Disposable
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

PAGE = Path(__file__).parents[2] / "client" / "MOVING_IN.md"
PATIENCE_S = 120
HOUR_MS = 3_600_000
ROWS = 5_000
MOVED = int(os.environ.get("MOVED_ROWS", ROWS))
"""Rows of each database that are moved: `make moving-in` moves a million."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    with Disposable(3, tmp_path / "nodes") as three:
        three.start()
        three.wait_until_serving()
        yield three


def tarry(cluster: LocalCluster, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tarry.node", *arguments, "-o", "json", "-s", cluster.addresses]


def told(cluster: LocalCluster, *arguments: str, code: int = 0, folder: Path | None = None) -> dict[str, Any]:
    done = subprocess.run(
        tarry(cluster, *arguments), cwd=folder, capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == code, done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout or done.stderr)
    return answer


def exported(cluster: LocalCluster, path: Path) -> list[dict[str, Any]]:
    told(cluster, "export", str(path))
    rows = pq.read_table(path).to_pylist()
    return [{**row, "properties": dict(row["properties"])} for row in rows]


async def forecasts(client: Client, now_ms: int) -> list[list[int]]:
    return [
        list((await client.query().forecast(topic=topic, from_ms=now_ms, by="hour", buckets=72)).counts)
        for topic in ("plain", "rich")
    ]


async def test_what_is_moved_to_an_empty_cluster_has_equal_forecasts_bodies_and_parts(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    now_ms = time.time_ns() // 1_000_000
    await level(cluster, 2)
    async with connect(cluster.addresses) as client:
        producer = client.producer()
        due_ms = now_ms + HOUR_MS + np.arange(ROWS) * 7_919
        plain = await producer.schedule_batch("plain", [b"%d" % row for row in range(ROWS)], due_ms=due_ms)
        await producer.schedule(
            "rich", b"rich", due_ms=now_ms + HOUR_MS, tags=["a", "b"], keys=["k"], properties={"p": "v"},
            ordering_key="lane",
        )  # fmt: skip
        await producer.schedule("rich", b"keyed", due_ms=now_ms + HOUR_MS, idempotency_key="once")
        await producer.cancel_many(plain.ids[:100])
        await producer.reschedule_many(plain.ids[100:200], due_ms=now_ms + 50 * HOUR_MS)
        await producer.update(plain.ids[200], body=b"updated")
        await client.operator().create_group("retried", "g")
        await producer.schedule("retried", b"later", delay_ms=0)
        async with asyncio.timeout(PATIENCE_S), client.consumer("retried", group="g") as consumer:
            async for message in consumer:
                await message.nack(delay_ms=HOUR_MS)
                break
        before = await forecasts(client, now_ms)
        begun = (await client.operator().status()).applied_index
    path = tmp_path / "pending.parquet"
    done = await asyncio.to_thread(told, cluster, "export", str(path))
    assert (done["messages"], done["retries"], done["unreadable"]) == (ROWS - 100 + 2, 1, 0)
    assert done["index"] >= begun
    assert pq.read_schema(path).metadata[b"index"] == str(done["index"]).encode()
    rows = pq.read_table(path).to_pylist()
    ids = {row["id"]: row for row in rows}
    assert plain.ids[0] not in ids and ids[plain.ids[150]]["due_ms"] == now_ms + 50 * HOUR_MS
    assert ids[plain.ids[200]]["body"] == b"updated"
    assert (await asyncio.to_thread(told, cluster, "export", str(path), code=1))["text"].endswith("remove it")
    with Disposable(1, tmp_path / "other") as other:
        other.start()
        other.wait_until_serving()
        await level(other, 2)
        progress = str(tmp_path / "moved")
        done = await asyncio.to_thread(told, other, "import", str(path), "--progress", progress)
        assert (done["taken"], done["refused"]) == (len(rows), 0)
        async with connect(other.addresses) as client:
            after = await forecasts(client, now_ms)
        again = await asyncio.to_thread(exported, other, tmp_path / "again")
        assert after == before
    parts = ("topic", "due_ms", "body", "tags", "keys", "ordering_key", "idempotency_key")

    def told_of(row: dict[str, Any]) -> str:
        return json.dumps([str(row[part]) for part in parts] + [sorted(dict(row["properties"]).items())])

    assert sorted(map(told_of, again)) == sorted(map(told_of, rows))
    moved = {row["id"]: row for row in again}
    id_map = pq.read_table(tmp_path / "moved" / "ids").to_pylist()
    assert len({row["new_id"] for row in id_map}) == len(rows)
    for row in id_map:  # under its new id is what the old one was
        of = rows[row["row"]]
        assert (of["id"], told_of(of)) == (row["id"], told_of(moved[row["new_id"]]))


def test_an_import_that_is_killed_again_and_again_takes_each_row_once(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    count = 40_000
    due_ms = time.time_ns() // 1_000_000 + HOUR_MS + np.arange(count)
    bodies = [b"%d" % row for row in range(count)]
    path = tmp_path / "jobs.parquet"
    pq.write_table(pa.table({"due": due_ms, "body": bodies}), path)
    progress = tmp_path / "progress"
    arguments = tarry(cluster, "import", str(path), "--topic", "t", "--progress", str(progress))
    kills = 0
    for steps in (0, 1):
        running = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ends = time.monotonic() + PATIENCE_S
        while running.poll() is None and time.monotonic() < ends:
            begun = len(list(progress.glob("begun-*")))
            if begun and len(list(progress.glob("ids/step-*"))) >= steps:
                running.send_signal(signal.SIGKILL)
                kills += 1
                break
            time.sleep(0.02)
        running.wait(PATIENCE_S)
    assert kills
    done = told(cluster, "import", str(path), "--topic", "t", "--progress", str(progress))
    assert (done["rows"], done["taken"], done["refused"]) == (count, count, 0)
    found = Counter(row["body"] for row in exported(cluster, tmp_path / "after.parquet"))
    assert found == Counter(bodies)


BLOCKS = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
EARLIER = 100
"""Rows of each database that are due before the time from which tarry delivers."""
KEPT = range(EARLIER + MOVED)
"""Rows of Redis."""
LISTED = range(EARLIER + -(-MOVED * 10 // 9))
"""Rows of the table, every tenth of which waits no more."""


def commands() -> list[str]:
    """Return the commands of the page that import from databases."""
    return [block for block in BLOCKS if "$REDIS" in block or "$POSTGRES" in block]


def page_time() -> str:
    """Return the time from which tarry delivers, as the page chooses it."""
    (block,) = (block for block in BLOCKS if block.startswith("T="))
    chosen = subprocess.run(["bash", "-ec", f"{block}echo $T"], capture_output=True, text=True, check=True)
    return chosen.stdout.strip()


def test_the_page_moves_schedules_in_from_redis_and_postgresql(cluster: LocalCluster, tmp_path: Path) -> None:
    from_text = page_time()
    begin_s = datetime.fromisoformat(from_text).timestamp() - EARLIER
    with redis_server(tmp_path / "redis") as redis_url, postgresql_server(tmp_path / "pg") as postgres_url:
        with redis.Redis.from_url(redis_url) as client:
            for first in KEPT[::10_000]:
                some = KEPT[first : first + 10_000]
                client.zadd("schedule", {f"job-{row}": begin_s + row for row in some})
                client.hset("jobs", mapping={f"job-{row}": f"body-{row}" for row in some})
        with psycopg.connect(postgres_url) as connection:
            connection.execute(
                "CREATE TABLE jobs (id bigserial, queue text, run_at timestamptz, payload jsonb, state text)"
            )
            with connection.cursor().copy("COPY jobs (queue, run_at, payload, state) FROM STDIN") as copy:
                for row in LISTED:
                    due = datetime.fromtimestamp(begin_s + row, UTC)
                    state = "waiting" if row % 10 else "done"
                    copy.write_row((f"q{row % 3}", due, f'{{"row": {row}}}', state))
        shim = tmp_path / "bin" / "tarry"
        shim.parent.mkdir()
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -m tarry.node "$@" -o json\n')
        shim.chmod(0o755)
        environment = {
            **os.environ, "PATH": f"{shim.parent}:{os.environ['PATH']}", "REDIS": redis_url,
            "POSTGRES": postgres_url, "TARRY_SERVER": cluster.addresses, "T": from_text,
        }  # fmt: skip
        outputs = []
        for block in commands():
            done = subprocess.run(
                ["bash", "-ec", block], env=environment, cwd=tmp_path, capture_output=True, text=True,
                timeout=5 * PATIENCE_S, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            outputs.append([json.loads(line) for line in done.stdout.splitlines()])
    (redis_dry, redis_done), (table_dry, table_done) = outputs
    of_redis, of_jobs = KEPT[EARLIER:], [row for row in LISTED[EARLIER:] if row % 10]
    assert len(of_redis) == MOVED <= len(of_jobs)
    skipped = EARLIER - EARLIER // 10
    assert (redis_dry["messages"], redis_done["taken"]) == (len(of_redis), len(of_redis))
    assert (redis_dry["skipped"], redis_done["skipped"]) == (EARLIER, EARLIER)
    assert (table_dry["messages"], table_done["taken"]) == (len(of_jobs), len(of_jobs))
    assert (table_dry["skipped"], table_done["skipped"]) == (skipped, skipped)
    assert sum(table_dry["topics"].values()) == len(of_jobs)
    assert set(table_dry["topics"]) == {"q0", "q1", "q2"}
    rows = exported(cluster, tmp_path / "after.parquet")
    orders = [row for row in rows if row["topic"] == "orders"]
    assert {row["body"]: row["properties"] for row in orders} == {
        b"body-%d" % row: {"imported_from": "redis", "imported_id": f"job-{row}"} for row in of_redis
    }
    assert {row["body"]: row["due_ms"] // 1_000 for row in orders} == {
        b"body-%d" % row: int(begin_s + row) for row in of_redis
    }
    jobs = {row["body"]: row for row in rows if row["topic"] != "orders"}
    assert len(orders) + len(jobs) == len(rows) == len(of_redis) + len(of_jobs)
    found = {
        body: (row["topic"], row["due_ms"] // 1_000, row["properties"]["imported_id"])
        for body, row in jobs.items()
    }
    expected = {b'{"row": %d}' % row: (f"q{row % 3}", int(begin_s + row), f"{row + 1}") for row in of_jobs}
    assert found == expected
    assert {row["properties"]["imported_from"] for row in jobs.values()} == {"jobs"}


AHEAD_MS = 10_000
"""From the beginning to the poller's end."""
STEP_MS = 20


class Poller(NamedTuple):
    """An old system that takes from a sorted set what is due before a time; ``taken``: when, by member.

    It ends once it has looked behind that time.
    """

    url: str
    key: str
    until_ms: int
    taken: dict[str, int]

    def run(self) -> None:
        """Take until then."""
        with redis.Redis.from_url(self.url) as client:
            at_ms = 0
            while at_ms < self.until_ms:
                at_ms = now_ms()
                for member in client.zrangebyscore(self.key, "-inf", min(at_ms, self.until_ms - 1) / 1_000):
                    client.zrem(self.key, member)
                    client.hdel("jobs", member)
                    self.taken[member.decode()] = now_ms()
                time.sleep(0.05)


class TablePoller(NamedTuple):
    """As Poller, of a table."""

    url: str
    until_ms: int
    taken: dict[str, int]

    def run(self) -> None:
        """Take until then."""
        query = "DELETE FROM jobs WHERE run_at <= to_timestamp(%s / 1000.0) RETURNING id"
        with psycopg.connect(self.url, autocommit=True) as connection:
            at_ms = 0
            while at_ms < self.until_ms:
                at_ms = now_ms()
                for (row,) in connection.execute(query, (min(at_ms, self.until_ms - 1),)).fetchall():
                    self.taken[row] = now_ms()
                time.sleep(0.05)


class Old(NamedTuple):
    """An old system, its poller, and the arguments of an import from it."""

    times: Times
    poller: Poller | TablePoller
    arguments: list[str]


class Times(NamedTuple):
    """When the poller ends, and what the old system has: due times, before and behind that."""

    until_ms: int
    due_ms: dict[str, int]


def times() -> Times:
    """Return times that begin now."""
    until_ms = now_ms() + AHEAD_MS
    first_ms = until_ms - AHEAD_MS // STEP_MS * STEP_MS
    return Times(until_ms, {f"job-{at_ms}": at_ms for at_ms in range(first_ms, until_ms + 2_000, STEP_MS)})


@contextmanager
def old_sorted_set(folder: Path) -> Iterator[Old]:
    with redis_server(folder / "redis") as url:
        until_ms, due_ms = given = times()
        with redis.Redis.from_url(url) as client:
            client.hset("jobs", mapping={member: f"body of {member}" for member in due_ms})
            client.zadd("schedule", {member: at_ms / 1_000 for member, at_ms in due_ms.items()})
        poller = Poller(url, "schedule", until_ms, {})
        yield Old(given, poller, [url, "--zset", "schedule", "--hash", "jobs", "--topic", "t"])


@contextmanager
def old_table(folder: Path) -> Iterator[Old]:
    with postgresql_server(folder / "pg") as url:
        until_ms, due_ms = given = times()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE jobs (id text PRIMARY KEY, run_at timestamptz, body text)")
            with connection.cursor().copy("COPY jobs (id, run_at, body) FROM STDIN") as copy:
                for member, at_ms in due_ms.items():
                    copy.write_row((member, datetime.fromtimestamp(at_ms / 1_000, UTC), f"body of {member}"))
        columns = ["--column", "due=run_at", "--topic", "t"]
        yield Old(given, TablePoller(url, until_ms, {}), [url, "--table", "jobs", *columns])


@pytest.mark.parametrize("parted", [True, False], ids=["parted by --from", "not parted"])
@pytest.mark.parametrize("system", [old_sorted_set, old_table], ids=["Redis", "PostgreSQL"])
async def test_what_is_moved_in_beside_an_old_poller_leaves_no_gap_and_doubles_what_the_page_says(
    cluster: LocalCluster,
    tmp_path: Path,
    system: Callable[[Path], AbstractContextManager[Old]],
    parted: bool,
) -> None:
    with system(tmp_path) as ((until_ms, due_ms), poller, arguments):
        polling = asyncio.create_task(asyncio.to_thread(poller.run))
        options = ["--from", str(until_ms)] if parted else []
        began_ms = now_ms()
        done = await asyncio.to_thread(
            told, cluster, "import", *arguments, "--mark", "old", "--progress", str(tmp_path / "progress"),
            *options,
        )  # fmt: skip
        await polling
    delivered = await first_delivered(cluster, done["taken"])
    assert delivered.keys() | poller.taken.keys() == due_ms.keys()
    assert set(delivered.values()) == {1}
    twice = delivered.keys() & poller.taken.keys()
    if parted:
        assert not twice and poller.taken
    else:
        assert twice
        assert all(began_ms <= poller.taken[member] and due_ms[member] < until_ms for member in twice)


async def first_delivered(cluster: LocalCluster, count: int) -> Counter[str]:
    """Return how often each member is in so many first deliveries, by the marks that all of them have."""
    delivered: Counter[str] = Counter()
    async with (
        asyncio.timeout(PATIENCE_S),
        connect(cluster.addresses) as client,
        client.consumer("t", group="g", start="earliest") as consumer,
    ):
        async for message in consumer:
            assert message.properties["imported_from"] == "old"
            delivered[message.properties["imported_id"]] += 1
            await message.ack()
            if delivered.total() == count:
                break
    return delivered


def test_databases_that_are_not_as_described_say_so(cluster: LocalCluster, tmp_path: Path) -> None:
    def refused(*arguments: str) -> str:
        return str(told(cluster, "import", *arguments, "--topic", "t", "--dry-run", code=1)["text"])

    with redis_server(tmp_path / "redis") as redis_url, postgresql_server(tmp_path / "pg") as postgres_url:
        with redis.Redis.from_url(redis_url) as client:
            client.zadd("schedule", {"job": time.time() + 3_600})
            client.set("text", "x")
        for options in (["--hash", "jobs"], ["--key-prefix", "job:"]):
            assert "no member has a body" in refused(redis_url, "--zset", "schedule", *options)
        assert "is a string" in refused(redis_url, "--zset", "text")
        assert "Redis at redis://host:port" in refused("redis://host:port", "--zset", "schedule")
        assert "PostgreSQL at" in refused(postgres_url, "--table", "jobs; DROP TABLE jobs")
        for tags in ("ARRAY[ARRAY[ARRAY['a']]]", "ARRAY[NULL, 'a']", "NULL::text[]"):
            query = f"SELECT now() AS due, 'x' AS body, {tags} AS tags"
            done = told(cluster, "import", postgres_url, "--query", query, "--topic", "t", "--dry-run")
            assert done["messages"] == 1


def test_an_export_is_imported_by_another_cluster_as_the_page_says(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (block,) = (block for block in BLOCKS if block.startswith("tarry export"))
    export, import_ = (shlex.split(line)[1:] for line in block.splitlines())
    due_ms = now_ms() + HOUR_MS
    with connect_blocking(cluster.addresses) as client:
        client.producer().schedule_batch("t", [b"%d" % row for row in range(100)], due_ms=due_ms)
    assert told(cluster, *export, folder=tmp_path)["messages"] == 100
    with Disposable(1, tmp_path / "other") as other:
        other.start()
        other.wait_until_serving()
        assert told(other, *import_, folder=tmp_path)["taken"] == 100
        rows = exported(other, tmp_path / "after.parquet")
    assert {(row["topic"], row["due_ms"], row["body"]) for row in rows} == {
        ("t", due_ms, b"%d" % row) for row in range(100)
    }


def test_a_foreign_csv_names_the_topic_of_each_row(cluster: LocalCluster, tmp_path: Path) -> None:
    path, due = tmp_path / "jobs.csv", datetime.fromtimestamp(now_ms() // 1_000 + 3_600, UTC)
    rows = [f"t{row % 2},{(due + timedelta(seconds=row)).isoformat()},body {row}" for row in range(20)]
    path.write_text("\n".join(["topic,due,body", *rows, "t0,soon,nothing"]) + "\n")
    command = "import", str(path), "--progress", str(tmp_path / "progress")
    dry = told(cluster, *command, "--dry-run", code=1)  # for a row is refused
    assert (dry["messages"], dry["refused"], dry["topics"]) == (20, 1, {"t0": 10, "t1": 10})
    done = told(cluster, *command, code=1)
    assert (done["taken"], done["refused"]) == (20, 1)
    found = {
        (row["topic"], row["due_ms"], row["body"]) for row in exported(cluster, tmp_path / "after.parquet")
    }
    first_ms = int(due.timestamp()) * 1_000
    assert found == {(f"t{row % 2}", first_ms + 1_000 * row, b"body %d" % row) for row in range(20)}


def test_the_blocking_client_exports_and_imports(cluster: LocalCluster, tmp_path: Path) -> None:
    from tarry.client.sync import Columns, Files

    path = tmp_path / "jobs.csv"
    due_ms = time.time_ns() // 1_000_000 + HOUR_MS
    path.write_text("due,body\n" + "".join(f"{due_ms + row},body {row}\n" for row in range(100)))
    with connect_blocking(cluster.addresses) as client:
        *_, counted = client.bulk().dry_run(Files(path), Columns(topic="t"))
        assert (counted.messages, counted.topics, counted.first_due_ms) == (100, {"t": 100}, due_ms)
        *_, done = client.bulk().import_rows(Files(path), tmp_path / "progress", Columns(topic="t"))
        assert (done.taken, done.done) == (100, True)
        *_, written = client.bulk().export(tmp_path / "folder")
        assert written.done
    table = pq.read_table(tmp_path / "folder")
    assert (len(table), table.column("body")[0].as_py()) == (100, b"body 0")
