"""Policies of groups: which may be in the log, and what a change makes of one.

Applying only keeps them; the leader acts by them (node/delivery/policy.py), and what it does is in the log. A
policy with a fault is refused before the log and by every replica alike, so none that is kept has any.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from tarry.proto import dead_letters
from tarry.proto.tarry_operator_pb2 import BackOff, GroupPolicy

ATTEMPTS_MAX: Final = 1_000_000
WAIT_MS_MAX: Final = 100 * 365 * 86_400_000
"""A back-off's, and a century."""
LEASE_MS_MAX: Final = 2**32 - 1
RETENTION_MS_MAX: Final = WAIT_MS_MAX
DELAY_MS_MAX: Final = 366 * 86_400_000
"""Of a group, a year: as long its messages stay on disk."""
TABLE_MAX: Final = 100
"""Waits in a back-off's table."""
FACTOR_PERCENT_MIN: Final = 100
FACTOR_PERCENT_MAX: Final = 100_000
FIELDS: Final = tuple(GroupPolicy.DESCRIPTOR.fields_by_name)


def fault(policy: GroupPolicy, unset: Iterable[str] = (), topic: str = "") -> str:
    """Return what is wrong with a change of a policy for a topic, and what would do; empty: nothing."""
    if unknown := [name for name in unset if name not in FIELDS]:
        return f"a policy has no {unknown[0][:80]!r} to unset: name some of {', '.join(FIELDS)}"
    if twice := [name for name in unset if policy.HasField(name)]:
        return f"{twice[0]} is set and unset at once: do one of the two"
    if policy.HasField("attempts_max") and not 1 <= policy.attempts_max <= ATTEMPTS_MAX:
        return f"attempts_max is 1 to {ATTEMPTS_MAX}"
    if policy.HasField("lease_ms") and not policy.lease_ms:
        return f"lease_ms is 1 to {LEASE_MS_MAX}"
    kept_ms = policy.dead_letter_retention_ms if policy.HasField("dead_letter_retention_ms") else 1
    if not 1 <= kept_ms <= RETENTION_MS_MAX:
        return f"dead_letter_retention_ms is 1 to {RETENTION_MS_MAX}"
    if policy.delay_ms > DELAY_MS_MAX:
        return f"delay_ms is 0 to {DELAY_MS_MAX}"
    if policy.HasField("dead_letter_topic") and (
        wrong := dead_letters.topic_fault(policy.dead_letter_topic, topic)
    ):
        return wrong
    return _back_off_fault(policy.back_off) if policy.HasField("back_off") else ""


def _back_off_fault(back_off: BackOff) -> str:
    match back_off.WhichOneof("kind"):
        case "fixed_ms":
            waits = [back_off.fixed_ms]
        case "exponential":
            exponential = back_off.exponential
            waits = [exponential.first_ms, exponential.max_ms]
            if exponential.first_ms > exponential.max_ms:
                return "an exponential back-off's first_ms is not more than its max_ms"
            if not FACTOR_PERCENT_MIN <= exponential.factor_percent <= FACTOR_PERCENT_MAX:
                return (
                    f"factor_percent is {FACTOR_PERCENT_MIN} to {FACTOR_PERCENT_MAX}: 200 doubles each wait"
                )
        case "table":
            waits = list(back_off.table.wait_ms)
            if len(waits) > TABLE_MAX:
                return f"a back-off's table has {TABLE_MAX} waits at most"
        case _:
            waits = []
    if not waits:
        return "a back-off is a fixed wait, an exponential one, or a table with one wait at least"
    if not all(1 <= wait <= WAIT_MS_MAX for wait in waits):
        return f"each wait of a back-off is 1 to {WAIT_MS_MAX} ms"
    return ""


def changed(policy: GroupPolicy | None, change: GroupPolicy, unset: Iterable[str]) -> GroupPolicy | None:
    """Return a policy with what a change sets, and without what it unsets; None where that sets nothing."""
    result = GroupPolicy()
    if policy is not None:
        result.CopyFrom(policy)
    for name in unset:
        result.ClearField(name)
    for field, _ in change.ListFields():
        result.ClearField(field.name)  # else the rows of two tables would be joined
    result.MergeFrom(change)
    return result if result.ListFields() else None
