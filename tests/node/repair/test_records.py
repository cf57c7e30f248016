"""Mending from peers, as they serve it over gRPC on loopback: whole or not at all, and counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import numpy as np
import pytest

from tarry.node.edge.forwarder import Forwarder
from tarry.node.edge.peer_auth import PeerCalls
from tarry.node.repair import pauses
from tarry.node.repair.peer_records import PeerRecords, RecordService
from tarry.node.repair.records import ASKED_RECORDS_MAX, Damage, Numbers
from tarry.proto.bearer_token import PeerTokens
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.transport.interface import ANYBODY
from tests.node.decay import decay
from tests.wheel.sorted_list import START_MS, append, ids

DUE_MS = [START_MS + 1_000 * (index % 7) for index in range(600)]
RECORDS = [b"record %d" % index * (index % 5 + 1) for index in range(600)]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "RETRY_MS_MIN", 50)  # of what lengths they are is test_pauses.py's


def replica(folder: Path, dues: Sequence[int] = DUE_MS, records: Sequence[bytes] = RECORDS) -> Machine:
    machine = Machine(folder, MachineSettings())
    append(machine.wheel, dues, records)
    return machine


def names(count: int) -> list[tuple[int, int]]:
    return [(START_MS // 3_600_000, index) for index in range(count)]


@asynccontextmanager
async def serving(machine: Machine) -> AsyncIterator[str]:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((RecordService(machine, PeerCalls(lambda: "tarry", ANYBODY)).handlers(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


@asynccontextmanager
async def asking(cluster: str = "tarry") -> AsyncIterator[PeerRecords]:
    forwarder = Forwarder(None, [], {})
    yield PeerRecords(forwarder, lambda: cluster, "n1", PeerTokens())
    await forwarder.close()


@asynccontextmanager
async def mending(machine: Machine, *addresses: str) -> AsyncIterator[Damage]:
    damage = Damage(machine, 0)
    async with asking() as peers, asyncio.timeout(20):
        task = asyncio.create_task(damage.run(lambda: addresses, peers.fetch))
        yield damage
        task.cancel()
        await asyncio.wait([task])


async def all_mended(damage: Damage, hour: Numbers, global_index: Numbers) -> None:
    while len(hour):
        mended = await damage.mended(hour, global_index)
        hour, global_index = hour[~mended], global_index[~mended]


async def test_every_record_is_mended_also_where_each_peer_has_only_some_of_them(tmp_path: Path) -> None:
    own, one, two = (replica(tmp_path / name) for name in ("own", "one", "two"))
    decay(own, *names(600))
    decay(one, *names(600)[::2])
    decay(two, *names(600)[1::2])
    async with serving(one) as first, serving(two) as second, mending(own, first, second) as damage:
        damage.report(*ids(names(600)))
        damage.report(*ids(names(3)))
        assert (damage.found, damage.repaired, damage.left) == (600, 0, 600)
        await all_mended(damage, *ids(names(600)))
        assert (damage.found, damage.repaired, damage.left) == (600, 600, 0)
    assert own.wheel.read(*ids(names(600))) == RECORDS


async def test_a_record_no_peer_has_whole_stays_counted_until_one_has(tmp_path: Path) -> None:
    own, peer = replica(tmp_path / "own"), replica(tmp_path / "peer")
    decay(own, *names(2))
    decay(peer, *names(1))
    async with serving(peer) as address, mending(own, address) as damage:
        hour, index = ids(names(2))
        damage.report(hour, index)
        assert (await damage.mended(hour, index)).tolist() == [False, True]
        assert (damage.found, damage.repaired, damage.left) == (2, 1, 1)
        decay(peer, *names(1))  # the bit turned back
        await all_mended(damage, hour, index)
        assert (damage.repaired, damage.left) == (2, 0)


async def test_what_a_peer_gives_counts_only_if_it_is_what_the_index_says(tmp_path: Path) -> None:
    own = replica(tmp_path / "own")
    other = replica(tmp_path / "other", records=[bytes(len(record)) for record in RECORDS])
    peer = replica(tmp_path / "peer")
    decay(own, *names(5))
    async with serving(other) as wrong, serving(peer) as right, mending(own, wrong, right) as damage:
        damage.report(*ids(names(5)))
        await all_mended(damage, *ids(names(5)))
    assert own.wheel.read(*ids(names(5))) == RECORDS[:5]


async def test_who_reads_a_damaged_record_gets_it_mended(tmp_path: Path) -> None:
    own, peer = replica(tmp_path / "own"), replica(tmp_path / "peer")
    decay(own, *names(5)[1::2])
    async with serving(peer) as address, mending(own, address) as damage:
        assert await damage.read(*ids(names(5)[::-1])) == RECORDS[4::-1]
        assert (damage.found, damage.repaired, damage.left) == (2, 2, 0)


async def test_a_peer_that_comes_into_reach_is_asked_for_what_is_left(tmp_path: Path) -> None:
    own, peer = replica(tmp_path / "own"), replica(tmp_path / "peer")
    decay(own, *names(1))
    there: list[str] = []
    damage = Damage(own, 0)
    async with serving(peer) as address, asking() as peers, asyncio.timeout(20):
        task = asyncio.create_task(damage.run(lambda: there, peers.fetch))
        damage.report(*ids(names(1)))
        await asyncio.sleep(0)
        assert damage.left == 1
        there.append(address)
        await all_mended(damage, *ids(names(1)))
        task.cancel()
        await asyncio.wait([task])
    assert own.wheel.read(*ids(names(1))) == RECORDS[:1]


async def test_what_was_deleted_is_not_waited_for(tmp_path: Path) -> None:
    own = replica(tmp_path / "own")
    hour, index = ids(names(5))
    decay(own, *names(5))
    async with mending(own) as damage:
        damage.report(hour, index)
        own.wheel.take(START_MS + 3_600_000, 1_000)
        own.wheel.drop_hour(int(hour[0]))
        assert (await damage.mended(hour, index)).all()
        assert (damage.repaired, damage.left) == (0, 0)


async def test_a_peer_gives_what_it_has_whole_and_says_nothing_of_the_rest(tmp_path: Path) -> None:
    peer = replica(tmp_path / "peer")
    decay(peer, *names(2))
    hour = START_MS // 3_600_000
    async with serving(peer) as address, asking() as peers:
        given = await peers.fetch(address, hour, np.array([0, 1, 2, 599, 600, 7_000], np.uint32))
        assert given == {2: RECORDS[2], 599: RECORDS[599]}
        assert await peers.fetch(address, hour + 1, np.array([0], np.uint32)) == {}


async def test_one_answer_is_bounded_and_a_large_record_comes_alone(tmp_path: Path) -> None:
    sizes = [700_000, 300_000, 300_000, 3_000_000]
    peer = replica(tmp_path / "peer", [START_MS] * 4, [bytes(size) for size in sizes])
    hour = START_MS // 3_600_000
    async with serving(peer) as address, asking() as peers:
        given = await peers.fetch(address, hour, np.arange(4, dtype=np.uint32))
        assert {number: len(record) for number, record in given.items()} == {0: 700_000, 1: 300_000}
        given = await peers.fetch(address, hour, np.array([3, 0], np.uint32))
        assert {number: len(record) for number, record in given.items()} == {3: 3_000_000}
        assert await peers.fetch(address, hour, np.arange(ASKED_RECORDS_MAX + 1, dtype=np.uint32)) == {}


async def test_who_is_no_node_of_the_cluster_gets_nothing(tmp_path: Path) -> None:
    peer = replica(tmp_path / "peer")
    hour, index = START_MS // 3_600_000, np.array([0], np.uint32)
    async with serving(peer) as address:
        async with asking("other") as stranger:
            assert await stranger.fetch(address, hour, index) == {}
        async with asking("tarry") as node:
            assert await node.fetch(address, hour, index) == {0: RECORDS[0]}
