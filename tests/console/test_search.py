"""The box in the header: what a text may mean."""

from __future__ import annotations

from tarry.client.operators.cluster_status import TopicStatus
from tarry.console.views.search import SHOWN_MAX, may_be_id, names_with, topic_and_key
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.message_id import MessageId


def topic(name: str, *groups: str) -> TopicStatus:
    told = pb.TopicStatus(topic=name, groups=[pb.GroupStatus(group=group) for group in groups])
    return TopicStatus.of(told)


def test_names_that_begin_with_it_come_first_in_upper_and_lower_case() -> None:
    topics = [topic("late-orders", "mail"), topic("orders", "e-mail", "orders"), topic("other")]
    assert names_with("ORDERS", topics) == (["orders", "late-orders"], [("orders", "orders")], 0)
    assert names_with("mail", topics).groups == [("late-orders", "mail"), ("orders", "e-mail")]
    assert names_with("nothing", topics) == ([], [], 0)


def test_a_bounded_number_is_shown_and_the_others_are_counted() -> None:
    found = names_with("t", [topic(f"t{at:03d}", "tt") for at in range(SHOWN_MAX + 7)])
    assert (len(found.topics), len(found.groups), found.more) == (SHOWN_MAX, SHOWN_MAX, 14)


def test_a_topic_and_a_key_are_two_words_of_which_the_first_is_a_topic() -> None:
    assert topic_and_key("orders order 7", {"orders"}) == ("orders", "order 7")
    for text in ("orders", "orders ", "others order-7", ""):
        assert topic_and_key(text, {"orders"}) is None


def test_what_may_be_an_id() -> None:
    assert may_be_id(str(MessageId(0, 498_611, 7)))
    assert may_be_id(str(MessageId(32**4 - 1, 498_611, 7)).upper())
    for text in ("", "orders", "x" * 20, "order-7-of-november"):
        assert not may_be_id(text)
