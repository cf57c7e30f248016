"""Which policy counts for a group, and what its back-off makes of an attempt."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.node.config import Delivery, NodeConfig
from tarry.node.defaults import policy_of_configuration
from tarry.node.delivery.policy import back_off_ms, described, policy_of, resolved
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.dead_letters import target
from tarry.proto.tarry_operator_pb2 import BackOff, GroupPolicy, TopicSettings
from tarry.replication.state_machine.group_policies import (
    ATTEMPTS_MAX,
    FACTOR_PERCENT_MAX,
    FIELDS,
    WAIT_MS_MAX,
)
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.node.policies import exponential, fixed, table
from tests.replication.commands import NOW_MS, admin, subscribe
from tests.replication.state_machine.test_group_policies import policies
from tests.replication.state_machine.test_levels import RAISE

CONFIG = NodeConfig(
    node="n1",
    data=Path("/nowhere"),
    listen="127.0.0.1:1",
    members={"n1": "127.0.0.1:1"},
    delivery=Delivery(attempts_max=7, lease_ms=777, back_off_ms=(7, 77)),
)
LAST = policy_of_configuration(CONFIG.delivery)
NAMED = ("default", "dlq.shared", "dlq.g.t", "dlq.dlq.g")


@given(layers=st.lists(policies, max_size=3))
def test_each_field_is_as_the_first_says_that_sets_it(layers: list[GroupPolicy]) -> None:
    whole, by = resolved([*layers, LAST])
    sets = [{field.name for field, _ in layer.ListFields()} for layer in (*layers, LAST)]
    for name in FIELDS:
        first = next(number for number, names in enumerate(sets) if name in names)
        assert by[name] == first
        assert getattr(whole, name) == getattr([*layers, LAST][first], name)


def test_a_group_counts_before_its_topic_and_that_before_the_configuration(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    settings = TopicSettings(group_policy=GroupPolicy(attempts_max=5, lease_ms=555))
    own = GroupPolicy(attempts_max=3)
    commands = [
        subscribe(),
        subscribe(group="other"),
        subscribe("u"),
        RAISE,
        admin(log_pb.TopicCommand(topic="t", settings=settings, now_ms=NOW_MS)),
        admin(log_pb.GroupPolicyCommand(topic="t", group="g", policy=own, now_ms=NOW_MS)),
    ]
    machine.apply(1, 1, commands)
    found = policy_of(machine.queues, CONFIG, "t", "g")
    assert (found.attempts_max, found.lease_ms, found.back_off) == (3, 555, table(7, 77))
    whole, its, by = described(machine.queues, CONFIG, "t", "g")
    assert (whole.attempts_max, whole.lease_ms, its) == (3, 555, own)
    assert (by["attempts_max"], by["lease_ms"], by["back_off"]) == ("group", "topic", "node")
    assert by.keys() == set(FIELDS)
    assert policy_of(machine.queues, CONFIG, "t", "other").attempts_max == 5
    assert policy_of(machine.queues, CONFIG, "u", "g").attempts_max == 7
    assert policy_of(machine.queues, CONFIG, "nowhere", "g").attempts_max == 7
    machine.close()


@pytest.mark.parametrize(
    ("given", "topic", "found"),
    [
        ("default", "t", "dlq.g.t"),
        ("dlq.shared", "t", "dlq.shared"),
        ("none", "t", "none"),
        ("dlq.shared", "dlq.shared", "dlq.g.dlq.shared"),
        ("dlq.shared", "dlq.other", "dlq.g.dlq.other"),
        ("none", "dlq.shared", "none"),
    ],
)
def test_a_given_name_counts_but_for_groups_of_dead_letter_topics_whose_letters_would_go_round(
    given: str, topic: str, found: str, tmp_path: Path
) -> None:
    machine = Machine(tmp_path, MachineSettings())
    settings = TopicSettings(group_policy=GroupPolicy(dead_letter_topic=given))
    run = [subscribe(topic), RAISE]
    if not (topic.startswith("dlq.") and given.startswith("dlq.")):
        run.append(admin(log_pb.TopicCommand(topic=topic, settings=settings, now_ms=NOW_MS)))
    machine.apply(1, 1, run)
    assert target(given, topic, "g") == found
    if len(run) == 3:
        assert policy_of(machine.queues, CONFIG, topic, "g").dead_letter_topic == found
        whole, _, by = described(machine.queues, CONFIG, topic, "g")
        assert (whole.dead_letter_topic, by["dead_letter_topic"]) == (found, "topic")
    machine.close()


@given(st.lists(st.sampled_from(("g", "dlq", "misfired.x")), min_size=1, max_size=5), st.sampled_from(NAMED))
def test_no_letter_comes_back_to_a_topic_that_it_has_been_in(groups: list[str], given: str) -> None:
    topics = ["t"]
    for group in groups:
        topics.append(target(given, topics[-1], group))
    assert len(set(topics)) == len(topics)


@pytest.mark.parametrize(
    ("back_off", "waits"),
    [
        (fixed(40), [40, 40, 40, 40, 40]),
        (table(10, 70, 90), [10, 70, 90, 90, 90]),
        (table(5), [5, 5, 5, 5, 5]),
        (exponential(10, 100), [10, 20, 40, 80, 100]),
        (exponential(10, 10), [10, 10, 10, 10, 10]),
        (exponential(10, 80), [10, 20, 40, 80, 80]),
        (exponential(10, 1_000, 150), [10, 15, 22, 34, 51]),
        (exponential(10, 1_000, 100), [10, 10, 10, 10, 10]),
    ],
)
def test_a_back_off_says_how_long_each_attempt_waits(back_off: BackOff, waits: list[int]) -> None:
    assert [back_off_ms(back_off, attempt) for attempt in range(1, 6)] == waits


@given(
    first=st.integers(1, WAIT_MS_MAX),
    most=st.integers(1, WAIT_MS_MAX),
    factor=st.integers(100, FACTOR_PERCENT_MAX),
    attempt=st.integers(1, ATTEMPTS_MAX),
)
def test_an_exponential_back_off_only_grows_and_keeps_within_its_bounds(
    first: int, most: int, factor: int, attempt: int
) -> None:
    first, most = min(first, most), max(first, most)
    back_off = exponential(first, most, factor)
    waits = [back_off_ms(back_off, one) for one in (1, attempt, attempt + 1, ATTEMPTS_MAX)]
    assert waits[0] == first
    assert waits == sorted(waits)
    assert all(first <= wait <= most for wait in waits)
