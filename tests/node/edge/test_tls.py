"""Certificates of gRPC's server that are renewed while it runs."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tarry.node.config import Tls
from tarry.node.edge.tls import Certificates, ServerCertificates
from tests.cluster.authority import Authority

HOSTS = ("127.0.0.1", "::1")


async def echoed(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
    async for request in requests:
        yield request


def der(authority: Authority, name: str) -> bytes:
    return ssl.PEM_cert_to_DER_cert((authority.folder / f"{name}.pem").read_text())


def shown(host: str, port: int) -> bytes:
    """Return the certificate of a new handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with socket.create_connection((host, port), 10) as raw, context.wrap_socket(raw) as secured:
        return secured.getpeercert(binary_form=True) or b""


def reachable(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 10).close()
    except OSError:
        return False
    return True


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path)
    made.sign("old", "/CN=localhost", "DNS:localhost")
    made.sign("new", "/CN=localhost", "DNS:localhost")
    return made


def read(authority: Authority, name: str) -> Certificates:
    folder = authority.folder
    return Certificates.read(Tls(certificate=folder / f"{name}.pem", key=folder / f"{name}.key"))


async def test_new_certificates_are_shown_at_every_address_and_what_is_open_stays(
    authority: Authority,
) -> None:
    made = ServerCertificates(read(authority, "old"))
    server = grpc.aio.server()
    handlers: Any = {"Echo": grpc.stream_stream_rpc_method_handler(echoed)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("any", handlers),))
    port = server.add_secure_port("localhost:0", made.credentials)
    await server.start()
    hosts = [host for host in HOSTS if reachable(host, port)]
    assert hosts
    authorities = (authority.folder / "authority.pem").read_bytes()
    credentials = grpc.ssl_channel_credentials(authorities)
    async with grpc.aio.secure_channel(f"localhost:{port}", credentials) as channel, asyncio.timeout(60):
        stream = channel.stream_stream("/any/Echo")()
        await stream.write(b"before")
        assert await stream.read() == b"before"
        for name in ("old", "new", "old"):
            made.renew(read(authority, name))
            for host in (*hosts, *hosts):
                assert await asyncio.to_thread(shown, host, port) == der(authority, name)
        await stream.write(b"after")
        assert await stream.read() == b"after"
        stream.cancel()
    await server.stop(None)
