"""A copy of a sorted set of Redis: members, scores and bodies as rows of a Parquet file.

A set is walked by ZSCAN, which gives every member that is there from the beginning to the end, however many
come and go meanwhile; some twice, with the scores that they had then: the last one counts. Rows are in the
order of their due times.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import redis

from tarry.client.bulk.values import InvalidSource, RedisSet

SCAN_COUNT: Final = 5_000
BODIES_AT_ONCE: Final = 1_000


def copied(source: RedisSet, path: Path) -> Iterator[int]:
    """Write the file, and yield how many rows are read. Raises InvalidSource, OSError."""
    try:
        with redis.Redis.from_url(source.url) as client:
            scores: dict[bytes, float] = {}
            for some in _scanned(client, source.key):
                scores.update(some)
                yield len(scores)
            members = sorted(scores, key=lambda member: (scores[member], member))
            yield from _write(client, source, members, scores, path)
    except (redis.RedisError, ValueError, pa.ArrowException) as error:
        if isinstance(error, InvalidSource):
            raise
        raise InvalidSource(f"Redis at {source.told()['url']}: {error}") from error


def _scanned(client: redis.Redis, key: str) -> Iterator[dict[bytes, float]]:
    kind = client.type(key)
    if kind != b"zset":
        found = "is not there" if kind == b"none" else f"is a {kind.decode()}"
        raise InvalidSource(f"the key {key!r} {found}: name a sorted set with --zset")
    cursor = 0
    while True:
        cursor, found_members = client.zscan(key, cursor, count=SCAN_COUNT)
        yield dict(found_members)
        if cursor == 0:
            return


def _write(
    client: redis.Redis, source: RedisSet, members: list[bytes], scores: dict[bytes, float], path: Path
) -> Iterator[int]:
    found = 0
    schema = pa.schema([("id", pa.string()), ("due", pa.float64()), ("body", pa.binary())])
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, len(members), SCAN_COUNT):
            some = members[start : start + SCAN_COUNT]
            bodies = _bodies(client, source, some)
            found += len(bodies) - bodies.count(None)
            columns: list[Any] = [
                [member.decode("utf-8", "backslashreplace") for member in some],
                [scores[member] for member in some],
                bodies,
            ]
            writer.write_table(
                pa.Table.from_arrays(list(map(pa.array, columns, schema.types)), schema=schema)
            )
            yield min(len(members), start + SCAN_COUNT)
    if members and not found:
        where = f"the hash {source.hash!r}" if source.hash else f"the strings {source.prefix + '…'!r}"
        raise InvalidSource(f"no member has a body in {where}: see to --hash or --key-prefix")


def _bodies(client: redis.Redis, source: RedisSet, members: list[bytes]) -> list[bytes | None]:
    """Return the body of each member; None where there is none: it has been taken since."""
    if not (source.hash or source.prefix):
        return list(members)
    bodies: list[bytes | None] = []
    for start in range(0, len(members), BODIES_AT_ONCE):
        some = members[start : start + BODIES_AT_ONCE]
        if source.hash:
            bodies += client.hmget(source.hash, some)
        else:
            bodies += client.mget([source.prefix.encode() + member for member in some])
    return bodies
