"""The cluster's settings, for topics and groups that say nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, cast

from tarry.client.durability import Durability
from tarry.client.errors import InvalidSetting
from tarry.client.integers import UINT32_MAX, UINT64_MAX, whole
from tarry.client.operators import group_policy
from tarry.client.operators.group_policy import PolicyOptions
from tarry.proto import tarry_message_pb2 as message_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.reasons import Reason


class ClusterOptions(PolicyOptions, total=False):
    """Settings of a cluster: the policy of groups, and these."""

    retention_ms: int
    """How long released messages are kept at least."""
    group_expiry_ms: int
    """Without use for so long, groups that consumers made are deleted; 0: never."""
    temporary_group_ms: int
    """For which a temporary group waits for its consumer to come back."""
    idempotency_window_ms: int
    """How long behind a message's release its idempotency key counts, 1 at least."""
    delay_levels_ms: Sequence[int]
    """What the delay levels 1, 2, … mean."""
    durability: Durability | str
    """``sync``, or ``async``: answers come once a majority has written a change, before it is flushed."""
    flush_ms: int
    """With async durability each node flushes within it what it has written."""


_TIMES: Final = ("retention_ms", "group_expiry_ms", "temporary_group_ms", "idempotency_window_ms")
FIELDS: Final = (*group_policy.FIELDS, *_TIMES, "delay_levels_ms", "durability", "flush_ms")
_SENT_AS: Final = {"delay_levels_ms": "delay_levels"}


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster's settings."""

    settings: ClusterOptions
    """As they count: it has every field."""
    own: ClusterOptions
    """What is set."""
    set_by: Mapping[str, str]
    """Who sets each field: ``cluster``, ``default``, or before the cluster's level is 2 ``node``."""

    @classmethod
    def of(cls, response: operator_pb.DescribeClusterResponse) -> Self:
        """Return the answer to one request."""
        named = {sent: name for name, sent in _SENT_AS.items()}
        set_by = {named.get(name, name): layer for name, layer in response.set_by.items()}
        return cls(options_of(response.settings), options_of(response.own), set_by)


def sent_names(names: Iterable[str]) -> list[str]:
    """Return names of settings as they are sent. Raises InvalidSetting where one is none."""
    listed = list(names)
    if unknown := [name for name in listed if name not in FIELDS]:
        text = f"there is no setting {unknown[0]!r}: name some of {', '.join(FIELDS)}"
        raise InvalidSetting(Reason.SETTING_INVALID, text)
    return [_SENT_AS.get(name, name) for name in listed]


def packed(options: ClusterOptions) -> operator_pb.ClusterSettings:
    """Return settings as they are sent. Raises InvalidSetting for a value that none of them can be."""
    settings = operator_pb.ClusterSettings()
    values: Mapping[str, Any] = options
    if policy := {name: value for name, value in values.items() if name in group_policy.FIELDS}:
        settings.group_policy.CopyFrom(group_policy.packed(cast(PolicyOptions, policy)))
    for name in _TIMES:
        if name in values:
            setattr(settings, name, _number(name, values[name]))
    if "delay_levels_ms" in values:
        settings.delay_levels.SetInParent()
        settings.delay_levels.delay_ms.extend(_number("a delay", each) for each in values["delay_levels_ms"])
    if "durability" in values:
        settings.durability = _durability(values["durability"])
    if "flush_ms" in values:
        settings.flush_ms = _number("flush_ms", values["flush_ms"], UINT32_MAX)
    return settings


def _durability(value: str) -> message_pb.Durability:
    try:
        return Durability(value).sent
    except ValueError:
        text = f"durability is {' or '.join(Durability)}, not {value!r}"
        raise InvalidSetting(Reason.SETTING_INVALID, text) from None


def _number(name: str, value: Any, most: int = UINT64_MAX) -> int:
    return whole(name, value, InvalidSetting, Reason.SETTING_INVALID, most)


def options_of(settings: operator_pb.ClusterSettings) -> ClusterOptions:
    """Return settings as they came: the fields that are set."""
    options: dict[str, Any] = dict(group_policy.options_of(settings.group_policy))
    options |= {name: getattr(settings, name) for name in _TIMES if settings.HasField(name)}
    if settings.HasField("delay_levels"):
        options["delay_levels_ms"] = tuple(settings.delay_levels.delay_ms)
    if settings.HasField("durability"):
        options["durability"] = Durability.of(settings.durability)
    if settings.HasField("flush_ms"):
        options["flush_ms"] = settings.flush_ms
    return cast(ClusterOptions, options)
