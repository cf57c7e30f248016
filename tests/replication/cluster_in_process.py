"""Replicas over real gRPC and journals on disk in one process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import google_crc32c
import grpc.aio

from tarry.client.local.free_ports import free_ports
from tarry.proto.tarry_peer_pb2 import LogPosition, SnapshotFile, SnapshotManifest
from tarry.replication.clock import Clock, SystemClock
from tarry.replication.driver.driver import Driver
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.settings import ReplicationSettings
from tarry.replication.status import Role
from tarry.replication.transport.grpc_options import server_options
from tarry.replication.transport.peer_transport import PeerTransport


class Recorder:
    """A machine whose state is the list of commands; the outcome of each is its place."""

    def __init__(self) -> None:
        self.applied_index = 0
        self.commands: list[bytes] = []

    def apply(self, index: int, term: int, commands: Sequence[bytes]) -> Sequence[int]:
        assert index == self.applied_index + 1
        self.applied_index = index
        first = len(self.commands)
        self.commands.extend(commands)
        return range(first, len(self.commands))


class RecorderSnapshot:
    """The recorder's state as one file, frozen."""

    def __init__(self, machine: Recorder) -> None:
        self._data = b"".join(len(command).to_bytes(4, "big") + command for command in machine.commands)
        file = SnapshotFile(
            name="commands", size_bytes=len(self._data), crc32c=google_crc32c.value(self._data)
        )
        self.manifest = SnapshotManifest(position=LogPosition(index=machine.applied_index), files=[file])

    def read(self, file: int, offset: int, size_bytes: int) -> bytes:
        return self._data[offset : offset + size_bytes]

    def close(self) -> None: ...


class RecorderSnapshots:
    """Gives and takes the recorder's whole state."""

    def __init__(self, machine: Recorder) -> None:
        self.machine = machine
        self.installed = 0
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """What happens while a state is being opened."""
        self._index = 0
        self._data = b""

    async def open_snapshot(self) -> RecorderSnapshot:
        opened = RecorderSnapshot(self.machine)
        if self.meanwhile is not None:
            await self.meanwhile()
        return opened

    def kept(self) -> list[SnapshotFile]:
        return []

    def begin(self, manifest: SnapshotManifest) -> None:
        self._index, self._data = manifest.position.index, b""

    def write(self, file: int, offset: int, data: bytes) -> None:
        assert (file, offset) == (0, len(self._data))
        self._data += data

    def prove(self) -> None: ...

    def install(self) -> None:
        commands, offset = [], 0
        while offset < len(self._data):
            size = int.from_bytes(self._data[offset : offset + 4], "big")
            commands.append(self._data[offset + 4 : offset + 4 + size])
            offset += 4 + size
        self.machine.commands, self.machine.applied_index = commands, self._index
        self.installed += 1

    async def adopt(self) -> None: ...


class FastForward(SystemClock):
    """The system's clock with a monotonic time that can be put forward, for all replicas alike."""

    def __init__(self) -> None:
        self.ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Replica:
    def __init__(self, name: str, folder: Path, settings: ReplicationSettings, clock: Clock) -> None:
        self.name = name
        self.folder = folder
        self.settings = settings
        self.clock = clock
        self.machine = Recorder()
        self.heard: list[bytes] = []
        self.roles: list[Role] = []
        (port,) = free_ports(1)  # a connection takes no such port while the replica is stopped
        self.address = f"127.0.0.1:{port}"
        self.dial: dict[str, str] = {}
        """A peer's address -> where this replica reaches it."""

    async def listen(self) -> None:
        self.transport = PeerTransport(settings=self.settings, rng=random.Random(self.name), dial=self.dial)
        self.server = grpc.aio.server(options=server_options(self.settings))
        self.server.add_generic_rpc_handlers((self.transport.servicer.handler(),))
        self.server.add_insecure_port(self.address)
        await self.transport.listen("127.0.0.1")
        await self.server.start()

    def start(self, members: dict[str, str]) -> None:
        self.journal = Journal(WriteAheadLog(self.folder / self.name), incarnation=hash(self.name) % 2**64)
        self.snapshots = RecorderSnapshots(self.machine)
        self.driver = Driver(
            node=self.name,
            members=members,
            journal=self.journal,
            machine=self.machine,
            transport=self.transport,
            clock=self.clock,
            rng=random.Random(self.name),
            settings=self.settings,
            heartbeat=lambda sent: b"state of " + self.name.encode(),
            on_heartbeat=lambda leader, state: self.heard.append(state),
            on_role=self.roles.append,
            snapshot_source=self.snapshots,
            snapshot_sink=self.snapshots,
        )
        self.task = asyncio.create_task(self.driver.run())

    async def stop(self) -> None:
        await self.driver.stop()
        try:
            await self.task
        finally:
            await self.server.stop(None)  # one that is only forgotten can block the garbage collection
            self.journal.close()


