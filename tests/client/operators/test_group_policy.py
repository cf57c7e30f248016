"""A group's policy on its way to the cluster and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.client.errors import InvalidSetting
from tarry.client.operators import group_policy, topic_settings
from tarry.client.operators.group_policy import FIELDS, Exponential, check_fields
from tarry.client.operators.topic_settings import Misfire
from tarry.proto.tarry_operator_pb2 import GroupPolicy

waits = st.integers(1, 2**40)
back_offs = st.one_of(
    waits,
    st.lists(waits, min_size=1, max_size=4).map(tuple),
    st.builds(Exponential, waits, waits, st.integers(100, 100_000).map(lambda percent: percent / 100)),
)
policies = st.fixed_dictionaries(
    {},
    optional={
        "attempts_max": st.integers(1, 9),
        "lease_ms": st.integers(1, 9),
        "back_off": back_offs,
        "dead_letter_topic": st.sampled_from(("", "none", "dlq.a")),
        "dead_letter_retention_ms": waits,
        "delivery_per_s_max": st.integers(0, 9),
        "delay_ms": st.integers(0, 2**64 - 1),
    },
)


@given(policies)
def test_a_policy_comes_back_as_it_was_sent(policy: Any) -> None:
    assert group_policy.options_of(group_policy.packed(policy)) == policy
    settings = {"misfire": Misfire.DROP, "misfire_after_ms": 1, "group_policy": policy}
    packed = topic_settings.packed(settings)  # type: ignore[arg-type]
    assert packed.HasField("group_policy") is bool(policy)
    found: Any = topic_settings.options_of(packed)
    assert {name: found[name] for name in settings} == settings


def test_the_fields_are_those_of_the_protocol() -> None:
    assert tuple(GroupPolicy.DESCRIPTOR.fields_by_name) == FIELDS


@pytest.mark.parametrize(
    ("policy", "says"),
    [
        ({"attempts_max": -1}, "attempts_max must be a whole number"),
        ({"attempts_max": 1.5}, "attempts_max must be a whole number"),
        ({"lease_ms": 2**32}, "lease_ms must be a whole number"),
        ({"dead_letter_topic": 1}, "dead_letter_topic must be a text"),
        ({"dead_letter_retention_ms": 2**64}, "dead_letter_retention_ms must be a whole number"),
        ({"back_off": -1}, "back_off must be a whole number"),
        ({"back_off": (1, "2")}, "a wait of the back-off must be a whole number"),
        ({"back_off": Exponential(1, 2, 1.001)}, "factor in percent must be a whole number"),
        ({"back_off": Exponential(1, 2**64)}, "max_ms must be a whole number"),
    ],
)
def test_what_no_field_can_hold_is_refused_before_anything_is_sent(policy: Any, says: str) -> None:
    with pytest.raises(InvalidSetting, match=says):
        group_policy.packed(policy)


def test_only_a_field_that_there_is_can_be_unset() -> None:
    assert check_fields(iter(FIELDS)) == list(FIELDS)
    with pytest.raises(InvalidSetting, match="no 'lease': name some of attempts_max, back_off, lease_ms"):
        check_fields(["lease"])
