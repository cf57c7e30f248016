"""The gateway beside a node: how it is asked for, and that it is kept running, with real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from tarry.node.beside import command, environment, keep
from tarry.node.config import NodeConfig, Tls

CALLER = """
import json, os, socket, sys
print(json.dumps({"address": "127.0.0.1:8081"}), flush=True)
print("wrong ünd lång " + "x" * 5_000 + "\\nlast", file=sys.stderr, flush=True)
caller = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
caller.sendall(b"%d\\n" % os.getpid())
sys.stdin.read()
"""
"""A program that calls the test, tells its process, and ends with its standard input."""


def config(tmp_path: Path, **more: Any) -> NodeConfig:
    members = {"n1": "10.0.0.1:7001", "n2": "10.0.0.2:7001"}
    given: dict[str, Any] = {"node": "n1", "data": tmp_path, "listen": "0.0.0.0:7001", "members": members}
    return NodeConfig(**given | more)


def test_the_gateway_is_asked_for_by_its_own_command_line(tmp_path: Path) -> None:
    file = tmp_path / "rocketmq.toml"
    file.touch()
    asked = {
        "rocketmq": "0.0.0.0:8081",
        "rocketmq_file": file,
        "rocketmq_advertise": ["a:8081", "b:8081"],
        "token": "operator's",
    }
    made = config(tmp_path, gateway=asked, dial={"10.0.0.2:7001": "127.0.0.1:9"})
    line = command(made)
    assert line[:6] == [sys.executable, "-P", "-m", "tarry.node", "gateway", "rocketmq"]
    assert line[6:] == [
        *("--listen", "0.0.0.0:8081", "--end-with-input", "--output", "json", "--config", str(file)),
        *("--advertise", "a:8081", "--advertise", "b:8081"),
    ]
    assert "operator's" not in line  # which everybody on the machine may read
    told = environment(made, {"PATH": "/bin", "TARRY_PEER_TOKEN": "secret", "tarry_node": "n1"})
    assert told == {
        "PATH": "/bin",
        "TARRY_SERVER": "10.0.0.1:7001,127.0.0.1:9",
        "TARRY_TOKEN": "operator's",
    }
    assert "operator's" not in repr(made)


def test_a_node_with_tls_has_its_gateway_serve_with_the_node_s_certificate(tmp_path: Path) -> None:
    certificate, key, authority = (tmp_path / name for name in ("certificate", "key", "authority"))
    asked = {"rocketmq": "0.0.0.0:8081"}
    tls = Tls.model_construct(certificate=certificate, key=key, authority=authority)
    made = config(tmp_path, gateway=asked).model_copy(update={"tls": tls})
    assert command(made)[-4:] == ["--certificate", str(certificate), "--key", str(key)]
    assert environment(made, {})["TARRY_TLS_CA"] == str(authority)
    assert environment(made, {})["TARRY_TLS_CERTIFICATE"] == str(certificate)


class Kept(NamedTuple):
    """A program that is kept running, and its calls."""

    calls: asyncio.Queue[tuple[int, asyncio.StreamReader]]
    logs: list[Any]


@asynccontextmanager
async def kept(steady_s: float = 60.0) -> AsyncIterator[Kept]:
    calls: asyncio.Queue[tuple[int, asyncio.StreamReader]] = asyncio.Queue()
    writers: list[asyncio.StreamWriter] = []  # one that nobody has is closed

    async def called(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        calls.put_nowait((int(await reader.readline()), reader))

    server = await asyncio.start_server(called, "127.0.0.1", 0)
    line = [sys.executable, "-c", CALLER, str(server.sockets[0].getsockname()[1])]
    with capture_logs() as logs:
        keeping = asyncio.create_task(keep(line, dict(os.environ), (0.0, 0.001), steady_s))
        try:
            yield Kept(calls, logs)
        finally:
            keeping.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await keeping
            server.close()
            for writer in writers:
                writer.close()


async def test_what_ends_is_started_anew_and_all_ends_in_the_end() -> None:
    async with asyncio.timeout(60), kept() as running:
        process, reader = await running.calls.get()
        os.kill(process, signal.SIGKILL)
        assert await reader.read() == b""
        process, reader = await running.calls.get()
        os.kill(process, signal.SIGTERM)
        assert await reader.read() == b""
        _, last = await running.calls.get()
    async with asyncio.timeout(60):
        assert await last.read() == b""  # it has ended
    told = [log for log in running.logs if log["event"] == "gateway ended"]
    assert [(log["code"], log["again_in_s"]) for log in told] == [(-9, 0.0), (-15, 0.001)]


async def test_one_that_has_run_for_long_is_started_anew_at_once() -> None:
    async with asyncio.timeout(60), kept(steady_s=0.0) as running:
        for _ in range(3):
            process, _ = await running.calls.get()
            os.kill(process, signal.SIGKILL)
        await running.calls.get()
    assert [log["again_in_s"] for log in running.logs if log["event"] == "gateway ended"] == [0.0] * 3


async def test_what_it_says_is_in_the_node_s_log_line_by_line_and_in_parts_where_one_is_long() -> None:
    async with asyncio.timeout(60), kept() as running:
        process, _ = await running.calls.get()
    told = {log["event"]: log for log in running.logs}
    assert (told["gateway"]["address"], told["gateway"]["pid"]) == ("127.0.0.1:8081", process)
    said = [log["line"] for log in running.logs if log["event"] == "gateway says"]
    assert "".join(said) == "wrong ünd lång " + "x" * 5_000 + "last"
    assert said[-1] == "last"
    assert all(len(line) <= 8_192 for line in said)


async def test_a_program_that_is_not_there_is_tried_again() -> None:
    with capture_logs() as logs:
        keeping = asyncio.create_task(keep(["/nowhere/at all"], {}, (0.0, 3_600.0)))
        async with asyncio.timeout(60):
            while len(logs) < 2:  # noqa: ASYNC110 - the log has no event to wait for
                await asyncio.sleep(0)
        keeping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await keeping
    assert "No such file" in logs[0]["code"]
