"""Bearer tokens: who may do what on which topic."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest

from tarry.client.local.cluster import LocalCluster, Setting
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_consumer_pb2 import ConsumeRequest, Subscribe
from tarry.proto.tarry_message_pb2 import MessageState, Record
from tarry.proto.tarry_operator_pb2 import (
    ClusterStatusRequest,
    ClusterStatusResponse,
    FinishUpgradeRequest,
    Rights,
    TransferLeadershipRequest,
)
from tarry.proto.tarry_producer_pb2 import (
    CancelOutcome,
    CancelRequest,
    ChangeOutcome,
    GetRequest,
    GetResponse,
    RescheduleRequest,
    ScheduleRequest,
    UpdateRequest,
)
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY
from tests.cluster.wire import TIMEOUT_S, Wire, refusal, wire

pytestmark = pytest.mark.beside

TOKENS: dict[str, Setting] = {
    "shop": {"produce": ["orders.*"], "consume": ["orders.*"]},
    "audit": {"consume": ["*"]},
    "root": {"produce": ["*"], "consume": ["*"], "operate": True},
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Wire]:
    settings: dict[str, Setting] = {"tokens": TOKENS, "peer_token": "between-nodes", "consensus": STEADY}
    with Disposable(2, tmp_path_factory.mktemp("rights"), settings, token="root") as cluster:
        cluster.start()
        leader = cluster.wait_until_serving()
        with wire(cluster.nodes[leader].address) as stubs:
            yield stubs


def bearing(token: str | None) -> list[tuple[str, str]]:
    return [] if token is None else [("authorization", f"Bearer {token}")]


def schedule(node: Wire, topic: str, token: str | None) -> str:
    request = ScheduleRequest(topic=topic, record=Record(body=b"x"), delay_ms=60_000)
    answer = node.producer.Schedule(request, timeout=TIMEOUT_S, metadata=bearing(token))
    return str(answer.id)


@pytest.mark.parametrize("token", [None, "", "wrong", "shop ", "between-nodes"])
def test_a_missing_or_unknown_token_is_refused(node: Wire, token: str | None) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        schedule(node, "orders.new", token)
    said = refusal(caught.value)
    assert (said.reason, said.code) == ("UNAUTHENTICATED", grpc.StatusCode.UNAUTHENTICATED)


@pytest.mark.parametrize(
    ("token", "topic"), [("shop", "payments"), ("shop", "order"), ("audit", "orders.new")]
)
def test_a_token_without_the_right_is_refused(node: Wire, token: str, topic: str) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        schedule(node, topic, token)
    said = refusal(caught.value)
    assert (said.reason, said.code) == ("PERMISSION_DENIED", grpc.StatusCode.PERMISSION_DENIED)


def test_a_token_with_the_right_is_served(node: Wire) -> None:
    assert schedule(node, "orders.new", "shop")


def never_given(known: str) -> str:
    """An id that belongs to no message, of the hour of one that does."""
    found = MessageId.parse(known)
    return str(MessageId(found.shard, found.hour, found.global_index + 1_000))


def test_a_message_of_others_can_neither_be_changed_nor_told_from_one_that_is_not_there(node: Wire) -> None:
    node.operator.FinishUpgrade(FinishUpgradeRequest(), timeout=TIMEOUT_S, metadata=bearing("root"))
    theirs, ours = schedule(node, "payments", "root"), schedule(node, "orders.new", "shop")
    shop = {"timeout": TIMEOUT_S, "metadata": bearing("shop")}
    for group in ("", "g"):
        ids = [theirs, ours, never_given(theirs)]
        request = RescheduleRequest(
            ids=ids, delay_ms=[7_200_000], group=group, topic="payments" if group else ""
        )
        told, right, unknown = node.producer.Reschedule(request, **shop).outcomes
        assert told == unknown == ChangeOutcome.CHANGE_OUTCOME_NOT_FOUND
        assert group or right == ChangeOutcome.CHANGE_OUTCOME_CHANGED
        update = UpdateRequest(id=theirs, body=b"", group=group, topic=request.topic)
        assert node.producer.Update(update, **shop).outcome == ChangeOutcome.CHANGE_OUTCOME_NOT_FOUND
    assert get(node, theirs, "root").record.body


def test_a_message_of_others_can_neither_be_cancelled_nor_told_from_one_that_is_not_there(node: Wire) -> None:
    theirs, ours = schedule(node, "payments", "root"), schedule(node, "orders.new", "shop")
    answer = node.producer.Cancel(
        CancelRequest(ids=[theirs, ours, never_given(theirs)]), timeout=TIMEOUT_S, metadata=bearing("shop")
    )
    assert list(answer.outcomes) == [
        CancelOutcome.CANCEL_OUTCOME_NOT_FOUND,
        CancelOutcome.CANCEL_OUTCOME_CANCELLED,
        CancelOutcome.CANCEL_OUTCOME_NOT_FOUND,
    ]
    assert get(node, theirs, "root").state == MessageState.MESSAGE_STATE_PENDING


def get(node: Wire, message: str, token: str) -> GetResponse:
    answer: GetResponse = node.producer.Get(
        GetRequest(id=message), timeout=TIMEOUT_S, metadata=bearing(token)
    )
    return answer


@pytest.mark.parametrize("token", ["shop", "audit"])
def test_a_message_of_others_is_looked_up_as_if_it_were_not_there(node: Wire, token: str) -> None:
    theirs = schedule(node, "payments", "root")
    said = []
    for message in (theirs, never_given(theirs)):
        with pytest.raises(grpc.RpcError) as caught:
            get(node, message, token)
        said.append(refusal(caught.value))
    assert said[0] == said[1]
    assert said[0].reason == "MESSAGE_NOT_FOUND"


def test_a_status_names_only_topics_that_the_token_may_do_anything_with(node: Wire) -> None:
    for topic in ("payments", "orders.new"):
        schedule(node, topic, "root")
    seen = {
        token: {topic.topic for topic in status(node, token).topics if not topic.topic.startswith("dlq.")}
        for token in TOKENS
    }
    assert seen["shop"] == {"orders.new"}
    assert {"orders.new", "payments"} <= seen["audit"] == seen["root"]


def test_a_topic_cannot_be_consumed_without_the_right(node: Wire) -> None:
    request = ConsumeRequest(subscribe=Subscribe(topic="payments", group="g", credit=1))
    with pytest.raises(grpc.RpcError) as caught:
        next(node.consumer.Consume(iter([request]), timeout=TIMEOUT_S, metadata=bearing("shop")))
    assert refusal(caught.value).reason == "PERMISSION_DENIED"


def test_only_an_operator_moves_leadership(node: Wire) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        node.operator.TransferLeadership(
            TransferLeadershipRequest(), timeout=TIMEOUT_S, metadata=bearing("shop")
        )
    assert refusal(caught.value).reason == "PERMISSION_DENIED"


def status(node: Wire, token: str | None, *, digest: bool = False) -> ClusterStatusResponse:
    answer: ClusterStatusResponse = node.operator.ClusterStatus(
        ClusterStatusRequest(digest=digest), timeout=TIMEOUT_S, metadata=bearing(token)
    )
    return answer


@pytest.mark.parametrize("token", [None, "wrong"])
def test_what_a_cluster_is_doing_is_told_to_no_stranger(node: Wire, token: str | None) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        status(node, token)
    assert refusal(caught.value).reason == "UNAUTHENTICATED"


def test_a_digest_of_all_tables_is_made_for_operators_alone(node: Wire) -> None:
    assert status(node, "shop").lease
    with pytest.raises(grpc.RpcError) as caught:
        status(node, "shop", digest=True)
    assert refusal(caught.value).reason == "PERMISSION_DENIED"
    assert len(status(node, "root", digest=True).state_digest) == 16


@pytest.mark.parametrize(
    ("token", "told"),
    [
        ("shop", Rights(token="unnamed", produce=["orders.*"], consume=["orders.*"])),
        ("audit", Rights(token="unnamed", consume=["*"])),
        ("root", Rights(token="unnamed", produce=["*"], consume=["*"], operate=True)),
    ],
)
def test_the_status_tells_what_its_caller_may_do(node: Wire, token: str, told: Rights) -> None:
    answer = node.operator.ClusterStatus(ClusterStatusRequest(), timeout=TIMEOUT_S, metadata=bearing(token))
    assert answer.rights == told


def test_where_there_are_no_tokens_everybody_may_do_all(shared_cluster: LocalCluster) -> None:
    with wire(shared_cluster.addresses.split(",")[0]) as stubs:
        answer = stubs.operator.ClusterStatus(ClusterStatusRequest(), timeout=TIMEOUT_S)
    assert answer.rights == Rights(produce=["*"], consume=["*"], operate=True)
