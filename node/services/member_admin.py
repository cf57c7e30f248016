"""The part of OperatorService that changes who the members are."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_types import CallContext, MethodHandler, parse
from tarry.node.edge.leader_calls import Answer, LeaderCalls
from tarry.node.recovery.rejoin_service import ADD_DEADLINE_MS
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.driver.driver import Driver
from tarry.replication.errors import MembershipRefused, NotLeader, TransferRefused
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.status import loses_quorum

TRANSFER_DEADLINE_MS: Final = 5_000
NODE_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
ADDRESS: Final = re.compile(r"\S+:\d{1,5}")


class MemberCalls:
    """Answers operators about members."""

    def __init__(
        self,
        driver: Driver,
        authorizer: Authorizer,
        calls: LeaderCalls,
        members: Callable[[], list[pb.Member]],
    ) -> None:
        self._driver = driver
        self._authorizer = authorizer
        self._calls = calls
        self._members = members

    def methods(self, service: str) -> dict[str, MethodHandler]:
        """Return the handlers by method name."""
        unary = {"AddMember": self._add, "RemoveMember": self._remove}
        return {name: self._calls.unary(f"/{service}/{name}", local) for name, local in unary.items()}

    async def _add(self, raw: bytes, context: CallContext) -> Answer:
        request = parse(pb.AddMemberRequest, raw)
        if isinstance(request, Refusal):
            return request
        refusal = self._authorizer.refusal(context, Right.OPERATE)
        if refusal is not None:
            return refusal
        if NODE_NAME.fullmatch(request.node) is None or ADDRESS.fullmatch(request.address) is None:
            text = "name the node (lower-case letters, digits, '-') and its address, host:port"
            return Refusal(Reason.MEMBER_INVALID, text)
        try:
            await self._driver.add(request.node, request.address, request.deadline_ms or ADD_DEADLINE_MS)
        except MembershipRefused as refused:
            return Refusal(Reason.MEMBERSHIP_REFUSED, str(refused), retry_ms=1_000)
        return self._answer()

    async def _remove(self, raw: bytes, context: CallContext) -> Answer:
        request = parse(pb.RemoveMemberRequest, raw)
        if isinstance(request, Refusal):
            return request
        refusal = self._authorizer.refusal(context, Right.OPERATE)
        if refusal is not None:
            return refusal
        status = self._driver.status()
        if request.node in status.members and loses_quorum(status, request.node):
            text = f"without {request.node} too few of the members left can be reached: start them first"
            return Refusal(Reason.MEMBERSHIP_REFUSED, text, retry_ms=1_000)
        try:
            if request.node == status.node:
                done = await self._driver.transfer(None, TRANSFER_DEADLINE_MS)
                raise NotLeader(done.leader)  # which is asked in turn
            await self._driver.remove(request.node)
        except (MembershipRefused, TransferRefused) as refused:
            return Refusal(Reason.MEMBERSHIP_REFUSED, str(refused), retry_ms=1_000)
        return self._answer()

    def _answer(self) -> bytes:
        return pb.MembersResponse(members=self._members()).SerializeToString()
