"""Forwarder: a follower passes a unary call on to the leader, bytes in, bytes out."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

import grpc

from tarry.node.edge.forwarded_caller import CALLER_KEY, FORWARDED_KEY, NODE_KEY, named
from tarry.node.edge.grpc_status import DETAILS_KEY, refusal_in
from tarry.node.edge.grpc_types import CallContext, metadata_value
from tarry.proto import bearer_token
from tarry.proto.bearer_token import PeerTokens
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.transport.retired_channels import RetiredChannels

TOLD: Final = ("/tarry.v1.OperatorService/", "/tarry.v1.ConsumerService/Receive")
"""Calls of which the leader is told who has made them: for its audit log, and as consumers' addresses."""
DEADLINE_S: Final = 10.0
"""Of a forwarded call whose client gave none."""


class Forwarder:
    """Channels to the other members, opened when needed."""

    def __init__(
        self,
        credentials: grpc.ChannelCredentials | None,
        options: list[tuple[str, int]],
        dial: Mapping[str, str],
        tokens: PeerTokens | None = None,
    ) -> None:
        """Take the peer tokens, by which it shows that a node forwards."""
        self._tokens = tokens or PeerTokens()
        self._credentials = credentials
        self._dial = dial
        self._options = options
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._retired = RetiredChannels()

    async def forward(
        self, address: str, path: str, raw: bytes, context: CallContext, waits_s: float = 0.0
    ) -> bytes | Refusal:
        """Return the leader's answer, its refusals as it gave them; it may wait for ``waits_s`` first."""
        call = self.channel(address).unary_unary(path, None, None)
        shown = metadata_value(context.invocation_metadata(), bearer_token.KEY)
        passed = ((bearer_token.KEY, shown),) if shown else ()
        remaining = context.time_remaining()
        try:
            answer: bytes = await call(
                raw,
                metadata=((FORWARDED_KEY, "1"), *passed, *self._told(path, context)),
                timeout=DEADLINE_S + waits_s if remaining is None else remaining,
            )
            return answer
        except grpc.aio.AioRpcError as error:
            details = metadata_value(error.trailing_metadata(), DETAILS_KEY)
            if isinstance(details, bytes) and (refusal := refusal_in(details)):
                return refusal
            if error.code() is grpc.StatusCode.UNIMPLEMENTED:
                text = f"the leader at {address} runs a version without this call: upgrade it, "
                text += "tarry upgrade status shows the versions of all nodes"
                return Refusal(Reason.LEVEL_TOO_LOW, text)
            text = f"the leader at {address} gave no answer: {error.code().name}, {error.details()}"
            return Refusal(Reason.OUTCOME_UNKNOWN, text, retry_ms=100)

    def _told(self, path: str, context: CallContext) -> tuple[tuple[str, str | bytes], ...]:
        """Return the metadata that says who has called this node."""
        if not path.startswith(TOLD):
            return ()
        return (CALLER_KEY, json.dumps(named(context)).encode()), *self._tokens.metadata_as(NODE_KEY)

    def channel(self, address: str) -> grpc.aio.Channel:
        """Return the channel to a member, opened if it is not."""
        channel = self._channels.get(address)
        if channel is None:
            target = self._dial.get(address, address)
            channel = (
                grpc.aio.insecure_channel(target, options=self._options)
                if self._credentials is None
                else grpc.aio.secure_channel(target, self._credentials, options=self._options)
            )
            self._channels[address] = channel
        return channel

    def renew(self, credentials: grpc.ChannelCredentials) -> None:
        """Make calls with other credentials from now on; those under way go on."""
        self._credentials = credentials
        self._retired.add(self._channels.values())
        self._channels = {}

    async def close(self) -> None:
        """Close all channels."""
        await self._retired.close()
        for channel in self._channels.values():
            await channel.close(None)
