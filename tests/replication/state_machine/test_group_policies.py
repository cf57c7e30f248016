"""Policies of groups: what may be in the log, what a change makes of one, and that every replica keeps it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.ledger.schema import Kind
from tarry.proto.reasons import Reason
from tarry.proto.tarry_operator_pb2 import GroupPolicy, TopicSettings
from tarry.replication.state_machine.commands import encode
from tarry.replication.state_machine.group_policies import (
    ATTEMPTS_MAX,
    DELAY_MS_MAX,
    FACTOR_PERCENT_MAX,
    FIELDS,
    LEASE_MS_MAX,
    RETENTION_MS_MAX,
    TABLE_MAX,
    WAIT_MS_MAX,
    changed,
    fault,
)
from tarry.replication.state_machine.levels import LevelTooLow
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.outcomes import Acked, Changed
from tarry.replication.state_machine.refusal import Refusal
from tests.node.policies import exponential, fixed, table
from tests.replication.commands import NOW_MS, admin, release, schedule, subscribe
from tests.replication.state_machine.test_levels import RAISE
from tests.replication.state_machine.test_machine import fresh, machine, run

__all__ = ["fresh"]

POLICY = GroupPolicy(attempts_max=3, back_off=table(10, 70), lease_ms=5_000)


def change(*unset: str, topic: str = "t", group: str = "g", **policy: Any) -> bytes:
    return encode(
        log_pb.GroupPolicyCommand(
            topic=topic, group=group, policy=GroupPolicy(**policy), unset=unset, now_ms=NOW_MS
        )
    )


def fields_of(policy: GroupPolicy | None) -> dict[str, Any]:
    return {} if policy is None else {field.name: value for field, value in policy.ListFields()}


def own(machine: Machine, group: str = "g") -> GroupPolicy | None:
    return machine.queues.of("t", group).policy


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"attempts_max": 0}, f"attempts_max is 1 to {ATTEMPTS_MAX}"),
        ({"attempts_max": ATTEMPTS_MAX + 1}, "attempts_max is 1 to"),
        ({"lease_ms": 0}, "lease_ms is 1 to"),
        ({"dead_letter_retention_ms": 0}, "dead_letter_retention_ms is 1 to"),
        ({"dead_letter_retention_ms": RETENTION_MS_MAX + 1}, "dead_letter_retention_ms is 1 to"),
        ({"delay_ms": DELAY_MS_MAX + 1}, f"delay_ms is 0 to {DELAY_MS_MAX}"),
        ({"dead_letter_topic": ""}, "is 'default', 'none', or a name that begins with 'dlq.'"),
        ({"dead_letter_topic": "orders"}, "a name that begins with 'dlq.'"),
        ({"dead_letter_topic": "dlq."}, "a name that begins with 'dlq.'"),
        ({"dead_letter_topic": "dlq.a/b"}, "letters, digits"),
        ({"dead_letter_topic": "dlq.a\n"}, "letters, digits"),
        ({"dead_letter_topic": "DLQ.a"}, "a name that begins with 'dlq.'"),
        ({"dead_letter_topic": "dlq." + "x" * 997}, "1000 characters at most"),
        ({"dead_letter_topic": "dlq.misfired.t"}, "topics for misfired messages: name another"),
        ({"back_off": {}}, "a fixed wait, an exponential one, or a table"),
        ({"back_off": table()}, "a table with one wait at least"),
        ({"back_off": table(*[1] * (TABLE_MAX + 1))}, f"{TABLE_MAX} waits at most"),
        ({"back_off": table(1, 0)}, "each wait of a back-off is 1 to"),
        ({"back_off": fixed(0)}, "each wait of a back-off is 1 to"),
        ({"back_off": fixed(WAIT_MS_MAX + 1)}, "each wait of a back-off is 1 to"),
        ({"back_off": exponential(0, 1)}, "each wait of a back-off is 1 to"),
        ({"back_off": exponential(1, WAIT_MS_MAX + 1)}, "each wait of a back-off is 1 to"),
        ({"back_off": exponential(2, 1)}, "first_ms is not more than its max_ms"),
        ({"back_off": exponential(1, 2, 99)}, "factor_percent is 100 to"),
        ({"back_off": exponential(1, 2, FACTOR_PERCENT_MAX + 1)}, "factor_percent is 100 to"),
    ],
)
def test_what_no_leader_can_act_by_is_refused_and_what_would_do_is_said(
    policy: dict[str, Any], says: str, fresh: Machine
) -> None:
    assert says in fault(GroupPolicy(**policy))
    run(fresh, [subscribe(), RAISE])
    shaped = log_pb.TopicCommand(
        topic="t", settings=TopicSettings(group_policy=GroupPolicy(**policy)), now_ms=NOW_MS
    )
    digest = fresh.digest()
    for outcome in fresh.apply(3, 1, [change(**policy), admin(shaped)]):
        assert isinstance(outcome, Refusal)
        assert outcome.reason is Reason.SETTING_INVALID
    fresh.applied_index = 2
    assert fresh.digest() == digest


@pytest.mark.parametrize(
    "policy",
    [
        {"attempts_max": 1, "lease_ms": 1, "back_off": fixed(1)},
        {"attempts_max": ATTEMPTS_MAX, "lease_ms": LEASE_MS_MAX, "back_off": fixed(WAIT_MS_MAX)},
        {"back_off": table(*[WAIT_MS_MAX] * TABLE_MAX)},
        {"back_off": exponential(1, 1, 100)},
        {"dead_letter_topic": "dlq." + "x" * 996, "dead_letter_retention_ms": RETENTION_MS_MAX},
        {"dead_letter_topic": "none", "dead_letter_retention_ms": 1},
        {"dead_letter_topic": "default", "delivery_per_s_max": 2**32 - 1},
        {"delivery_per_s_max": 0},
        {"dead_letter_topic": "dlq.misfired"},
        {"back_off": exponential(1, WAIT_MS_MAX, FACTOR_PERCENT_MAX)},
        {},
    ],
)
def test_what_is_at_the_edge_is_none_the_worse_for_it(policy: dict[str, Any]) -> None:
    assert fault(GroupPolicy(**policy), ["attempts_max"] if "attempts_max" not in policy else []) == ""


def test_only_a_field_that_there_is_and_that_is_not_set_at_once_can_be_unset() -> None:
    unknown = fault(GroupPolicy(), ["retries"])
    assert "a policy has no 'retries' to unset: name some of attempts_max" in unknown
    assert "set and unset at once" in fault(GroupPolicy(lease_ms=1), ["lease_ms"])


policies = st.builds(
    lambda fields: GroupPolicy(**fields),
    st.fixed_dictionaries(
        {},
        optional={
            "attempts_max": st.integers(1, 3),
            "lease_ms": st.integers(1, 3),
            "dead_letter_topic": st.sampled_from(("default", "none", "dlq.a")),
            "dead_letter_retention_ms": st.integers(1, 3),
            "delivery_per_s_max": st.integers(0, 3),
            "back_off": st.sampled_from(
                [table(1, 2), table(3), fixed(1), exponential(1, 8), exponential(1, 9, 300)]
            ),
        },
    ),
)


@given(before=st.none() | policies, change=policies, unset=st.sets(st.sampled_from(FIELDS)))
def test_a_change_is_that_of_a_dictionary(
    before: GroupPolicy | None, change: GroupPolicy, unset: set[str]
) -> None:
    unset = {name for name in unset if not change.HasField(name)}  # type: ignore[arg-type]
    kept = fields_of(before)
    model = {name: value for name, value in kept.items() if name not in unset}
    model |= fields_of(change)
    after = changed(before, change, sorted(unset))
    assert (after is not None, fields_of(after)) == (bool(model), model)
    assert fields_of(before) == kept


def test_a_policy_is_of_the_state_of_its_checkpoint_and_of_its_digest(tmp_path: Path) -> None:
    with machine(tmp_path) as first:
        run(first, [subscribe(), subscribe(group="h"), RAISE])
        without = first.digest()
        assert first.apply(4, 1, [change(**fields_of(POLICY))]) == [Changed()]
        assert (own(first), own(first, "h")) == (POLICY, None)
        first.write(first.capture())
        digest = first.digest()
        assert first.apply(5, 1, [change(*FIELDS)]) == [Changed()]
        first.applied_index = 3
        assert first.digest() == without != digest
    with machine(tmp_path) as again:
        assert (own(again), again.digest()) == (POLICY, digest)


def test_a_policy_makes_no_group_and_goes_with_its_group(fresh: Machine) -> None:
    run(fresh, [subscribe(), RAISE, change(lease_ms=5)])
    for index, command in enumerate((change(group="other", lease_ms=5), change(topic="u", lease_ms=5)), 4):
        (refused,) = fresh.apply(index, 1, [command])
        assert isinstance(refused, Refusal)
        assert refused.reason in (Reason.GROUP_UNKNOWN, Reason.TOPIC_UNKNOWN)
    assert len(list(fresh.queues)) == 2
    deleted = log_pb.DeleteGroupCommand(topic="t", group="g", now_ms=NOW_MS)
    fresh.apply(6, 1, [admin(deleted), subscribe()])
    assert own(fresh) is None


def test_a_policy_needs_the_level_of_its_command_also_in_a_topic_s_settings(fresh: Machine) -> None:
    run(fresh, [subscribe()])
    shaped = log_pb.TopicCommand(topic="t", settings=TopicSettings(group_policy=POLICY), now_ms=NOW_MS)
    plain = log_pb.TopicCommand(topic="t", settings=TopicSettings(retention_ms=5), now_ms=NOW_MS)
    command = log_pb.GroupPolicyCommand(topic="t", group="g", policy=POLICY, now_ms=NOW_MS)
    assert fresh.encode(plain) == encode(plain)
    for payload in (shaped, command):
        with pytest.raises(LevelTooLow, match="needs level 2"):
            fresh.encode(payload)
    for outcome in fresh.apply(2, 1, [encode(shaped), encode(command)]):
        assert isinstance(outcome, Refusal)
        assert outcome.reason is Reason.LEVEL_TOO_LOW
    assert (own(fresh), fresh.queues.of("t").settings) == (None, TopicSettings())
    fresh.apply(3, 1, [RAISE, encode(shaped), encode(command)])
    assert (own(fresh), fresh.queues.of("t").settings.group_policy) == (POLICY, POLICY)


def test_groups_of_a_dead_letter_topic_name_no_other(fresh: Machine) -> None:
    run(fresh, [subscribe("dlq.a"), RAISE])
    shaped = {"topic": "dlq.a", "settings": TopicSettings(group_policy={"dead_letter_topic": "dlq.b"})}
    for outcome in fresh.apply(
        3,
        1,
        [
            change(topic="dlq.a", dead_letter_topic="dlq.b"),
            admin(log_pb.TopicCommand(**shaped, now_ms=NOW_MS)),
        ],
    ):
        assert isinstance(outcome, Refusal)
        assert (outcome.reason, "in a circle" in outcome.text) == (Reason.SETTING_INVALID, True)
    assert fresh.apply(4, 1, [change(topic="dlq.a", dead_letter_topic="none")]) == [Changed()]


def bury(group: str = "g", *, offset: int = 0, target: str = "dlq.a") -> log_pb.RetryCommand:
    return log_pb.RetryCommand(
        group=group,
        offset=offset.to_bytes(8, "little"),
        due_ms=NOW_MS.to_bytes(8, "little"),
        tag_mask=bytes(8),
        records=[b""],
        target_topic=target,
        reason=1,
        now_ms=NOW_MS,
    )


def test_where_letters_went_is_noted_with_their_group_once_and_is_of_the_checkpoint(tmp_path: Path) -> None:
    with machine(tmp_path) as first:
        run(first, [subscribe(), schedule([NOW_MS] * 4), release(NOW_MS), encode(bury(target="dlq.old"))])
        assert first.queues.of("t", "g").letters == ()  # an earlier version notes nothing
        first.apply(5, 1, [RAISE, encode(bury(offset=1, target="dlq.g.t"))])
        assert first.queues.of("t", "g").letters == ()  # it is named after them
        before = first.digest()
        first.apply(6, 1, [encode(bury(offset=2)), encode(bury(offset=3))])
        noted = (first.queues.of("dlq.a").queue,)
        assert first.queues.of("t", "g").letters == noted
        first.write(first.capture())
        digest = first.digest()
        assert digest != before
    with machine(tmp_path) as again:
        assert (again.queues.of("t", "g").letters, again.digest()) == (noted, digest)
        again.apply(7, 1, [admin(log_pb.DeleteTopicCommand(topic="dlq.a", now_ms=NOW_MS))])
        run(again, [schedule([NOW_MS]), release(NOW_MS), encode(bury(offset=4, target="dlq.b"))])
        assert again.queues.of("t", "g").letters == (again.queues.of("dlq.b").queue,)


def test_what_a_group_gives_up_for_good_is_settled_counted_and_told(fresh: Machine) -> None:
    fresh.events.wanted = True
    run(fresh, [subscribe(), RAISE, schedule([NOW_MS] * 2), release(NOW_MS)])
    fresh.take_events()
    given_up = log_pb.RetryCommand(
        group="g", offset=bytes(8) + (1).to_bytes(8, "little"), reason=2, now_ms=NOW_MS, dropped=True
    )
    (outcome,) = fresh.apply(fresh.applied_index + 1, 1, [encode(given_up)])
    assert isinstance(outcome, Acked)
    assert len(outcome.stale) == 0
    assert fresh.queues.uses.of("t", "g").dropped == 2
    assert fresh.queues.acknowledged["g", 0].floor == 2
    (event,) = fresh.take_events()
    assert (event.kind, event.n, event.group, event.detail) == (Kind.DEAD, 2, "g", "LEASE_EXPIRED")
    fresh.apply(fresh.applied_index + 1, 1, [encode(given_up)])
    assert fresh.queues.uses.of("t", "g").dropped == 2
    assert [queue.topic for queue in fresh.queues] == ["t", "t"]
    given_up.records.append(b"x")
    (refused,) = fresh.apply(fresh.applied_index + 1, 1, [encode(given_up)])
    assert isinstance(refused, Refusal)
    assert refused.reason is Reason.COLUMNS_DIFFER


def test_to_give_up_for_good_needs_the_level(fresh: Machine) -> None:
    run(fresh, [subscribe()])
    with pytest.raises(LevelTooLow, match="needs level 2"):
        fresh.encode(log_pb.RetryCommand(group="g", dropped=True, now_ms=NOW_MS))
