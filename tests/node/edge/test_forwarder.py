"""A follower passes calls on to the leader."""

from __future__ import annotations

from collections.abc import AsyncIterator

import grpc
import pytest

from tarry.client.errors import CLASS_OF_REASON, UpgradeRefused
from tarry.node.edge.forwarded_caller import caller_of
from tarry.node.edge.forwarder import DEADLINE_S, Forwarder
from tarry.node.edge.grpc_types import CallContext
from tarry.replication.state_machine.refusal import Refusal

PATH = "/tarry.v1.ConsumerService/Receive"
NEW = "/tarry.v1.QueryService/ListMessages"
"""A call that the leader's version does not have."""


class Leader(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Answers each call with how much time it has left, s, or where it is asked that with who has called."""

    def service(self, call: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if call.method == NEW:
            return None

        async def handle(asked: bytes, context: CallContext) -> bytes:
            if asked == b"who":
                return caller_of(context, lambda _: True).address.encode()
            return str(context.time_remaining()).encode()

        return grpc.unary_unary_rpc_method_handler(handle)


@pytest.fixture
async def leader() -> AsyncIterator[str]:
    server = grpc.aio.server(handlers=[Leader()])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(None)


class Asked:
    """What a follower's handler is given for a call."""

    def __init__(self, left_s: float | None) -> None:
        self._left_s = left_s

    def invocation_metadata(self) -> tuple[()]:
        return ()

    def auth_context(self) -> dict[str, list[bytes]]:
        return {}

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5000"

    def time_remaining(self) -> float | None:
        return self._left_s


@pytest.mark.parametrize(("left_s", "most_s"), [(None, DEADLINE_S + 30), (5.0, 5.0)])
async def test_a_call_that_may_wait_has_that_much_more_time_unless_its_client_says_otherwise(
    leader: str, left_s: float | None, most_s: float
) -> None:
    forwarder = Forwarder(None, [], {})
    answer = await forwarder.forward(leader, PATH, b"", Asked(left_s), 30.0)  # type: ignore[arg-type]
    assert isinstance(answer, bytes)
    assert most_s - 2 < float(answer) <= most_s * 1.01  # gRPC rounds what is left up
    await forwarder.close()


@pytest.mark.parametrize(
    ("path", "told"),
    [
        (PATH, "ipv4:10.0.0.1:5000"),
        ("/tarry.v1.OperatorService/DeleteTopic", "ipv4:10.0.0.1:5000"),
        ("/tarry.v1.ConsumerService/Ack", "ipv4:127.0.0.1:"),  # the follower itself: nobody wants to know
    ],
)
async def test_the_leader_is_told_who_receives_or_operates_through_a_follower(
    leader: str, path: str, told: str
) -> None:
    forwarder = Forwarder(None, [], {})
    answer = await forwarder.forward(leader, path, b"who", Asked(5.0))  # type: ignore[arg-type]
    assert isinstance(answer, bytes)
    assert answer.decode().startswith(told)
    await forwarder.close()


async def test_a_call_that_the_leader_s_version_has_not_is_refused_with_what_to_upgrade(leader: str) -> None:
    forwarder = Forwarder(None, [], {})
    answer = await forwarder.forward(leader, NEW, b"", Asked(5.0))  # type: ignore[arg-type]
    await forwarder.close()
    assert isinstance(answer, Refusal)
    assert CLASS_OF_REASON[answer.reason] is UpgradeRefused
    assert f"{leader} runs a version without this call: upgrade it" in answer.text
