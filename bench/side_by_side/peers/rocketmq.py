"""RocketMQ: a master with a timer wheel and two slaves, spoken to by its own Java client.

    bench ─(frames over a pipe)─► RocketmqClient ─► master ─► slaves
                                                      └─(due)─► RocketmqClient ─► bench

Delayed messages cannot be sent in batches: a batch is one send a message, from THREADS threads.
"""

from __future__ import annotations

import asyncio
import itertools
import shutil
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np

from tarry.bench.side_by_side.servers import BUILT, PeerFailed, Server, folder_bytes, program, stop_all
from tarry.bench.side_by_side.system import DueMs, Durability, Peer, Take
from tarry.client.local.free_ports import free_ports

FOLDER: Final = BUILT.with_name("rocketmq")
THREADS: Final = 64
PRECISION_MS: Final = 100
OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.base/jdk.internal.ref",
)
"""Packages that its own start script opens for Java 17."""
HEADER: Final = struct.Struct(">IQc")
BODIES: Final = struct.Struct(">II")
BROKER: Final = {
    "brokerClusterName": "bench",
    "brokerName": "bench",
    "brokerIP1": "127.0.0.1",
    "brokerIP2": "127.0.0.1",
    "bindAddress": "127.0.0.1",
    "inSyncReplicas": 2,
    "timerWheelEnable": "true",
    "timerPrecisionMs": PRECISION_MS,
    "recallMessageEnable": "true",
    "brokerFastFailureEnable": "false",  # it refuses what has waited for 200 ms
}


class Rocketmq(Peer):
    """A master and two slaves; the master answers once it has flushed and one slave has received."""

    name = "rocketmq"
    server = "java"
    durability = Durability(
        3,
        False,
        "SYNC_MASTER, inSyncReplicas=2, SYNC_FLUSH: flushed by the master, received by a slave",
        lacks="fsync on the master only",
    )
    cancels = True
    starts_last = True
    in_flight_max = 2  # more only wait in the client
    lateness_note = f"its precision is {PRECISION_MS} ms, the finest that it can be told to have"

    def __init__(self, flush: str = "SYNC_FLUSH") -> None:
        """Take when a write is answered; `ASYNC_FLUSH`: before it is flushed."""
        self._flush = flush

    def missing(self) -> str:
        if not program(self.server) or not (FOLDER / "classes").is_dir():
            return f"no {self.name}: run bench/side_by_side/install (needs Maven and a JDK of Java 17)"
        return ""

    def version(self) -> str:
        return next(FOLDER.glob("lib/rocketmq-broker-*.jar")).stem.removeprefix("rocketmq-broker-")

    async def start(self, folder: Path) -> None:
        self._folder = folder
        named, *ports = free_ports(7)
        self.name_server = f"127.0.0.1:{named}"
        self._ports = ports[:3]
        config = folder / "names.conf"
        config.write_text(f"listenPort={named}\nbindAddress=127.0.0.1\n")
        names = java(folder / "names", 64, "org.apache.rocketmq.namesrv.NamesrvStartup", "-c", str(config))
        self._names = Server(names, folder, "names")
        self._servers = []
        for number, (port, ha_port) in enumerate(zip(ports[:3], ports[3:], strict=True)):
            config, home = folder / f"b{number}.conf", folder / f"b{number}"
            settings = {
                **BROKER,
                "brokerId": number,
                "brokerRole": "SLAVE" if number else "SYNC_MASTER",
                "flushDiskType": self._flush,
                "namesrvAddr": self.name_server,
                "listenPort": port,
                "haListenPort": ha_port,
                **({"haMasterAddress": f"127.0.0.1:{ports[3]}"} if number else {}),
                "storePathRootDir": home / "store",
                "storePathCommitLog": home / "store" / "commitlog",
            }
            config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            command = java(home, 512, "org.apache.rocketmq.broker.BrokerStartup", "-c", str(config))
            self._servers.append(Server(command, folder, f"b{number}"))
        self._names.start()
        await self._names.wait_for_port(named)
        self._client = Driver(folder, self.name_server, f"127.0.0.1:{ports[0]}")
        await self._client.start()
        await self.resume()

    async def resume(self) -> None:
        """Start the master first: a slave that finds none tries again after 5 s."""
        self._servers[0].start()
        await self._servers[0].wait_for_port(self._ports[0])
        for server in self._servers[1:]:
            server.start()
        await self._connect()

    async def _connect(self) -> None:
        """Wait until a slave receives what the master is sent, and the master counts what it has."""
        await self._client.ask(b"W")
        await self.pending()

    async def _disconnect(self) -> None:
        """Do nothing: the client connects anew by itself."""

    async def stop(self) -> None:
        for server in [*self._servers, self._names]:
            server.kill()  # the folder goes anyway
        await self._client.stop()

    async def open(self, lane: str) -> None:
        await self._client.ask(b"O", _text(lane))

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        size = BODIES.pack(len(bodies), len(bodies[0]))
        await self._client.ask(b"S", _text(lane), size, *bodies, due_ms.astype(">i8").tobytes())

    async def schedule(self, lane: str, body: bytes, due_ms: int) -> None:
        await self.schedule_batch(lane, [body], np.array([due_ms]))

    async def pending(self) -> int:
        return _number(await self._client.ask(b"P"))

    async def peek(self, lane: str, count: int) -> list[bytes]:
        return _bodies(await self._client.ask(b"K", _text(lane)))[:count]

    async def receive(self, lane: str, take: Take) -> None:
        deliveries = self._client.deliveries(b"R", _text(lane))
        done = False
        while not done:
            delivery = await deliveries.get()
            done = take(_bodies(delivery[8:]), float(_number(delivery[:8])))
        await self._client.ask(b"E", _text(lane))

    async def cancel(self, lane: str, count: int) -> int:
        await self._client.ask(b"C", _text(lane), struct.pack(">q", count))
        return count

    def processes(self) -> Mapping[str, Sequence[int]]:
        master, *slaves = (server.pid for server in self._servers)
        return {
            "leader": [master],
            "followers": slaves,
            "servers": [self._names.pid],
            "client": [self._client.pid],
        }

    async def disk_bytes(self) -> int:
        return folder_bytes(self._folder / "b0" / "store")

    async def halt(self) -> None:
        """Stop the slaves first: the master waits for them."""
        await stop_all(self._servers[1:])
        await stop_all(self._servers[:1])


