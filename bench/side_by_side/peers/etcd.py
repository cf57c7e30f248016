"""etcd: a replicated, fsynced map, without delivery. A batch is one transaction of puts, by its gRPC API."""

from __future__ import annotations

import struct
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aetcd.rpc import rpc_pb2, rpc_pb2_grpc
from grpc import aio

from tarry.bench.side_by_side.servers import Server, stop_all, version_of
from tarry.bench.side_by_side.system import DueMs, Durability, Peer
from tarry.client.local.free_ports import free_ports

LIMITS = [
    "--max-txn-ops=1000",
    f"--max-request-bytes={8 << 20}",
    f"--quota-backend-bytes={8 << 30}",
    "--log-level=error",
]
CALL_S = 30
CHANNEL = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]


class Etcd3(Peer):
    """Three members; requests go to the leader."""

    name = "etcd3"
    server = "etcd"
    installed = "(builds it with Go)"
    durability = Durability(3, True, "default: write-ahead log fsynced on a majority")
    delivers = False
    cancels = True
    fails_over = True
    members = 3

    def version(self) -> str:
        return version_of(self.program(), "--version").removeprefix("etcd Version: ")

    async def start(self, folder: Path) -> None:
        self._folder = folder
        ports = free_ports(2 * self.members)
        self._clients = [f"127.0.0.1:{port}" for port in ports[: self.members]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[self.members :]]
        cluster = ",".join(f"m{number}={peer}" for number, peer in enumerate(peers))
        self._servers = []
        for number, (client, peer) in enumerate(zip(self._clients, peers, strict=True)):
            command = [
                self.program(), f"--name=m{number}", f"--data-dir={folder}/m{number}",
                f"--listen-client-urls=http://{client}", f"--advertise-client-urls=http://{client}",
                f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster={cluster}", *LIMITS,
            ]  # fmt: skip
            self._servers.append(Server(command, folder, f"m{number}"))
        self._sequence: dict[str, int] = {}
        await self.resume()

    async def _connect(self) -> None:
        """Find the leader among those that answer, and talk to it."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for server, address in zip(self._servers, self._clients, strict=True):
                if not server.running:
                    continue
                channel = aio.insecure_channel(address, CHANNEL)
                status = rpc_pb2_grpc.MaintenanceStub(channel).Status
                try:
                    answer = await status(rpc_pb2.StatusRequest(), timeout=1)
                except aio.AioRpcError:
                    await channel.close(None)
                    continue
                if answer.leader and answer.leader == answer.header.member_id:
                    self._leader, self._channel, self._status = server, channel, status
                    self._kv = rpc_pb2_grpc.KVStub(channel)
                    return
                await channel.close(None)
        raise self._servers[0].failed("no leader")

    async def _disconnect(self) -> None:
        await self._channel.close(None)

    async def stop(self) -> None:
        await self._disconnect()
        for server in self._servers:
            server.kill()  # the folder goes anyway

    async def open(self, lane: str) -> None:
        self._sequence[lane] = 0

    async def schedule_batch(self, lane: str, bodies: list[bytes], due_ms: DueMs) -> None:
        first = self._sequence[lane]
        self._sequence[lane] += len(bodies)
        prefix = lane.encode() + b"/"
        puts = [
            rpc_pb2.PutRequest(key=prefix + struct.pack(">Q", number), value=body)
            for number, body in enumerate(bodies, first)
        ]
        request = rpc_pb2.TxnRequest(success=[rpc_pb2.RequestOp(request_put=put) for put in puts])
        await self._kv.Txn(request, timeout=CALL_S)

    async def pending(self) -> int:
        answers = [await self._range(lane, count_only=True) for lane in self._sequence]
        return sum(int(answer.count) for answer in answers)

    async def _range(self, lane: str, **options: Any) -> rpc_pb2.RangeResponse:
        request = rpc_pb2.RangeRequest(key=f"{lane}/".encode(), range_end=f"{lane}0".encode(), **options)
        return await self._kv.Range(request, timeout=CALL_S)

    async def peek(self, lane: str, count: int) -> list[bytes]:
        return [each.value for each in (await self._range(lane, limit=count)).kvs]

    async def cancel(self, lane: str, count: int) -> int:
        """Delete by key, in transactions as large as those that put."""
        prefix = lane.encode() + b"/"
        cancelled = 0
        for start in range(0, min(count, self._sequence[lane]), self.batch_max):
            stop = min(start + self.batch_max, count, self._sequence[lane])
            gone = [
                rpc_pb2.DeleteRangeRequest(key=prefix + struct.pack(">Q", number))
                for number in range(start, stop)
            ]
            request = rpc_pb2.TxnRequest(
                success=[rpc_pb2.RequestOp(request_delete_range=each) for each in gone]
            )
            answer = await self._kv.Txn(request, timeout=CALL_S)
            cancelled += sum(each.response_delete_range.deleted for each in answer.responses)
        return cancelled

    def processes(self) -> Mapping[str, Sequence[int]]:
        followers = [each.pid for each in self._servers if each.running and each is not self._leader]
        return {"leader": [self._leader.pid], "followers": followers}

    async def disk_bytes(self) -> int:
        return int((await self._status(rpc_pb2.StatusRequest(), timeout=CALL_S)).dbSizeInUse)

    async def kill_leader(self) -> None:
        self._leader.kill()
        await self._disconnect()
        await self._connect()

    async def mend(self) -> None:
        for server in self._servers:
            if not server.running:
                server.start()

    async def halt(self) -> None:
        """Stop all, the leader last: it waits for seconds for others that are stopping, too."""
        await self._disconnect()
        await stop_all([server for server in self._servers if server is not self._leader])
        await stop_all([self._leader])


class Etcd1(Etcd3):
    """One member."""

    name = "etcd1"
    durability = Durability(1, True, "default: write-ahead log fsynced")
    members = 1
    fails_over = False
