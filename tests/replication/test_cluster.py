"""Three replicas over gRPC on loopback, with real disks, and clocks put forward while none leads."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tarry.proto.tarry_peer_pb2 import PeerMessage
from tarry.replication.blocking import in_thread
from tarry.replication.driver.adaptive_writes import Writes
from tarry.replication.driver.driver import AT_ONCE_BYTES_MAX
from tarry.replication.errors import MembershipRefused, NotLeader, TransferRefused
from tarry.replication.snapshot.transfer import SnapshotFailed
from tarry.replication.status import Role
from tests.replication.cluster_in_process import Cluster


async def test_a_cluster_elects_commits_and_applies_everywhere(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        places = await asyncio.gather(*(leader.driver.propose(b"%d" % i) for i in range(100)))
        assert places == list(range(100))
        await leader.driver.read_barrier()
        await cluster.until_equal()
        assert leader.machine.commands == [b"%d" % i for i in range(100)]


async def test_a_follower_refuses_a_proposal_and_names_the_leader(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        await leader.driver.propose(b"one")
        await cluster.until_equal()
        follower = next(cluster.replicas[name] for name in cluster.running if name != leader.name)
        with pytest.raises(NotLeader) as refused:
            await follower.driver.propose(b"two")
        assert refused.value.leader == leader.name


async def test_what_was_acknowledged_survives_the_loss_of_the_leader_and_its_return(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        first = await cluster.leader()
        for i in range(10):
            await first.driver.propose(b"%d" % i)
        await cluster.stop(first.name)
        second = await cluster.leader()
        assert second.machine.commands[:10] == [b"%d" % i for i in range(10)]
        await second.driver.propose(b"more")
        await cluster.restart(first.name)
        await cluster.until_equal()
        assert cluster.replicas[first.name].machine.commands[-1] == b"more"


async def test_a_cluster_that_stops_whole_comes_back_with_everything(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        await asyncio.gather(*(leader.driver.propose(b"%d" % i) for i in range(50)))
        for name in list(cluster.running):
            await cluster.stop(name)
        for name in cluster.replicas:
            await cluster.restart(name)
        leader = await cluster.leader()
        assert leader.machine.commands == [b"%d" % i for i in range(50)]
        terms = [cluster.replicas[name].driver.status().term for name in cluster.running]
        assert min(terms) >= 2


async def test_heartbeats_bring_the_leaders_state_and_clock_to_every_follower(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        await leader.driver.propose(b"one")
        followers = [cluster.replicas[name] for name in cluster.running if name != leader.name]
        state = b"state of " + leader.name.encode()

        def heard() -> bool:
            peers = leader.driver.status().peers.values()
            return all(state in follower.heard for follower in followers) and not any(
                peer.clock_offset_ms is None or peer.rtt_ms is None for peer in peers
            )

        async with asyncio.timeout(30):
            while not heard():  # noqa: ASYNC110
                await asyncio.sleep(0.005)


async def test_a_transfer_under_load_loses_nothing(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        load = [asyncio.create_task(leader.driver.propose(b"%d" % i)) for i in range(500)]
        target = next(name for name in sorted(cluster.running) if name != leader.name)
        done = await leader.driver.transfer(target, 5_000)
        assert done.leader == target
        results = await asyncio.gather(*load, return_exceptions=True)
        assert all(isinstance(result, int | NotLeader) for result in results)
        successor = await cluster.leader()
        assert successor.name == target
        await successor.driver.propose(b"last")
        await cluster.until_equal()
        acknowledged = {b"%d" % i for i, result in enumerate(results) if isinstance(result, int)}
        refused = {b"%d" % i for i, result in enumerate(results) if not isinstance(result, int)}
        assert acknowledged <= set(successor.machine.commands)
        assert not refused & set(successor.machine.commands)
        await cluster.until_role(leader.name, Role.FOLLOWER)


async def test_a_target_with_much_to_apply_is_not_transferred_to_and_the_leader_serves_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        target = next(cluster.replicas[name] for name in sorted(cluster.running) if name != leader.name)
        with monkeypatch.context() as held:
            held.setattr(target.driver._applier, "apply", lambda: None)
            for number in range(cluster.settings.transfer_lag_max + 1):
                await leader.driver.propose(b"%d" % number)
            with pytest.raises(TransferRefused, match="still to apply"):
                await leader.driver.transfer(target.name, 300)
            await leader.driver.propose(b"served")
        assert (await leader.driver.transfer(target.name, 20_000)).leader == target.name
        # Up to `transfer_lag_max` entries may still be under way to its machine.
        await cluster.until_equal()
        assert target.machine.commands[-1] == b"served"


async def test_a_single_node_serves_alone(tmp_path: Path) -> None:
    async with Cluster(tmp_path, ["n1"]) as cluster:
        leader = await cluster.leader()
        assert await leader.driver.propose(b"one") == 0
        await leader.driver.read_barrier()


async def test_a_turn_applies_what_is_durable_while_its_own_entries_are_being_written(tmp_path: Path) -> None:
    order: list[str] = []
    async with Cluster(tmp_path, ["n1"]) as cluster:
        leader = await cluster.leader()
        await leader.driver.propose(b"before")
        apply, write_journal = leader.machine.apply, leader.driver._write_journal
        proposed: list[asyncio.Future[int]] = []

        def noted(index: int, term: int, commands: Sequence[bytes]) -> Sequence[int]:
            order.append("apply")
            return apply(index, term, commands)

        async def written(work: Callable[[], Any]) -> None:
            order.append("write")
            if len(proposed) == 1:  # is due when this turn's entry is to be applied
                proposed.append(asyncio.ensure_future(leader.driver.propose(b"second")))
            await write_journal(work)
            order.append("written")

        leader.machine.apply = noted  # type: ignore[method-assign]
        leader.driver._write_journal = Writes(written)
        proposed.append(asyncio.ensure_future(leader.driver.propose(b"first")))
        await proposed[0]
        assert await proposed[1] == 2
    assert order[:6] == ["write", "written", "write", "apply", "written", "apply"]


class NotedWrites(Writes):
    """Writes in threads; says which are long."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(in_thread)
        self._said = said

    async def long(self, work: Callable[[], Any], /) -> Any:
        self._said.append("long")
        return await super().long(work)

    async def __call__(self, work: Callable[[], Any], /) -> Any:
        self._said.append("timed")
        return await super().__call__(work)


