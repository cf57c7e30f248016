"""How long dead letters are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tarry.node.config import NodeConfig
from tarry.node.defaults import DEAD_LETTER_RETENTION_MS
from tarry.node.leader.letter_retention import LetterRetention
from tarry.node.leader.retention import Kept
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import GroupPolicy, TopicSettings
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.replication.commands import NOW_MS, admin, release, schedule, subscribe
from tests.replication.state_machine.test_group_policies import bury
from tests.replication.state_machine.test_levels import RAISE

DAY_MS = 86_400_000
CONFIG = NodeConfig(node="n1", data=Path("/nowhere"), listen="127.0.0.1:1", members={"n1": "127.0.0.1:1"})


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """With two groups of t."""
    opened = Machine(tmp_path, MachineSettings())
    apply(opened, subscribe(), subscribe(group="h"))
    yield opened
    opened.close()


def apply(machine: Machine, *commands: bytes) -> None:
    machine.apply(machine.applied_index + 1, 1, commands)


def set_group(group: str = "g", **policy: Any) -> bytes:
    return admin(
        log_pb.GroupPolicyCommand(topic="t", group=group, policy=GroupPolicy(**policy), now_ms=NOW_MS)
    )


def set_topic(topic: str, **settings: Any) -> bytes:
    return admin(log_pb.TopicCommand(topic=topic, settings=TopicSettings(**settings), now_ms=NOW_MS))


def kept_ms(machine: Machine, topic: str) -> int | None:
    letters = LetterRetention(machine, CONFIG)
    asyncio.run(letters.read())
    return letters.of(topic)


def test_dead_letters_are_kept_for_fourteen_days_from_level_two_on_and_nothing_else_is(
    machine: Machine,
) -> None:
    assert kept_ms(machine, "dlq.g.t") is None
    apply(machine, RAISE)
    assert kept_ms(machine, "dlq.g.t") == DEAD_LETTER_RETENTION_MS == 14 * DAY_MS
    assert kept_ms(machine, "dlq.misfired.t") == kept_ms(machine, "dlq.of.nobody") == 14 * DAY_MS
    assert kept_ms(machine, "t") is None


def test_the_longest_counts_of_the_groups_whose_letters_are_in_a_topic(machine: Machine) -> None:
    apply(machine, RAISE, set_group(dead_letter_retention_ms=5), set_group("h", dead_letter_retention_ms=7))
    assert (kept_ms(machine, "dlq.g.t"), kept_ms(machine, "dlq.h.t")) == (5, 7)
    apply(machine, set_group(dead_letter_topic="dlq.a"), set_group("h", dead_letter_topic="dlq.a"))
    assert kept_ms(machine, "dlq.a") == 7
    apply(machine, set_topic("t", group_policy=GroupPolicy(dead_letter_retention_ms=3)))
    assert (kept_ms(machine, "dlq.misfired.t"), kept_ms(machine, "dlq.a")) == (3, 7)


def test_letters_of_before_are_kept_as_long_as_new_ones_where_a_group_names_another_topic(
    machine: Machine,
) -> None:
    apply(machine, RAISE, schedule([NOW_MS]), release(NOW_MS))
    apply(machine, admin(bury(target="dlq.a")))
    apply(machine, set_group(dead_letter_topic="dlq.b", dead_letter_retention_ms=9))
    assert (kept_ms(machine, "dlq.a"), kept_ms(machine, "dlq.b")) == (9, 9)


@pytest.mark.parametrize(
    ("settings", "age_days", "kept"),
    [({}, 13, 1), ({}, 15, 0), ({"retention_ms": DAY_MS}, 2, 0), ({"retention_ms": 20 * DAY_MS}, 15, 1)],
)
def test_letters_outlast_other_messages_unless_their_topic_says_otherwise(
    settings: dict[str, int], age_days: int, kept: int, machine: Machine
) -> None:
    apply(machine, RAISE, set_topic("dlq.g.t", **settings), schedule([NOW_MS], topic="dlq.g.t"))
    apply(machine, schedule([NOW_MS], topic="u"), release(NOW_MS))
    keeps = Kept(machine, 3 * DAY_MS, LetterRetention(machine, CONFIG))

    async def cut() -> None:
        await keeps.measure()
        for command in await keeps.plan(NOW_MS + age_days * DAY_MS):
            apply(machine, admin(command))

    asyncio.run(cut())
    letters, others = machine.queues.of("dlq.g.t"), machine.queues.of("u")
    assert letters.units - letters.first == kept
    assert others.units - others.first == (1 if age_days < 3 else 0)
