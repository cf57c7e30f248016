"""The interface of a system under measurement: take messages, keep them, deliver them when due."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tarry.bench.side_by_side.servers import PeerFailed, Server, memory_bytes, program, stop_all

DueMs: TypeAlias = NDArray[np.int64]


class Take(Protocol):
    """Called with bodies as they arrive, or with when they did; true when everything has come."""

    def __call__(self, bodies: list[bytes], received_ms: float | None = None, /) -> bool: ...


@dataclass(frozen=True, slots=True)
class Durability:
    """The durability that an answer promises."""

    copies: int
    synced: bool  # on disk before the answer, on a majority where there are copies
    setting: str  # as the system's own configuration says it
    lacks: str = ""  # instead of "no fsync", where that is not all there is to say

    @property
    def mark(self) -> str:
        """Name what is missing, against a synced majority of three."""
        missing = [
            *(["one copy"] if self.copies == 1 else []),
            *([] if self.synced else [self.lacks or "no fsync"]),
        ]
        return ", ".join(missing)


class System(ABC):
    """One system with its servers and one client. A lane is a topic, queue, key or table of its own."""

    name: ClassVar[str]
    durability: ClassVar[Durability]
    delivers: ClassVar[bool] = True
    cancels: ClassVar[bool] = False
    fails_over: ClassVar[bool] = False
    batch_max: ClassVar[int] = 1_000  # messages of the largest request
    in_flight_max: ClassVar[int] = 32  # requests; more only wait in the client
    fewer_when_slow: ClassVar[bool] = True  # less of a mass expiry, and less pending, than the row is about
    starts_last: ClassVar[bool] = False  # after the others' turns: while idle, it takes too much from them
    lateness_note: ClassVar[str] = ""

    def __init__(self) -> None:
        self._gathering = Gathering(self.schedule_batch, self.batch_max)

    @abstractmethod
    def missing(self) -> str:
        """Say what has to be installed before this can run; empty: nothing."""

    @abstractmethod
    def version(self) -> str:
        """Return the server's version."""

    @abstractmethod
    async def start(self, folder: Path) -> None:
        """Start the servers with their data below `folder`, and connect."""

    @abstractmethod
    async def stop(self) -> None:
        """Disconnect, and end what was started."""

    @abstractmethod
    async def open(self, lane: str) -> None:
        """Make a lane ready."""

    @abstractmethod
    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        """Return when the system has answered for all of these (up to `batch_max`)."""

    async def schedule(self, lane: str, body: bytes, due_ms: int) -> None:
        """Schedule one message; what many tasks ask for at once shares a request."""
        await self._gathering.put(lane, body, due_ms)

    @abstractmethod
    async def pending(self) -> int:
        """Return how many messages are kept, in all lanes."""

    async def peek(self, lane: str, count: int) -> list[bytes]:
        """Return some bodies that are kept; none where the system cannot show them."""
        return []

    async def receive(self, lane: str, take: Take) -> None:
        """Hand every due message to `take`, acknowledge it, and return when `take` says so."""
        raise PeerFailed(f"{self.name} delivers nothing")

    async def cancel(self, lane: str, count: int) -> int:
        """Cancel `count` messages that were scheduled in the lane, in batches; return how many were."""
        raise PeerFailed(f"{self.name} cancels nothing")

    def processes(self) -> Mapping[str, Sequence[int]]:
        """Return the ids of its processes by role: leader, followers, servers without a rank, client.

        Their children belong to them; the bench itself is a client, too.
        """
        return {}

    def memory_bytes(self) -> int:
        """Return the memory of the largest node."""
        raise PeerFailed(f"{self.name} does not say")

    async def disk_bytes(self) -> int:
        """Return the disk that one node needs for what is pending, after what it compacts."""
        raise PeerFailed(f"{self.name} does not say")

    async def kill_leader(self) -> None:
        """End the node that answers (SIGKILL)."""
        raise PeerFailed(f"{self.name} has no other node")

    async def mend(self) -> None:
        """Bring back what `kill_leader` ended."""
        raise PeerFailed(f"{self.name} has no other node")

    async def clear(self) -> None:  # noqa: B027 - most keep what they have
        """Forget everything, where what is kept would make a restart much longer."""

    async def halt(self) -> None:
        """Stop every server in its orderly way."""
        raise PeerFailed(f"{self.name} is not halted")

    async def resume(self) -> None:
        """Start every server again, and return when all is served."""
        raise PeerFailed(f"{self.name} is not resumed")


