"""A local cluster that writes down what is done to it, for coroutines.

Every fault becomes an event of the history, with the moment at which it was done, so that checks and figures
can be set against it. Waiting happens in a thread, starting does not (see LocalCluster).
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, Self

from tarry.chaos.cluster.network_namespaces import Namespaces
from tarry.chaos.cluster.proxies import CLIENT, Proxies
from tarry.chaos.history import Event
from tarry.client.aio import Client, connect
from tarry.client.local.cluster import LocalCluster, LocalNode, Setting, local_node, own, toml
from tarry.client.local.free_ports import free_ports


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def mono_ms() -> int:
    return time.monotonic_ns() // 1_000_000


class Cluster:
    """`async with Cluster(3, folder) as cluster:` is a cluster that serves."""

    def __init__(
        self, size: int, folder: Path, *, linked: bool = False, namespaces: bool = False, **settings: Setting
    ) -> None:
        """Make the nodes; `linked`: every path through a toxiproxy server. Raises NoToxiproxy.

        `namespaces`: each node in a network namespace of its own; only if `no_namespaces` has no objection.
        """
        names = [f"n{number}" for number in range(1, size + 1)]
        self._namespaces = Namespaces(names) if namespaces else None
        hosts = tuple(map(self._namespaces.host, names)) if self._namespaces else ()
        self.local = LocalCluster(size, folder, settings, hosts=hosts)
        self.events: list[Event] = []
        self.proxies: Proxies | None = None
        if self._namespaces is not None:
            for name, node in self.local.nodes.items():
                node.prefix = self._namespaces.prefix(name)
        if linked:
            self.proxies = Proxies(self.local.nodes.values(), folder / "toxiproxy.log")
            for node in self.local.nodes.values():
                _add_dial(node, self.proxies)

    async def __aenter__(self) -> Self:
        try:
            self.start()
            await self.serving()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self.local.close()
        if self.proxies is not None:
            self.proxies.close()
        if self._namespaces is not None:
            self._namespaces.close()

    @property
    def links(self) -> Proxies:
        """The links of a linked cluster."""
        if self.proxies is None:
            raise ValueError("the cluster was made without links")
        return self.proxies

    @property
    def namespaces(self) -> Namespaces:
        """Namespaces of a cluster that was made with them."""
        if self._namespaces is None:
            raise ValueError("the cluster was made without namespaces")
        return self._namespaces

    def heal(self) -> None:
        """Take every fault off the network."""
        if self.proxies is not None:
            self.proxies.heal()
        if self._namespaces is not None:
            self._namespaces.heal()

    @property
    def dial(self) -> dict[str, str]:
        """Addresses at which clients reach each node, by the node's own address."""
        if self.proxies is None:
            return {node.address: node.address for node in self.local.nodes.values()}
        return self.proxies.dial(CLIENT)

    def connect(self, **settings: Any) -> Client:
        """Return a client that goes through the links, if there are any."""
        return connect(self.addresses, dial=self.dial, **settings)

    @property
    def addresses(self) -> str:
        return self.local.addresses

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.local.nodes)

    def happened(self, name: str, node: str = "") -> Event:
        """Write down something done to the cluster, or to one node of it."""
        event = Event(name, node, now_ms(), mono_ms())
        self.events.append(event)
        return event

    def start(self, *names: str) -> None:
        for name in names or self.names:
            self.local.start(name)
            self.happened("start", name)

    def kill(self, name: str) -> Event:
        """Crash a node (SIGKILL)."""
        event = self.happened("kill", name)
        self.local.kill(name)
        return event

    def lose_power(self, *names: str) -> Event:
        """End nodes at the same moment, as a loss of their machines' power does; return when it began."""
        events = [self.happened("kill", name) for name in names]
        for name in names:
            self.local.pause(name)  # a process that is killed and waited for leaves time to the next one
        for name in names:
            self.local.kill(name)
        return events[0]

    def pause(self, name: str) -> Event:
        event = self.happened("pause", name)
        self.local.pause(name)
        return event

    def resume(self, name: str) -> Event:
        self.local.resume(name)
        return self.happened("resume", name)

    async def stop(self, name: str) -> int:
        """End a node as an operator would; return its exit code."""
        self.happened("stop", name)
        return await asyncio.to_thread(self.local.stop, name)

    async def restart(self, name: str) -> None:
        if self.local.nodes[name].running:
            await self.stop(name)
        self.start(name)

    def newcomer(self, name: str) -> LocalNode:
        """Return a node that is no member yet, linked as the others are, and not started."""
        port, peer_port = free_ports(2)
        node = local_node(name, port, peer_port, self.local.folder)
        self.rejoin(node)
        self.local.nodes[name] = node
        if self.proxies is not None:
            self.proxies.add(node)
            for each in self.local.nodes.values():
                _add_dial(each, self.proxies)
        return node

    def rejoin(self, node: LocalNode) -> None:
        """Have a node wait to be made a member, knowing the others."""
        members = {each.name: each.address for each in self.local.nodes.values() if each.name != node.name}
        lines = toml({**own(node), "join": True, "members": members, **self.local.settings})
        node.config.write_text("".join(f"{line}\n" for line in lines))
        if self.proxies is not None and node.name in self.local.nodes:
            _add_dial(node, self.proxies)

    async def leader(self, timeout_s: float = 30.0) -> str:
        """Return the node that leads and may serve, waiting for one to do."""
        return await asyncio.to_thread(self.local.wait_for_leader, timeout_s)

    async def serving(self, timeout_s: float = 30.0) -> str:
        """Wait until every running node knows the leader; return it."""
        return await asyncio.to_thread(self.local.wait_until_serving, timeout_s)

    async def term(self) -> int:
        """Return the highest term that any node is in."""
        statuses = await asyncio.to_thread(lambda: list(self.local.statuses()))
        return max(status.term for status in statuses)


def _add_dial(node: LocalNode, proxies: Proxies) -> None:
    """Tell a node where its links are; those of nodes that came later, too."""
    config = node.config.read_text().split('["dial"]', maxsplit=1)[0]
    table = "".join(f"{line}\n" for line in toml({"dial": proxies.dial(node.name)}))
    node.config.write_text(config + table)
