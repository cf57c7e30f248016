"""Every wrong request gets its typed refusal, from whichever node it asked, and changes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
import pytest

from tarry.client.local.cluster import LocalCluster
from tarry.proto.message_id import MessageId
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_operator_pb2 import ClusterStatusRequest, TransferLeadershipRequest
from tarry.proto.tarry_producer_pb2 import (
    CancelRequest,
    GetRequest,
    ScheduleBatchRequest,
    ScheduleRequest,
    ScheduleStreamRequest,
)
from tests.cluster.wire import TIMEOUT_S, Wire, refusal, wire

I64_MAX = (1 << 63) - 1
I64_MIN = -(1 << 63)
YEAR_MS = 365 * 86_400_000
RECORD = Record(body=b"hello").SerializeToString()
INVALID = grpc.StatusCode.INVALID_ARGUMENT

Schedules = ScheduleRequest | ScheduleBatchRequest


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def one(**fields: object) -> ScheduleRequest:
    return ScheduleRequest(**{"topic": "orders", "record": Record(body=b"hello"), **fields})  # type: ignore[arg-type]


def batch(count: int = 1, **fields: object) -> ScheduleBatchRequest:
    given = {"topics": ["orders"], "delay_ms": [1_000] * count, "records": [RECORD] * count, **fields}
    return ScheduleBatchRequest(**given)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def leader(shared_cluster: LocalCluster) -> Iterator[Wire]:
    with wire(shared_cluster.nodes[shared_cluster.wait_until_serving()].address) as stubs:
        yield stubs


@pytest.fixture(scope="module", params=["leader", "follower"])
def node(request: pytest.FixtureRequest, shared_cluster: LocalCluster) -> Iterator[Wire]:
    leader = shared_cluster.wait_until_serving()
    name = leader if request.param == "leader" else next(n for n in shared_cluster.nodes if n != leader)
    with wire(shared_cluster.nodes[name].address) as stubs:
        yield stubs


REFUSED: list[tuple[str, Schedules, str]] = [
    ("a negative delay", one(delay_ms=-1), "DELAY_NEGATIVE"),
    ("the least delay there is", one(delay_ms=I64_MIN), "DELAY_NEGATIVE"),
    ("a delay of 101 years", one(delay_ms=101 * YEAR_MS), "DUE_TOO_FAR"),
    ("a delay that overflows when now is added", one(delay_ms=I64_MAX), "DUE_TOO_FAR"),
    ("a due time at the end of 64 bits", one(due_ms=I64_MAX), "DUE_TOO_FAR"),
    ("a due time in microseconds", one(due_ms=now_ms() * 1_000), "DUE_TOO_FAR"),
    ("a due time before the epoch", one(due_ms=-1), "DUE_INVALID"),
    ("neither due time nor delay", one(), "DUE_MISSING"),
    ("due time and delay", one(due_ms=now_ms(), delay_ms=1), "DUE_AMBIGUOUS"),
    ("delay and delay level", one(delay_ms=1, delay_level=1), "DUE_AMBIGUOUS"),
    ("delay level 0", one(delay_level=0), "DELAY_LEVEL_UNKNOWN"),
    ("a delay level past the table", one(delay_level=19), "DELAY_LEVEL_UNKNOWN"),
    ("an empty topic", one(topic="", delay_ms=1), "TOPIC_INVALID"),
    ("a topic with a slash", one(topic="a/b", delay_ms=1), "TOPIC_INVALID"),
    ("a topic that climbs out of a folder", one(topic="..", delay_ms=1), "TOPIC_INVALID"),
    ("a topic with a line break", one(topic="a\nb", delay_ms=1), "TOPIC_INVALID"),
    ("a topic with a zero byte", one(topic="a\0b", delay_ms=1), "TOPIC_INVALID"),
    ("a topic outside ASCII", one(topic="bestellung-ü", delay_ms=1), "TOPIC_INVALID"),
    ("an over-long topic", one(topic="t" * 201, delay_ms=1), "TOPIC_INVALID"),
    (
        "a body one byte over the limit",
        one(record=Record(body=bytes((256 << 10) + 1)), delay_ms=1),
        "RECORD_TOO_LARGE",
    ),
    (
        "too many properties",
        one(record=Record(properties={str(n): "" for n in range(65)}), delay_ms=1),
        "TOO_MANY_PROPERTIES",
    ),
    (
        "a property as long as a body",
        one(record=Record(properties={"k": "v" * 330_000}), delay_ms=1),
        "RECORD_TOO_LARGE",
    ),
    ("too many keys", one(record=Record(keys=["k"] * 17), delay_ms=1), "TOO_MANY_KEYS"),
    ("too many tags", one(record=Record(tags=["t"] * 17), delay_ms=1), "TOO_MANY_TAGS"),
    (
        "an over-long ordering key",
        one(record=Record(ordering_key="k" * 129), delay_ms=1),
        "ORDERING_KEY_TOO_LONG",
    ),
    ("a producer without a sequence", one(producer="p", delay_ms=1), "PRODUCER_INVALID"),
    ("an over-long producer", one(producer="p" * 65, sequence=1, delay_ms=1), "PRODUCER_INVALID"),
    ("an empty batch", batch(0), "BATCH_EMPTY"),
    ("a batch one over the limit", batch(4_097), "BATCH_TOO_LARGE"),
    (
        "a batch of more topics than it may name",
        batch(1_025, topics=[f"t{number}" for number in range(1_025)]),
        "BATCH_TOO_LARGE",
    ),
    ("a batch with too many bytes", batch(20, records=[bytes(250_000)] * 20), "BATCH_TOO_LARGE"),
    ("fewer times than records", batch(2, delay_ms=[1]), "COLUMNS_DIFFER"),
    ("more tag masks than records", batch(1, tag_mask=[1, 2]), "COLUMNS_DIFFER"),
    ("a topic position outside the topics", batch(1, topic=[1]), "COLUMNS_DIFFER"),
    ("two columns of times", batch(1, due_ms=[now_ms()]), "DUE_AMBIGUOUS"),
    ("a batch without a topic", batch(1, topics=[]), "TOPIC_INVALID"),
    ("one bad delay among good ones", batch(3, delay_ms=[1, -5, 1]), "DELAY_NEGATIVE"),
    ("a record that is none", batch(1, records=[b"\xff\xff\xff"]), "RECORD_INVALID"),
    ("a record cut short", batch(1, records=[RECORD[:-1]]), "RECORD_INVALID"),
]


def pending(leader: Wire) -> int:
    return int(leader.operator.ClusterStatus(ClusterStatusRequest(), timeout=TIMEOUT_S).pending)


@pytest.mark.parametrize(
    ("request_", "reason"), [pytest.param(sent, reason, id=name) for name, sent, reason in REFUSED]
)
def test_a_wrong_schedule_is_refused_with_its_reason(
    node: Wire, leader: Wire, request_: Schedules, reason: str
) -> None:
    before = pending(leader)
    call = node.producer.Schedule if isinstance(request_, ScheduleRequest) else node.producer.ScheduleBatch
    with pytest.raises(grpc.RpcError) as caught:
        call(request_, timeout=TIMEOUT_S)
    said = refusal(caught.value)
    assert (said.reason, said.code) == (reason, INVALID)
    assert said.text
    assert pending(leader) <= before  # what other tests scheduled comes due meanwhile


def test_a_refusal_in_a_stream_does_not_end_the_stream(node: Wire) -> None:
    requests = [
        ScheduleStreamRequest(request=7, batch=batch(1, delay_ms=[-1])),
        ScheduleStreamRequest(request=8, batch=batch(1, delay_ms=[0])),
    ]
    bad, good = node.producer.ScheduleStream(iter(requests), timeout=TIMEOUT_S)
    assert (bad.request, bad.WhichOneof("outcome")) == (7, "refused")
    assert (good.request, good.WhichOneof("outcome")) == (8, "accepted")


def test_a_batch_says_which_message_was_wrong(node: Wire) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        node.producer.ScheduleBatch(batch(3, delay_ms=[1, 1, -5]), timeout=TIMEOUT_S)
    assert refusal(caught.value).facts["position"] == "2"


def test_a_due_time_in_the_past_is_taken_and_said_to_be_overdue(node: Wire) -> None:
    answer = node.producer.Schedule(one(due_ms=now_ms() - 60_000), timeout=TIMEOUT_S)
    assert answer.overdue


def test_a_delay_of_a_hundred_years_is_taken(node: Wire) -> None:
    answer = node.producer.Schedule(one(delay_ms=100 * YEAR_MS), timeout=TIMEOUT_S)
    assert answer.due_ms > now_ms() + 99 * YEAR_MS
    assert list(node.producer.Cancel(CancelRequest(ids=[answer.id]), timeout=TIMEOUT_S).outcomes) == [1]


def typed_wrongly(text: str) -> str:
    return text[:-1] + ("0" if text[-1] != "0" else "1")


def test_a_mistyped_id_is_malformed(node: Wire) -> None:
    good = node.producer.Schedule(one(delay_ms=3_600_000), timeout=TIMEOUT_S).id
    for wrong in (typed_wrongly(good), "", "nonsense", good * 50, "\0", "ü"):
        with pytest.raises(grpc.RpcError) as caught:
            node.producer.Get(GetRequest(id=wrong), timeout=TIMEOUT_S)
        assert (refusal(caught.value).reason, refusal(caught.value).code) == ("ID_MALFORMED", INVALID)
        with pytest.raises(grpc.RpcError) as caught:
            node.producer.Cancel(CancelRequest(ids=[good, wrong]), timeout=TIMEOUT_S)
        assert refusal(caught.value).reason == "ID_MALFORMED"
    state = node.producer.Get(GetRequest(id=good), timeout=TIMEOUT_S).state
    assert state == 1, "a refused cancel must not have cancelled its good ids"


def test_an_id_that_was_never_given_is_not_found(node: Wire) -> None:
    unknown = str(MessageId(0, 900_000, 7))
    with pytest.raises(grpc.RpcError) as caught:
        node.producer.Get(GetRequest(id=unknown), timeout=TIMEOUT_S)
    said = refusal(caught.value)
    assert (said.reason, said.code) == ("MESSAGE_NOT_FOUND", grpc.StatusCode.NOT_FOUND)
    assert list(node.producer.Cancel(CancelRequest(ids=[unknown]), timeout=TIMEOUT_S).outcomes) == [3]


def test_leadership_is_not_transferred_to_a_stranger(node: Wire) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        node.operator.TransferLeadership(TransferLeadershipRequest(target="n9"), timeout=TIMEOUT_S)
    assert refusal(caught.value).reason == "TRANSFER_REFUSED"


@pytest.mark.parametrize("method", ["ClusterStatus", "TransferLeadership"])
def test_bytes_that_are_no_request_are_refused_by_name(shared_cluster: LocalCluster, method: str) -> None:
    address = shared_cluster.nodes[shared_cluster.wait_until_serving()].address
    with grpc.insecure_channel(address) as channel, pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(f"/tarry.v1.OperatorService/{method}", None, None)(b"\xff", timeout=TIMEOUT_S)
    said = refusal(caught.value)
    assert (said.reason, said.code) == ("RECORD_INVALID", INVALID)


@pytest.mark.parametrize(
    "path", [b"/tarry.v1.ProducerService/\xff", b"\xff\xfe", b"/", "/no.such.Service/Call"]
)
def test_a_path_that_is_no_method_is_refused_and_the_node_goes_on(
    shared_cluster: LocalCluster, path: bytes | str
) -> None:
    address = shared_cluster.nodes[shared_cluster.wait_until_serving()].address
    with grpc.insecure_channel(address) as channel:
        with pytest.raises(grpc.RpcError) as refused:
            channel.unary_unary(path, None, None)(b"", timeout=TIMEOUT_S)  # type: ignore[arg-type]
        assert refused.value.code() in {grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.UNKNOWN}
    with wire(address) as stubs:
        assert stubs.operator.ClusterStatus(ClusterStatusRequest(), timeout=TIMEOUT_S).node
