"""Addresses that posts may go to: a name is resolved once, checked, and connected to as it was checked.

So a name server that answers with another address the second time (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import httpcore

NOT_PUBLIC: Final = tuple(
    ipaddress.ip_network(network)
    for network in ("192.0.0.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.175.48.0/24",
                    "64:ff9b:1::/48", "100::/64", "2620:4f:8000::/48", "3fff::/20", "5f00::/16")
)  # fmt: skip
"""Of IANA's registries of special purposes, what releases of Python say is global, or some of them."""
RESOLVED_MAX: Final = 8
"""Addresses of a name that are tried."""
ATTEMPT_S: Final = 0.25
"""Before another address is tried, while one has not answered: RFC 8305's Connection Attempt Delay."""
RESOLVERS: Final = 4
"""Threads of a push that ask for addresses: no others may wait behind a name server that does not answer."""


class AddressRefused(Exception):
    """The receiver's address is private, or otherwise none of the internet."""


def is_public(text: str) -> bool:
    """Return whether an address is one of the internet; one that maps or carries another is as that is."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in ipaddress.ip_network("64:ff9b::/96"):
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(str(inner))
        if address.is_site_local:  # fec0::/10, which counts as global
            return False
    if any(address in network for network in NOT_PUBLIC):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


async def _first(
    attempts: Iterable[Coroutine[Any, Any, httpcore.AsyncNetworkStream]],
) -> httpcore.AsyncNetworkStream:
    """Return the first connection that is made, and close all others. Raises the last one's failure."""
    left, under_way = list(attempts)[::-1], set[asyncio.Task[httpcore.AsyncNetworkStream]]()
    made = list[httpcore.AsyncNetworkStream]()
    failure: BaseException | None = None
    try:
        while not made and (left or under_way):
            if left:
                under_way.add(asyncio.ensure_future(left.pop()))
            done, under_way = await asyncio.wait(
                under_way, timeout=ATTEMPT_S if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                failure = task.exception()
                made += [task.result()] if failure is None else []
            if failure is not None and not isinstance(
                failure, httpcore.ConnectError | httpcore.ConnectTimeout
            ):
                raise failure
        if made:
            return made.pop(0)
        assert failure is not None
        raise failure
    finally:
        for attempt in left:
            attempt.close()
        for task in under_way:
            task.cancel()
        for ended in await asyncio.gather(*under_way, return_exceptions=True):
            made += [ended] if isinstance(ended, httpcore.AsyncNetworkStream) else []
        for stream in made:
            await stream.aclose()


class CheckedNetwork(httpcore.AsyncNetworkBackend):
    """Connections to public addresses only, or to any."""

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._network = httpcore.AnyIOBackend()
        self._resolvers = ThreadPoolExecutor(RESOLVERS, thread_name_prefix="push-resolver")

    def close(self) -> None:
        """End its threads as soon as they have their answers."""
        self._resolvers.shutdown(wait=False, cancel_futures=True)

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the base class has it
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to the first address of the host that answers, as RFC 8305 has it.

        Each address has a moment before the next one is tried beside it: one may swallow all packets.
        Raises AddressRefused where none of them may be connected to, httpcore.ConnectError.
        """
        resolved = await self._resolve(host, port, timeout)
        allowed = [each for each in resolved if self._allow_private or is_public(each)]
        if not allowed:
            text = "no address of the internet, and allow_private is not set"
            raise AddressRefused(f"{host} is at {', '.join(resolved)}: {text}")

        async def connect(address: str) -> httpcore.AsyncNetworkStream:
            return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)

        return await _first(map(connect, allowed))

    async def sleep(self, seconds: float) -> None:
        """Sleep, between the pool's own attempts."""
        await self._network.sleep(seconds)

    async def _resolve(self, host: str, port: int, timeout_s: float | None) -> list[str]:
        """Return the addresses of a host, each once. Raises httpcore.ConnectError, ConnectTimeout."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout_s):
                found = await loop.run_in_executor(
                    self._resolvers, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
                )
        except TimeoutError:
            raise httpcore.ConnectTimeout(f"{host} was not resolved in time") from None
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"{host} cannot be resolved: {error}") from None
        return list(dict.fromkeys(str(address[0]) for *_, address in found))[:RESOLVED_MAX]