async def test_a_write_that_takes_long_whatever_the_disk_does_not_tell_of_the_disk(tmp_path: Path) -> None:
    """To begin a segment takes ten times as long as to write into one: the disk is not slow because of it."""
    by_thread: list[str] = []
    async with Cluster(tmp_path, ["n1"]) as cluster:
        leader = await cluster.leader()
        leader.driver._write_journal = NotedWrites(by_thread)
        await leader.driver.propose(b"short")
        leader.journal.is_long = lambda batch: True  # type: ignore[method-assign]
        await leader.driver.propose(b"long")
    assert by_thread[0] == "timed"
    assert by_thread[-1] == "long"


class QuickWrites(Writes):
    """Writes of a disk that is quick; `where` says how each was made."""

    def __init__(self) -> None:
        super().__init__(in_thread)
        self.where: list[str] = []

    def quick(self, size_bytes: int) -> bool:
        del size_bytes
        return True

    def at_once(self, work: Callable[[], Any], /) -> Any:
        self.where.append("at once")
        return super().at_once(work)

    async def large(self, work: Callable[[], Any], /) -> Any:
        self.where.append("beside")
        await in_thread(work)


async def test_a_quick_disk_is_written_within_the_turn_if_the_batch_is_small(tmp_path: Path) -> None:
    async with Cluster(tmp_path, ["n1"]) as cluster:
        leader = await cluster.leader()
        writes = leader.driver._write_journal = QuickWrites()
        for size_bytes in (10, AT_ONCE_BYTES_MAX):
            await leader.driver.propose(bytes(size_bytes))
        assert writes.where == ["at once", "beside"]
        assert leader.journal.durable_index == leader.journal.last_index


