"""The program and its libraries stay in memory, and nothing else does."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys

import pytest

from tarry.node.locked_code import Locked, lock_code, mappings

MAPS = """\
55d000000000-55d000001000 r--p 00000000 fe:00 11 /usr/bin/python3.11
55d000001000-55d000003000 r-xp 00001000 fe:00 11 /usr/bin/python3.11
55d000100000-55d000200000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000004000 rw-p 00000000 fe:00 12 /usr/lib/a library.so
7f0000010000-7f0000020000 r--s 00000000 fe:00 13 /data/n1/hours/2026112604/delay.index
7f0000030000-7f0000040000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0 [vdso]
"""


def test_private_mappings_of_files_are_taken_and_code_comes_first() -> None:
    assert list(mappings(MAPS)) == [
        (0x55D000001000, 0x2000),
        (0x55D000000000, 0x1000),
        (0x7F0000000000, 0x4000),
    ]


def test_what_the_system_does_not_allow_is_told() -> None:
    calls: list[int] = []

    def lock(_: int, length: int) -> int:
        calls.append(length)
        return errno.ENOMEM if len(calls) == 3 else 0

    locked = lock_code(lock)
    assert locked.size_bytes == sum(calls[:2])
    assert locked.left_bytes >= calls[2] > 0
    assert locked.why == os.strerror(errno.ENOMEM)
    assert len(calls) == 3


ALONE = """
import json
from pathlib import Path
import numpy
from tarry.node.locked_code import lock_code

def kib(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name))

before = kib("VmRSS")
locked = lock_code()
print(json.dumps([locked, kib("VmLck"), kib("VmRSS") - before]))
"""


def test_the_code_of_a_process_is_locked_and_none_of_it_is_loaded_for_that() -> None:
    done = subprocess.run([sys.executable, "-c", ALONE], check=True, capture_output=True, text=True)
    (size_bytes, _, why), locked_kib, more_kib = json.loads(done.stdout)
    if why:
        pytest.skip(f"this user may not lock so much: {why}")
    assert locked_kib == size_bytes >> 10
    assert locked_kib > 10_000
    assert more_kib < 2_000


def test_a_system_without_it_is_no_reason_not_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from tarry.node import process

    def fails() -> Locked:
        raise AttributeError("mlock2")

    monkeypatch.setattr(process, "lock_code", fails)
    process.keep_code()
