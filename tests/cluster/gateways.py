"""The HTTP gateway as a process of its own, beside a real cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import httpx

END_S = 30


@dataclass(frozen=True)
class GatewayProcess:
    """A running gateway."""

    url: str
    process: subprocess.Popen[str]

    def client(self, token: str | None = None) -> httpx.Client:
        """Return an HTTP client of it."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)


@contextmanager
def gateway_process(servers: str, *arguments: str) -> Iterator[GatewayProcess]:
    """Run ``tarry gateway http`` on a free port; it has to end as it is asked to, with nothing on stderr."""
    command = [sys.executable, "-m", "tarry.node", "gateway", "http", "--listen", "127.0.0.1:0", "-o", "json"]
    process = subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TARRY_SERVER": servers},
    )
    try:
        assert process.stdout is not None
        told = process.stdout.readline()
        assert told, process.communicate()[1]
        yield GatewayProcess(json.loads(told)["url"], process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=END_S)
        assert process.returncode == 0, errors
        assert "Traceback" not in errors, errors
    finally:
        process.kill()
        process.communicate()


@contextmanager
def gateway_of(servers: str, *arguments: str) -> Iterator[str]:
    """Run a gateway, and yield its address."""
    with gateway_process(servers, *arguments) as gateway:
        yield gateway.url
