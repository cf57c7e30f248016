"""Parts of the gateway for RocketMQ's clients by themselves: handles, messages, names, who is there."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tarry.gateway.handle import Holder
from tarry.gateway.rocketmq.codes import Refusal, code_of_reason
from tarry.gateway.rocketmq.config import Config
from tarry.gateway.rocketmq.handles import Handles, Prepared, Recall, Receipt
from tarry.gateway.rocketmq.messages import new_message
from tarry.gateway.rocketmq.names import GROUP_CHARS_MAX, group_of, producer_group_of, topic_of
from tarry.gateway.rocketmq.policies import waits_of
from tarry.gateway.rocketmq.presence import Presence
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code
from tarry.gateway.rocketmq.routes import endpoints_of
from tarry.proto.reasons import Reason
from tests.gateway.rocketmq_calls import message

SECRET, OTHER = "a secret of ours, long", "another one, as long as it"
RECEIPT = Receipt(Holder("orders", "billing", "rocketmq-1", 3, 0), 1 << 40, push=True)
PREPARED = Prepared("orders", "01A1")
RECALL = Recall("orders", "0000000f70h0000000n", "01A1")


@given(
    topic=st.text(max_size=50),
    queue=st.integers(0, (1 << 32) - 1),
    incarnation=st.integers(0, (1 << 64) - 1),
    offset=st.integers(0, (1 << 64) - 1),
    push=st.booleans(),
)
def test_a_handle_is_read_as_it_was_made(
    topic: str, queue: int, incarnation: int, offset: int, push: bool
) -> None:
    handles = Handles([SECRET])
    receipt = Receipt(Holder(topic, "g", "c", queue, incarnation), offset, push)
    assert handles.parse_receipt(handles.receipt(receipt)) == receipt


def test_handles_are_good_wherever_the_secret_is_and_nowhere_else() -> None:
    here, after_a_change, elsewhere, without = (
        Handles(secrets) for secrets in ([SECRET], [OTHER, SECRET], [OTHER], [])
    )
    for kind, told in (("receipt", RECEIPT), ("recall", RECALL), ("transaction", PREPARED)):
        read, made = f"parse_{kind}", getattr(here, kind)(told)
        for handles in (here, after_a_change):
            assert getattr(handles, read)(made) == told
        for handles in (elsewhere, without):
            with pytest.raises(ValueError, match="invalid"):
                getattr(handles, read)(made)
        changed = made[:-1] + ("A" if made[-1] != "A" else "B")
        with pytest.raises(ValueError, match="invalid"):
            getattr(here, read)(changed)
    assert Handles([]).parse_receipt(without.receipt(RECEIPT)) == RECEIPT


def test_a_handle_of_one_kind_is_none_of_the_other() -> None:
    handles = Handles([SECRET])
    with pytest.raises(ValueError, match="invalid"):
        handles.parse_receipt(handles.recall(RECALL).replace("c1.", "r1."))


@pytest.mark.parametrize(
    ("seconds", "nanos", "due_ms"),
    [(1, 0, 1_000), (1, 1, 1_001), (1, 999_999, 1_001), (1, 1_000_000, 1_001), (1, 999_000_001, 2_000)],
)
def test_a_due_time_is_rounded_up_so_that_nothing_is_early(seconds: int, nanos: int, due_ms: int) -> None:
    given = message("orders", message_type=definition.DELAY, delivery_timestamp={"seconds": seconds})
    given.system_properties.delivery_timestamp.nanos = nanos
    made = new_message(given, "orders", Config())
    assert (made.due_ms, made.delay_ms) == (due_ms, None)


def test_a_message_that_is_sent_again_is_the_same_to_the_cluster_whenever_it_was_born() -> None:
    first = message("orders", message_id="01A", born_timestamp={"seconds": 1}, properties={"a": "b"})
    again = message("orders", message_id="01A", born_timestamp={"seconds": 2}, properties={"a": "b"})
    made = new_message(first, "orders", Config())
    assert made == new_message(again, "orders", Config())
    assert (made.idempotency_key, made.delay_ms, made.due_ms) == ("01A", 0, None)


@pytest.mark.parametrize(
    ("namespace", "name", "expected"),
    [
        ("", "a_B-1", "a_B-1"),
        ("eu", "orders", "eu.orders"),
        ("", "dlq%g%orders", "dlq.g.orders"),
        ("eu", "dlq%g%eu%orders", "dlq.g.eu.orders"),
        ("eu", "dlq%g%eu", "eu.dlq.g.eu"),
        ("eu", "dlq%g%us%orders", "eu.dlq.g.us.orders"),
        ("eu", "a%eu%b", "eu.a.eu.b"),
    ],
)
def test_names_of_topics(namespace: str, name: str, expected: str) -> None:
    assert topic_of(definition.Resource(resource_namespace=namespace, name=name)) == expected


def test_groups_are_the_same_in_every_namespace_since_they_are_of_a_topic() -> None:
    assert group_of(definition.Resource(resource_namespace="eu", name="g")) == "g"
    with pytest.raises(Refusal, match="longer"):
        group_of(definition.Resource(name="g" * 101))


def test_a_topic_stands_for_a_producer_group_whose_name_nodes_take() -> None:
    assert producer_group_of("eu.orders") == "rocketmq.eu.orders"
    long = {producer_group_of("x" * length) for length in range(80, 200)}
    assert (len(long), max(map(len, long))) == (120, GROUP_CHARS_MAX)


def test_every_reason_of_the_cluster_has_a_code_that_clients_know() -> None:
    told = {reason: code_of_reason(reason) for reason in Reason}
    assert all(code in Code.values() and code != Code.OK for code in told.values())
    again = {Reason.NO_LEADER, Reason.NOT_LEADER, Reason.SHUTTING_DOWN, Reason.OUTCOME_UNKNOWN}
    assert {told[reason] for reason in again} == {Code.HA_NOT_AVAILABLE}
    assert code_of_reason("UNREACHABLE") == Code.BAD_REQUEST  # without its class


def test_several_addresses_are_told_only_where_they_are_of_ipv4() -> None:
    v4 = endpoints_of([("10.0.0.1", 1), ("10.0.0.2", 2)])
    assert (v4.scheme, len(v4.addresses)) == (definition.IPv4, 2)
    named = endpoints_of([("a.example", 1), ("b.example", 2)])
    assert (named.scheme, len(named.addresses)) == (definition.DOMAIN_NAME, 1)
    assert endpoints_of([("::1", 1)]).scheme == definition.IPv6


def test_a_back_off_is_told_wait_by_wait() -> None:
    assert waits_of(700) == (700,)
    assert waits_of((1, 2)) == (1, 2)


def test_a_client_is_there_while_it_has_a_stream_and_for_a_while_after_its_last_call() -> None:
    now_s = 0.0
    presence = Presence(40_000, lambda: now_s)
    assert not presence.is_there("a")
    presence.seen("a")
    with presence.stream("b"):
        now_s = 39
        assert presence.is_there("a")
        now_s = 1_000
        assert not presence.is_there("a")
        assert presence.is_there("b")
    now_s = 1_039
    assert presence.is_there("b")
    now_s = 1_041
    assert not presence.is_there("b")


def test_a_client_that_has_said_that_it_ends_is_gone_though_its_stream_is_still_open() -> None:
    presence = Presence(40_000, lambda: 0.0)
    with presence.stream("a"):
        presence.leave("a")
        assert not presence.is_there("a")
    assert not presence.is_there("a")
