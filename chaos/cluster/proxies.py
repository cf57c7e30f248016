"""Every path of a cluster through a real toxiproxy server: node to node, each way, and client to node.

    n1 ──► link n1>n2 ──► n2        n2 ──► link n2>n1 ──► n1        clients ──► link client>n1 ──► n1

A link is a proxy for each port that the one reaches the other at: of calls, and between nodes of streams.
A node (and a client) reaches a member at the address that its `dial` table gives, which is a link's; so
redirects and forwarding go through the links as well. TARRY_TOXIPROXY=host:port uses a server that runs
already, such as the one of docker-compose.yml.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tarry.chaos.cluster.toxiproxy import NoToxiproxy, install
from tarry.client.local.cluster import LocalNode
from tarry.client.local.free_ports import free_ports

if TYPE_CHECKING:
    from toxiproxy.proxy import Proxy

CLIENT: Final = "client"
START_S: Final = 10.0

Link = tuple[str, str]
"""The dialling node (or client) and the dialled node."""

# the server dies with this process (Linux), as nodes do
LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Proxies:
    """The links of one cluster. toxiproxy-python knows one server a process, so there is one at a time."""

    def __init__(self, members: Iterable[LocalNode], log: Path) -> None:
        """Begin with no links. Raises NoToxiproxy."""
        from toxiproxy import Toxiproxy  # clusters without links do without the package

        self.server = Toxiproxy()
        self._process: subprocess.Popen[bytes] | None = None
        self._members: dict[str, LocalNode] = {}
        self._links: dict[Link, dict[str, Proxy]] = {}  # by where they lead
        self._spoilt = 0  # times, so that toxics have names of their own
        given = os.environ.get("TARRY_TOXIPROXY", "")
        host, port = given.rsplit(":", 1) if given else ("127.0.0.1", str(free_ports(1)[0]))
        self.server.update_api_consumer(host, int(port))
        if not given:
            self._start(port, log)
        self._wait(given or port)
        for node in members:
            self.add(node)

    def _start(self, port: str, log: Path) -> None:
        command = [str(install()), "-host", "127.0.0.1", "-port", port]
        with log.open("ab") as file:
            self._process = subprocess.Popen(
                [sys.executable, "-c", LAUNCH, *command],
                env={**os.environ, "LOG_LEVEL": "error"},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait(self, where: str) -> None:
        deadline = time.monotonic() + START_S
        while not self.server.running():
            if time.monotonic() > deadline:
                self.close()
                raise NoToxiproxy(f"no toxiproxy server answers at {where}")
            time.sleep(0.02)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, node: LocalNode) -> None:
        """Make the links of one more node, both ways."""
        for other in self._members.values():
            self._make((node.name, other.name), other.address, other.peer_address)
            self._make((other.name, node.name), node.address, node.peer_address)
        self._make((CLIENT, node.name), node.address)
        self._members[node.name] = node

    def _make(self, link: Link, *addresses: str) -> None:
        # A port that toxiproxy picks is one of those for outgoing connections: while the link is cut,
        # somebody's connection may get it, and the link can never be mended.
        self._links[link] = {
            address: self.server.create(
                upstream=address,
                name=f"{os.getpid()}-{link[0]}-{link[1]}-{address.rpartition(':')[2]}",
                listen=f"127.0.0.1:{port}",
            )
            for address, port in zip(addresses, free_ports(len(addresses)), strict=True)
        }

    def _proxies(self, links: Iterable[Link]) -> Iterator[Proxy]:
        for link in links:
            yield from self._links[link].values()

    def dial(self, who: str) -> dict[str, str]:
        """Return where a node, or CLIENT, reaches each member: link's address by the member's."""
        return {
            address: proxy.listen
            for (dialler, _), proxies in self._links.items()
            for address, proxy in proxies.items()
            if dialler == who
        }

    def links(self, *, clients: bool = True) -> list[Link]:
        """Return all links; those between nodes only where asked for."""
        return [link for link in self._links if clients or link[0] != CLIENT]

    def cut(self, links: Iterable[Link]) -> None:
        """Break the links' connections and refuse new ones: both ends know."""
        for proxy in self._proxies(links):
            proxy.disable()

    def mend(self, links: Iterable[Link]) -> None:
        """Undo `cut`."""
        for proxy in self._proxies(links):
            proxy.enable()

    def spoil(self, links: Iterable[Link], kind: str, **attributes: int) -> None:
        """Put one of toxiproxy's toxics on the links, upstream and downstream.

        `timeout` with timeout=0 swallows everything and keeps connections open: a half-open link.
        """
        self._spoilt += 1
        for proxy in self._proxies(links):
            for way in ("upstream", "downstream"):
                name = f"{kind}_{way}_{self._spoilt}"
                proxy.add_toxic(type=kind, stream=way, name=name, attributes=attributes)

    def heal(self) -> None:
        """Enable every link and take every toxic off."""
        for proxy in self._proxies(self._links):
            for toxic in proxy.toxics():
                proxy.destroy_toxic(toxic)
            proxy.enable()

    def close(self) -> None:
        """Remove the links, end the server if it was started here."""
        if self._process is None:
            for proxy in self._proxies(self._links):
                proxy.destroy()
        else:
            self._process.kill()
            self._process.wait()
        self._links.clear()


def between(side: Iterable[str], others: Iterable[str]) -> list[Link]:
    """Return the links between two sets of nodes, both ways."""
    return [link for a in side for b in others if a != b for link in ((a, b), (b, a))]
