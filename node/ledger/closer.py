"""Closing of segments in a process of its own, so that it costs the node neither time nor memory.

    node ──a line of JSON: a segment──► process ──a line of JSON: its Parquet file, or an error──► node

The process starts with the first of the segments that wait and ends behind the last, which frees the 60 MB
that pyarrow takes, and as much as a segment. It has a low priority. Where the node ends, however, its
pipe does, and with it the process.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Final, NoReturn, TypeAlias

from tarry.proto.ledger.parquet import close, make_parquet
from tarry.proto.ledger.schema import stem
from tarry.proto.ledger.segment import Closed, OpenSegment

STARTS_MAX: Final = 2
"""A process that somebody kills is replaced once; after that the ledger tells of the failure, and retries."""
NICE: Final = 19
GROUP_NICE: Final = 10
"""Weight 110 beside 1,024: with 15, beside four busy sessions, a segment took minutes."""
AUTOGROUP_TRIES: Final = 20
Close: TypeAlias = Callable[[OpenSegment, int], Closed | None]


class Closer:
    """Makes open segments closed ones. For a thread, one call at a time, but for ``hurry``."""

    def __init__(self, *, apart: bool = False) -> None:
        """Close in this process; ``apart``: in one of its own, until there is need to hurry."""
        self._apart = apart
        self.process: subprocess.Popen[bytes] | None = None

    def close(self, left: OpenSegment, now_ms: int) -> Closed | None:
        """Make an open segment a closed one; None where it covers nothing.

        Raises OSError: the disk did not take it, or the process was killed; the open segment is still there.
        """
        told = {**asdict(left), "ledger": str(left.ledger), "now_ms": now_ms}
        for _ in range(STARTS_MAX):
            if not self._apart or not left.bytes:
                return _once(left, close, now_ms)
            answer = self._ask(json.dumps(told).encode() + b"\n")
            if answer is not None:
                if "error" in answer:
                    raise OSError(answer["error"])
                path = Path(answer["path"])
                return path, json.loads(path.with_suffix(".json").read_bytes())
        raise OSError("the process that closes segments ended without an answer")

    @property
    def apart(self) -> bool:
        """True if work on closed segments is for a process of its own."""
        return self._apart

    def rest(self) -> None:
        """End the process: nothing waits to be closed."""
        process, self.process = self.process, None
        if process is not None:
            process.communicate()

    def hurry(self) -> None:
        """Close in this process from now on, also what is under way: the node ends."""
        self._apart = False
        if self.process is not None:
            self.process.kill()

    def _ask(self, told: bytes) -> dict[str, str] | None:
        """Return the process's answer, None where it ended without one."""
        process = self.process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):
            process.stdin.write(told)
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            self.rest()
            return None
        answer: dict[str, str] = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        pipe, command = subprocess.PIPE, [sys.executable, "-m", __name__]
        process = subprocess.Popen(command, stdin=pipe, stdout=pipe, start_new_session=True)
        yield_to_others(process.pid)
        self.process = process
        if not self._apart:
            process.kill()
        return process


def yield_to_others(pid: int) -> None:
    """Give a process that leads a session a low priority, within the session and among sessions.

    Where Linux groups processes by session (sched(7), autogroup), nice values count within a group only:
    those of a node's session say nothing to a client, nor to another node.
    """
    os.setpriority(os.PRIO_PROCESS, pid, NICE)
    for _ in range(AUTOGROUP_TRIES):
        try:
            Path(f"/proc/{pid}/autogroup").write_text(str(GROUP_NICE))
        except BlockingIOError:  # the kernel takes one in 100 ms, of all processes without privileges
            time.sleep(0.1)
        except OSError:
            return  # the kernel has no such groups
        else:
            return


def _once(
    left: OpenSegment, closing: Callable[[OpenSegment, int], Closed | None], now_ms: int
) -> Closed | None:
    """Close a segment, unless a process that was killed before it could say so has done it."""
    try:
        return closing(left, now_ms)
    except FileNotFoundError:
        name = stem(left.source, left.run, left.first_index, left.covered, left.segment)
        for path in left.ledger.glob(f"date=*/{name}.json"):
            return path.with_suffix(".parquet"), json.loads(path.read_bytes())
        raise


# The process


class _NoPandas(MetaPathFinder):
    """Import hook that hides pandas, which pyarrow would otherwise load if it is installed: 0.3 s saved."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def begin() -> None:
    """Begin a process of a node's: without pandas, and it ends once the node ends its pipe, or ends."""
    sys.meta_path.insert(0, _NoPandas())
    threading.Thread(target=_end_with_node, daemon=True).start()


def leave(code: int) -> NoReturn:
    """End a process of a node's whose answers are written, without the end of its interpreter.

    Where that meets a thread of pyarrow's that still starts, it aborts the process, seldom (Arrow #34314).
    """
    os._exit(code)


def main() -> None:
    """Close the segments that the node names, until it ends its pipe, or ends."""
    begin()
    for line in sys.stdin:
        told = json.loads(line)
        left = OpenSegment(
            Path(told["ledger"]), told["source"], told["run"], told["segment"], told["first_index"]
        )
        left.covered, left.rows, left.bytes = told["covered"], told["rows"], told["bytes"]
        try:
            done = _once(left, _close_for_node, told["now_ms"])
        except OSError as error:  # the node tells of it; anything else ends this process
            print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
            leave(1)
        assert done is not None
        print(json.dumps({"path": str(done[0])}), flush=True)
    leave(0)


def _end_with_node() -> None:
    _pipe().poll()
    os._exit(0)  # also in the middle of a segment


def _close_for_node(left: OpenSegment, now_ms: int) -> Closed:
    with left.locked():
        if _pipe().poll(0):
            os._exit(0)  # the node's next start counts on the segment as it is now
        return make_parquet(left, now_ms)


def _pipe() -> select.poll:
    """Return what tells of the end of whoever writes to this process, and of nothing else."""
    pipe = select.poll()
    pipe.register(0, 0)
    return pipe


if __name__ == "__main__":
    main()
