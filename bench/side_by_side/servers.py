"""Processes of peers: on loopback, in a temporary folder, ended by their own process id."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psutil

BUILT: Final = Path(sys.prefix) / "peers" / "bin"
"""The folder into which `bench/side_by_side/install` builds."""
STOP_S: Final = 20.0


class PeerFailed(RuntimeError):
    """A peer's server did not do what it should; the text ends with the tail of its log."""


def program(name: str, *folders: str) -> str | None:
    """Return the path of a program: built for the bench, on the PATH, or in `folders` (newest last)."""
    path = os.pathsep.join([str(BUILT), os.environ.get("PATH", ""), "/usr/sbin", *reversed(folders)])
    return shutil.which(name, path=path)


@dataclass(slots=True)
class Server:
    """One process and its log. It dies with the process that started it (Linux)."""

    command: Sequence[str]
    folder: Path
    name: str
    environment: Mapping[str, str] = field(default_factory=dict)  # beside ours
    user: str = ""
    _process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}.log"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise PeerFailed(f"{self.name} was never started")
        return self._process.pid

    def start(self) -> None:
        """Start it, or start it again."""
        guard = [setpriv, "--pdeathsig", "KILL"] if (setpriv := shutil.which("setpriv")) else []
        if self.user:
            guard += [f"--reuid={self.user}", f"--regid={self.user}", "--init-groups"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*guard, *self.command],
                cwd=self.folder,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def stop(self) -> None:
        """Ask it to end, and end it after STOP_S if it does not."""
        if self._process is None or not self.running:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it at once, with the processes that it started."""
        if self._process is not None and self.running:
            os.killpg(self._process.pid, signal.SIGKILL)  # a session of its own: nobody else is in it
            self._process.wait()

    async def wait_for_port(self, port: int, timeout_s: float = 60.0) -> None:
        """Return as soon as something listens there. Raises PeerFailed: it has ended, or time is up."""
        deadline = time.monotonic() + timeout_s
        while not _listens(port):
            if not self.running:
                raise self.failed("ended while starting")
            if time.monotonic() > deadline:
                raise self.failed(f"not ready after {timeout_s:.0f} s")
            await asyncio.sleep(0.05)

    def failed(self, complaint: str) -> PeerFailed:
        tail = self.log.read_text(errors="replace").splitlines()[-12:] if self.log.exists() else []
        return PeerFailed("\n".join([f"{self.name}: {complaint}", *tail]))

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None


async def stop_all(servers: Sequence[Server]) -> None:
    """Stop them at the same time."""
    await asyncio.gather(*(asyncio.to_thread(server.stop) for server in servers))


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def version_of(*command: str) -> str:
    """Return the first line that a program prints about itself."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    lines = (done.stdout or done.stderr).strip().splitlines()
    return lines[0].strip() if lines else "unknown"


def memory_bytes(pid: int) -> int:
    """Return the memory of a process and its children that is no page of a file (Linux)."""
    process = psutil.Process(pid)
    pids = [each.pid for each in (process, *process.children(recursive=True))]
    return sum(map(_anonymous_bytes, pids))


def _anonymous_bytes(pid: int) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):  # a child that has ended meanwhile
        return 0
    told = status.partition("RssAnon:")[2].split()  # nothing of one that has ended and is not waited for
    return int(told[0]) * 1_024 if told else 0


def folder_bytes(folder: Path) -> int:
    """Return the disk taken by the files below a folder."""
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())
