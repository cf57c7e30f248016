"""Faults of a policy that an operator sets, those of the state machine and of the leader's own bounds."""

from __future__ import annotations

from collections.abc import Iterable

from tarry.node.config import NodeConfig
from tarry.node.edge.names import check_topic
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.dead_letters import DEAD_LETTERS
from tarry.replication.state_machine import group_policies


def policy_fault(
    config: NodeConfig, policy: pb.GroupPolicy, unset: Iterable[str] = (), topic: str = ""
) -> str:
    """Return what is wrong with a change of a policy for a topic, and what would do; empty: nothing."""
    low, high = config.delivery.lease_ms_min, config.delivery.lease_ms_max
    if policy.HasField("lease_ms") and not low <= policy.lease_ms <= high:
        return f"lease_ms {policy.lease_ms} is not within {low} to {high}"
    if fault := group_policies.fault(policy, unset, topic):
        return fault
    named = policy.dead_letter_topic  # else nobody could consume it
    refusal = check_topic(named, config.limits) if named.startswith(DEAD_LETTERS) else None
    return refusal.text if refusal else ""
