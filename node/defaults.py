"""Defaults for topics and groups that say nothing: the cluster's settings, else what is built in.

Until a leader has seeded the settings, below level 2 that is, the leader's configuration counts instead of
what is built in, as in 0.2.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tarry.node.config import CLASSIC_DELAY_LEVELS_MS, Delivery, Dispatch, NodeConfig
from tarry.proto import dead_letters
from tarry.proto.tarry_message_pb2 import DURABILITY_SYNC
from tarry.proto.tarry_operator_pb2 import BackOff, BackOffTable, ClusterSettings, DelayLevels, GroupPolicy
from tarry.replication.state_machine import cluster_settings
from tarry.replication.state_machine.cluster_settings import ClusterDefaults
from tarry.replication.state_machine.group_policies import ATTEMPTS_MAX, LEASE_MS_MAX, WAIT_MS_MAX

DEAD_LETTER_RETENTION_MS: Final = 14 * 86_400_000
"""Where nobody says otherwise: it outlasts the retention of the topics that letters come from."""
TIMES: Final = ("retention_ms", "group_expiry_ms", "temporary_group_ms", "idempotency_window_ms")
"""Of the settings, those that are in ``[dispatch]`` too."""
KEYS: Final = {
    "attempts_max": "delivery.attempts_max",
    "back_off": "delivery.back_off_ms",
    "lease_ms": "delivery.lease_ms",
    **{name: f"dispatch.{name}" for name in TIMES},
    "delay_levels": "delay_levels_ms",
}
"""Keys of the configuration by the settings that they seed."""


def policy_of_configuration(settings: Delivery) -> GroupPolicy:
    """Return the policy that a configuration says, with every field, within what a field holds."""
    waits = [min(wait_ms, WAIT_MS_MAX) for wait_ms in settings.back_off_ms]
    return GroupPolicy(
        attempts_max=min(settings.attempts_max, ATTEMPTS_MAX),
        back_off=BackOff(table=BackOffTable(wait_ms=waits)),
        lease_ms=min(settings.lease_ms, LEASE_MS_MAX),
        dead_letter_topic=dead_letters.BY_NAME,
        dead_letter_retention_ms=DEAD_LETTER_RETENTION_MS,
        delivery_per_s_max=0,
        delay_ms=0,
    )


BUILT_IN_POLICY: Final = policy_of_configuration(Delivery())


def last_layer(defaults: ClusterDefaults, config: NodeConfig) -> tuple[GroupPolicy, str]:
    """Return the policy that counts where nobody sets anything, and whose it is: ``default`` or ``node``."""
    if defaults.seeded:
        return BUILT_IN_POLICY, "default"
    return policy_of_configuration(config.delivery), "node"


def dispatch(defaults: ClusterDefaults, configured: Dispatch) -> Dispatch:
    """Return the settings of dispatch with the times that count."""
    own, last = defaults.settings, _DISPATCH if defaults.seeded else configured
    times = {name: getattr(own if own.HasField(name) else last, name) for name in TIMES}
    return configured.model_copy(update=times)


_DISPATCH: Final = Dispatch()


def delay_levels_ms(defaults: ClusterDefaults, config: NodeConfig) -> Sequence[int]:
    """Return what the delay levels 1, 2, … mean."""
    if defaults.settings.HasField("delay_levels"):
        return defaults.settings.delay_levels.delay_ms
    return CLASSIC_DELAY_LEVELS_MS if defaults.seeded else config.delay_levels_ms


def whole(defaults: ClusterDefaults, config: NodeConfig) -> tuple[ClusterSettings, dict[str, str]]:
    """Return the settings as they count, with every field, and who sets each: cluster, node or default."""
    last, otherwise = last_layer(defaults, config)
    times = dispatch(defaults, config.dispatch)
    found = ClusterSettings(
        group_policy=last,
        delay_levels=DelayLevels(delay_ms=map(_held, delay_levels_ms(defaults, config))),
        durability=defaults.settings.durability or DURABILITY_SYNC,
        flush_ms=defaults.settings.flush_ms or cluster_settings.FLUSH_MS,
        **{name: _held(getattr(times, name)) for name in TIMES},
    )
    own = defaults.settings
    for field, value in own.group_policy.ListFields():
        found.group_policy.ClearField(field.name)
        if field.message_type is None:
            setattr(found.group_policy, field.name, value)
        else:
            getattr(found.group_policy, field.name).CopyFrom(value)
    sets = {field.name for part in (own, own.group_policy) for field, _ in part.ListFields()}
    return found, {name: "cluster" if name in sets else otherwise for name in cluster_settings.FIELDS}


def _held(time_ms: int) -> int:
    return min(time_ms, cluster_settings.TIME_MS_MAX)


def written(config: NodeConfig) -> ClusterSettings:
    """Return what a configuration says itself, from its file, environment or flags, not by default.

    Left out is what no setting can be: a wait of a thousand years.
    """
    names = {f"delivery.{name}" for name in config.delivery.model_fields_set}
    names |= {f"dispatch.{name}" for name in config.dispatch.model_fields_set} | config.model_fields_set
    settings = ClusterSettings()
    for setting in (setting for setting, key in KEYS.items() if key in names):
        alone = _alone(config, setting)
        if alone is not None and not cluster_settings.fault(alone):
            settings.MergeFrom(alone)
    return settings


def _alone(config: NodeConfig, setting: str) -> ClusterSettings | None:
    delivery = config.delivery
    try:
        match setting:
            case "back_off":
                table = BackOff(table=BackOffTable(wait_ms=delivery.back_off_ms))
                return ClusterSettings(group_policy=GroupPolicy(back_off=table))
            case "attempts_max":
                return ClusterSettings(group_policy=GroupPolicy(attempts_max=delivery.attempts_max))
            case "lease_ms":
                return ClusterSettings(group_policy=GroupPolicy(lease_ms=delivery.lease_ms))
            case "delay_levels":
                return ClusterSettings(delay_levels=DelayLevels(delay_ms=config.delay_levels_ms))
            case _:
                return ClusterSettings(**{setting: getattr(config.dispatch, setting)})
    except ValueError:  # beyond what its field holds
        return None


def overruled(config: NodeConfig, defaults: ClusterDefaults) -> dict[str, tuple[str, str]]:
    """Return the keys that a configuration says itself and that count otherwise, with both values."""
    names = {f"delivery.{name}" for name in config.delivery.model_fields_set}
    names |= {f"dispatch.{name}" for name in config.dispatch.model_fields_set} | config.model_fields_set
    counts, _ = whole(defaults, config)
    found = {}
    for setting, key in KEYS.items():
        if key in names:
            said, valid = _alone(config, setting), _value(counts, setting)
            value = "beyond every bound" if said is None else _value(said, setting)
            if value != valid:
                found[key] = (value, valid)
    return found


def _value(settings: ClusterSettings, setting: str) -> str:
    """Return a setting's value for people."""
    part = settings if setting in cluster_settings.OWN_FIELDS else settings.group_policy
    value = getattr(part, setting)
    match setting:
        case "delay_levels":
            return str(list(value.delay_ms))
        case "back_off" if value.WhichOneof("kind") == "table":
            return str(list(value.table.wait_ms))
        case _:
            return " ".join(str(value).split())