class Peer(System):
    """A system whose servers, `_servers`, are processes that the bench starts."""

    server: ClassVar[str]  # the program
    package: ClassVar[str] = ""  # that has it, if it is called otherwise
    installed: ClassVar[str] = "as root"  # how bench/side_by_side/install has to run, or what it does
    folders: ClassVar[Sequence[str]] = ()  # of programs that are not on the PATH
    _servers: list[Server]

    @classmethod
    def program(cls) -> str:
        """Return the path of the server's program, or its name where there is none."""
        return program(cls.server, *cls.folders) or cls.server

    def missing(self) -> str:
        if program(self.server, *self.folders):
            return ""
        return f"no {self.package or self.server}: run bench/side_by_side/install {self.installed}"

    @abstractmethod
    async def _connect(self) -> None:
        """Connect to the servers as soon as they answer."""

    @abstractmethod
    async def _disconnect(self) -> None:
        """Close what `_connect` opened."""

    async def stop(self) -> None:
        await self.halt()

    def processes(self) -> Mapping[str, Sequence[int]]:
        return {"servers": [server.pid for server in self._servers if server.running]}

    def memory_bytes(self) -> int:
        return max(memory_bytes(server.pid) for server in self._servers if server.running)

    async def halt(self) -> None:
        await self._disconnect()
        await stop_all(self._servers)

    async def resume(self) -> None:
        for server in self._servers:
            server.start()
        await self._connect()


Send: TypeAlias = Callable[[str, list[bytes], DueMs], Coroutine[Any, Any, None]]


class Gathering:
    """Puts what many tasks schedule at the same time into one request; few requests at a time."""

    FLIGHTS_MAX = 2

    def __init__(self, send: Send, batch_max: int) -> None:
        self._send, self._batch_max = send, batch_max
        self._waiting: list[tuple[str, bytes, int, asyncio.Future[None]]] = []
        self._flights: set[asyncio.Task[None]] = set()

    def put(self, lane: str, body: bytes, due_ms: int) -> asyncio.Future[None]:
        """Return the answer to come."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[None] = loop.create_future()
        self._waiting.append((lane, body, due_ms, answer))
        if len(self._waiting) == 1 and len(self._flights) < self.FLIGHTS_MAX:
            loop.call_soon(self._fly)
        return answer

    def _fly(self) -> None:
        if not self._waiting or len(self._flights) >= self.FLIGHTS_MAX:
            return
        lane = self._waiting[0][0]
        batch = [each for each in self._waiting if each[0] == lane][: self._batch_max]
        left = {id(each) for each in batch}
        self._waiting = [each for each in self._waiting if id(each) not in left]
        flight = asyncio.ensure_future(self._carry(lane, batch))
        self._flights.add(flight)
        flight.add_done_callback(self._land)

    def _land(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._fly()

    async def _carry(self, lane: str, batch: list[tuple[str, bytes, int, asyncio.Future[None]]]) -> None:
        sending = asyncio.ensure_future(
            self._send(lane, [each[1] for each in batch], np.array([each[2] for each in batch], np.int64))
        )
        await asyncio.wait([sending])
        error = sending.exception()
        for *_, answer in batch:
            if not answer.done():
                answer.set_result(None) if error is None else answer.set_exception(error)