class Driver:
    """The process of the Java client; requests are answered in any order."""

    def __init__(self, folder: Path, named: str, broker: str) -> None:
        self._log = folder / "client.log"
        self._command = java(folder / "client", 256, "RocketmqClient", named, broker, str(THREADS))
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._deliveries: dict[int, asyncio.Queue[bytes]] = {}

    @property
    def pid(self) -> int:
        return self._process.pid

    async def start(self) -> None:
        guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *guard, *self._command,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                limit=1 << 20, start_new_session=True,
            )  # fmt: skip
        self._reading = asyncio.ensure_future(self._read())

    async def stop(self) -> None:
        self._process.kill()
        await self._reading
        await self._process.wait()

    def ask(self, kind: bytes, *payload: bytes) -> asyncio.Future[bytes]:
        """Return the answer to come. Raises PeerFailed: the client refused or has ended."""
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self._send(number, kind, payload)
        return answer

    def deliveries(self, kind: bytes, *payload: bytes) -> asyncio.Queue[bytes]:
        """Ask for what comes without an end, and return where it comes."""
        number = next(self._numbers)
        queue = self._deliveries[number] = asyncio.Queue()
        self._send(number, kind, payload)
        return queue

    def _send(self, number: int, kind: bytes, payload: Sequence[bytes]) -> None:
        assert self._process.stdin is not None
        length = HEADER.size - 4 + sum(map(len, payload))
        self._process.stdin.write(b"".join([HEADER.pack(length, number, kind), *payload]))

    async def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            while True:
                head = await self._process.stdout.readexactly(HEADER.size)
                length, number, kind = HEADER.unpack(head)
                payload = await self._process.stdout.readexactly(length - HEADER.size + 4)
                if kind == b"D":
                    self._deliveries[number].put_nowait(payload)
                elif not (answer := self._answers.pop(number)).done():
                    if kind == b"A":
                        answer.set_result(payload)
                    else:
                        answer.set_exception(PeerFailed(payload.decode(errors="replace")))
        except asyncio.IncompleteReadError:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(PeerFailed(f"the client has ended: {self._log.read_text()[-500:]}"))


def java(home: Path, heap_mib: int, program: str, *arguments: str) -> list[str]:
    """Return a command with a small heap, whose files are all below `home`."""
    opened = [f"--add-{what}={each}=ALL-UNNAMED" for each in OPENED for what in ("opens", "exports")]
    heap = [f"-Xms{heap_mib}m", f"-Xmx{heap_mib}m", "-XX:+UseG1GC"]
    classes = f"{FOLDER}/classes:{FOLDER}/lib/*"
    own = [f"-Duser.home={home}", f"-Drocketmq.home.dir={home}", f"-Djava.io.tmpdir={home.parent}"]
    return ["java", *heap, *opened, *own, "-cp", classes, program, *arguments]


def _text(text: str) -> bytes:
    return struct.pack(">H", len(text)) + text.encode()


def _number(payload: bytes) -> int:
    return int.from_bytes(payload, "big", signed=True)


def _bodies(payload: bytes) -> list[bytes]:
    count, size = BODIES.unpack_from(payload)
    return [payload[start : start + size] for start in range(BODIES.size, BODIES.size + count * size, size)]
