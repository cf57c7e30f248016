"""Requests where no node answers: what is wrong with them is told before any cluster is asked."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tarry.client.consumers.message import View
from tarry.client.consumers.puller import Puller
from tarry.client.errors import CLASS_OF_REASON, Overloaded, TarryError
from tarry.client.results import CancelOutcome
from tarry.gateway.handle import Holder
from tarry.gateway.http import fields
from tarry.gateway.http.call import Call
from tarry.gateway.http.checks import TOKEN_CHARACTERS_MAX
from tarry.gateway.http.clients import Accesses
from tarry.gateway.http.config import Limits
from tarry.gateway.http.errors import (
    STATUS_OF_OWN,
    GatewayReason,
    RequestRefused,
    answer_of_error,
    fields_of_error,
    status_of_reason,
)
from tarry.gateway.http.guard import QUERY_CHARACTERS_MAX
from tarry.gateway.http.handles import Handle
from tarry.gateway.http.operations import Operation
from tarry.gateway.poll import Returns
from tarry.proto.reasons import Reason
from tests.gateway.conftest import NOBODY, alone, asked

MESSAGES = "/v1/topics/t/messages"
BATCH = f"{MESSAGES}/batch"
RECEIVE = "/v1/topics/t/groups/g/receive"
JSON = {"content-type": "application/json"}


def refused(answer: httpx.Response, status: int, reason: str) -> str:
    """Return the text of a refusal, which has its whole form."""
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert error["reason"] == reason, error
    assert error["text"]
    assert error["advice"]
    assert (status in {429, 503}) == ("retry-after" in answer.headers) == ("retry_ms" in error)
    return str(error["text"])


async def test_where_no_node_answers_the_refusal_says_so_and_when_to_try_again(
    http: httpx.AsyncClient,
) -> None:
    for answer in (
        await http.post(MESSAGES, json={"delay_ms": 1}),
        await http.get("/v1/messages/0000000f70h0000000n"),
        await http.post("/v1/ack", json={"handles": ["m1.WyJ0IiwiZyIsImMiLDAsMCwwXQ"]}),
    ):
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert answer.json()["error"]["advice"]
    assert (await http.get("/readyz")).status_code == 503
    assert (await http.get("/healthz")).status_code == 200


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "exactly one of due, due_ms, delay_ms and delay_level"),
        ({"delay_ms": 1, "due_ms": 1}, "exactly one"),
        ({"due": "2030-01-01T00:00:00Z", "due_ms": 1}, "exactly one"),
        ({"due": "2030-01-01T00:00:00"}, "due: .* has no zone"),
        ({"due": 5}, "due: "),
        ({"due_ms": "5"}, "due_ms: "),
        ({"due_ms": 1.0}, "due_ms: "),
        ({"due_ms": True}, "due_ms: "),
        ({"due_ms": 2**63}, "due_ms: "),
        ({"delay_ms": 1, "colour": "red"}, "colour: there is no such field: the fields are body, "),
        ({"delay_ms": 1, "tags": "paid"}, "tags: "),
        ({"delay_ms": 1, "tags": [1]}, r"tags\.0: "),
        ({"delay_ms": 1, "properties": {"a": 1}}, r"properties\.a: "),
        ({"delay_ms": 1, "jitter_ms": -1}, "jitter_ms: "),
        ({"delay_ms": 1, "body": "a", "body_json": None}, "body: give one of body, body_json"),
        ({"delay_ms": 1, "body_base64": "?"}, "body: body_base64 is not base64"),
    ],
)
async def test_a_field_that_is_wrong_is_named(
    http: httpx.AsyncClient, body: dict[str, Any], said: str
) -> None:
    text = refused(await http.post(MESSAGES, json=body), 400, "REQUEST_INVALID")
    assert re.search(said, text), text


async def test_half_of_a_surrogate_pair_is_refused_wherever_it_is(http: httpx.AsyncClient) -> None:
    for field in ('"body":"\\ud800"', '"tags":["\\ud800"]', '"properties":{"\\ud800":""}'):
        answer = await http.post(MESSAGES, content=f'{{"delay_ms":1,{field}}}', headers=JSON)
        refused(answer, 400, "REQUEST_INVALID")
    answer = await http.post(MESSAGES, content='{"delay_ms":1,"body_json":["\\ud800"]}', headers=JSON)
    assert "surrogate" in refused(answer, 400, "REQUEST_INVALID")
    answer = await http.post(MESSAGES, content='{"delay_ms":1,"\\ud800":1}', headers=JSON)
    assert answer.status_code == 400


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "messages: "),
        ([{"delay_ms": 1}, {"due_ms": 1}], "same kind of time, not delay_ms and due_ms"),
        ([{"delay_ms": 1, "idempotency_key": "k"}, {"delay_ms": 1}], "idempotency_key, or none"),
        ([{"delay_ms": 1}, {"delay_ms": 1, "x": 1}], r"messages.1.x"),
        ([{"delay_ms": 1}, {"delay_ms": 1, "body_base64": "?"}], "messages.1.body: "),
        ([{"delay_ms": 1}] * 1_001, "messages: 1,001 are too many, a request has 1,000 at most"),
    ],
)
async def test_a_fault_in_a_batch_says_where(http: httpx.AsyncClient, messages: list[Any], said: str) -> None:
    assert said in refused(await http.post(BATCH, json={"messages": messages}), 400, "REQUEST_INVALID")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (f"{MESSAGES}?colour=red", "colour: there is no such field: the fields are body_as, "),
        (f"{MESSAGES}?size=0", "size: "),
        (f"{MESSAGES}?size=1001", "size: "),
        (f"{MESSAGES}?size=1.0", "size: "),
        (f"{MESSAGES}?size=1_0", "size: "),
        (f"{MESSAGES}?size=5&size=6", "'size' is named twice"),
        (f"{MESSAGES}?bodies=yes", "bodies: "),
        (f"{MESSAGES}?states=gone", "states.0: "),
        (f"{MESSAGES}?due_to_ms=99999999999999999999", "due_to_ms: "),
        ("/v1/topics/t/find", "give either a key or an idempotency key"),
        ("/v1/topics/t/find?key=a&idempotency_key=b", "give either"),
        ("/v1/forecast?by=day", "by: "),
        ("/v1/messages/x?nothing=1", "nothing: "),
        ("/v1/topics/t/groups/g/events?credit=1001", "credit: 1,000 at most"),
        ("/v1/topics/t/groups/g/events?last_ms=3600001", "last_ms: 3,600,000 at most"),
        ("/v1/topics/t/groups/g/events?start=noon", "noon"),
    ],
)
async def test_a_fault_in_a_query_is_named(http: httpx.AsyncClient, path: str, said: str) -> None:
    assert said in refused(await http.get(path), 400, "REQUEST_INVALID")


async def test_limits_of_receive_hold_at_their_edge(http: httpx.AsyncClient) -> None:
    for name, most in (("messages_max", 100), ("wait_ms", 30_000)):
        text = refused(await http.post(RECEIVE, json={name: most + 1}), 400, "REQUEST_INVALID")
        assert f"{name}: {most:,} at most" in text
    assert (await http.post(RECEIVE, json={"messages_max": 100, "wait_ms": 0})).status_code == 503


async def test_what_is_settled_has_to_be_handles_and_not_too_many(http: httpx.AsyncClient) -> None:
    good = "m1.WyJ0IiwiZyIsImMiLDAsMCwwXQ"
    text = refused(await http.post("/v1/ack", json={"handles": [good, "x"]}), 400, "HANDLE_INVALID")
    assert "handles.1" in text
    answer = await http.post("/v1/ack", json={"handles": [good] * 1_001})
    assert "1,000 at most" in refused(answer, 400, "REQUEST_INVALID")


@pytest.mark.parametrize(("messages_max", "queues"), [(100, 200), (300, 300)])
async def test_a_request_settles_all_of_an_answer_to_receive_and_tells_what_to_do_with_more(
    messages_max: int, queues: int
) -> None:
    async with asked(alone(receive_messages_max=messages_max)) as http:
        handles = [str(Handle(Holder(f"t{n}", "g", "c", n, 0), 0)) for n in range(queues + 1)]
        assert (await http.post("/v1/ack", json={"handles": handles[1:]})).status_code == 503
        text = refused(await http.post("/v1/ack", json={"handles": handles}), 400, "REQUEST_INVALID")
        assert f"{queues + 1} consumers and queues, and a request settles {queues}: settle the others" in text


@pytest.mark.parametrize(
    ("headers", "content", "status", "reason"),
    [
        ({}, b"{}", 415, "CONTENT_TYPE_UNKNOWN"),
        ({"content-type": "text/plain"}, b"{}", 415, "CONTENT_TYPE_UNKNOWN"),
        (
            {"content-type": "application/json", "content-encoding": "gzip"},
            b"{}",
            415,
            "CONTENT_TYPE_UNKNOWN",
        ),
        (JSON, b"", 400, "JSON_INVALID"),
        (JSON, b"[]", 400, "JSON_INVALID"),
        (JSON, b'{"delay_ms":NaN}', 400, "JSON_INVALID"),
        (JSON, b"\xff", 400, "JSON_INVALID"),
        ({**JSON, "authorization": "Basic YTpi"}, b"{}", 401, "TOKEN_INVALID"),
        ({**JSON, "authorization": "Bearer"}, b"{}", 401, "TOKEN_INVALID"),
        (
            {**JSON, "authorization": f"Bearer {'x' * (TOKEN_CHARACTERS_MAX + 1)}"},
            b"{}",
            401,
            "TOKEN_INVALID",
        ),
    ],
)
async def test_a_body_or_header_that_cannot_be_read_is_refused(
    http: httpx.AsyncClient, headers: dict[str, str], content: bytes, status: int, reason: str
) -> None:
    answer = await http.post(MESSAGES, content=content, headers=headers)
    refused(answer, status, reason)
    assert ("www-authenticate" in answer.headers) == (status == 401)


async def test_unknown_paths_and_methods_are_refused_as_json(http: httpx.AsyncClient) -> None:
    refused(await http.get("/v1/nothing"), 404, "PATH_UNKNOWN")
    answer = await http.put("/v1/ack")
    refused(answer, 405, "METHOD_UNKNOWN")
    assert answer.headers["allow"] == "POST"
    answer = await http.put("/v1/messages/x")
    refused(answer, 405, "METHOD_UNKNOWN")
    assert answer.headers["allow"] == "DELETE, GET, HEAD, PATCH"


async def test_a_path_with_a_slash_too_many_leads_nowhere(http: httpx.AsyncClient) -> None:
    """A redirect would be to http, and with the token, where a proxy has taken the TLS off."""
    refused(await http.post("/v1/ack/", json={}), 404, "PATH_UNKNOWN")


async def test_an_event_stream_is_not_opened_for_its_headers_alone(http: httpx.AsyncClient) -> None:
    answer = await http.head("/v1/topics/t/groups/g/events")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "GET"
    assert (await http.head("/healthz")).status_code == 200


async def test_only_names_of_the_gateway_are_answered(http: httpx.AsyncClient) -> None:
    for host in ("127.0.0.1", "localhost:1", "[::1]:9", "gateway.example", "GATEWAY.example:80"):
        assert (await http.get("/openapi.json", headers={"host": host})).status_code == 200
    nobody_s = ("", "[", "10.0.0", "0.0.0.0:8090", "[::]:8090")
    for host in ("evil.example", "gateway.example.evil.example", "127.0.0.1.evil.example", *nobody_s):
        refused(await http.get("/openapi.json", headers={"host": host}), 421, "HOST_UNKNOWN")
    assert (await http.get("/healthz", headers={"host": "shop-7:8090"})).status_code == 200


async def test_an_ip_address_is_answered_for_no_site_can_make_it_lead_here(http: httpx.AsyncClient) -> None:
    for host in ("10.0.0.7:8090", "192.168.1.4", "[fe80::1]:8090"):
        answer = await http.get(
            "/v1/topics/t/messages", headers={"host": host, "origin": "http://evil.example"}
        )
        refused(answer, 403, "ORIGIN_REFUSED")
        assert (await http.get("/openapi.json", headers={"host": host})).status_code == 200


async def test_pages_of_other_web_sites_may_not_call(http: httpx.AsyncClient) -> None:
    events = "/v1/topics/t/groups/g/events?credit=0"
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example", "sec-fetch-site": "none"},
    ):
        refused(await http.get(events, headers=headers), 403, "ORIGIN_REFUSED")
        refused(await http.post(MESSAGES, json={"delay_ms": 1}, headers=headers), 403, "ORIGIN_REFUSED")
    browser = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0", "host": "10.0.0.7:8090"}
    refused(await http.get(events, headers=browser), 403, "ORIGIN_REFUSED")  # as an image, over plain HTTP
    for headers in (
        {"origin": "https://shop.example", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:8090"},
        {"sec-fetch-site": "same-origin"},
        {},
    ):
        refused(await http.get(events, headers=headers), 400, "REQUEST_INVALID")
    assert (await http.get("/", headers={"sec-fetch-site": "cross-site"})).status_code == 200


async def test_browsers_are_told_which_sites_may_call(http: httpx.AsyncClient) -> None:
    asks = {"access-control-request-method": "PATCH", "access-control-request-headers": "authorization"}
    allowed = await http.options("/v1/messages/x", headers={"origin": "https://shop.example", **asks})
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://shop.example"
    other = await http.options("/v1/messages/x", headers={"origin": "https://evil.example", **asks})
    assert "access-control-allow-origin" not in other.headers


async def test_every_answer_has_the_headers_that_browsers_go_by(http: httpx.AsyncClient) -> None:
    for path in ("/", "/page.css", "/openapi.json", "/nothing", "/v1/messages/x?y=1", "/healthz"):
        headers = (await http.get(path)).headers
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"


async def test_a_long_query_is_refused(http: httpx.AsyncClient) -> None:
    refused(await http.get(f"{MESSAGES}?cursor={'x' * QUERY_CHARACTERS_MAX}"), 414, "QUERY_TOO_LONG")


async def test_a_body_is_bounded_whether_it_says_its_size_or_not() -> None:
    async def parts(size: int) -> Any:
        for _ in range(size // 512):
            yield b" " * 512

    async with asked(alone(body_bytes_max=1_024)) as http:
        for body in (b" " * 1_025, parts(2_048)):
            refused(await http.post(MESSAGES, content=body, headers=JSON), 413, "BODY_TOO_LARGE")
        for body in (b" " * 1_024, parts(1_024)):
            refused(await http.post(MESSAGES, content=body, headers=JSON), 400, "JSON_INVALID")


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async def slow() -> Any:
        yield b"{"
        await asyncio.Event().wait()

    async with asked(alone(body_ms=50)) as http:
        refused(await http.post(MESSAGES, content=slow(), headers=JSON), 408, "BODY_TOO_SLOW")


@pytest.mark.parametrize(
    ("limits", "slots"), [({"calls_max": 1}, "calls"), ({"bodies_bytes_max": 1_024}, "bodies")]
)
async def test_beyond_a_limit_more_is_refused_and_what_was_used_is_free_again(
    limits: dict[str, int], slots: str
) -> None:
    app = alone(body_bytes_max=1_024, **limits)
    async with asked(app) as http:
        held = getattr(app.state.gateway.admission, slots)
        with held.taken(1 if slots == "calls" else 1_000):
            answer = await http.post(MESSAGES, content=b"x" * 100, headers=JSON)
            text = refused(answer, 429, "GATEWAY_BUSY")
            assert "its maximum" in text
        refused(await http.post(MESSAGES, content=b"x" * 100, headers=JSON), 400, "JSON_INVALID")
        assert held.used == 0


async def test_polls_and_streams_have_bounds_of_their_own() -> None:
    app = alone(polls_max=1, streams_max=1, calls_max=1)
    async with asked(app) as http:
        admission = app.state.gateway.admission
        with admission.polls.taken(), admission.streams.taken():
            refused(await http.post(RECEIVE, json={}), 429, "GATEWAY_BUSY")
            refused(await http.get("/v1/topics/t/groups/g/events"), 429, "GATEWAY_BUSY")
            refused(await http.get("/v1/messages/x?y=1"), 400, "REQUEST_INVALID")
        assert (admission.polls.used, admission.streams.used, admission.calls.used) == (0, 0, 0)


async def test_an_answer_keeps_its_place_until_its_caller_has_taken_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def handle(_: Call) -> fields.Cancelled:
        return fields.Cancelled(id="x", outcome=CancelOutcome.CANCELLED)

    monkeypatch.setattr(
        "tarry.gateway.http.app.OPERATIONS",
        (Operation("big", "GET", "/big", "A large answer.", handle, answer=fields.Cancelled),),
    )
    app = alone(calls_max=1)
    waits, taken, sent = asyncio.Event(), asyncio.Event(), list[dict[str, Any]]()

    async def send(message: Any) -> None:
        if sent and not message.get("more_body"):  # as uvicorn waits where what was sent is not taken
            waits.set()
            await taken.wait()
        sent.append(message)

    async def receive() -> Any:
        return {"type": "http.request"}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/big",
        "scheme": "http",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }
    async with asked(app) as http:
        answering = asyncio.create_task(app(scope, receive, send))
        await waits.wait()
        refused(await http.get("/big"), 429, "GATEWAY_BUSY")
        taken.set()
        await answering
        assert (await http.get("/big")).json() == {"id": "x", "outcome": "cancelled"}
    assert sent[1]["body"] == b'{"id":"x","outcome":"cancelled"}'


async def test_once_it_is_to_end_it_takes_nothing_more() -> None:
    app = alone()
    async with asked(app) as http:
        app.state.gateway.ending.set()
        refused(await http.post(MESSAGES, json={"delay_ms": 1}), 503, "GATEWAY_ENDING")
        assert (await http.get("/readyz")).status_code == 503
        assert (await http.get("/healthz")).status_code == 200


async def test_a_token_that_no_node_knows_leaves_nothing_behind() -> None:
    app = alone(tokens_tried_max=1)
    async with asked(app) as http:
        for token in ("one", "two", "three"):
            answer = await http.get("/v1/messages/x", headers={"authorization": f"Bearer {token}"})
            assert answer.status_code == 503
        for token in ("four", "five"):  # refused without a node
            answer = await http.post(
                "/v1/messages/x/reschedule",
                json={"due": "1960-01-01T00:00:00Z"},
                headers={"authorization": f"Bearer {token}"},
            )
            refused(answer, 400, "DUE_INVALID")
        assert len(app.state.gateway.accesses) == 0
        async with app.state.gateway.accesses.of("being tried"):
            answer = await http.get("/v1/messages/x", headers={"authorization": "Bearer another"})
            assert "no node has known yet" in refused(answer, 429, "GATEWAY_BUSY")


async def test_a_token_that_waits_for_messages_does_not_count_as_tried_for_so_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    waits, comes = asyncio.Event(), asyncio.Event()

    async def received(puller: Puller, most: int, wait_ms: int, returns: Returns, *ends: Any) -> list[View]:
        for end in ends:
            end.close()
        if wait_ms:  # a node has answered before, so that the token is one
            waits.set()
            await comes.wait()
        return []

    monkeypatch.setattr("tarry.gateway.http.consuming.received", received)
    app = alone(tokens_tried_max=1)
    async with asked(app) as http:
        bearer = {"authorization": "Bearer one"}
        polling = asyncio.create_task(http.post(RECEIVE, json={"wait_ms": 1_000}, headers=bearer))
        await waits.wait()
        answer = await http.get("/v1/messages/x", headers={"authorization": "Bearer another"})
        assert answer.status_code == 503  # no node answers
        comes.set()
        assert (await polling).status_code == 200


async def test_a_body_takes_room_as_it_comes_and_not_as_its_head_says() -> None:
    app = alone(body_bytes_max=1_024, bodies_bytes_max=1_024)
    held, rest = app.state.gateway.admission.bodies, asyncio.Event()

    async def slow() -> Any:
        yield b"x" * 10
        await rest.wait()
        yield b"x"

    async with asked(app) as http:
        headers = {**JSON, "content-length": "1000"}
        slowly = asyncio.create_task(http.post(MESSAGES, content=slow(), headers=headers))
        async with asyncio.timeout(10):
            while held.used != 10:  # noqa: ASYNC110
                await asyncio.sleep(0)
        refused(await http.post(MESSAGES, content=b"x" * 1_014, headers=JSON), 400, "JSON_INVALID")
        refused(await http.post(MESSAGES, content=b"x" * 1_015, headers=JSON), 429, "GATEWAY_BUSY")
        rest.set()
        refused(await slowly, 400, "JSON_INVALID")
        assert held.used == 0


async def test_clients_of_tokens_are_shared_bounded_and_closed_when_they_are_idle() -> None:
    now_s = 0.0
    limits = Limits(tokens_max=2, token_idle_ms=1_000)
    accesses = Accesses(NOBODY, limits, lambda: now_s)
    async with accesses.of("a") as first, accesses.of("a") as again:
        assert first is again
    async with accesses.of("b"):
        pass
    async with accesses.of("a") as kept, accesses.of("c"):  # b has been unused for longest
        assert kept is first
        with pytest.raises(RequestRefused, match="in use"):
            async with accesses.of("d"):
                pass
    assert len(accesses) == 2
    now_s = 1.1
    async with accesses.of("a"):
        now_s = 5.0
        accesses.sweep()
        assert len(accesses) == 1
    await accesses.close()
    assert len(accesses) == 0


async def test_metrics_count_answers_by_operation_and_show_what_is_in_use() -> None:
    app = alone()
    async with asked(app) as http:
        for _ in range(2):
            refused(await http.post(MESSAGES, json={}), 400, "REQUEST_INVALID")
        refused(await http.get("/nothing"), 404, "PATH_UNKNOWN")
        with app.state.gateway.admission.polls.taken(3):
            answer = await http.get("/metrics")
    samples = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }
    assert samples["tarry_gateway_requests_total", "schedule", "400"] == 2
    assert samples["tarry_gateway_requests_total", "none", "404"] == 1
    assert samples["tarry_gateway_in_use", "polls"] == 3
    assert samples["tarry_gateway_tokens",] == 0


def test_every_reason_of_the_cluster_has_a_status_that_says_whose_fault_it_is() -> None:
    for reason in Reason:
        status = status_of_reason(reason)
        family = CLASS_OF_REASON[reason]
        assert 400 <= status < 600, reason
        assert status != 500, reason
        if issubclass(family, Overloaded):
            assert status == 429
    assert status_of_reason("UNIMPLEMENTED") == 501
    assert status_of_reason("PARTLY_SCHEDULED", TarryError) == 502


def test_every_reason_of_the_gateway_has_a_status_and_says_what_to_do() -> None:
    assert set(STATUS_OF_OWN) == set(GatewayReason)
    for reason in GatewayReason:
        status, told = fields_of_error(RequestRefused(reason, "why"))
        assert told["advice"].endswith(".")
        assert (status == 500) == (reason is GatewayReason.INTERNAL)


def test_the_time_to_try_again_is_the_cluster_s_in_whole_seconds_for_http() -> None:
    answer = answer_of_error(Overloaded(Reason.OVERLOADED, "busy", {"a": "b"}, 1_200))
    assert answer.status_code == 429
    assert answer.headers["retry-after"] == "2"
    assert b'"retry_ms":1200' in answer.body
    assert b'"facts":{"a":"b"}' in answer.body