class Cluster:
    def __init__(self, folder: Path, names: Sequence[str] = ("n1", "n2", "n3"), **settings: int) -> None:
        self.folder = folder
        self.settings = ReplicationSettings(  # a busy machine costs nobody the leadership
            **{
                "retained_bytes_max": 1_000,
                "election_min_ms": 1_500,
                "election_max_ms": 3_000,
                "fallback_ms": 1_400,
                **settings,
            },  # type: ignore[arg-type]
        )
        self.clock = FastForward()
        self.replicas = {name: Replica(name, folder, self.settings, self.clock) for name in names}
        self.running: set[str] = set()

    async def __aenter__(self) -> Cluster:
        for replica in self.replicas.values():
            await replica.listen()
        await self.link()
        for name, replica in self.replicas.items():
            replica.start(self.members)
            self.running.add(name)
        return self

    async def link(self) -> None:
        """What lies between the replicas, which listen and have not spoken yet: nothing."""

    async def __aexit__(self, *_: object) -> None:
        for name in list(self.running):
            await self.stop(name)

    @property
    def members(self) -> dict[str, str]:
        return {name: replica.address for name, replica in self.replicas.items()}

    async def stop(self, name: str) -> None:
        self.running.discard(name)
        await self.replicas[name].stop()

    async def join(self, name: str) -> Replica:
        """A new replica that knows the cluster and is not of it."""
        members = self.members
        replica = self.replicas[name] = Replica(name, self.folder, self.settings, self.clock)
        await replica.listen()
        replica.start(members)
        self.running.add(name)
        return replica

    async def restart(self, name: str) -> None:
        """With an empty machine: everything comes from the journal."""
        replica = self.replicas[name]
        replica.machine = Recorder()
        await replica.listen()
        replica.start(self.members)
        self.running.add(name)

    async def leader(self, *but: str) -> Replica:
        """Return the replica that may serve, with time put forward as long as none is elected."""

        async def serving() -> Replica:
            while True:
                for name in self.running - set(but):
                    replica = self.replicas[name]
                    if replica.task.done():
                        replica.task.result()
                    if replica.driver.may_serve():
                        return replica
                if not any(self.replicas[name].driver.status().role is Role.LEADER for name in self.running):
                    self.clock.ahead_s += 0.1
                    for name in self.running:
                        self.replicas[name].driver.beat()  # wakes it
                await asyncio.sleep(0.005)

        return await asyncio.wait_for(serving(), 30)

    async def until_equal(self) -> None:
        async def equal() -> None:
            while len({tuple(self.replicas[name].machine.commands) for name in self.running}) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

        await asyncio.wait_for(equal(), 30)

    async def until_role(self, name: str, role: Role) -> None:
        """Return once a replica has told its role: at the end of a turn, which may apply before it writes."""

        async def told() -> None:
            while self.replicas[name].roles[-1] is not role:  # noqa: ASYNC110
                await asyncio.sleep(0.005)

        await asyncio.wait_for(told(), 30)
