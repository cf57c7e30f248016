"""Processes that see a container's files, users, processes and network, and nothing else (Linux, root).

A root folder is entered by namespaces and chroot. Its /usr and Python are the machine's own, read only; all
else is the image's. Every step becomes the next (exec), but for the first process of the process namespace.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO

import psutil

# Runs as the first process of its namespace, still outside of the root folder: mounts, enters, gives up root.
ENTER = """
import ctypes, json, os, signal, subprocess, sys
libc = ctypes.CDLL(None)  # while its file can be seen
spec = json.loads(sys.argv[1])
root = spec["root"]

def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)

mount("--bind", root, root)
for source, target, read_only in spec["binds"]:
    place = root + target
    if os.path.isdir(source):
        os.makedirs(place, exist_ok=True)
    elif not os.path.exists(place):
        os.makedirs(os.path.dirname(place), exist_ok=True)
        open(place, "w").close()
    mount("--bind", source, place)
    if read_only:
        mount("-o", "remount,bind,ro", place)
mount("-t", "tmpfs", "none", root + "/tmp")
mount("-t", "proc", "none", root + "/proc")
if spec["read_only"]:
    mount("-o", "remount,bind,ro", root)
os.chroot(root)
os.chdir(spec["folder"])
os.setgroups([])
os.setgid(spec["gid"])
os.setuid(spec["uid"])
os.umask(0o022)
libc.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG again: a change of user has cleared what unshare had set
try:
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])
except OSError as error:
    sys.exit(f"{spec['command'][0]}: {error.strerror}")
"""


@dataclass(frozen=True)
class Bind:
    """A folder or file of the machine at a place of the container."""

    source: str
    target: str
    read_only: bool = False


@dataclass(frozen=True)
class Entry:
    """Where, as whom and with what a command runs."""

    root: str
    command: Sequence[str]
    environment: Mapping[str, str]
    folder: str
    uid: int
    gid: int
    binds: Sequence[Bind] = field(default=())
    read_only: bool = False

    def argv(self, network: str = "") -> list[str]:
        """Return the command that enters; `network`: a network namespace's name, else the machine's."""
        spec = {**asdict(self), "binds": [[*asdict(bind).values()] for bind in self.binds]}
        return [
            *("setpriv", "--pdeathsig", "KILL"),
            *(("ip", "netns", "exec", network) if network else ()),
            *("unshare", "--mount", "--pid", "--fork", "--kill-child"),
            *(sys.executable, "-c", ENTER, json.dumps(spec)),
        ]


def user_of(root: Path, name: str) -> tuple[int, int]:
    """Return the ids of a user of a root folder, given by name or number. Raises KeyError."""
    lines = (root / "etc" / "passwd").read_text().splitlines()
    users = {(row := line.split(":"))[0]: (int(row[2]), int(row[3])) for line in lines}
    if name.isdigit():
        return next((ids for ids in users.values() if ids[0] == int(name)), (int(name), 0))
    return users[name]


def first_process(outer: subprocess.Popen[bytes]) -> int | None:
    """Return the id, outside, of the first process of a container; None if it has ended."""
    try:
        children = psutil.Process(outer.pid).children()
    except psutil.NoSuchProcess:
        return None
    return int(children[0].pid) if children else None


def wait_for_end(pid: int, patience_s: float = 10.0) -> None:
    """Wait until a process that is no child of this one has ended. Raises AssertionError."""
    try:
        psutil.Process(pid).wait(patience_s)
    except psutil.NoSuchProcess:
        pass
    except psutil.TimeoutExpired:
        raise AssertionError(f"process {pid} has outlived its container") from None


def started(argv: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a command of which all output goes to the log."""
    return subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
