"""The gateway for RocketMQ's clients as a process: served until the process is told to end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import grpc

from tarry.client.settings import Settings
from tarry.gateway.rocketmq.call import Gateway
from tarry.gateway.rocketmq.config import Config
from tarry.gateway.rocketmq.routes import Routes
from tarry.gateway.rocketmq.service import handlers
from tarry.proto import grpc_server

log = logging.getLogger(__name__)

MORE_BYTES: Final = 4 << 20
"""Of a request beside the bodies that it may have, so that what is too large is refused in the answer."""
CONNECTION_CALLS_MAX: Final = 1_000
"""Calls of one connection at once; its client makes more wait. Who reads no answers holds no more places."""
REFUSED_MAX: Final = 1_000
"""Calls beyond those of the limits: what is over a limit is answered so by the gateway, and not by gRPC."""
INPUT_BYTES: Final = 4_096
"""Of standard input read at once."""


@dataclass(frozen=True, slots=True)
class Certificate:
    """The gateway's own certificate and its private key, PEM."""

    certificate: bytes
    key: bytes


async def serve(
    settings: Settings,
    config: Config,
    listen: tuple[str, int],
    advertised: Sequence[tuple[str, int]] = (),
    certificate: Certificate | None = None,
    on_listening: Callable[[int], None] = lambda _: None,
    *,
    end_with_input: bool = False,
) -> None:
    """Serve until SIGINT or SIGTERM; ``end_with_input``: or until standard input, a pipe, ends.

    ``on_listening`` gets the port. Raises OSError.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    loop, told = asyncio.get_running_loop(), asyncio.Event()
    async with running(settings, config, listen, advertised, certificate) as served:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, told.set)
        if end_with_input:
            loop.add_reader(0, _end_with_input, told)
        ending = asyncio.create_task(told.wait())
        try:
            on_listening(served.port)
            await asyncio.wait({ending, served.renewing}, return_when=asyncio.FIRST_COMPLETED)
            if served.renewing.done():
                served.renewing.result()  # raises: a defect ends the process
        finally:
            ending.cancel()
            loop.remove_reader(0)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)


def _end_with_input(told: asyncio.Event) -> None:
    """Tell the end once standard input ends; what it says otherwise says nothing."""
    if not os.read(0, INPUT_BYTES):
        told.set()


class Served(NamedTuple):
    """A gateway that serves."""

    port: int
    renewing: asyncio.Task[None]
    """Ends only with a defect."""


@asynccontextmanager
async def running(
    settings: Settings,
    config: Config,
    listen: tuple[str, int],
    advertised: Sequence[tuple[str, int]] = (),
    certificate: Certificate | None = None,
) -> AsyncIterator[Served]:
    """Serve meanwhile. Calls under way end within ``end_ms``. Raises OSError."""
    limits = config.limits
    if config.key and not config.secrets:
        log.warning("there are access keys and no secrets: who has a key can make up the handles of others")
    server = grpc_server.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", limits.body_bytes_max + MORE_BYTES),
            ("grpc.max_concurrent_streams", CONNECTION_CALLS_MAX),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", 5_000),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
        ],
        maximum_concurrent_rpcs=limits.calls_max + limits.polls_max + limits.streams_max + REFUSED_MAX,
    )
    host, port = listen
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        if certificate is None:
            bound = server.add_insecure_port(address)
        else:
            pair = grpc.ssl_server_credentials([(certificate.key, certificate.certificate)])
            bound = server.add_secure_port(address, pair)
    except RuntimeError as error:
        raise OSError(str(error)) from None
    if not bound:
        raise OSError(f"cannot listen on {address}")
    gateway = Gateway(settings, config, Routes(advertised, (host, bound)))
    server.add_generic_rpc_handlers((handlers(gateway),))
    await server.start()
    renewing = asyncio.create_task(gateway.renewals.run())
    try:
        yield Served(bound, renewing)
    finally:
        gateway.ending.set()
        renewing.cancel()
        await server.stop(limits.end_ms / 1_000)
        try:
            with contextlib.suppress(asyncio.CancelledError):
                await renewing
        finally:
            await gateway.close()
