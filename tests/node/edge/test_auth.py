"""What a token may do, and what may be asked without one."""

from __future__ import annotations

from typing import Any

import pytest

from tarry.node.config import Token
from tarry.node.edge.auth import Authorizer, Right, unknown_node
from tarry.node.edge.connection_limits import HEALTH_CHECK, admits_health
from tarry.proto.bearer_token import PeerTokens
from tarry.proto.reasons import Reason

TOKENS = {
    "shop": Token(produce=["orders", "mail.*"], consume=["bills"]),
    "all": Token(produce=["*"], consume=["*"]),
    "operator": Token(operate=True),
}


def bearing(token: str | None) -> tuple[tuple[str, str], ...]:
    return () if token is None else (("authorization", f"Bearer {token}"),)


class Call:
    def __init__(self, token: str | None) -> None:
        self._token = token

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return bearing(self._token)


def refused(token: str | None, right: Right | None, *topics: str) -> str | None:
    call: Any = Call(token)
    refusal = Authorizer(TOKENS).refusal(call, right, topics)
    return None if refusal is None else refusal.reason


@pytest.mark.parametrize("token", [None, "", "sho", "shopp", "Shop"])
def test_who_shows_no_token_that_is_known_may_call_nothing(token: str | None) -> None:
    for right in (None, *Right):
        assert refused(token, right, "orders") == Reason.UNAUTHENTICATED
    assert Authorizer(TOKENS).unknown(bearing(token)) is not None
    assert Authorizer(TOKENS).unknown(bearing("shop")) is None
    assert Authorizer({}).unknown(()) is None


@pytest.mark.parametrize(
    ("token", "right", "topic", "may"),
    [
        ("shop", Right.PRODUCE, "orders", True),
        ("shop", Right.PRODUCE, "orders2", False),
        ("shop", Right.PRODUCE, "order", False),
        ("shop", Right.PRODUCE, "mail.welcome", True),
        ("shop", Right.PRODUCE, "mail", False),
        ("shop", Right.PRODUCE, "bills", False),
        ("shop", Right.CONSUME, "bills", True),
        ("shop", Right.CONSUME, "orders", False),
        ("shop", Right.OPERATE, "orders", False),
        ("all", Right.CONSUME, "anything", True),
        ("all", Right.OPERATE, "anything", False),
        ("operator", Right.OPERATE, "anything", True),
        ("operator", Right.PRODUCE, "orders", False),
    ],
)
def test_a_right_is_for_a_topic_or_for_all_that_begin_as_it_says(
    token: str, right: Right, topic: str, *, may: bool
) -> None:
    assert refused(token, right, topic) == (None if may else Reason.PERMISSION_DENIED)
    assert refused(token, None, topic) is None


def test_one_topic_without_the_right_refuses_the_request() -> None:
    assert refused("shop", Right.PRODUCE, "orders", "bills") == Reason.PERMISSION_DENIED


@pytest.mark.parametrize(
    ("token", "seen"),
    [
        (None, []),
        ("shop", ["orders", "mail.x", "bills"]),
        ("operator", ["orders", "mail.x", "bills", "orders2", "mail"]),
    ],
)
def test_who_may_do_anything_with_a_topic_and_who_operates_knows_of_it(
    token: str | None, seen: list[str]
) -> None:
    call: Any = Call(token)
    sees = Authorizer(TOKENS).sees(call)
    assert list(filter(sees, ["orders", "mail.x", "bills", "orders2", "mail"])) == seen


def test_what_is_for_nodes_is_for_who_shows_their_token() -> None:
    assert unknown_node(PeerTokens("secret"), bearing("secret")) is None
    assert unknown_node(PeerTokens(), ()) is None
    for token in (None, "", "secre", "shop"):
        refusal = unknown_node(PeerTokens("secret", ["", "next"]), bearing(token))
        assert refusal is not None
        assert refusal.reason == Reason.UNAUTHENTICATED


def test_everybody_may_ask_whether_a_node_serves_and_nothing_else_of_its_health() -> None:
    admits = admits_health(Authorizer(TOKENS))
    assert admits(HEALTH_CHECK, ()) is None
    assert admits("/grpc.health.v1.Health/Watch", ()) is not None
    assert admits("/grpc.health.v1.Health/Watch", bearing("shop")) is None


@pytest.mark.parametrize(
    ("had", "has", "less"),
    [
        (Token(produce=("a", "b.*")), Token(produce=("b.*", "a", "c"), operate=True), False),
        (Token(produce=("a", "b.*")), Token(produce=("b.*",)), True),
        (Token(consume=("a",)), Token(produce=("a",)), True),
        (Token(operate=True), Token(), True),
        (Token(operate=True), None, True),
        (None, Token(), False),
    ],
)
def test_who_may_do_less_with_other_tokens_is_known(had: Token | None, has: Token | None, less: bool) -> None:
    def tokens(one: Token | None) -> dict[str, Token]:
        return {"other": Token(), **({"mine": one} if one is not None else {})}

    authorizer = Authorizer(tokens(had))
    does_less = authorizer.renew(tokens(has))
    assert does_less(bearing("mine")) is less
    assert not does_less(bearing("other"))
    assert (authorizer.unknown(bearing("mine")) is None) is (has is not None)


def test_with_the_first_tokens_everybody_may_do_less_and_without_any_nobody() -> None:
    authorizer = Authorizer({})
    does_less = authorizer.renew(TOKENS)
    assert does_less(bearing("shop"))
    assert does_less(())
    does_less = authorizer.renew({})
    assert not does_less(bearing("shop"))
    assert not does_less(())
