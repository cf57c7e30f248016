"""Requests that no one should make, to a gateway beside a real cluster: never a 500, never a traceback."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.client.local.cluster import LocalCluster
from tarry.gateway.handle import Holder
from tarry.gateway.http.handles import Handle
from tarry.gateway.http.operations import OPERATIONS, Operation
from tests.cluster.gateways import GatewayProcess, gateway_process

pytestmark = pytest.mark.beside

EXTREMES = st.sampled_from([0, 1, -1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, -(2**63), 10**30])
NUMBERS = EXTREMES | st.integers(0, 100)
WORDS = st.sampled_from(
    ["", "t", "g", "a.b", "dlq.g.t", "earliest", "latest", "2026-12-01T09:00:00Z", "m1.WyJ0Il0"]
)
TEXTS = WORDS | st.text(max_size=20) | st.text("\x00\ud800\ud7ff\uffff\U0010ffff/%?#", max_size=4)
SCALARS = st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False, allow_infinity=False) | TEXTS
VALUES = st.recursive(
    SCALARS, lambda one: st.lists(one, max_size=3) | st.dictionaries(TEXTS, one, max_size=3), max_leaves=6
)
HANDLES = st.sampled_from([str(Handle(Holder("t", "g", "c", queue, 0), 0)) for queue in (0, 2**32 - 1)])
FITTING = {
    "due_ms": NUMBERS,
    "delay_ms": NUMBERS,
    "delay_level": NUMBERS,
    "jitter_ms": NUMBERS,
    "if_due_ms": NUMBERS,
    "due_from_ms": NUMBERS,
    "due_to_ms": NUMBERS,
    "from_ms": NUMBERS,
    "buckets": NUMBERS,
    "lease_ms": NUMBERS,
    "messages_max": st.integers(1, 100),
    "wait_ms": st.integers(0, 20),
    "size": st.integers(1, 1_000),
    "tags": st.lists(TEXTS, max_size=20),
    "keys": st.lists(TEXTS, max_size=20),
    "properties": st.dictionaries(TEXTS, TEXTS, max_size=5),
    "handles": st.lists(
        HANDLES | TEXTS,
        min_size=1,
        max_size=3,
    ),
    "ids": st.lists(TEXTS, min_size=1, max_size=3),
    "messages": st.lists(st.fixed_dictionaries({"delay_ms": NUMBERS, "body": TEXTS}), min_size=1, max_size=3),
}


def given_fields(operation: Operation) -> st.SearchStrategy[dict[str, Any]]:
    """Return fields that nearly fit: an operation's own, mostly of the right types, sometimes others."""
    model = operation.body or operation.query
    names = list(model.model_fields) if model else []
    optional = {name: FITTING.get(name, TEXTS) | VALUES for name in names}
    few = st.fixed_dictionaries({}, optional=optional)
    fitting = {name: FITTING.get(name, TEXTS) for name in names if name in FITTING}
    return few | st.fixed_dictionaries({}, optional=fitting) | st.dictionaries(TEXTS, VALUES, max_size=2)


REQUESTS = st.sampled_from([each for each in OPERATIONS if each.name != "events"]).flatmap(
    lambda each: st.tuples(st.just(each), given_fields(each), st.tuples(TEXTS, TEXTS))
)


@pytest.fixture(scope="module")
def gateway(lone_cluster: LocalCluster) -> Iterator[GatewayProcess]:
    with gateway_process(lone_cluster.addresses) as running:
        yield running


@pytest.fixture(scope="module")
def http(gateway: GatewayProcess) -> Iterator[httpx.Client]:
    with gateway.client() as client:
        yield client


def told_why(answer: httpx.Response) -> None:
    """Hold an answer to what every caller may expect."""
    assert answer.status_code != 500, answer.text
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert error["reason"], error
        assert error["text"], error
        assert error["advice"], error


def sendable(value: object) -> str:
    """Return a value as a text that a URL can hold."""
    return str(value).encode("utf-8", "replace").decode()


@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(REQUESTS)
def test_any_request_is_answered_or_told_why_not(
    http: httpx.Client, request_of: tuple[Operation, dict[str, Any], tuple[str, str]]
) -> None:
    operation, fields, names = request_of
    path = operation.path
    for parameter, name in zip(operation.parameters, names, strict=False):
        escaped = "".join(f"%{byte:02X}" for byte in name.encode("utf-8", "surrogatepass"))
        path = path.replace(f"{{{parameter}}}", escaped or "t")
    if operation.body is not None:
        content = json.dumps(fields).encode()
        headers = {"content-type": "application/json"}
        told_why(http.request(operation.method, path, content=content, headers=headers))
        return
    query: Any = [
        (sendable(name), sendable(one))
        for name, value in fields.items()
        for one in (value if isinstance(value, list) else [value])
    ]
    told_why(http.request(operation.method, path, params=query))


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_any_bytes_as_a_body_are_answered_or_told_why_not(http: httpx.Client, body: bytes) -> None:
    for path in ("/v1/topics/t/messages", "/v1/ack"):
        told_why(http.post(path, content=body, headers={"content-type": "application/json"}))


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET //evil.example/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"POST /v1/ack HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /v1/ack HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: -5\r\n\r\n",
        b"POST /v1/ack HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n",
        b"GET /v1/messages/%ff%fe HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /v1/forecast?topic=%ed%a0%80 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        b"GET /v1/messages/x HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer \xff\xfe\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET /" + b"x" * 100_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
def test_bytes_that_are_hardly_http_end_no_gateway(gateway: GatewayProcess, request_bytes: bytes) -> None:
    port = int(gateway.url.rpartition(":")[2])
    with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
        connection.sendall(request_bytes)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while part := connection.recv(65_536):
                answer += part
        except ConnectionError:
            pass
    assert b" 500 " not in answer.partition(b"\r\n")[0]
    assert httpx.get(f"{gateway.url}/healthz").status_code == 200
