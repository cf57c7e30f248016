"""A cluster of real node processes on this machine, each with its own folder, log and port.

    folder/n1/        data of the node
    folder/n1.toml    its configuration
    folder/n1.log     what it printed, over all its lives

`tarry dev` runs one for a person; tests and faults run them to kill them. Only processes that were started
here are ever signalled, and no node outlives the process that started it, however that one ends.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import grpc

from tarry.client.local.free_ports import free_ports
from tarry.proto import bearer_token, tarry_operator_pb2, tarry_operator_pb2_grpc

POLL_S = 0.05
STOP_S = 15.0
BUSY_S = 5.0
"""Within which a leader answers that has all that its processor can do: a call may wait for more than 1 s."""

# Runs in the child: it dies with its parent (Linux), then becomes the node. A start-up script rather
# than preexec_fn, which is not safe in a process with threads.
LAUNCH = """
import ctypes, os, signal, sys
parent = int(sys.argv[1])
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != parent:
    sys.exit("the process that started this node is gone")
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""


Setting: TypeAlias = "str | int | float | bool | Sequence[Setting] | Mapping[str, Setting]"


class LocalClusterError(RuntimeError):
    """A node of a local cluster did not follow a command; the text ends with the tail of its log."""


@dataclass(slots=True)
class LocalNode:
    """One node: where it is, and its process while it has one."""

    name: str
    address: str
    peer_address: str  # where other nodes' streams come in
    folder: Path
    environment: dict[str, str] = field(default_factory=dict)  # of its processes, beside ours
    prefix: tuple[str, ...] = ()  # comes before its command: what runs it elsewhere, and becomes it
    python: str = sys.executable  # the interpreter that it is run by
    process: subprocess.Popen[bytes] | None = None
    paused: bool = False
    starts: int = 0

    @property
    def config(self) -> Path:
        return self.folder.with_name(f"{self.name}.toml")

    @property
    def log(self) -> Path:
        return self.folder.with_name(f"{self.name}.log")

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_tail(self, lines: int = 25) -> str:
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


