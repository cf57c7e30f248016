"""A group's policy: how messages are delivered to it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self, TypeAlias, TypedDict, cast

from tarry.client.errors import InvalidSetting
from tarry.client.integers import UINT32_MAX, UINT64_MAX, whole
from tarry.client.operators.cluster_status import Consumer, GroupStatus
from tarry.proto import tarry_operator_pb2 as operator_pb
from tarry.proto.reasons import Reason


@dataclass(frozen=True, slots=True)
class Exponential:
    """A back-off whose waits grow by a factor, of whole percents."""

    first_ms: int
    max_ms: int
    factor: float = 2


BackOff: TypeAlias = int | Sequence[int] | Exponential
"""Wait before the next delivery, ms: the same each time, a table, whose last repeats, or growing."""


class PolicyOptions(TypedDict, total=False):
    """A group's policy. Where the group does not set a field, its topic does, or else the cluster."""

    attempts_max: int
    """Deliveries of a message before it becomes a dead letter."""
    back_off: BackOff
    """From a nack or the end of a lease to the next delivery."""
    lease_ms: int
    """For which a message stays in hand, where its consumer asks for nothing else."""
    dead_letter_topic: str
    """Where messages go whose attempts are used up: a name that begins with ``dlq.``, ``default`` for
    ``dlq.GROUP.TOPIC``, or ``none``: they are counted, and gone."""
    dead_letter_retention_ms: int
    """Of dead letters, where their topic's settings have no retention."""
    delivery_per_s_max: int
    """Messages a second for all consumers of the group together, retries too; 0: no bound."""
    delay_ms: int
    """From a message's due time to the group's; retries are not delayed again."""


FIELDS: Final = tuple(PolicyOptions.__annotations__)
TEXTS: Final = frozenset(("dead_letter_topic",))
"""Of the fields, those that are names."""
LONG: Final = frozenset(("dead_letter_retention_ms", "delay_ms"))
"""Those of 64 bits."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group of a topic, and its policy."""

    status: GroupStatus
    policy: PolicyOptions
    """As it counts: it has every field."""
    own: PolicyOptions
    """What the group itself sets."""
    set_by: Mapping[str, str]
    """Who sets each field of the policy: ``group``, ``topic``, ``cluster``, ``default``, or before the
    cluster's level is 2 ``node``."""
    consumers: tuple[Consumer, ...] = ()
    """The first 1,000 by name."""
    consumers_left_out: int = 0
    """Number of the others."""

    @classmethod
    def of(cls, response: operator_pb.DescribeGroupResponse) -> Self:
        """Return the answer to one request."""
        return cls(
            GroupStatus.of(response.group),
            options_of(response.policy),
            options_of(response.own),
            dict(response.set_by),
            tuple(map(Consumer.of, response.consumers)),
            response.consumers_left_out,
        )


def check_fields(names: Iterable[str]) -> list[str]:
    """Return names of fields of a policy. Raises InvalidSetting where one is none."""
    listed = list(names)
    if unknown := [name for name in listed if name not in FIELDS]:
        raise InvalidSetting(
            Reason.SETTING_INVALID, f"a policy has no {unknown[0]!r}: name some of {', '.join(FIELDS)}"
        )
    return listed


def packed(options: PolicyOptions) -> operator_pb.GroupPolicy:
    """Return a policy as it is sent. Raises InvalidSetting for a value that none of its fields can be."""
    policy = operator_pb.GroupPolicy()
    for name, value in options.items():
        if name == "back_off":
            policy.back_off.CopyFrom(_packed_back_off(cast(BackOff, value)))
        elif name in TEXTS:
            if not isinstance(value, str):
                raise InvalidSetting(Reason.SETTING_INVALID, f"{name} must be a text: {value!r} is none")
            setattr(policy, name, value)
        else:
            highest = UINT64_MAX if name in LONG else UINT32_MAX
            setattr(policy, name, _number(name, value, highest))
    return policy


def _packed_back_off(back_off: BackOff) -> operator_pb.BackOff:
    match back_off:
        case Exponential():
            percent = back_off.factor * 100
            exponential = operator_pb.ExponentialBackOff(
                first_ms=_number("first_ms", back_off.first_ms),
                max_ms=_number("max_ms", back_off.max_ms),
                factor_percent=_number("factor in percent", round(percent, 6), UINT32_MAX),
            )
            return operator_pb.BackOff(exponential=exponential)
        case Sequence():
            waits = [_number("a wait of the back-off", wait) for wait in back_off]
            return operator_pb.BackOff(table=operator_pb.BackOffTable(wait_ms=waits))
        case _:
            return operator_pb.BackOff(fixed_ms=_number("back_off", back_off))


def _number(name: str, value: Any, highest: int = UINT64_MAX) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return whole(name, value, InvalidSetting, Reason.SETTING_INVALID, highest)


def options_of(policy: operator_pb.GroupPolicy) -> PolicyOptions:
    """Return a policy as it came: the fields that it sets."""
    options: dict[str, Any] = {name: getattr(policy, name) for name in FIELDS if policy.HasField(name)}
    if "back_off" in options:
        options["back_off"] = _back_off_of(policy.back_off)
    return cast(PolicyOptions, options)


def _back_off_of(back_off: operator_pb.BackOff) -> BackOff:
    match back_off.WhichOneof("kind"):
        case "fixed_ms":
            return back_off.fixed_ms
        case "exponential":
            growing = back_off.exponential
            return Exponential(growing.first_ms, growing.max_ms, growing.factor_percent / 100)
        case _:
            return tuple(back_off.table.wait_ms)
