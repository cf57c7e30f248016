"""Policy of a group as it counts: for each field, what the first of these sets.

    the group's own ─► its topic's, for its groups ─► the cluster's ─► what is built in

The first three are replicated, and so the same under every leader. Instead of the last one, the leader's
configuration counts until the cluster's have been seeded (`defaults`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from tarry.node.config import NodeConfig
from tarry.node.defaults import last_layer
from tarry.proto import dead_letters
from tarry.proto.tarry_operator_pb2 import BackOff, ExponentialBackOff, GroupPolicy
from tarry.replication.state_machine.group_policies import FIELDS
from tarry.replication.state_machine.queues import Queues

SETTERS: Final = ("group", "topic", "cluster")
"""Names of the layers, in the order in which they are asked; the last is named by `defaults.last_layer`."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Policy of a group, whole."""

    attempts_max: int
    back_off: BackOff
    lease_ms: int
    dead_letter_topic: str
    """Its name; dead_letters.NO_TOPIC: there is none."""
    dead_letter_retention_ms: int
    delivery_per_s_max: int
    """0: no bound."""
    delay_ms: int


def policy_of(queues: Queues, config: NodeConfig, topic: str, group: str) -> Policy:
    """Return the policy of a group of a topic, be it there or not."""
    whole, _ = resolved(_layers(queues, config, topic, group))
    return Policy(
        whole.attempts_max,
        whole.back_off,
        whole.lease_ms,
        dead_letters.target(whole.dead_letter_topic, topic, group),
        whole.dead_letter_retention_ms,
        whole.delivery_per_s_max,
        whole.delay_ms,
    )


def described(
    queues: Queues, config: NodeConfig, topic: str, group: str
) -> tuple[GroupPolicy, GroupPolicy, dict[str, str]]:
    """Return a group's policy as it counts, what it sets itself, and who sets each field."""
    layers = _layers(queues, config, topic, group)
    setters = (*SETTERS, last_layer(queues.defaults, config)[1])
    whole, by = resolved(layers)
    whole.dead_letter_topic = dead_letters.target(whole.dead_letter_topic, topic, group)
    return whole, layers[0], {name: setters[layer] for name, layer in by.items()}


def described_of_topic(queues: Queues, config: NodeConfig, topic: str) -> tuple[GroupPolicy, dict[str, str]]:
    """Return the policy of a topic's groups that set nothing, and who sets each field."""
    whole, by = resolved(_layers(queues, config, topic, "")[1:])
    setters = (*SETTERS[1:], last_layer(queues.defaults, config)[1])
    return whole, {name: setters[layer] for name, layer in by.items()}


def _layers(queues: Queues, config: NodeConfig, topic: str, group: str) -> list[GroupPolicy]:
    of_topic, retries = queues.find(topic), queues.find(topic, group)
    own = retries.policy if retries is not None else None
    return [
        own if own is not None else _NOTHING,
        of_topic.settings.group_policy if of_topic is not None else _NOTHING,
        queues.defaults.settings.group_policy,
        last_layer(queues.defaults, config)[0],
    ]


def resolved(layers: list[GroupPolicy]) -> tuple[GroupPolicy, dict[str, int]]:
    """Return each field as the first layer that has it says, and which one that is, by name."""
    whole, by = GroupPolicy(), dict[str, int]()
    for name in FIELDS:
        for number, layer in enumerate(layers):
            if layer.HasField(name):
                part = getattr(layer, name)
                if name == "back_off":
                    whole.back_off.CopyFrom(part)
                else:
                    setattr(whole, name, part)
                by[name] = number
                break
    return whole, by


def back_off_ms(back_off: BackOff, attempt: int) -> int:
    """Return the wait before the next delivery, after delivery number ``attempt`` (from 1)."""
    match back_off.WhichOneof("kind"):
        case "fixed_ms":
            return back_off.fixed_ms
        case "exponential":
            return _exponential_ms(back_off.exponential, attempt)
        case _:
            waits = back_off.table.wait_ms
            return waits[min(attempt, len(waits)) - 1]


def _exponential_ms(back_off: ExponentialBackOff, attempt: int) -> int:
    first_ms, max_ms, factor = back_off.first_ms, back_off.max_ms, back_off.factor_percent / 100
    if (attempt - 1) * math.log(factor) >= math.log(max_ms / first_ms):  # the power may be beyond a float
        return max_ms
    return min(max_ms, round(first_ms * factor ** (attempt - 1)))


_NOTHING: Final = GroupPolicy()
