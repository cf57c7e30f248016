"""`tarry dev`: a cluster on this machine in one command, for trying things out.

It watches its nodes: one that ends, be it by a `kill -9` to see a failover, is told of and started again.
"""

from __future__ import annotations

import json
import signal
import socket
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from tarry.client.local.cluster import LocalCluster, LocalClusterError, LocalNode
from tarry.client.local.free_ports import free_ports
from tarry.proto.extras import require

WATCH_S = 0.2
RESTART_AFTER_S = 2.0
RESTARTS_MAX = 5  # of one node in a row, each within STEADY_S of its start
STEADY_S = 10.0


def dev(
    nodes: Annotated[int, typer.Option(min=1, max=9, help="How many nodes.")] = 3,
    port: Annotated[int, typer.Option(min=0, max=65_000, help="Port of the first; 0: any free ones.")] = 7001,
    data: Annotated[
        Path | None, typer.Option(help="Folder to keep; without it a temporary one, removed at the end.")
    ] = None,
    output: Annotated[
        str, typer.Option("-o", "--output", help="table, or json: one line when ready.")
    ] = "table",
) -> None:
    """Run a cluster of real nodes on this machine until Ctrl-C.

    Exit codes: 0 ended as asked, 2 usage, 3 the nodes did not come up.
    """
    require("node")
    if output not in {"table", "json"}:
        raise typer.BadParameter(f"{output!r} is neither table nor json", param_hint="--output")
    ports = free_ports(nodes) if port == 0 else tuple(range(port, port + nodes))
    if taken := [str(number) for number in ports if not _free(number)]:
        raise typer.BadParameter(f"in use: {', '.join(taken)}; try --port 0", param_hint="--port")
    signal.signal(signal.SIGTERM, _interrupt)
    console = Console(stderr=output == "json")
    try:
        if data is not None:
            data.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise typer.BadParameter(str(error), param_hint="--data") from None
    with ExitStack() as stack:
        folder = data or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tarry-dev-")))
        cluster = stack.enter_context(LocalCluster(nodes, folder.absolute(), ports=ports))
        try:
            with console.status(f"starting {nodes} nodes in {folder}"):
                cluster.start()
                leader = cluster.wait_until_serving()
            _announce(cluster, leader, console, as_json=output == "json")
            Watch(cluster, console).run()
        except KeyboardInterrupt:
            console.print("stopping")
        except LocalClusterError as error:
            console.print(str(error), markup=False, highlight=False)
            raise typer.Exit(3) from None


def _free(port: int) -> bool:
    with socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # a port in TIME_WAIT is free
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _announce(cluster: LocalCluster, leader: str, console: Console, *, as_json: bool) -> None:
    if as_json:
        nodes = [
            {"node": node.name, "address": node.address, "pid": _pid(node), "log": str(node.log)}
            for node in cluster.nodes.values()
        ]
        print(json.dumps({"servers": cluster.addresses, "leader": leader, "nodes": nodes}), flush=True)
        return
    table = Table("node", "address", "pid", "log", title="tarry dev")
    for node in cluster.nodes.values():
        name = f"{node.name} (leads)" if node.name == leader else node.name
        table.add_row(name, node.address, str(_pid(node)), str(node.log))
    console.print(table)
    console.print(
        f"Try, in another terminal:\n"
        f"  export TARRY_SERVER={cluster.addresses}\n"
        f"  tarry consume greetings --group readers\n"
        f"  tarry schedule greetings 'hello later' --delay 5s\n"
        f"Ctrl-C ends it.",
        highlight=False,
        soft_wrap=True,
    )


def _pid(node: LocalNode) -> int:
    return node.process.pid if node.process else 0


class Watch:
    """Starts nodes again that end by themselves, but not for ever."""

    def __init__(self, cluster: LocalCluster, console: Console) -> None:
        self.cluster = cluster
        self.console = console
        self.started_s = dict.fromkeys(cluster.nodes, time.monotonic())
        self.failures = dict.fromkeys(cluster.nodes, 0)
        self.due_s: dict[str, float] = {}

    def run(self) -> None:
        """Watch until interrupted; raises LocalClusterError when a node cannot stay up."""
        while True:
            self.look(time.monotonic())
            time.sleep(WATCH_S)

    def look(self, now_s: float) -> None:
        for name, node in self.cluster.nodes.items():
            if node.running:
                continue
            if name not in self.due_s:
                self._ended(node, now_s)
            elif now_s >= self.due_s[name]:
                del self.due_s[name]
                self.cluster.start(name)
                self.started_s[name] = now_s
                self.console.print(f"{name} started again as {_pid(node)}", highlight=False)

    def _ended(self, node: LocalNode, now_s: float) -> None:
        steady = now_s - self.started_s[node.name] > STEADY_S
        self.failures[node.name] = 1 if steady else self.failures[node.name] + 1
        code = node.process.returncode if node.process else 0
        why = f"by signal {-code}" if code < 0 else f"with {code}"
        if self.failures[node.name] > RESTARTS_MAX:
            raise LocalClusterError(f"{node.name} ended {why}, again and again\n{node.log_tail()}")
        self.console.print(
            f"{node.name} ended {why}; starting it again in {RESTART_AFTER_S:g} s", highlight=False
        )
        self.due_s[node.name] = now_s + RESTART_AFTER_S
