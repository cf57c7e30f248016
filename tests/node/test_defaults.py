"""What counts where no topic and no group says anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarry.node.config import CLASSIC_DELAY_LEVELS_MS, Delivery, Dispatch, NodeConfig
from tarry.node.defaults import BUILT_IN_POLICY, KEYS, delay_levels_ms, dispatch, overruled, whole, written
from tarry.node.delivery.policy import described, policy_of
from tarry.proto.tarry_operator_pb2 import ClusterSettings, DelayLevels
from tarry.replication.state_machine.cluster_settings import FIELDS, TIME_MS_MAX
from tarry.replication.state_machine.group_policies import ATTEMPTS_MAX
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.node.policies import fixed, table
from tests.replication.commands import subscribe
from tests.replication.state_machine.test_cluster_settings import change
from tests.replication.state_machine.test_levels import RAISE


def config(**given: Any) -> NodeConfig:
    return NodeConfig(
        node="n1", data=Path("/nowhere"), listen="127.0.0.1:1", members={"n1": "127.0.0.1:1"}, **given
    )


CONFIG = config(
    delivery=Delivery(attempts_max=7, back_off_ms=(7, 77)),
    dispatch=Dispatch(retention_ms=70, slice_messages_max=5),
    delay_levels_ms=(1, 2),
)


@pytest.fixture
def machine(tmp_path: Path) -> Any:
    opened = Machine(tmp_path, MachineSettings())
    apply(opened, subscribe())
    yield opened
    opened.close()


def apply(machine: Machine, *commands: bytes) -> None:
    machine.apply(machine.applied_index + 1, 1, commands)


def test_until_the_settings_are_seeded_the_leader_s_configuration_counts(machine: Machine) -> None:
    defaults = machine.queues.defaults
    policy = policy_of(machine.queues, CONFIG, "t", "g")
    assert (policy.attempts_max, policy.back_off, policy.lease_ms) == (7, table(7, 77), 30_000)
    times = dispatch(defaults, CONFIG.dispatch)
    assert (times.retention_ms, times.slice_messages_max) == (70, 5)
    assert list(delay_levels_ms(defaults, CONFIG)) == [1, 2]
    found, by = whole(defaults, CONFIG)
    assert found.retention_ms == 70
    assert by == dict.fromkeys(FIELDS, "node")


def test_the_seed_is_what_the_configuration_says_itself_and_then_no_file_counts(machine: Machine) -> None:
    seed = written(CONFIG)
    assert seed == ClusterSettings(
        group_policy={"attempts_max": 7, "back_off": table(7, 77)},
        retention_ms=70,
        delay_levels=DelayLevels(delay_ms=[1, 2]),
    )
    assert written(config()) == ClusterSettings()
    assert set(written(config(delivery=Delivery(lease_ms=30_000))).group_policy.DESCRIPTOR.fields_by_name)
    assert written(config(delivery=Delivery(lease_ms=30_000))).group_policy.lease_ms == 30_000
    command = change(
        seed=True,
        group_policy=seed.group_policy,
        retention_ms=seed.retention_ms,
        delay_levels=seed.delay_levels,
    )
    apply(machine, RAISE, command)
    other = config(
        delivery=Delivery(attempts_max=1, lease_ms=500),
        dispatch=Dispatch(group_expiry_ms=0),
        delay_levels_ms=(9,),
    )
    policy = policy_of(machine.queues, other, "t", "g")
    assert (policy.attempts_max, policy.back_off, policy.lease_ms) == (7, table(7, 77), 30_000)
    defaults = machine.queues.defaults
    times = dispatch(defaults, other.dispatch)
    assert (times.retention_ms, times.group_expiry_ms) == (70, Dispatch().group_expiry_ms)
    assert list(delay_levels_ms(defaults, other)) == [1, 2]
    found, by = whole(defaults, other)
    assert (found.group_policy.attempts_max, found.group_policy.lease_ms) == (7, 30_000)
    assert {name for name, layer in by.items() if layer == "cluster"} == {
        "attempts_max", "back_off", "retention_ms", "delay_levels",
    }  # fmt: skip
    assert set(by.values()) == {"cluster", "default"}
    _, _, of_group = described(machine.queues, other, "t", "g")
    assert (of_group["attempts_max"], of_group["lease_ms"]) == ("cluster", "default")
    assert overruled(other, defaults) == {
        "delivery.attempts_max": ("1", "7"),
        "delivery.lease_ms": ("500", "30000"),
        "dispatch.group_expiry_ms": ("0", "604800000"),
        "delay_levels_ms": ("[9]", "[1, 2]"),
    }
    assert overruled(CONFIG, defaults) == {}


def test_a_configuration_that_does_not_know_the_window_of_idempotency_keys_leaves_it_as_built_in(
    machine: Machine,
) -> None:
    defaults, longer = machine.queues.defaults, config(dispatch=Dispatch(idempotency_window_ms=7_200_000))
    assert dispatch(defaults, longer.dispatch).idempotency_window_ms == 7_200_000
    apply(machine, RAISE, change(seed=True, retention_ms=written(CONFIG).retention_ms))
    assert dispatch(defaults, longer.dispatch).idempotency_window_ms == 3_600_000
    assert whole(defaults, longer)[0].idempotency_window_ms == 3_600_000
    assert overruled(longer, defaults)["dispatch.idempotency_window_ms"] == ("7200000", "3600000")
    apply(machine, change(idempotency_window_ms=1))
    assert dispatch(defaults, longer.dispatch).idempotency_window_ms == 1


def test_what_is_unset_again_is_as_built_in(machine: Machine) -> None:
    apply(machine, RAISE, change(seed=True, group_policy={"back_off": fixed(3)}, retention_ms=9))
    apply(machine, change("back_off", "retention_ms"))
    found, by = whole(machine.queues.defaults, CONFIG)
    assert found.group_policy == BUILT_IN_POLICY
    assert found.retention_ms == Dispatch().retention_ms
    assert set(by.values()) == {"default"}
    assert list(delay_levels_ms(machine.queues.defaults, CONFIG)) == list(CLASSIC_DELAY_LEVELS_MS)


def test_what_no_setting_can_be_is_not_seeded_and_is_told(machine: Machine) -> None:
    beyond = config(
        delivery=Delivery(attempts_max=2**40, back_off_ms=(1,) * 101, lease_ms=5),
        dispatch=Dispatch(retention_ms=2**60),
    )
    assert written(beyond) == ClusterSettings(group_policy={"lease_ms": 5})
    assert policy_of(machine.queues, beyond, "t", "g").attempts_max == ATTEMPTS_MAX
    absurd = config(dispatch=Dispatch(retention_ms=2**70), delay_levels_ms=(2**70,))
    assert whole(machine.queues.defaults, absurd)[0].retention_ms == TIME_MS_MAX
    apply(machine, RAISE, change(seed=True, group_policy={"lease_ms": 5}))
    assert set(overruled(beyond, machine.queues.defaults)) == {
        "delivery.attempts_max", "delivery.back_off_ms", "dispatch.retention_ms",
    }  # fmt: skip


def test_every_setting_that_a_configuration_has_is_seeded_from_it() -> None:
    every = config(
        delivery=Delivery(attempts_max=1, back_off_ms=(1,), lease_ms=1),
        dispatch=Dispatch(retention_ms=1, group_expiry_ms=1, temporary_group_ms=1, idempotency_window_ms=1),
        delay_levels_ms=(1,),
    )
    seed = written(every)
    names = {field.name for part in (seed, seed.group_policy) for field, _ in part.ListFields()}
    assert names - {"group_policy"} == set(KEYS)
