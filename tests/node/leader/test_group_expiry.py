"""Groups that nobody uses are deleted, those in use are not, whoever leads."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message
from structlog.testing import capture_logs

from tarry.node.clock.cluster_time import ClusterTime
from tarry.node.config import Dispatch
from tarry.node.leader.group_expiry import CHANGES_MAX, RETURN_MS, GroupExpiry, expiry_ms, is_due
from tarry.node.leader.group_moves import GroupMoves
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.errors import Overloaded
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine import commands as command_codec
from tarry.replication.state_machine.group_uses import Use
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.replication.commands import NOW_MS, admin, release
from tests.turns import Steps, too_long

DAY_MS = 86_400_000
EXPIRY_MS = 8 * DAY_MS
SETTINGS = Dispatch(group_expiry_ms=EXPIRY_MS, temporary_group_ms=80_000)
EXPIRES, TEMPORARY, KEPT = (
    log_pb.GROUP_LIFE_EXPIRES,
    log_pb.GROUP_LIFE_TEMPORARY,
    log_pb.GROUP_LIFE_UNSPECIFIED,
)


@pytest.mark.parametrize(
    ("use", "expected_ms"),
    [
        (Use(0, KEPT, 0), 0),
        (Use(0, EXPIRES, 0), EXPIRY_MS),
        (Use(0, EXPIRES, 5), 5),
        (Use(0, TEMPORARY, 0), 80_000),
    ],
)
def test_how_long_a_group_stays_without_use(use: Use, expected_ms: int) -> None:
    assert expiry_ms(use, SETTINGS) == expected_ms


def test_the_cluster_may_let_no_group_of_consumers_expire() -> None:
    assert expiry_ms(Use(0, EXPIRES, 0), Dispatch(group_expiry_ms=0)) == 0


@pytest.mark.parametrize(
    ("idle_ms", "is_open", "due"),
    [(99, True, None), (100, True, False), (9_999, True, False), (899, False, None), (900, False, True)],
)
def test_a_use_is_noted_early_and_a_group_deleted_late(idle_ms: int, is_open: bool, due: bool | None) -> None:
    use = Use(NOW_MS, EXPIRES, 0)
    assert is_due(use, 800, NOW_MS + idle_ms, 0, is_open=is_open) is due
    if due:
        assert is_due(use, 800, NOW_MS + idle_ms, NOW_MS + idle_ms + 1, is_open=False) is None


@dataclass
class Clock:
    """Cluster time, set by the test."""

    ms: int = NOW_MS

    def now_ms(self) -> int:
        return self.ms


@dataclass
class Slow:
    """A driver whose commands are applied once the test says so."""

    cluster: Cluster

    async def propose(self, command: bytes, cost_us: int = 0) -> Any:
        await self.cluster.moving.wait()
        return self.cluster.apply(command)


@dataclass
class Cluster:
    """A machine whose leader proposes, and what it proposed."""

    machine: Machine
    clock: Clock
    opened: set[tuple[str, str]] = field(default_factory=set)
    proposed: list[Message] = field(default_factory=list)
    moves: GroupMoves = field(init=False)
    moving: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.moves = GroupMoves(Slow(self))

    def expiry(self) -> GroupExpiry:
        clock: Any = self.clock
        time: ClusterTime = clock
        return GroupExpiry(
            self.machine,
            time,
            SETTINGS,
            self.propose,
            lambda topic, group: (topic, group) in self.opened,
            self.moves,
        )

    async def propose(self, command: Message) -> Any:
        self.proposed.append(command)
        return self.apply(command_codec.encode(command))

    def apply(self, *commands: bytes) -> Any:
        return self.machine.apply(self.machine.applied_index + 1, 1, commands)

    def look(self, leader: GroupExpiry, at_ms: int) -> list[str]:
        """What the leader proposes then, by name."""
        self.clock.ms = at_ms
        self.proposed.clear()
        asyncio.run(leader.look())
        return [type(one).__name__ for one in self.proposed]


def made(group: str, life: log_pb.GroupLife, expiry_ms: int = 0) -> bytes:
    return admin(
        log_pb.SubscribeCommand(topic="t", group=group, now_ms=NOW_MS, life=life, expiry_ms=expiry_ms)
    )


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    machine = Machine(tmp_path, MachineSettings())
    cluster = Cluster(machine, Clock())
    cluster.apply(release(NOW_MS), made("g", EXPIRES))
    return cluster


DELETED, NOTED = "DeleteGroupCommand", "AckCommand"


def test_a_group_that_nobody_uses_is_deleted_and_the_log_says_so(cluster: Cluster) -> None:
    leader = cluster.expiry()
    assert cluster.look(leader, NOW_MS + EXPIRY_MS) == []
    with capture_logs() as logged:
        assert cluster.look(leader, NOW_MS + EXPIRY_MS + DAY_MS) == [DELETED]
    assert cluster.machine.queues.find("t", "g") is None
    assert [(one["event"], one["group"], one["used_ms"]) for one in logged] == [
        ("group expired", "g", NOW_MS)
    ]
    assert cluster.look(leader, NOW_MS + 3 * EXPIRY_MS) == []


def test_a_group_in_use_stays_and_the_next_leader_knows_when_it_was_used(cluster: Cluster) -> None:
    leader = cluster.expiry()
    cluster.opened = {("t", "g")}
    for day in range(1, 30):
        assert cluster.look(leader, NOW_MS + day * DAY_MS) == [NOTED]
        assert cluster.look(leader, NOW_MS + day * DAY_MS + 1) == []
        cluster.apply(release(NOW_MS + day * DAY_MS))
    cluster.opened.clear()
    left_ms = NOW_MS + 29 * DAY_MS
    following = cluster.expiry()
    assert cluster.look(following, left_ms + EXPIRY_MS + DAY_MS - 1) == []
    assert cluster.look(following, left_ms + EXPIRY_MS + DAY_MS) == [DELETED]


def test_consumers_have_time_to_come_back_to_a_new_leader(cluster: Cluster) -> None:
    late_ms = NOW_MS + 30 * DAY_MS
    cluster.apply(release(late_ms))
    cluster.clock.ms = late_ms
    leader = cluster.expiry()
    assert cluster.look(leader, late_ms + RETURN_MS - 1) == []
    cluster.opened = {("t", "g")}
    assert cluster.look(leader, late_ms + RETURN_MS) == [NOTED]


def test_after_the_cluster_was_away_they_have_as_long_as_it_was(cluster: Cluster) -> None:
    late_ms = NOW_MS + 7 * DAY_MS  # nothing was released since: nobody led
    cluster.clock.ms = late_ms
    leader = cluster.expiry()
    assert cluster.look(leader, late_ms + 7 * DAY_MS - 1) == []
    assert cluster.look(leader, late_ms + 7 * DAY_MS) == [DELETED]


def test_groups_made_by_operators_stay_unless_they_were_given_an_expiry(cluster: Cluster) -> None:
    cluster.apply(made("kept", KEPT), made("asked", EXPIRES, 800_000), made("temporary", TEMPORARY))
    leader = cluster.expiry()
    assert cluster.look(leader, NOW_MS + 90_000) == [DELETED]
    assert cluster.machine.queues.find("t", "temporary") is None
    assert cluster.look(leader, NOW_MS + 900_000) == [DELETED]
    assert cluster.machine.queues.find("t", "asked") is None
    assert cluster.look(leader, NOW_MS + 1_000 * DAY_MS) == [DELETED]
    assert cluster.machine.queues.groups_of(0) == ["kept"]


def test_a_group_that_is_opened_while_others_are_deleted_stays(cluster: Cluster) -> None:
    cluster.apply(made("h", EXPIRES))
    leader = cluster.expiry()

    async def opened_meanwhile(command: Message) -> Any:
        cluster.opened = {("t", "h")}
        return cluster.apply(command_codec.encode(command))

    leader._propose = opened_meanwhile
    cluster.look(leader, NOW_MS + 2 * EXPIRY_MS)
    assert cluster.machine.queues.groups_of(0) == ["h"]


@pytest.mark.parametrize("life", [EXPIRES, KEPT])
def test_a_group_that_is_used_or_wanted_while_others_are_deleted_stays(
    cluster: Cluster, life: log_pb.GroupLife
) -> None:
    cluster.apply(made("h", EXPIRES))
    leader = cluster.expiry()
    late_ms = NOW_MS + 2 * EXPIRY_MS

    async def used_meanwhile(command: Message) -> Any:
        again = log_pb.SubscribeCommand(topic="t", group="h", now_ms=late_ms, life=life)
        return cluster.apply(admin(again), command_codec.encode(command))

    leader._propose = used_meanwhile
    cluster.look(leader, late_ms)
    assert cluster.machine.queues.groups_of(0) == ["h"]


def test_no_group_is_deleted_while_one_is_being_made_or_moved(cluster: Cluster) -> None:
    leader = cluster.expiry()
    cluster.clock.ms = late_ms = NOW_MS + 2 * EXPIRY_MS
    wanted = log_pb.SubscribeCommand(topic="t", group="g", now_ms=late_ms)

    async def play() -> None:
        making = asyncio.ensure_future(cluster.moves.propose(admin(wanted), 0))
        await asyncio.sleep(0)
        await leader.look()
        assert cluster.proposed == []
        cluster.moving.set()
        await making
        await leader.look()

    asyncio.run(play())
    assert cluster.machine.queues.groups_of(0) == ["g"]


def test_a_deletion_that_is_refused_for_load_waits_for_the_next_look(cluster: Cluster) -> None:
    leader, propose = cluster.expiry(), cluster.propose

    async def refuses(command: Message) -> Any:
        raise Overloaded(100)

    leader._propose = refuses
    assert cluster.look(leader, NOW_MS + 2 * EXPIRY_MS) == []
    leader._propose = propose
    assert cluster.look(leader, NOW_MS + 2 * EXPIRY_MS) == [DELETED]


def test_many_groups_are_looked_at_over_many_turns_and_some_change_with_each_look(cluster: Cluster) -> None:
    groups = 10_000
    cluster.apply(*(made(f"g{number}", EXPIRES) for number in range(groups)))
    leader = cluster.expiry()
    cluster.clock.ms = NOW_MS + 2 * EXPIRY_MS

    async def play(steps: Steps, holds: Holds) -> None:
        async with steps.step("look"):
            await leader.look()

    assert too_long(play) == {}
    assert len(cluster.proposed) == CHANGES_MAX
