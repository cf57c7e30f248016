"""A search of the ledger in a process of its own, so that it costs the node neither time nor memory.

    node ──a line of JSON: segments, and what is wanted──► process ──a line of JSON for each part──► node

The process has a low priority, and ends with its search, with the call, or with the node: its pipe ends then.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeAlias

from tarry.node.ledger import closer
from tarry.proto.ledger.schema import Manifest
from tarry.proto.ledger.segment import Closed, OpenSegment
from tarry.replication.blocking import in_own_thread

PIECE_ROWS: Final = 500
"""Told at once: some 3 ms of the node's event loop."""
TELL_ROWS: Final = 2_000_000
"""Looked through before a part that has no rows is told, too."""
Times: TypeAlias = tuple[int, int]
"""From, and until before, ms since the epoch."""
Id: TypeAlias = tuple[int, int]
"""Hour and global index."""


class SearchFailed(Exception):
    """The search ended without an answer: try again."""


async def parts(
    found: Sequence[Closed | OpenSegment], message: Id, times: Times, *, apart: bool
) -> AsyncGenerator[dict[str, Any]]:
    """Yield the parts of a search for a message, each the fields of a `history.Part`.

    ``apart``: by a process of its own. Raises SearchFailed.
    """
    run = in_own_thread("history")
    if not apart:
        try:
            told = await run(lambda: list(_told(found, message, times)))
        except OSError as error:
            raise SearchFailed(f"the ledger could not be searched: {error}; try again") from error
        for part in told:
            yield part
        return
    asked = {"found": [*map(_plain, found)], "message": message, "times": times}
    process = await run(lambda: _start(json.dumps(asked).encode() + b"\n"))
    try:
        while line := await run(process.stdout.readline):
            yield json.loads(line)
        if await run(process.wait) != 0:
            raise SearchFailed("the process that searched the ledger ended without an answer: try again")
    finally:
        process.kill()
        await run(process.communicate)


def _start(request: bytes) -> subprocess.Popen[bytes]:
    pipe, command = subprocess.PIPE, [sys.executable, "-m", __name__]
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
    closer.yield_to_others(process.pid)
    assert process.stdin is not None
    try:
        process.stdin.write(request)
        process.stdin.flush()
    except BrokenPipeError:
        pass  # its end is told by its output
    return process


def _told(found: Sequence[Closed | OpenSegment], message: Id, times: Times) -> Iterator[dict[str, Any]]:
    """Yield the parts that say something new, and one for each TELL_ROWS that were looked through.

    One with many rows is cut: the node reads and passes on each piece in a turn of its event loop.
    """
    from tarry.node.ledger.history import Wanted, search

    told, since_ms = 0, times[1]
    for part in search(found, Wanted(*message, *times)):
        if part.rows or part.gaps or part.complete or part.rows_looked - told >= TELL_ROWS:
            whole, rows = asdict(part), part.rows
            while len(rows) > PIECE_ROWS:  # the older ones of its time are still to come
                piece, rows = rows[-PIECE_ROWS:], rows[:-PIECE_ROWS]
                yield {**whole, "rows": piece, "gaps": [], "since_ms": since_ms, "complete": False}
            yield {**whole, "rows": rows}
            told, since_ms = part.rows_looked, part.since_ms


def _plain(one: Closed | OpenSegment) -> dict[str, Any]:
    if isinstance(one, OpenSegment):
        return {**asdict(one), "ledger": str(one.ledger)}
    return {"path": str(one[0]), "manifest": one[1]}


def _found(plain: dict[str, Any]) -> Closed | OpenSegment:
    if "path" in plain:
        return Path(plain["path"]), Manifest(plain["manifest"])  # type: ignore[misc]
    names = ("source", "run", "segment", "first_index")
    made = OpenSegment(Path(plain["ledger"]), *(plain[name] for name in names))
    made.covered, made.rows, made.bytes = plain["covered"], plain["rows"], plain["bytes"]
    return made


def main() -> None:
    """Search for what the node asks for."""
    closer.begin()
    asked = json.loads(sys.stdin.readline())
    message, times = asked["message"], asked["times"]
    try:
        for part in _told([*map(_found, asked["found"])], tuple(message), tuple(times)):
            print(json.dumps(part), flush=True)
    except OSError:  # the node tells of it
        closer.leave(1)
    closer.leave(0)


if __name__ == "__main__":
    main()
