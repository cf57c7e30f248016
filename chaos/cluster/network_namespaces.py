"""Nodes in network namespaces of their own (Linux, root): packets vanish, and nobody is told.

    n1 [eth0 198.18.x.1]──veth──┐
    n2 [eth0 198.18.x.2]──veth──┤ bridge 198.18.x.254 ── clients
    n3 [eth0 198.18.x.3]──veth──┘

A proxy can break a connection or swallow what is in it; here the connection stays, and neither end learns
anything until its own patience is over. What is to be lost is sent to a link-layer address that nobody has.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache

from tarry.chaos.cluster.proxies import CLIENT, Link

NOBODY = "02:00:00:00:00:01"
ROOT_HOST = 254


@cache
def no_namespaces() -> str:
    """Return why there can be no namespaces here; empty: there can."""
    if os.geteuid() != 0:
        return "links that lose packets take root, who may make network namespaces"
    if shutil.which("ip") is None:
        return "links that lose packets take `ip` (iproute2), which is not installed"
    try:
        namespaces = Namespaces(["probe"])
    except subprocess.CalledProcessError as error:
        return f"network namespaces cannot be made here: {error.stderr.strip()}"
    namespaces.close()
    return ""


class Namespaces:
    """A namespace, a cable and an address for each node, and one bridge between them."""

    def __init__(self, names: Sequence[str]) -> None:
        """Make the namespaces. Raises CalledProcessError where the system refuses."""
        self._mark = f"ty{os.getpid() % 100_000}"
        self._net = f"198.18.{os.getpid() % 256}"  # RFC 2544: for tests of networks, never on the internet
        self._hosts = {name: number for number, name in enumerate(names, 1)}
        self._cut: set[Link] = set()
        atexit.register(self.close)
        try:
            self._build()
        except BaseException:
            self.close()
            raise

    def _build(self) -> None:
        bridge = f"{self._mark}b"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("address", "add", f"{self._net}.{ROOT_HOST}/24", "dev", bridge)
        _ip("link", "set", bridge, "up")
        for name, number in self._hosts.items():
            space, cable = self._space(name), f"{self._mark}v{number}"
            _ip("netns", "add", space)
            _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
            _ip("link", "set", cable, "master", bridge, "up")
            _ip("-n", space, "link", "set", "lo", "up")
            _ip("-n", space, "address", "add", f"{self.host(name)}/24", "dev", "eth0")
            _ip("-n", space, "link", "set", "eth0", "up")

    def _space(self, name: str) -> str:
        return f"{self._mark}-{name}"

    def host(self, name: str) -> str:
        """Return the address of a node, or of CLIENT."""
        return f"{self._net}.{self._hosts.get(name, ROOT_HOST)}"

    def prefix(self, name: str) -> tuple[str, ...]:
        """Return what comes before a command that is to run in a node's namespace."""
        return ("ip", "netns", "exec", self._space(name))

    def links(self, *, clients: bool = True) -> list[Link]:
        """Return all links: who sends, and to whom."""
        names = [*self._hosts, CLIENT] if clients else [*self._hosts]
        return [(one, other) for one in names for other in names if one != other]

    def cut(self, links: Iterable[Link]) -> None:
        """Lose every packet from the first to the second of each link; what was open stays open."""
        for link in links:
            self._neighbour(link, "replace", "lladdr", NOBODY, "nud", "permanent")
            self._cut.add(link)

    def mend(self, links: Iterable[Link]) -> None:
        """Undo `cut`."""
        for link in links:
            self._neighbour(link, "del")
            self._cut.discard(link)

    def heal(self) -> None:
        """Mend all that is cut."""
        self.mend(list(self._cut))

    def _neighbour(self, link: Link, *change: str) -> None:
        who, whom = link
        here = [] if who == CLIENT else ["-n", self._space(who)]
        device = f"{self._mark}b" if who == CLIENT else "eth0"
        verb, *rest = change
        _ip(*here, "neighbour", verb, self.host(whom), "dev", device, *rest)

    def close(self) -> None:
        """Take everything away again."""
        atexit.unregister(self.close)
        for name in self._hosts:
            subprocess.run(["ip", "netns", "del", self._space(name)], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", f"{self._mark}b"], check=False, capture_output=True)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
