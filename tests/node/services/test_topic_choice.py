"""What names and patterns of a subscription have, beside what its token may consume."""

from __future__ import annotations

from typing import Any

import pytest

from tarry.node.config import Token
from tarry.node.edge.auth import Authorizer
from tarry.node.services.topic_choice import TopicChoice
from tarry.proto.reasons import Reason
from tarry.proto.topic_patterns import matches, overlap

TOKENS = {
    "shop": Token(consume=["orders.eu.*", "bills"]),
    "none": Token(produce=["*"]),
    "all": Token(consume=["*"]),
}


class Call:
    def __init__(self, token: str) -> None:
        self._token = token

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", f"Bearer {self._token}"),)


@pytest.mark.parametrize(
    ("topics", "has", "has_not"),
    [
        (["orders.*"], ["orders.", "orders.a", "orders.a.b"], ["orders", "order", "xorders.a"]),
        (["*"], ["a", "dlq", "dlqs"], ["dlq.g.a"]),
        (["d*", "dl*"], ["d", "dlx"], ["dlq.g.a"]),
        (["dlq.*"], ["dlq.g.a"], ["a"]),
        (["dlq.g.*", "a*"], ["dlq.g.a", "ab"], ["dlq.h.a", "b"]),
        (["a", "dlq.g.a"], ["a", "dlq.g.a"], ["ab"]),
    ],
)
def test_patterns_have_what_begins_so_and_dead_letters_by_their_prefix_only(
    topics: list[str], has: list[str], has_not: list[str]
) -> None:
    choice = TopicChoice(topics, lambda topic: True)
    assert [topic for topic in [*has, *has_not] if choice.has(topic)] == has


@pytest.mark.parametrize(
    ("token", "pattern", "has", "has_not"),
    [
        ("shop", "orders.*", ["orders.eu.a"], ["orders.us.a", "orders.eu"]),
        ("shop", "*", ["orders.eu.a", "bills"], ["others"]),
        ("all", "*", ["orders.us.a", "others"], []),
    ],
)
def test_a_pattern_has_of_the_topics_only_those_that_the_token_may_consume(
    token: str, pattern: str, has: list[str], has_not: list[str]
) -> None:
    call: Any = Call(token)
    authorizer = Authorizer(TOKENS)
    assert authorizer.pattern_refusal(call, [pattern]) is None
    choice = TopicChoice([pattern], authorizer.may_consume(call))
    assert [topic for topic in [*has, *has_not] if choice.has(topic)] == has


@pytest.mark.parametrize(
    ("token", "pattern"), [("shop", "mail.*"), ("shop", "billsx*"), ("none", "*"), ("unknown", "*")]
)
def test_a_pattern_with_no_topic_that_the_token_may_consume_is_refused(token: str, pattern: str) -> None:
    call: Any = Call(token)
    refusal = Authorizer(TOKENS).pattern_refusal(call, ["bills*", pattern])
    assert refusal is not None
    assert refusal.reason is Reason.PERMISSION_DENIED
    assert pattern in refusal.text


@pytest.mark.parametrize("one", ["a", "a*", "ab*", "b", "*", "ab"])
@pytest.mark.parametrize("other", ["a", "a*", "ab*", "b", "*", "ab"])
def test_patterns_overlap_where_some_topic_has_both(one: str, other: str) -> None:
    topics = ["a", "b", "ab", "abc", "ac", "x"]
    assert overlap(one, other) == any(matches(one, topic) and matches(other, topic) for topic in topics)
