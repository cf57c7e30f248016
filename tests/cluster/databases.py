"""Real servers of Redis and PostgreSQL, of Debian's packages, on free ports and in a test's own folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import redis

from tarry.client.local.free_ports import free_ports

PATIENCE_S = 60
USER = "postgres"
"""PostgreSQL refuses to run as root; its package makes this user."""


def _program(name: str, *folders: Path) -> str:
    found = shutil.which(name) or next((str(one / name) for one in folders if (one / name).exists()), None)
    if found is None:
        pytest.skip(f"there is no {name}: .ci/databases installs it")
    return found


def _until(works: Callable[[], object], *errors: type[Exception]) -> None:
    ends = time.monotonic() + PATIENCE_S
    while True:
        try:
            works()
            return
        except errors:
            assert time.monotonic() < ends
            time.sleep(0.1)


@contextmanager
def redis_server(folder: Path) -> Iterator[str]:
    """Run a server; its URL."""
    program, (port,) = _program("redis-server"), free_ports(1)
    folder.mkdir()
    arguments = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    server = subprocess.Popen([program, *arguments], stdout=subprocess.DEVNULL)
    try:
        url = f"redis://127.0.0.1:{port}/0"
        with redis.Redis.from_url(url) as client:
            _until(client.ping, redis.ConnectionError)
        yield url
    finally:
        server.terminate()
        server.wait(PATIENCE_S)


@contextmanager
def postgresql_server(folder: Path) -> Iterator[str]:
    """Run a server; its URL."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    initdb, program = (_program(name, *versions) for name in ("initdb", "postgres"))
    folder.mkdir()
    as_user: dict[str, str] = {}
    if os.getuid() == 0:
        if USER not in {one.pw_name for one in pwd.getpwall()}:
            pytest.skip(f"PostgreSQL does not run as root, and there is no user {USER}")
        shutil.chown(folder, USER)
        for above in folder.parents[: len(folder.parents) - 2]:  # a test's folder is root's alone
            above.chmod(above.stat().st_mode | 0o011)
        as_user = {"user": USER}
    data, (port,) = folder / "data", free_ports(1)
    made = [initdb, "-D", str(data), "-U", USER, "--auth=trust", "--no-sync", "-E", "UTF8", "--locale=C"]
    subprocess.run(made, check=True, capture_output=True, cwd=folder, **as_user)  # type: ignore[call-overload]
    arguments = ["-D", str(data), "-p", str(port), "-h", "127.0.0.1", "-k", str(folder), "-c", "fsync=off"]
    server = subprocess.Popen(  # type: ignore[call-overload]
        [program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, **as_user
    )
    try:
        url = f"postgresql://{USER}@127.0.0.1:{port}/postgres"
        _until(lambda: psycopg.connect(url).close(), psycopg.OperationalError)
        yield url
    finally:
        server.terminate()
        server.wait(PATIENCE_S)
