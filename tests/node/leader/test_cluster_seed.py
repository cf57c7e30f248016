"""The cluster's settings are seeded by the first leader that may, once, whatever comes between."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tarry.node.config import Delivery
from tarry.node.leader.cluster_seed import ClusterSeed
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.node.test_defaults import config
from tests.replication.commands import NOW_MS
from tests.replication.state_machine.test_levels import RAISE

WRITTEN = config(delivery=Delivery(attempts_max=7))


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    opened = Machine(tmp_path, MachineSettings())
    yield opened
    opened.close()


def apply(machine: Machine, command: bytes) -> None:
    machine.apply(machine.applied_index + 1, 1, [command])


def seed(machine: Machine, proposed: list[log_pb.ClusterSettingsCommand], **given: Any) -> ClusterSeed:
    async def propose(command: log_pb.ClusterSettingsCommand) -> None:
        proposed.append(command)
        apply(machine, encode(command))

    return ClusterSeed(machine, given.get("of", WRITTEN), lambda: NOW_MS, propose)


def test_it_waits_for_the_level_and_is_done_once(machine: Machine) -> None:
    proposed: list[log_pb.ClusterSettingsCommand] = []

    async def lead() -> None:
        first = seed(machine, proposed)
        seeding = asyncio.ensure_future(first.run())
        for _ in range(3):
            await asyncio.sleep(0)
            first.look()
        assert not proposed
        apply(machine, RAISE)
        first.look()
        await seeding
        await seed(machine, proposed, of=config(delivery=Delivery(attempts_max=3))).run()

    asyncio.run(lead())
    (command,) = proposed
    assert (command.seed, command.settings.group_policy.attempts_max) == (True, 7)
    assert machine.queues.defaults.settings.group_policy.attempts_max == 7


def test_a_leader_whose_file_says_otherwise_tells_it_with_both_values(machine: Machine) -> None:
    async def lead() -> None:
        apply(machine, RAISE)
        await seed(machine, []).run()
        with capture_logs() as own:
            await seed(machine, []).run()
        assert own == []
        with capture_logs() as lines:
            await seed(machine, [], of=config(delivery=Delivery(attempts_max=3))).run()
        assert [(line["event"], line["key"], line["value"], line["counts"]) for line in lines] == [
            ("configuration does not count", "delivery.attempts_max", "3", "7")
        ]

    asyncio.run(lead())