@dataclass(slots=True)
class LocalCluster:
    """Nodes n1, n2, … on free ports of 127.0.0.1, or of `hosts`; a context manager that ends them all.

    `settings` are further keys of every node's configuration. Nodes have to be started from the main
    thread: Linux ends a child that asked for it when the thread that started it ends.
    """

    size: int
    folder: Path
    settings: Mapping[str, Setting] = field(default_factory=dict, repr=False)  # they may hold tokens
    ports: tuple[int, ...] = ()
    token: str = field(default="", repr=False)  # to ask nodes with, where they want one
    hosts: tuple[str, ...] = ()  # one for each node
    nodes: dict[str, LocalNode] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        ports = self.ports or free_ports(self.size)
        peer_ports = [port for port in free_ports(2 * self.size) if port not in ports]
        if len(ports) != self.size:
            raise ValueError(f"{self.size} nodes want {self.size} ports, not {len(ports)}")
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        hosts = self.hosts or ("127.0.0.1",) * self.size
        for number, (host, port, peer_port) in enumerate(zip(hosts, ports, peer_ports, strict=False), 1):
            name = f"n{number}"
            self.nodes[name] = local_node(name, port, peer_port, self.folder, host)
        for node in self.nodes.values():
            node.config.touch(mode=0o600)  # settings may hold tokens
            node.config.write_text(self._config(node))
        atexit.register(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: TracebackType | None) -> None:
        self.close()

    def _config(self, node: LocalNode) -> str:
        members = {other.name: other.address for other in self.nodes.values()}
        return "".join(f"{line}\n" for line in toml({**own(node), "members": members, **self.settings}))

    @property
    def addresses(self) -> str:
        """All addresses, as a client takes them."""
        return ",".join(node.address for node in self.nodes.values())

    def start(self, *names: str) -> None:
        """Start the named nodes, or all; one that runs already is left alone."""
        for name in names or self.nodes:
            node = self.nodes[name]
            if node.running:
                continue
            node.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            node.log.touch(mode=0o600)
            with node.log.open("ab") as log:
                node.process = subprocess.Popen(
                    [*node.prefix, node.python, "-c", LAUNCH, str(os.getpid()), *command(node.config)],
                    env={**os.environ, **node.environment},
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # a Ctrl-C in the terminal is ours to pass on
                )
            node.starts += 1
            node.paused = False

    def stop(self, name: str, patience_s: float = STOP_S) -> int:
        """End a node as an operator would (SIGTERM) and return its exit code; raise if it does not end."""
        node = self.nodes[name]
        process = self._signal(node, signal.SIGTERM)
        self.resume(name)
        try:
            return process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self.kill(name)
            raise LocalClusterError(f"{name} ignored SIGTERM for {patience_s} s\n{node.log_tail()}") from None

    def kill(self, name: str) -> None:
        """End a node at once (SIGKILL), as a crash would."""
        self._signal(self.nodes[name], signal.SIGKILL).wait()

    def pause(self, name: str) -> None:
        """Freeze a node (SIGSTOP): it keeps its connections and says nothing."""
        self._signal(self.nodes[name], signal.SIGSTOP)
        self.nodes[name].paused = True

    def resume(self, name: str) -> None:
        if self.nodes[name].paused:
            self._signal(self.nodes[name], signal.SIGCONT)
            self.nodes[name].paused = False

    def restart(self, name: str) -> None:
        """Stop the node if it runs, and start it on the data it has."""
        if self.nodes[name].running:
            self.stop(name)
        self.start(name)

    def close(self) -> None:
        """End every process that is left, first kindly, then not."""
        atexit.unregister(self.close)
        left = [node for node in self.nodes.values() if node.running]
        for node in left:
            self._signal(node, signal.SIGTERM)
            self.resume(node.name)
        deadline = time.monotonic() + STOP_S
        for node in left:
            try:
                self._process(node).wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.kill(node.name)

    def _process(self, node: LocalNode) -> subprocess.Popen[bytes]:
        if node.process is None:
            raise LocalClusterError(f"{node.name} was never started")
        return node.process

    def _signal(self, node: LocalNode, number: signal.Signals) -> subprocess.Popen[bytes]:
        process = self._process(node)
        process.send_signal(number)  # does nothing to a process that has been waited for
        return process

    def status(
        self, name: str, timeout_s: float = 1.0, *, digest: bool = False
    ) -> tarry_operator_pb2.ClusterStatusResponse | None:
        """Return what a node says about the cluster, None if it does not answer in time."""
        with grpc.insecure_channel(self.nodes[name].address, CHANNEL) as channel:
            stub = tarry_operator_pb2_grpc.OperatorServiceStub(channel)
            try:
                answer: tarry_operator_pb2.ClusterStatusResponse = stub.ClusterStatus(
                    tarry_operator_pb2.ClusterStatusRequest(digest=digest),
                    timeout=timeout_s,
                    metadata=bearer_token.metadata(self.token),
                )
            except grpc.RpcError:
                return None
        return answer

    def statuses(
        self, timeout_s: float = 1.0, *, digest: bool = False
    ) -> Iterator[tarry_operator_pb2.ClusterStatusResponse]:
        """Yield the answer of every node that runs and answers in time."""
        for node in list(self.nodes.values()):  # another may join meanwhile
            if (
                node.running
                and not node.paused
                and (status := self.status(node.name, timeout_s, digest=digest)) is not None
            ):
                yield status

    def leader(self, timeout_s: float = 1.0) -> str | None:
        """Return the node that leads and may serve, by its own word; the newest term if two think so."""
        leading = [(status.term, status.node) for status in self.statuses(timeout_s) if status.lease]
        return max(leading)[1] if leading else None

    def wait_for_leader(self, timeout_s: float = 30.0) -> str:
        """Return the leader as soon as there is one; under bulk it may take seconds to say so."""
        return self._until(partial(self.leader, BUSY_S), timeout_s, "no node leads")

    def wait_until_serving(self, timeout_s: float = 30.0) -> str:
        """Wait until every node that runs has answered and knows the leader; return the leader."""

        def agreed() -> str | None:
            expected = sum(node.running and not node.paused for node in self.nodes.values())
            answers = list(self.statuses(BUSY_S))
            leading = [status.node for status in answers if status.lease]
            known = {status.leader for status in answers}
            return leading[0] if len(answers) == expected and known == {*leading} and leading else None

        return self._until(agreed, timeout_s, "the nodes do not agree on a leader")

    def _until(self, ready: Callable[[], str | None], timeout_s: float, complaint: str) -> str:
        deadline = time.monotonic() + timeout_s
        while True:
            if (found := ready()) is not None:
                return found
            for node in self.nodes.values():
                code = node.process.poll() if node.process is not None else None
                if code not in {None, 0, -signal.SIGKILL}:
                    raise LocalClusterError(f"{node.name} exited with {code}\n{node.log_tail()}")
            if time.monotonic() > deadline:
                tails = "\n".join(f"-- {node.name}\n{node.log_tail()}" for node in self.nodes.values())
                raise LocalClusterError(f"{complaint} after {timeout_s} s\n{tails}")
            time.sleep(POLL_S)


def local_node(name: str, port: int, peer_port: int, folder: Path, host: str = "127.0.0.1") -> LocalNode:
    """Return a node at these ports of the host, with its data in the folder of its name."""
    return LocalNode(name, f"{host}:{port}", f"{host}:{peer_port}", folder / name)


def own(node: LocalNode) -> dict[str, Setting]:
    """Return what the configuration of a node says of itself."""
    return {
        "node": node.name,
        "data": str(node.folder),
        "listen": node.address,
        "peer_listen": node.peer_address,
    }


# a channel for one short question: no sharing of a broken connection, quick to try again
CHANNEL = [("grpc.use_local_subchannel_pool", 1), ("grpc.initial_reconnect_backoff_ms", 50)]


def toml(values: Mapping[str, Setting], table: str = "") -> Iterator[str]:
    """Yield the lines of a TOML document; tables come last, where TOML wants them."""
    tables = {key: value for key, value in values.items() if isinstance(value, Mapping)}
    for key, value in values.items():
        if key not in tables:
            yield f"{json.dumps(key)} = {json.dumps(value)}"  # JSON's scalars and arrays are TOML's
    for key, value in tables.items():
        name = f"{table}{json.dumps(key)}"
        yield f"[{name}]"
        yield from toml(value, f"{name}.")


def command(config: Path) -> tuple[str, ...]:
    """Return the arguments after the interpreter that run a node."""
    return ("-m", "tarry.node", "node", "--config", str(config))
