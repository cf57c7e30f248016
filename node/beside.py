"""The gateway for RocketMQ's clients beside a node: a process of its own, started anew whenever it ends.

It is a client of the cluster like any other: nothing that it does holds up a turn of the node's event loop,
and its end, however it comes, ends no node. Its standard input is a pipe that nobody writes to: the pipe ends
with the node, however that ends, and with the pipe the gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import structlog

from tarry.node.config import ENVIRONMENT, NodeConfig

log = structlog.get_logger()

PAUSES_S: Final = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Until it is started again, after each end in a row; then the last."""
STEADY_S: Final = 60.0
"""For which it has run whose end is the first of a row."""
END_S: Final = 10.0
"""In which it has to end once it is told to; then it is killed."""
REST_S: Final = 5.0
"""In which what it has said comes, once it has ended."""
CHUNK_BYTES: Final = 4_096
"""Of what it writes to its log, taken in one turn of the event loop, and the longest line."""


def command(config: NodeConfig) -> list[str]:
    """Return the command line of the gateway that a configuration asks for."""
    asked, tls = config.gateway, config.tls
    line = [sys.executable, "-P", "-m", "tarry.node", "gateway", "rocketmq", "--listen", asked.rocketmq]
    line += ["--end-with-input", "--output", "json"]
    if asked.rocketmq_file is not None:
        line += ["--config", str(asked.rocketmq_file)]
    for address in asked.rocketmq_advertise:
        line += ["--advertise", address]
    if tls is not None:
        line += ["--certificate", str(tls.certificate), "--key", str(tls.key)]
    return line


def environment(config: NodeConfig, given: Mapping[str, str]) -> dict[str, str]:
    """Return its environment: the node's, without what is said to the node, with how to reach the cluster."""
    tls = config.tls
    told = {name: value for name, value in given.items() if not name.upper().startswith(ENVIRONMENT.upper())}
    addresses = [config.dial.get(address, address) for address in config.members.values()]
    told["TARRY_SERVER"] = ",".join(addresses)
    if config.gateway.token:
        told["TARRY_TOKEN"] = config.gateway.token
    if tls is not None:
        told["TARRY_TLS_CA"] = str(tls.authority or tls.certificate)
        if tls.authority is not None:
            told["TARRY_TLS_CERTIFICATE"], told["TARRY_TLS_KEY"] = str(tls.certificate), str(tls.key)
    return told


@asynccontextmanager
async def gateway_beside(config: NodeConfig) -> AsyncIterator[None]:
    """Keep the gateway that the configuration asks for running meanwhile."""
    if not config.gateway.rocketmq:
        yield
        return
    keeping = asyncio.create_task(keep(command(config), environment(config, os.environ)))
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


async def keep(
    line: Sequence[str],
    told: Mapping[str, str],
    pauses_s: Sequence[float] = PAUSES_S,
    steady_s: float = STEADY_S,
) -> None:
    """Run a command, and start it anew when it ends, until cancelled; then end it."""
    ends = 0
    while True:
        began_s = time.monotonic()
        code = await _run(line, told)
        ends = 1 if time.monotonic() - began_s >= steady_s else ends + 1
        pause_s = pauses_s[min(ends, len(pauses_s)) - 1]
        log.error("gateway ended", code=code, again_in_s=pause_s)
        await asyncio.sleep(pause_s)


async def _run(line: Sequence[str], told: Mapping[str, str]) -> int | str:
    """Run a command until it ends, or until cancelled; return its exit code, or why it did not begin."""
    try:
        process = await asyncio.create_subprocess_exec(
            *line, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=told, start_new_session=True
        )
    except OSError as error:
        return str(error)
    assert process.stdout is not None
    assert process.stderr is not None
    reading = asyncio.gather(_tell(process, process.stdout), _log(process.stderr))
    try:
        return await process.wait()
    finally:
        await _end(process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REST_S):
                await reading  # what it has said last


async def _tell(process: Process, output: asyncio.StreamReader) -> None:
    """Write to the log where it listens, which it says itself."""
    async for line in _lines(output):
        with contextlib.suppress(ValueError, TypeError, KeyError):
            log.info("gateway", address=json.loads(line)["address"], pid=process.pid)


async def _log(errors: asyncio.StreamReader) -> None:
    """Write what it says to the node's log."""
    async for line in _lines(errors):
        log.warning("gateway says", line=line)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[str]:
    """Yield what is written, line by line; of a long line its parts."""
    rest = b""
    while chunk := await stream.read(CHUNK_BYTES):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in (*lines, *([rest] if len(rest) >= CHUNK_BYTES else [])):
            if line.strip():
                yield line.decode(errors="replace")
        rest = b"" if len(rest) >= CHUNK_BYTES else rest
    if rest.strip():
        yield rest.decode(errors="replace")


async def _end(process: Process) -> None:
    """End a process in order, or else by force."""
    for stop in (process.terminate, process.kill):
        if process.returncode is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            stop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()
