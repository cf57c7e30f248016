"""Every path of a cluster through a real toxiproxy server: node to node, each way, and client to node.

    n1 ──► link n1>n2 ──► n2        n2 ──► link n2>n1 ──► n1        clients ──► link client>n1 ──► n1

A node (and a client) reaches a member at the address that its `dial` table gives, which is a link's; so
redirects and forwarding go through the links as well. TARRY_TOXIPROXY=host:port uses a server that runs
already, such as the one of docker-compose.yml.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final, Self

from toxiproxy import Toxiproxy
from toxiproxy.proxy import Proxy

from tarry.chaos.toxiproxy import NoToxiproxy, install
from tarry.client.local_cluster import free_ports

CLIENT: Final = "client"
START_S: Final = 10.0

Link = tuple[str, str]
"""Who dials, and whom."""

# the server dies with this process (Linux), as nodes do
LAUNCH = """
import ctypes, os, signal, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Proxies:
    """The links of one cluster. toxiproxy-python knows one server a process, so there is one at a time."""

    def __init__(self, members: Mapping[str, str], log: Path) -> None:
        """`members`: addresses by node. Raises NoToxiproxy."""
        self.server = Toxiproxy()
        self._process: subprocess.Popen[bytes] | None = None
        self._members: dict[str, str] = {}
        self._links: dict[Link, Proxy] = {}
        self._spoilt = 0  # times, so that toxics have names of their own
        given = os.environ.get("TARRY_TOXIPROXY", "")
        host, port = given.rsplit(":", 1) if given else ("127.0.0.1", str(free_ports(1)[0]))
        self.server.update_api_consumer(host, int(port))
        if not given:
            self._start(port, log)
        self._wait(given or port)
        for name, address in members.items():
            self.add(name, address)

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

    def add(self, name: str, address: str) -> None:
        """Make the links of one more node, both ways."""
        for other, other_address in self._members.items():
            self._make((name, other), other_address)
            self._make((other, name), address)
        self._make((CLIENT, name), address)
        self._members[name] = address

    def _make(self, link: Link, upstream: str) -> None:
        name = f"{os.getpid()}-{link[0]}-{link[1]}"
        self._links[link] = self.server.create(upstream=upstream, name=name, listen="127.0.0.1:0")

    def dial(self, who: str) -> dict[str, str]:
        """Return where a node, or CLIENT, reaches each member: link's address by the member's."""
        return {
            self._members[whom]: proxy.listen
            for (dialler, whom), proxy in self._links.items()
            if dialler == who
        }

    def links(self, *, clients: bool = True) -> list[Link]:
        """Return all links; those between nodes only where asked for."""
        return [link for link in self._links if clients or link[0] != CLIENT]

    def cut(self, links: Iterable[Link]) -> None:
        """Break the links' connections and refuse new ones: both ends know."""
        for link in links:
            self._links[link].disable()

    def mend(self, links: Iterable[Link]) -> None:
        """Undo `cut`."""
        for link in links:
            self._links[link].enable()

    def spoil(self, links: Iterable[Link], kind: str, stream: str = "", **attributes: int) -> None:
        """Put one of toxiproxy's toxics on the links; `stream` upstream or downstream, or both.

        `timeout` with timeout=0 swallows everything and keeps connections open: a half-open link.
        """
        self._spoilt += 1
        for link in links:
            for way in (stream,) if stream else ("upstream", "downstream"):
                name = f"{kind}_{way}_{self._spoilt}"
                self._links[link].add_toxic(type=kind, stream=way, name=name, attributes=attributes)

    def heal(self) -> None:
        """Enable every link and take every toxic off."""
        for proxy in self._links.values():
            for toxic in proxy.toxics():
                proxy.destroy_toxic(toxic)
            proxy.enable()

    def close(self) -> None:
        """Remove the links, end the server if it was started here."""
        if self._process is None:
            for proxy in self._links.values():
                proxy.destroy()
        else:
            self._process.kill()
            self._process.wait()
        self._links.clear()


def between(side: Iterable[str], others: Iterable[str]) -> list[Link]:
    """Return the links between two sets of nodes, both ways."""
    return [link for a in side for b in others if a != b for link in ((a, b), (b, a))]
