"""A topic's settings."""

from __future__ import annotations

from enum import StrEnum
from typing import TypedDict, cast

from tarry.client.errors import InvalidSetting
from tarry.client.integers import UINT32_MAX, UINT64_MAX, whole
from tarry.client.operators import group_policy
from tarry.client.operators.group_policy import PolicyOptions
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.reasons import Reason


class Misfire(StrEnum):
    """Policy for messages released too late: the cluster was down, or its clock behind."""

    LATE = "late"
    """Delivered late."""
    DROP = "drop"
    """Counted, and not delivered."""
    DEAD_LETTER = "dead-letter"
    """Delivered to consumers of the topic ``dlq.misfired.TOPIC``."""
    CATCH_UP = "catch-up"
    """Delivered late, ``catch_up_per_s_max`` a second, and before what is due later."""


class TopicOptions(TypedDict, total=False):
    """A topic's settings, each with a default."""

    retention_ms: int
    """Minimum time for which released messages are kept; 0: the cluster's default."""
    body_bytes_max: int
    """0: the nodes' limit."""
    release_per_s_max: int
    """Messages opened for delivery a second; more wait; 0: no bound."""
    pending_max: int
    """Messages that may wait in the wheel; more are refused; 0: no bound."""
    misfire: Misfire
    misfire_after_ms: int
    """Released later than this after its due time, a message has misfired; 0: never."""
    catch_up_per_s_max: int
    """For ``Misfire.CATCH_UP``."""
    retention_bytes: int
    """Of released messages, about, kept for nothing but their retention; 0: no bound."""
    retention_max_ms: int
    """Released longer ago, messages are gone even for groups that have not had them; 0: never."""
    group_policy: PolicyOptions
    """Of its groups, where their own policies say nothing."""


_POLICIES = list(Misfire)


def packed(options: TopicOptions) -> operator_pb.TopicSettings:
    """Return settings as they are sent. Raises InvalidSetting for a value that none of them can be."""
    numbers = {name: value for name, value in options.items() if name not in ("misfire", "group_policy")}
    for name, value in numbers.items():
        highest = UINT32_MAX if name.endswith("per_s_max") else UINT64_MAX
        whole(name, value, InvalidSetting, Reason.SETTING_INVALID, highest)  # type: ignore[arg-type]
    settings = operator_pb.TopicSettings(**numbers)  # type: ignore[arg-type]
    settings.misfire = _POLICIES.index(options.get("misfire", Misfire.LATE))  # type: ignore[assignment]
    if options.get("group_policy"):
        settings.group_policy.CopyFrom(group_policy.packed(options["group_policy"]))
    return settings


def options_of(settings: operator_pb.TopicSettings) -> TopicOptions:
    """Return settings as they came."""
    options = {name: getattr(settings, name) for name in TopicOptions.__annotations__}
    options["group_policy"] = group_policy.options_of(settings.group_policy)
    return cast(TopicOptions, options | {"misfire": _POLICIES[settings.misfire]})
