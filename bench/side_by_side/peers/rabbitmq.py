"""RabbitMQ: a quorum queue whose messages expire into a second quorum queue.

    publish with TTL ─► <lane>.delay ─(expired, at least once)─► <lane> ─► consumer

Only the head of a queue expires: a long TTL in front holds up shorter ones behind it.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pika
from pika.adapters.asyncio_connection import AsyncioConnection

from tarry.bench.side_by_side.amqp import publishings
from tarry.bench.side_by_side.confirms import Confirms
from tarry.bench.side_by_side.servers import Server, folder_bytes, program, version_of
from tarry.bench.side_by_side.system import DueMs, Durability, Peer, Take
from tarry.client.local.free_ports import free_ports

BIN = "/usr/lib/rabbitmq/bin"
PREFETCH = 2_000  # the most that quorum queues take
COOKIE = "side-by-side"
QUORUM = {"x-queue-type": "quorum"}


class RabbitQuorum(Peer):
    """Three members, each queue on all of them."""

    name = "rabbit_quorum"
    server = f"{BIN}/rabbitmq-server"  # the wrappers on the PATH change to another user
    package = "rabbitmq-server"
    durability = Durability(
        3, True, "quorum queues of 3 (fsync on a majority), publisher confirms, dead-lettering at least once"
    )
    lateness_note = "TTLs in due order; with mixed TTLs a message waits for those before it"
    members = 3

    def missing(self) -> str:
        if not program(self.server) or not program("epmd"):
            return f"no {self.package}: run bench/side_by_side/install {self.installed}"
        return ""

    def version(self) -> str:
        libraries = sorted(Path(BIN).parent.glob("lib/rabbitmq_server-*"))
        return libraries[-1].name.removeprefix("rabbitmq_server-") if libraries else version_of("rabbitmqctl")

    async def start(self, folder: Path) -> None:
        self._folder = folder
        cookie = folder / ".erlang.cookie"
        cookie.write_text(COOKIE)
        cookie.chmod(0o400)
        epmd, *ports = free_ports(1 + 2 * self.members)
        self._epmd = Server([program("epmd") or "epmd", "-port", str(epmd)], folder, "epmd")
        self._epmd.start()
        await self._epmd.wait_for_port(epmd)
        self._ports = ports[: self.members]
        names = [f"r{number}@localhost" for number in range(self.members)]
        self._servers = []
        for number, name in enumerate(names):
            config = folder / f"r{number}.conf"
            lines = [
                f"listeners.tcp.local = 127.0.0.1:{self._ports[number]}",
                "cluster_formation.peer_discovery_backend = classic_config",
                *(f"cluster_formation.classic_config.nodes.{i} = {each}" for i, each in enumerate(names, 1)),
                "cluster_formation.randomized_startup_delay_range.max = 1",
                "vm_memory_high_watermark.absolute = 4GB",
                "log.console = false",
            ]
            config.write_text("\n".join(lines) + "\n")
            environment = {
                "HOME": str(folder),
                "ERL_EPMD_PORT": str(epmd),
                "RABBITMQ_NODENAME": name,
                "RABBITMQ_DIST_PORT": str(ports[self.members + number]),
                "RABBITMQ_CONFIG_FILE": str(config),
                "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
                "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
                "RABBITMQ_LOG_BASE": str(folder / "log"),
                "RUNNING_UNDER_SYSTEMD": "1",  # the script then becomes the broker: one process, ours
                "NOTIFY_SOCKET": "",
            }
            self._servers.append(Server([self.server], folder, f"r{number}", environment=environment))
        (folder / "plugins").write_text("[].\n")
        self._names = names
        self._lanes: set[str] = set()
        await self._boot()
        await self._wait_for_members(self._names)
        await self._connect()

    async def _boot(self) -> None:
        for server in self._servers:
            server.start()
        for server, port in zip(self._servers, self._ports, strict=True):
            await server.wait_for_port(port, 120)

    async def _wait_for_members(self, names: list[str]) -> None:
        """Wait for all nodes: quorum queues take as members those that run when they are declared."""
        environment = {**os.environ, **self._servers[0].environment}
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            asked = await asyncio.create_subprocess_exec(
                f"{BIN}/rabbitmqctl", "cluster_status", "--formatter", "json",
                env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            )  # fmt: skip
            said = (await asked.communicate())[0].decode(errors="replace")
            running = said.partition('"running_nodes":[')[2].partition("]")[0]
            if all(name in running for name in names):
                return
        raise self._servers[0].failed("the nodes did not form a cluster")

    async def _connect(self) -> None:
        opened: asyncio.Future[AsyncioConnection] = asyncio.get_running_loop().create_future()
        parameters = pika.ConnectionParameters(
            "127.0.0.1", self._ports[0], heartbeat=0, credentials=pika.PlainCredentials("guest", "guest")
        )
        self._connection = AsyncioConnection(
            parameters,
            on_open_callback=opened.set_result,
            on_open_error_callback=lambda _, error: opened.set_exception(ConnectionError(str(error))),
        )
        await opened
        self._channel = await self._new_channel()
        self._confirms = Confirms()
        selected = asyncio.get_running_loop().create_future()
        self._channel.confirm_delivery(
            lambda frame: self._confirms.answer(
                frame.method.delivery_tag,
                frame.method.multiple,
                isinstance(frame.method, pika.spec.Basic.Ack),
            ),
            callback=selected.set_result,
        )
        await selected

    async def _new_channel(self) -> pika.channel.Channel:
        opened = asyncio.get_running_loop().create_future()
        self._connection.channel(on_open_callback=opened.set_result)
        return await opened

    async def stop(self) -> None:
        if self._connection.is_open:
            self._connection.close()
        for server in [*self._servers, self._epmd]:
            server.kill()  # its orderly way out syncs for long, and the folder goes anyway

    async def open(self, lane: str) -> None:
        delay = {
            **QUORUM,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": lane,
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
        }
        for queue, arguments in ((lane, QUORUM), (f"{lane}.delay", delay)):
            await self._do(self._channel.queue_declare, queue, durable=True, arguments=arguments)
        self._lanes.add(lane)

    @staticmethod
    async def _do(method: Callable[..., object], *arguments: object, **named: object) -> object:
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        method(*arguments, callback=answer.set_result, **named)
        return await answer

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        delays = np.maximum(due_ms - time.time_ns() // 1_000_000 + 1, 0)  # rounded up: never early
        frames = publishings(self._channel.channel_number, f"{lane}.delay", bodies, delays.tolist())
        self._connection._output_marshaled_frames([frames])  # pika's way out, without its way there
        await self._confirms.expect(len(bodies))

    async def pending(self) -> int:
        total = 0
        for lane in self._lanes:
            answer = await self._do(self._channel.queue_declare, f"{lane}.delay", passive=True)
            total += answer.method.message_count  # type: ignore[attr-defined]
        return total

    async def receive(self, lane: str, take: Take) -> None:
        channel = await self._new_channel()
        await self._do(channel.basic_qos, prefetch_count=PREFETCH)
        arrived: list[bytes] = []
        last = 0
        wake = asyncio.Event()

        def on_message(_: object, method: pika.spec.Basic.Deliver, __: object, body: bytes) -> None:
            nonlocal last
            arrived.append(body)
            last = method.delivery_tag or 0
            wake.set()

        channel.basic_consume(lane, on_message)
        done = False
        while not done:
            await wake.wait()
            wake.clear()
            bodies, arrived = arrived, []
            done = take(bodies)
            channel.basic_ack(last, multiple=True)
        closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        channel.add_on_close_callback(lambda *_: closed.set_result(None))
        channel.close()  # answered after the acknowledgements before it
        await closed

    def processes(self) -> Mapping[str, Sequence[int]]:
        """Return them by role: a queue's leader is the node that it was declared through."""
        leader, *followers = (server.pid for server in self._servers)
        return {"leader": [leader], "followers": followers, "servers": [self._epmd.pid]}

    async def _disconnect(self) -> None:
        self._connection.close()

    async def resume(self) -> None:
        """Return when every queue answers."""
        await self._boot()
        await self._connect()
        await self.pending()

    async def disk_bytes(self) -> int:
        return folder_bytes(self._folder / "mnesia" / "r0@localhost")