async def test_an_answer_leaves_after_the_write_within_the_turn_that_it_rests_on(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        follower = next(replica for replica in cluster.replicas.values() if replica is not leader)
        writes = follower.driver._write_journal = QuickWrites()
        send = follower.transport.send

        def noted(peer: str, messages: Sequence[bytes], *, bulk: bool = False) -> bool:
            said = [PeerMessage.FromString(message) for message in messages]
            ends = [message.appended.next_index - 1 for message in said if message.HasField("appended")]
            told.extend((end, follower.journal.durable_index) for end in ends)
            return send(peer, messages, bulk=bulk)

        follower.transport.send = noted  # type: ignore[method-assign]
        for i in range(5):
            await leader.driver.propose(b"%d" % i)
        await cluster.until_equal()
    assert "at once" in writes.where
    assert told
    assert all(end <= durable for end, durable in told)


async def test_upkeep_of_the_journal_runs_beside_the_turns_and_its_error_ends_the_node(
    tmp_path: Path,
) -> None:
    at_upkeep, goes_on = threading.Event(), threading.Event()

    def upkeep() -> None:
        at_upkeep.set()
        goes_on.wait(30)
        raise OSError(errno.EIO, "of the disk")

    with pytest.raises(OSError, match="of the disk"):
        async with Cluster(tmp_path, ["n1"]) as cluster:
            leader = await cluster.leader()
            leader.journal.upkeep = upkeep  # type: ignore[method-assign]
            leader.journal.needs_upkeep = lambda: True  # type: ignore[method-assign]
            await leader.driver.propose(b"begins it")
            assert await asyncio.to_thread(at_upkeep.wait, 30)
            await leader.driver.propose(b"is written meanwhile")
            goes_on.set()
            await asyncio.wait([leader.task])


async def test_a_newcomer_learns_first_and_then_votes(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        for i in range(20):
            await leader.driver.propose(b"%d" % i)
        newcomer = await cluster.join("n4")
        await leader.driver.add("n4", newcomer.address, 5_000)
        assert set(leader.driver.status().members) == {"n1", "n2", "n3", "n4"}
        assert leader.driver.status().peers["n4"].voting
        await cluster.until_equal()
        for _ in range(5):  # on a busy machine another may be elected meanwhile
            leader = await cluster.leader()
            if (await leader.driver.transfer("n4", 5_000)).leader == newcomer.name:
                break
        else:
            pytest.fail("the newcomer was never elected")
        leading = await cluster.leader(leader.name)  # and by now
        await leading.driver.propose(b"from the newcomer")
        await leading.driver.remove(leader.name)
        assert set(leading.driver.status().members) == {"n1", "n2", "n3", "n4"} - {leader.name}


async def test_a_newcomer_that_never_comes_changes_nothing(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        with pytest.raises(MembershipRefused):
            await leader.driver.add("n4", "127.0.0.1:1", 300)
        assert set(leader.driver.status().members) == {"n1", "n2", "n3"}
        await leader.driver.propose(b"still here")


async def test_a_leader_does_not_remove_itself(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        with pytest.raises(MembershipRefused, match="transfer"):
            await leader.driver.remove(leader.name)


async def test_a_state_is_not_sent_to_who_cannot_apply_its_level(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        taker = next(other for other in cluster.replicas.values() if other is not leader)
        leader.driver._replica.cluster_level = lambda: 2
        with pytest.raises(SnapshotFailed, match="of level 2, and who asks applies 1 at most"):
            async for _ in taker.transport.fetch_snapshot(leader.name, (), 1):
                pass
        parts = [part async for part in taker.transport.fetch_snapshot(leader.name, (), 2)]
        assert parts[0].HasField("manifest")


async def test_a_follower_that_lacks_what_was_compacted_takes_the_leaders_state(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        leader = await cluster.leader()
        await leader.driver.propose(b"before")
        away = next(name for name in sorted(cluster.running) if name != leader.name)
        await cluster.stop(away)
        for i in range(30):
            await leader.driver.propose(b"%d" % i + bytes(100))
        leader.driver.compact(leader.machine.applied_index)
        await leader.driver.propose(b"after")
        assert leader.driver.status().first_index > 10
        await cluster.restart(away)
        await cluster.until_equal()
        replica = cluster.replicas[away]
        assert replica.snapshots.installed == 1
        assert replica.driver.status().first_index > 10
        await leader.driver.propose(b"goes on")
        await cluster.until_equal()
        assert replica.journal.chain_at(replica.journal.last_index) == leader.journal.chain_at(
            replica.journal.last_index
        )


@pytest.mark.parametrize("kept_bytes", [1 << 20, 1_000])
async def test_what_is_logged_while_a_state_is_taken_is_kept_within_bounds(
    tmp_path: Path, kept_bytes: int
) -> None:
    """More than a slow follower is kept for: it would need another state, and then another."""
    async with Cluster(tmp_path, snapshot_retained_bytes_max=kept_bytes, snapshot_retry_ms=50) as cluster:
        leader = await cluster.leader()
        away = next(name for name in sorted(cluster.running) if name != leader.name)
        await cluster.stop(away)

        async def write() -> None:
            for i in range(30):
                await leader.driver.propose(b"%d" % i + bytes(100))
            leader.driver.compact(leader.machine.applied_index)
            await leader.driver.propose(b"compacted")

        await write()
        opened: list[tuple[int, int]] = []

        async def meanwhile() -> None:
            if len(opened) < 3:
                index = leader.machine.applied_index
                await write()
                opened.append((index, leader.driver.status().first_index))

        leader.snapshots.meanwhile = meanwhile
        await cluster.restart(away)
        await cluster.until_equal()
        kept = [first <= index for index, first in opened]
        assert kept == ([True] if kept_bytes > 1_000 else [False] * 3)
        leader.driver.compact(leader.machine.applied_index)
        await leader.driver.propose(b"nobody needs it any more")
        await leader.driver.propose(b"last")
        assert leader.driver.status().first_index > opened[-1][0]


async def test_a_turn_forgets_so_many_entries_of_the_journal_and_the_next_ones_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tarry.replication.driver.driver.FORGOTTEN_MAX", 4)
    async with Cluster(tmp_path, ["n1"]) as cluster:
        leader = await cluster.leader()
        for i in range(30):
            await leader.driver.propose(b"%d" % i + bytes(100))
        compact, starts = leader.journal.compact, [leader.journal.first_index]

        def noted(index: int, members: Any) -> None:
            compact(index, members)
            starts.append(leader.journal.first_index)

        monkeypatch.setattr(leader.journal, "compact", noted)
        leader.driver.compact(leader.machine.applied_index)
        for _ in range(10):
            await leader.driver.propose(b"after")
        steps = [after - before for before, after in pairwise(starts)]
        assert starts[-1] > 15
        assert max(steps) == 4
