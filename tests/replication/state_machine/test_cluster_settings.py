"""The cluster's settings: what may be in the log, what a change makes of them, and replicas keep."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.proto.tarry_operator_pb2 import ClusterSettings, DelayLevels, GroupPolicy
from tarry.replication.state_machine.cluster_settings import (
    DELAY_LEVELS_MAX,
    FIELDS,
    OWN_FIELDS,
    TIME_MS_MAX,
    fault,
)
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.group_policies import FIELDS as POLICY_FIELDS
from tarry.replication.state_machine.levels import LevelTooLow
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Changed
from tarry.replication.state_machine.refusal import Refusal
from tests.node.policies import fixed, table
from tests.replication.commands import NOW_MS, subscribe
from tests.replication.state_machine.test_levels import RAISE
from tests.replication.state_machine.test_machine import fresh, machine, run

__all__ = ["fresh"]


def change(*unset: str, seed: bool = False, **settings: Any) -> bytes:
    return encode(
        log_pb.ClusterSettingsCommand(
            settings=ClusterSettings(**settings), unset=unset, seed=seed, now_ms=NOW_MS
        )
    )


def levels(*delay_ms: int) -> DelayLevels:
    return DelayLevels(delay_ms=delay_ms)


def settings(machine: Machine) -> ClusterSettings:
    return machine.queues.defaults.settings


def test_the_fields_are_those_of_the_protocol() -> None:
    assert (*OWN_FIELDS, "group_policy") == tuple(
        sorted(ClusterSettings.DESCRIPTOR.fields_by_name, key=(*OWN_FIELDS, "group_policy").index)
    )
    assert set(FIELDS) == {*OWN_FIELDS, *GroupPolicy.DESCRIPTOR.fields_by_name}
    assert len(FIELDS) == len(OWN_FIELDS) + len(POLICY_FIELDS)


@pytest.mark.parametrize(
    ("given", "unset", "says"),
    [
        ({"retention_ms": 0}, (), "retention_ms is 1 to"),
        ({"retention_ms": TIME_MS_MAX + 1}, (), "retention_ms is 1 to"),
        ({"group_expiry_ms": TIME_MS_MAX + 1}, (), "group_expiry_ms is 0 to"),
        ({"temporary_group_ms": 0}, (), "temporary_group_ms is 1 to"),
        ({"idempotency_window_ms": 0}, (), "idempotency_window_ms is 1 to"),
        ({"idempotency_window_ms": TIME_MS_MAX + 1}, (), "idempotency_window_ms is 1 to"),
        ({"delay_levels": levels()}, (), "delay_levels has 1 to"),
        ({"delay_levels": levels(0)}, (), "delay_levels has 1 to"),
        ({"delay_levels": levels(*[1] * (DELAY_LEVELS_MAX + 1))}, (), "delay_levels has 1 to"),
        ({"group_policy": {"attempts_max": 0}}, (), "attempts_max is 1 to"),
        ({"group_policy": {"dead_letter_topic": "orders"}}, (), "begins with 'dlq.'"),
        ({}, ("retries",), "there is no setting 'retries' to unset: name some of attempts_max"),
        ({"retention_ms": 1}, ("retention_ms",), "set and unset at once"),
        ({"group_policy": {"lease_ms": 1}}, ("lease_ms",), "set and unset at once"),
    ],
)
def test_what_no_leader_can_act_by_is_refused(
    given: dict[str, Any], unset: tuple[str, ...], says: str, fresh: Machine
) -> None:
    assert says in fault(ClusterSettings(**given), unset)
    run(fresh, [RAISE])
    (outcome,) = fresh.apply(2, 1, [change(*unset, **given)])
    assert isinstance(outcome, Refusal)
    assert outcome.reason is Reason.SETTING_INVALID
    assert settings(fresh) == ClusterSettings()


@pytest.mark.parametrize("window_ms", [1, TIME_MS_MAX])
def test_the_least_and_the_longest_window_of_idempotency_keys_are_taken(
    window_ms: int, fresh: Machine
) -> None:
    run(fresh, [RAISE, change(idempotency_window_ms=window_ms)])
    assert settings(fresh) == ClusterSettings(idempotency_window_ms=window_ms)


def test_a_change_keeps_what_it_does_not_name_and_joins_no_lists(fresh: Machine) -> None:
    run(fresh, [RAISE, change(retention_ms=5, group_policy={"attempts_max": 3, "back_off": table(1, 2)})])
    run(fresh, [change(delay_levels=levels(1, 2), group_policy={"back_off": table(9)})])
    run(fresh, [change(delay_levels=levels(7), group_expiry_ms=0)])
    expected = ClusterSettings(
        retention_ms=5,
        group_expiry_ms=0,
        delay_levels=levels(7),
        group_policy={"attempts_max": 3, "back_off": table(9)},
    )
    assert settings(fresh) == expected
    run(fresh, [change("retention_ms", "attempts_max", "back_off")])
    assert settings(fresh) == ClusterSettings(group_expiry_ms=0, delay_levels=levels(7))
    assert not settings(fresh).HasField("group_policy")
    assert not fresh.queues.defaults.seeded


def test_a_seed_leaves_what_an_operator_has_set_and_only_the_first_counts(fresh: Machine) -> None:
    run(fresh, [RAISE, change(retention_ms=5, group_policy={"lease_ms": 7})])
    seed = {"retention_ms": 1, "temporary_group_ms": 2, "group_policy": {"lease_ms": 1, "back_off": fixed(4)}}
    run(fresh, [change(seed=True, **seed)])
    whole = ClusterSettings(
        retention_ms=5, temporary_group_ms=2, group_policy={"lease_ms": 7, "back_off": fixed(4)}
    )
    assert (settings(fresh), fresh.queues.defaults.seeded) == (whole, True)
    run(
        fresh, [change("back_off"), change(seed=True, group_policy={"back_off": fixed(9)}, group_expiry_ms=9)]
    )
    whole.group_policy.ClearField("back_off")
    assert settings(fresh) == whole


def test_they_are_of_the_checkpoint_and_of_the_digest_and_nothing_of_level_one_is(tmp_path: Path) -> None:
    with machine(tmp_path) as first:
        run(first, [subscribe()])
        assert first.queues.defaults.capture() == []
        run(first, [RAISE])
        before, index = first.digest(), first.applied_index
        run(first, [change(seed=True)])
        first.applied_index, seeded = index, first.digest()
        assert seeded != before
        run(first, [change(retention_ms=5, group_policy={"lease_ms": 7})])
        first.write(first.capture())
        digest = first.digest()
        assert digest != seeded
    with machine(tmp_path) as again:
        assert again.digest() == digest
        assert again.queues.defaults.seeded
        assert settings(again) == ClusterSettings(retention_ms=5, group_policy={"lease_ms": 7})


def test_a_change_wakes_every_queue_and_needs_its_level(fresh: Machine) -> None:
    run(fresh, [subscribe(), subscribe("u")])
    with pytest.raises(LevelTooLow, match="needs level 2"):
        fresh.encode(log_pb.ClusterSettingsCommand(now_ms=NOW_MS))
    (early,) = fresh.apply(fresh.applied_index + 1, 1, [change(retention_ms=5)])
    assert isinstance(early, Refusal)
    assert early.reason is Reason.LEVEL_TOO_LOW
    run(fresh, [RAISE])
    fresh.queues.take_changed()
    changes = fresh.queues.changes_of_policy
    assert fresh.apply(fresh.applied_index + 1, 1, [change(retention_ms=5)]) == [Changed()]
    assert fresh.queues.take_changed() == {queue.queue for queue in fresh.queues}
    assert fresh.queues.changes_of_policy == changes + 1
