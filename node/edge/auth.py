"""Bearer tokens and what each may do."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any

from tarry.node.config import Token
from tarry.node.edge.grpc_types import CallContext
from tarry.proto import bearer_token
from tarry.proto.reasons import Reason
from tarry.proto.topic_patterns import matches, overlap
from tarry.replication.state_machine.refusal import Refusal


class Right(StrEnum):
    """Rights of a token; the first two by topic."""

    PRODUCE = "produce"
    CONSUME = "consume"
    OPERATE = "operate"


class Authorizer:
    """Rights of callers, by token. With no tokens configured everybody may do everything."""

    def __init__(self, tokens: Mapping[str, Token]) -> None:
        self._tokens = tokens

    @property
    def on(self) -> bool:
        """True where tokens are asked for."""
        return bool(self._tokens)

    def unknown(self, metadata: Any) -> Refusal | None:
        """Return why one with this metadata may call nothing, None if it may call."""
        if not self.on or self._token(metadata) is not None:
            return None
        text = "send metadata 'authorization: Bearer TOKEN' with a token that this cluster knows"
        return Refusal(Reason.UNAUTHENTICATED, text)

    def refusal(
        self, context: CallContext, right: Right | None, topics: Iterable[str] = ()
    ) -> Refusal | None:
        """Return why the caller may not, None if it may; with no ``right`` any token will do."""
        if not self.on:
            return None
        token = self._token(context.invocation_metadata())
        if token is None or right is None:
            return self.unknown(context.invocation_metadata())
        if right is Right.OPERATE:
            allowed = token.operate
            what = "operate the cluster"
        else:
            patterns = token.produce if right is Right.PRODUCE else token.consume
            refused = [topic for topic in topics if not any(matches(p, topic) for p in patterns)]
            allowed = not refused
            what = f"{right.value} {', '.join(refused)}"
        return None if allowed else Refusal(Reason.PERMISSION_DENIED, f"this token may not {what}")

    def may_consume(self, context: CallContext) -> Callable[[str], bool]:
        """Return which topics the caller may consume."""
        if not self.on:
            return lambda topic: True
        token = self._token(context.invocation_metadata())
        patterns = token.consume if token is not None else ()
        return _having(patterns)

    def pattern_refusal(self, context: CallContext, asked: Iterable[str]) -> Refusal | None:
        """Return which patterns have no topic, be it one to come, that the caller may consume."""
        if not self.on:
            return None
        token = self._token(context.invocation_metadata())
        allowed = token.consume if token is not None else ()
        none = [one for one in asked if not any(overlap(one, pattern) for pattern in allowed)]
        if not none:
            return None
        return Refusal(Reason.PERMISSION_DENIED, f"this token may consume no topic of {', '.join(none)}")

    def name(self, context: CallContext) -> str:
        """Return the name of the caller's token; empty where there are none."""
        token = self._token(context.invocation_metadata())
        return (token.name or "unnamed") if token is not None else ""

    def rights(self, context: CallContext) -> Token:
        """Return what the caller may do, under the name of its token; empty: there are no tokens."""
        if not self.on:
            return Token(produce=("*",), consume=("*",), operate=True)
        token = self._token(context.invocation_metadata()) or Token()
        return token.model_copy(update={"name": token.name or "unnamed"})

    def sees(self, context: CallContext) -> Callable[[str], bool]:
        """Return which topics the caller may know of: those that it may do anything with."""
        token = self._token(context.invocation_metadata())
        if not self.on or (token is not None and token.operate):
            return lambda topic: True
        patterns = (*token.produce, *token.consume) if token is not None else ()
        return _having(patterns)

    def renew(self, tokens: Mapping[str, Token]) -> Callable[[Any], bool]:
        """Take other tokens; return, of a call's metadata, whether the caller may do less than before."""
        before, self._tokens = self._tokens, tokens

        def does(metadata: Any) -> bool:
            had, has = _find(before, metadata), _find(tokens, metadata)
            if not tokens or (before and had is None):
                return False
            return has is None or had is None or not _within(had, has)

        return does

    def _token(self, metadata: Any) -> Token | None:
        return _find(self._tokens, metadata)


def _find(tokens: Mapping[str, Token], metadata: Any) -> Token | None:
    given, found = bearer_token.shown(metadata), None
    for secret, token in tokens.items():  # all of them, in constant time each
        if hmac.compare_digest(secret.encode(), given):
            found = token
    return found


def _having(patterns: Iterable[str]) -> Callable[[str], bool]:
    return lambda topic: any(matches(pattern, topic) for pattern in patterns)


def _within(one: Token, other: Token) -> bool:
    """Return whether the other has at least the patterns and rights of the one."""
    patterns = {*one.produce} <= {*other.produce} and {*one.consume} <= {*other.consume}
    return patterns and one.operate <= other.operate


def unknown_node(tokens: bearer_token.PeerTokens, metadata: Any) -> Refusal | None:
    """Return why one with this metadata may not call what is for nodes, None if it may try."""
    if tokens.take(metadata):
        return None
    return Refusal(Reason.UNAUTHENTICATED, "only nodes of the cluster are answered: show the peer token")
