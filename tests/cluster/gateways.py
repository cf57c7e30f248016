"""The gateways as processes of their own, beside a real cluster."""

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
    """Of the HTTP gateway; of that for RocketMQ's clients its address."""
    process: subprocess.Popen[str]

    def client(self, token: str | None = None) -> httpx.Client:
        """Return an HTTP client of it."""
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=60)


@contextmanager
def gateway_process(servers: str, *arguments: str) -> Iterator[GatewayProcess]:
    """Run ``tarry gateway http`` on a free port; it has to end as it is asked to, with nothing on stderr."""
    with _running("http", "url", servers, *arguments) as gateway:
        yield gateway


@contextmanager
def rocketmq_gateway(servers: str, *arguments: str) -> Iterator[GatewayProcess]:
    """Run ``tarry gateway rocketmq`` in the same way."""
    with _running("rocketmq", "address", servers, *arguments) as gateway:
        yield gateway


@contextmanager
def _running(kind: str, name: str, servers: str, *arguments: str) -> Iterator[GatewayProcess]:
    command = [sys.executable, "-m", "tarry.node", "gateway", kind, "--listen", "127.0.0.1:0", "-o", "json"]
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
        yield GatewayProcess(json.loads(told)[name], process)
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
