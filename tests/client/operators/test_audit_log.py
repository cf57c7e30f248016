"""Audit logs of all nodes, merged as far back as each has been read."""

from __future__ import annotations

import json

import pytest

from tarry.client.errors import NotPermitted, Overloaded, Unavailable
from tarry.client.operators.audit_log import (
    CALLS_MAX,
    WAITS_MAX,
    AuditLine,
    AuditPage,
    merged,
    read_all,
    read_node,
)
from tarry.proto.tarry_operator_pb2 import ReadAuditResponse


def text(at_ms: int, **more: object) -> str:
    return json.dumps(
        {"at": f"1970-01-01T00:00:00.{at_ms:03d}+00:00", "node": "n1", "stage": "asked", **more}
    )


def page(*times_ms: int, cursor: str = "", node: str = "n1") -> AuditPage:
    response = ReadAuditResponse(
        node=node,
        has_audit=True,
        lines=[text(at_ms, node=node) for at_ms in times_ms],
        cursor=cursor,
        looked_to_ms=times_ms[-1] if times_ms else 0,
    )
    return AuditPage.of(response)


def test_a_line_has_what_the_node_wrote() -> None:
    line = AuditLine.of(
        text(
            7,
            call="n1-a-1",
            method="DeleteTopic",
            arguments={"topic": "t"},
            certificate=["ops"],
            via=["ipv4:1:2", "n2"],
            result="OK",
            left_out=3,
        )
    )
    assert (line.at_ms, line.method, line.arguments) == (7, "DeleteTopic", {"topic": "t"})
    assert (line.certificate, line.via, line.result, line.left_out) == (("ops",), "ipv4:1:2, n2", "OK", 3)
    assert AuditLine.of(text(7, arguments="not a request")).arguments == {"": "not a request"}
    assert AuditPage.of(ReadAuditResponse(lines=["{}", "x", text(1)])).unreadable == 2
    assert AuditLine.of(text(7, left_out=None)).left_out == 0


def test_lines_are_merged_as_far_back_as_all_nodes_have_been_read() -> None:
    trail = merged(
        {
            "a": page(9, 6, 3, cursor="x"),
            "b": page(8, 7, 6, 5, cursor="y", node="n2"),
            "c": page(2, node="n3"),
        }
    )
    assert [line.at_ms for line in trail.lines] == [9, 8, 7, 6, 6, 5]
    assert trail.older_to_ms == 5
    older = merged({"a": page(3), "b": page(4, node="n2"), "c": page(2, node="n3")})
    assert [line.at_ms for line in older.lines] == [4, 3, 2]
    assert older.older_to_ms == 0


def test_a_node_that_answers_at_two_addresses_has_its_lines_once() -> None:
    trail = merged({"localhost:1": page(9, 8), "127.0.0.1:1": page(9, 8), "b": page(7, node="n2")})
    assert [(line.node, line.at_ms) for line in trail.lines] == [("n1", 9), ("n1", 8), ("n2", 7)]
    none = AuditPage.of(ReadAuditResponse(node="n2"))
    assert merged({"a": none, "b": none}).without == ("n2",)


def test_a_node_without_a_log_and_one_that_is_silent_are_named() -> None:
    none = AuditPage.of(ReadAuditResponse(node="n2"))
    trail = merged({"a": page(1), "b": none, "c": Unavailable("UNREACHABLE", "away")})
    assert (trail.without, trail.silent) == (("n2",), {"c": "UNREACHABLE: away"})


async def test_a_node_is_read_until_there_are_enough_lines_or_none_is_older() -> None:
    pages = {"": page(9, 8, cursor="1"), "1": page(cursor="2"), "2": page(7, cursor="3"), "3": page(6)}

    async def read(cursor: str) -> AuditPage:
        return pages[cursor]

    found = await read_node(read, 3)
    assert isinstance(found, AuditPage)
    assert ([line.at_ms for line in found.lines], found.cursor, found.looked_to_ms) == ([9, 8, 7], "3", 7)
    calls = list[str]()

    async def endless(cursor: str) -> AuditPage:
        calls.append(cursor)
        return page(cursor="more")

    await read_node(endless, 3)
    assert len(calls) == CALLS_MAX


async def test_a_node_that_reads_for_others_is_waited_for_a_bounded_number_of_times() -> None:
    waited, busy = list[float](), 2

    async def wait(seconds: float) -> None:
        waited.append(seconds)

    async def read(_: str) -> AuditPage:
        if len(waited) < busy:
            raise Overloaded("OVERLOADED", "2 readings are under way", retry_ms=300)
        return page(7)

    found = await read_node(read, 3, wait=wait)
    assert isinstance(found, AuditPage)
    assert ([line.at_ms for line in found.lines], waited) == ([7], [0.3, 0.3])
    busy = 1_000
    assert isinstance(await read_node(read, 3, wait=wait), Overloaded)
    assert len(waited) == 2 + WAITS_MAX


async def test_readings_of_the_logs_take_no_place_of_other_calls() -> None:
    def of(method: str, at_ms: int, cursor: str) -> AuditPage:
        lines = [text(at_ms, method=method)]
        return AuditPage.of(ReadAuditResponse(lines=lines, cursor=cursor, looked_to_ms=at_ms))

    pages = {"": of("ReadAudit", 9, "1"), "1": of("ReadAudit", 8, "2"), "2": of("DeleteTopic", 7, "3")}

    async def read(cursor: str) -> AuditPage:
        return pages[cursor]

    found, every = await read_node(read, 1, readings=False), await read_node(read, 1)
    assert isinstance(found, AuditPage)
    assert isinstance(every, AuditPage)
    assert ([line.at_ms for line in found.lines], found.looked_to_ms) == ([7], 7)
    assert [line.at_ms for line in every.lines] == [9]


async def test_what_is_refused_is_raised_and_what_fails_is_told() -> None:
    async def refused(_: str) -> AuditPage:
        raise NotPermitted("PERMISSION_DENIED", "no")

    async def away(_: str) -> AuditPage:
        raise Unavailable("UNREACHABLE", "away")

    with pytest.raises(NotPermitted):
        await read_all(["a"], lambda _: read_node(refused, 1))
    trail = await read_all(["a"], lambda _: read_node(away, 1))
    assert trail.silent == {"a": "UNREACHABLE: away"}
