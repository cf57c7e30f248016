"""Each operation of the HTTP gateway against a real cluster; answers are held to the OpenAPI document."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from tarry.client.local.cluster import LocalCluster, Setting
from tarry.gateway.http.openapi import document
from tarry.gateway.http.operations import OPERATIONS
from tests.cluster.authority import Authority
from tests.cluster.disposable import Disposable
from tests.cluster.gateways import GatewayProcess, gateway_process
from tests.cluster.steady import STEADY

pytestmark = pytest.mark.beside

DOCUMENT = document()
TOKENS: dict[str, Setting] = {
    "shop-token": {"produce": ["orders.*"], "consume": ["orders.*"]},
    "root-token": {"produce": ["*"], "consume": ["*"], "operate": True},
}
GONE = "0000000f70h0000000n"


def validate(schema: dict[str, Any], value: Any) -> None:
    """Hold a value to a schema of the document."""
    Draft202012Validator({**schema, "components": DOCUMENT["components"]}).validate(value)


class Caller:
    """Calls operations by their names, and holds requests and answers to the document."""

    def __init__(self, http: httpx.Client) -> None:
        self.http = http
        self.called: set[str] = set()
        self._operations = {each.name: each for each in OPERATIONS}

    def __call__(self, name: str, body: Any = None, query: Any = None, status: int = 0, **path: Any) -> Any:
        """Return the answer of an operation."""
        operation = self._operations[name]
        told = DOCUMENT["paths"][operation.path][operation.method.lower()]
        if body is not None and not status:
            validate(told["requestBody"]["content"]["application/json"]["schema"], body)
        answer = self.http.request(
            operation.method, operation.path.format(**path), json=body, params=query or {}
        )
        assert answer.status_code == (status or operation.status), answer.text
        responses = told["responses"]
        response = responses.get(str(answer.status_code), responses["default"])
        validate(response["content"]["application/json"]["schema"], answer.json())
        self.called.add(name)
        return answer.json()


@pytest.fixture(scope="module")
def gateway(shared_cluster: LocalCluster) -> Iterator[GatewayProcess]:
    with gateway_process(shared_cluster.addresses) as running:
        yield running


@pytest.fixture
def call(gateway: GatewayProcess) -> Iterator[Caller]:
    with gateway.client() as http:
        yield Caller(http)


def receive(call: Caller, topic: str, group: str = "g", **more: Any) -> list[dict[str, Any]]:
    body = {"messages_max": 10, "wait_ms": 10_000, **more}
    return list(call("receive", body, topic=topic, group=group)["messages"])


def handles(messages: list[dict[str, Any]]) -> list[str]:
    return [message["handle"] for message in messages]


def outcomes(answer: dict[str, Any]) -> list[str]:
    return [each["outcome"] for each in answer["messages"]]


def test_every_operation_does_what_the_document_says(call: Caller) -> None:
    one = call(
        "schedule",
        {
            "due": "2031-01-01T01:00:00+01:00",
            "body_json": {"order": 7, "paid": None},
            "tags": ["paid"],
            "keys": ["k7"],
            "properties": {"colour": "red"},
            "ordering_key": "shop",
            "idempotency_key": "once",
        },
        topic="all",
    )
    assert one["due_ms"] == 1_924_992_000_000
    again = call(
        "schedule",
        {"delay_ms": 1, "body_json": {"order": 7, "paid": None}, "tags": ["paid"], "keys": ["k7"],
         "properties": {"colour": "red"}, "ordering_key": "shop", "idempotency_key": "once"},
        topic="all",
    )  # fmt: skip
    assert (again["id"], again["repeated"]) == (one["id"], True)
    stored = call("get", query={"body_as": "json"}, id=one["id"])
    assert stored["body_json"] == {"order": 7, "paid": None}
    assert (stored["state"], stored["properties"], stored["tags"]) == ("pending", {"colour": "red"}, ["paid"])
    many = call(
        "schedule_batch",
        {
            "messages": [
                {"delay_ms": 3_600_000, "body": "a", "keys": ["k7"]},
                {"delay_ms": 1, "body_base64": "/wA="},
            ]
        },
        topic="all",
    )["messages"]
    assert len({each["id"] for each in many}) == 2
    listed = call("list", query={"key": "k7", "states": "pending", "bodies": "true", "size": 1}, topic="all")
    assert [each["body"] for each in listed["messages"]] == ["a"]
    rest = call("list", query={"key": "k7", "states": "pending", "cursor": listed["cursor"]}, topic="all")
    assert [each["id"] for each in rest["messages"]] == [one["id"]]
    assert "body" not in rest["messages"][0]
    found = call("find", query={"key": "k7", "bodies": "true"}, topic="all")["messages"]
    assert {each["id"] for each in found} == {one["id"], many[0]["id"]}
    assert call("find", query={"idempotency_key": "once"}, topic="all")["messages"][0]["id"] == one["id"]
    assert sum(call("forecast", query={"topic": "all", "by": "hour", "buckets": 3})["counts"]) == 1
    changed = call("reschedule", {"due_ms": 1_924_992_000_001, "if_due_ms": one["due_ms"]}, id=one["id"])
    assert (changed["outcome"], changed["due_ms"]) == ("changed", 1_924_992_000_001)
    assert call("reschedule", {"delay_ms": 5, "if_due_ms": 1}, id=one["id"])["outcome"] == "due_differs"
    assert call("update", {"body": "new", "tags": []}, id=one["id"])["outcome"] == "changed"
    stored = call("get", id=one["id"])
    assert (stored["body"], stored["tags"], stored["keys"]) == ("new", [], ["k7"])
    assert call("cancel", query={"remaining_groups": "true"}, id=one["id"])["outcome"] == "cancelled"
    assert call("cancel", id=one["id"])["outcome"] == "already_cancelled"
    cancelled = call("cancel_many", {"ids": [one["id"], many[0]["id"], GONE]})
    assert outcomes(cancelled) == ["already_cancelled", "cancelled", "not_found"]
    (received,) = receive(call, "all")
    assert (received["id"], received["body_base64"], received["attempt"]) == (many[1]["id"], "/wA=", 1)
    assert outcomes(call("extend", {"handles": [received["handle"]], "lease_ms": 60_000})) == ["ok"]
    assert outcomes(call("nack", {"handles": [received["handle"]], "delay_ms": 0})) == ["ok"]
    (received,) = receive(call, "all")
    assert received["attempt"] == 2
    assert outcomes(call("ack", {"handles": [received["handle"]] * 2})) == ["ok", "ok"]
    assert outcomes(call("ack", {"handles": [received["handle"]]})) == ["stale"]
    assert call.called | {"events"} == {each.name for each in OPERATIONS}


@pytest.mark.parametrize(
    ("name", "body", "path", "status", "reason"),
    [
        ("get", None, {"id": GONE}, 404, "MESSAGE_NOT_FOUND"),
        ("get", None, {"id": "nonsense"}, 400, "ID_MALFORMED"),
        ("list", None, {"topic": "never-made"}, 404, "TOPIC_UNKNOWN"),
        ("schedule", {"delay_ms": 1}, {"topic": "bad topic"}, 400, "TOPIC_INVALID"),
        ("schedule", {"due_ms": 10**17}, {"topic": "t"}, 400, "DUE_TOO_FAR"),
        ("schedule", {"delay_ms": -1}, {"topic": "t"}, 400, "DELAY_NEGATIVE"),
        ("schedule", {"delay_level": 99}, {"topic": "t"}, 400, "DELAY_LEVEL_UNKNOWN"),
        ("schedule", {"delay_ms": 1, "body": "x" * 270_000}, {"topic": "t"}, 413, "RECORD_TOO_LARGE"),
        ("schedule", {"delay_ms": 1, "tags": [""] * 40}, {"topic": "t"}, 413, "TOO_MANY_TAGS"),
        ("receive", {"lease_ms": 1}, {"topic": "t", "group": "g"}, 400, "LEASE_INVALID"),
        ("receive", {"consumer": "bad name"}, {"topic": "t", "group": "g"}, 400, "CONSUMER_INVALID"),
        ("receive", {}, {"topic": "t", "group": "bad group"}, 400, "GROUP_INVALID"),
    ],
)
def test_a_refusal_of_the_cluster_has_its_reason(
    call: Caller, name: str, body: Any, path: dict[str, str], status: int, reason: str
) -> None:
    error = call(name, body, status=status, **path)["error"]
    assert error["reason"] == reason
    assert error["advice"]


def test_a_conflict_of_idempotency_keys_names_the_message(call: Caller) -> None:
    first = call("schedule", {"delay_ms": 3_600_000, "idempotency_key": "k", "body": "a"}, topic="conflict")
    body = {"delay_ms": 3_600_000, "idempotency_key": "k", "body": "b"}
    error = call("schedule", body, topic="conflict", status=409)["error"]
    assert (error["reason"], error["facts"]["id"]) == ("IDEMPOTENCY_CONFLICT", first["id"])


def test_a_poll_waits_for_what_comes_due_and_never_gets_it_early(call: Caller) -> None:
    scheduled = call("schedule", {"delay_ms": 700}, topic="waits")
    (received,) = receive(call, "waits")
    assert received["due_ms"] == scheduled["due_ms"]
    assert time.time() * 1_000 >= scheduled["due_ms"] - 250  # the clocks' difference that nodes allow
    began = time.monotonic()
    assert receive(call, "waits", wait_ms=300) == []
    assert time.monotonic() - began >= 0.25


def test_a_caller_that_left_its_poll_takes_no_message_with_it(call: Caller, gateway: GatewayProcess) -> None:
    call("schedule", {"delay_ms": 3_600_000}, topic="left")
    path = f"{gateway.url}/v1/topics/left/groups/g/receive"
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(path, json={"wait_ms": 30_000, "lease_ms": 43_200_000}, timeout=1)
    call("schedule", {"delay_ms": 500, "body": "for another"}, topic="left")
    (received,) = receive(call, "left")
    assert (received["body"], received["attempt"]) == ("for another", 1)


def test_what_one_gateway_delivered_another_one_settles(call: Caller, shared_cluster: LocalCluster) -> None:
    call("schedule", {"delay_ms": 0}, topic="two-gateways")
    (received,) = receive(call, "two-gateways")
    with gateway_process(shared_cluster.addresses) as other, other.client() as http:
        assert outcomes(Caller(http)("ack", {"handles": [received["handle"]]})) == ["ok"]


def test_handles_of_many_calls_are_settled_at_once_and_each_has_its_outcome(call: Caller) -> None:
    call("schedule_batch", {"messages": [{"delay_ms": 0}] * 5}, topic="many-calls")
    received = [handle for _ in range(5) for handle in handles(receive(call, "many-calls", messages_max=1))]
    nobody = str(received[0])[:-4] + "zzzz"
    answer = call("ack", {"handles": [*received, received[0]]})
    assert outcomes(answer) == ["ok"] * 6
    assert call("ack", {"handles": [nobody]}, status=400)["error"]["reason"] == "HANDLE_INVALID"


def lines(stream: httpx.Response) -> Iterator[tuple[str, Any]]:
    """Yield the events of a stream: its kind, and its data."""
    kind = ""
    for line in stream.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            kind = value
        elif name == "data":
            yield kind, json.loads(value)


def test_an_event_stream_delivers_within_its_credit_and_ends_as_it_says(call: Caller) -> None:
    call("schedule_batch", {"messages": [{"delay_ms": 0, "body": str(n)} for n in range(5)]}, topic="events")
    path, query = "/v1/topics/events/groups/g/events", {"credit": 2, "last_ms": 4_000}
    with call.http.stream("GET", path, params=query) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        events = lines(stream)
        first, second = next(events), next(events)
        bodies = {first[1]["body"], second[1]["body"]}
        assert first[0] == "message"
        assert outcomes(call("ack", {"handles": [first[1]["handle"], second[1]["handle"]]})) == ["ok", "ok"]
        third, fourth = next(events), next(events)  # credit was used up: it is free again by the acks
        bodies |= {third[1]["body"], fourth[1]["body"]}
        assert len(bodies) == 4
        assert outcomes(call("ack", {"handles": [third[1]["handle"]]})) == ["ok"]
        *fifth, last = events
        assert last == ("end", {"reason": "DURATION_OVER"})
    left = receive(call, "events")  # was in hand when the stream ended: at once, and as no other attempt
    assert {message["body"] for message in left} == {fourth[1]["body"], *(each["body"] for _, each in fifth)}
    assert {message["attempt"] for message in left} == {1}


def test_an_event_stream_that_its_caller_leaves_gives_back_what_it_has(call: Caller) -> None:
    call("schedule", {"delay_ms": 0}, topic="dropped")
    query = {"lease_ms": 43_200_000}
    with call.http.stream("GET", "/v1/topics/dropped/groups/g/events", params=query) as stream:
        _, message = next(lines(stream))
    (again,) = receive(call, "dropped")
    assert (again["id"], again["attempt"]) == (message["id"], 1)
    assert outcomes(call("ack", {"handles": [message["handle"]]})) == ["stale"]


def test_credit_is_free_again_once_another_gateway_has_settled(
    call: Caller, shared_cluster: LocalCluster
) -> None:
    call("schedule_batch", {"messages": [{"delay_ms": 0}] * 2}, topic="elsewhere")
    query = {"credit": 1, "lease_ms": 1_000, "last_ms": 20_000}
    with (
        gateway_process(shared_cluster.addresses) as other,
        other.client() as http,
        call.http.stream("GET", "/v1/topics/elsewhere/groups/g/events", params=query) as stream,
    ):
        events = lines(stream)
        _, first = next(events)
        assert outcomes(Caller(http)("ack", {"handles": [first["handle"]]})) == ["ok"]
        kind, second = next(events)
        assert (kind, second["id"] != first["id"]) == ("message", True)
        assert outcomes(call("ack", {"handles": [second["handle"]]})) == ["ok"]


def test_a_stream_that_the_cluster_refuses_has_a_status(call: Caller) -> None:
    answer = call.http.get("/v1/topics/t/groups/bad group/events")
    assert (answer.status_code, answer.json()["error"]["reason"]) == (400, "GROUP_INVALID")


def test_told_to_end_polls_and_streams_end_in_order(shared_cluster: LocalCluster) -> None:
    answers: dict[str, Any] = {}
    with gateway_process(shared_cluster.addresses) as gateway:
        begun = threading.Barrier(3)

        def poll() -> None:
            with gateway.client() as http:
                begun.wait()
                answers["poll"] = Caller(http)("receive", {"wait_ms": 30_000}, topic="ends", group="g")

        def stream() -> None:
            with gateway.client() as http, http.stream("GET", "/v1/topics/ends/groups/s/events") as events:
                begun.wait()
                answers["stream"] = list(lines(events))

        threads = [threading.Thread(target=poll), threading.Thread(target=stream)]
        for thread in threads:
            thread.start()
        begun.wait()
        time.sleep(1)
    for thread in threads:
        thread.join(20)
    assert answers == {"poll": {"messages": []}, "stream": [("end", {"reason": "GATEWAY_ENDING"})]}


def test_a_nack_may_make_a_dead_letter(call: Caller) -> None:
    call("schedule", {"delay_ms": 0, "body": "given up"}, topic="given-up")
    (received,) = receive(call, "given-up")
    nacked = call("nack", {"handles": [received["handle"]], "dead_letter": True})
    assert outcomes(nacked) == ["ok"]
    (letter,) = receive(call, "dlq.g.given-up")
    assert (letter["body"], letter["properties"]["tarry.attempts"]) == ("given up", "1")


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    settings: dict[str, Setting] = {"tokens": TOKENS, "peer_token": "between-nodes", "consensus": STEADY}
    with Disposable(1, tmp_path_factory.mktemp("guarded"), settings, token="root-token") as cluster:
        cluster.start()
        cluster.wait_until_serving()
        with gateway_process(cluster.addresses, "--token", "root-token") as running:
            yield running


@pytest.mark.parametrize(
    ("token", "topic", "status", "reason"),
    [
        (None, "orders.new", 401, "UNAUTHENTICATED"),
        ("unknown-token", "orders.new", 401, "UNAUTHENTICATED"),
        ("shop-token", "others", 403, "PERMISSION_DENIED"),
        ("shop-token", "orders.new", 201, ""),
        ("root-token", "others", 201, ""),
    ],
)
def test_callers_may_do_what_their_tokens_may_and_the_gateway_lends_none(
    guarded: GatewayProcess, token: str | None, topic: str, status: int, reason: str
) -> None:
    with guarded.client(token) as http:
        assert http.get("/readyz").status_code == 200
        answer = Caller(http)("schedule", {"delay_ms": 1}, topic=topic, status=status)
    assert answer.get("error", {}).get("reason", "") == reason


def test_a_stream_s_messages_are_settled_with_the_caller_s_own_token(guarded: GatewayProcess) -> None:
    with guarded.client("root-token") as root, guarded.client("shop-token") as shop:
        Caller(root)("schedule", {"delay_ms": 0}, topic="others")
        with root.stream("GET", "/v1/topics/others/groups/g/events") as stream:
            events = lines(stream)  # kept: the stream is closed with what reads it
            _, message = next(events)
            refused = Caller(shop)("ack", {"handles": [message["handle"]]}, status=403)
            assert refused["error"]["reason"] == "PERMISSION_DENIED"
            assert outcomes(Caller(root)("ack", {"handles": [message["handle"]]})) == ["ok"]


def test_https_is_served_with_a_certificate(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.sign("gateway", "/CN=gateway")
    pair = ["--certificate", str(tmp_path / "gateway.pem"), "--key", str(tmp_path / "gateway.key")]
    with gateway_process(shared_cluster.addresses, *pair) as gateway:
        assert gateway.url.startswith("https://")
        answer = httpx.get(
            f"{gateway.url}/readyz", verify=ssl.create_default_context(cafile=str(tmp_path / "authority.pem"))
        )
        assert answer.status_code == 200
