"""The two systems that RocketMQ's clients are measured at, each with all its processes on this machine.

clients ─► gateway ─► three nodes of tarry
clients ─► RocketMQ's proxy ─► its master with a timer wheel ─► two slaves
"""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Final, NamedTuple

from tarry.bench.nodes import serving
from tarry.bench.side_by_side.peers.rocketmq import FOLDER, Rocketmq, java
from tarry.bench.side_by_side.servers import Server
from tarry.client.aio import connect
from tarry.client.local.free_ports import free_ports

PROXY_MIB: Final = 512


class System(NamedTuple):
    """A system under measurement."""

    missing: Callable[[], str]
    """Says what is not there that it needs; empty: nothing."""
    running: Callable[[Path, Sequence[str]], AbstractAsyncContextManager[str]]
    """Has it run with these topics, its files below a folder, and yields the address for clients."""


def tarry_missing() -> str:
    return ""


@asynccontextmanager
async def tarry(folder: Path, topics: Sequence[str]) -> AsyncIterator[str]:
    """Run three nodes and a gateway. Raises PeerFailed."""
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    command = [sys.executable, "-m", "tarry.node", "gateway", "rocketmq", "--listen", address]
    with serving(folder=folder) as cluster:
        async with connect(cluster.addresses) as client:
            operator = client.operator()
            await operator.finish_upgrade()
            for topic in topics:
                await operator.create_topic(topic)
        gateway = Server(command, folder, "gateway", {"TARRY_SERVER": cluster.addresses})
        gateway.start()
        try:
            await gateway.wait_for_port(port)
            yield address
        finally:
            gateway.stop()


def rocketmq_missing() -> str:
    """Return what of RocketMQ is not there."""
    if said := Rocketmq().missing():
        return said
    there = any(FOLDER.glob("lib/rocketmq-proxy-*.jar"))
    return "" if there else "no proxy of RocketMQ: run bench/side_by_side/install"


@asynccontextmanager
async def rocketmq(folder: Path, topics: Sequence[str]) -> AsyncIterator[str]:
    """Run a master that flushes before it answers, two slaves and a proxy. Raises PeerFailed."""
    peer = Rocketmq()
    await peer.start(folder)
    try:
        for topic in topics:
            await peer.open(topic)
        port, other_port = free_ports(2)
        config = folder / "proxy.json"
        settings = {
            "rocketMQClusterName": "bench",
            "grpcServerPort": port,
            "remotingListenPort": other_port,
            "useEndpointPortFromRequest": True,
        }
        config.write_text(json.dumps(settings))
        told = ("-pm", "cluster", "-pc", str(config), "-n", peer.name_server)
        command = java(folder / "proxy", PROXY_MIB, "org.apache.rocketmq.proxy.ProxyStartup", *told)
        proxy = Server(command, folder, "proxy")
        proxy.start()
        try:
            await proxy.wait_for_port(port)
            yield f"127.0.0.1:{port}"
        finally:
            proxy.kill()  # its folder goes anyway
    finally:
        await peer.stop()


SYSTEMS: Final = {"tarry": System(tarry_missing, tarry), "rocketmq": System(rocketmq_missing, rocketmq)}
