"""Policies of groups, for tests."""

from __future__ import annotations

from typing import Any

from tarry.node.config import Delivery
from tarry.node.defaults import DEAD_LETTER_RETENTION_MS
from tarry.node.delivery.policy import Policy
from tarry.proto.tarry_operator_pb2 import BackOff, BackOffTable, ExponentialBackOff


def fixed(wait_ms: int) -> BackOff:
    return BackOff(fixed_ms=wait_ms)


def table(*waits: int) -> BackOff:
    return BackOff(table=BackOffTable(wait_ms=waits))


def exponential(first_ms: int, max_ms: int, factor_percent: int = 200) -> BackOff:
    values = {"first_ms": first_ms, "max_ms": max_ms, "factor_percent": factor_percent}
    return BackOff(exponential=ExponentialBackOff(**values))


def policy(**given: Any) -> Policy:
    """Return the built-in policy, some fields of it given."""
    built_in = Delivery()
    fields = {
        "attempts_max": built_in.attempts_max,
        "back_off": table(*built_in.back_off_ms),
        "lease_ms": built_in.lease_ms,
        "dead_letter_topic": "dlq.g.t",
        "dead_letter_retention_ms": DEAD_LETTER_RETENTION_MS,
        "delivery_per_s_max": 0,
        "delay_ms": 0,
    }
    return Policy(**fields | given)
