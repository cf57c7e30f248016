"""ReadHistory of a node: whose rows a caller is told, and what is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tarry.node.config import LedgerSettings, Token
from tarry.node.edge.auth import Authorizer
from tarry.node.services.history import SEARCHES_MAX, HistoryCalls
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import format_ids
from tarry.replication.loop_holds import Holds
from tests.node.lone_leader import TOPIC, Leader, Stream, leader, subscription, until
from tests.simulation.edge import Context

TOKENS = {
    "producer": Token(produce=("t",)),
    "consumer": Token(consume=("t*",)),
    "operator": Token(operate=True),
    "other": Token(produce=("u",), consume=("u",)),
}


class Refused(Exception):
    """The call was ended with this status."""


class Caller(Context):
    """A caller, with a token or without."""

    def __init__(self, token: str = "") -> None:
        super().__init__()
        self._token = token

    def invocation_metadata(self) -> Any:
        return (("authorization", f"Bearer {self._token}"),) if self._token else ()

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Any = ()) -> None:
        raise Refused(code, details)

    async def abort_with_status(self, status: Any) -> None:
        raise Refused(status.code, status.details)


def led(folder: Path, act: Callable[[Leader], Awaitable[None]], **settings: Any) -> None:
    async def whole() -> None:
        async with leader(folder, Holds(), **settings) as lead:
            await act(lead)

    asyncio.run(whole())


async def delivered(lead: Leader) -> str:
    """Have a message delivered; return its id."""
    columns = await lead.schedule(1, np.array([lead.node.time.now_ms() - 1]))
    stream = Stream(lead.edge, subscription("c", 1))
    await until(lambda: stream.received == 1)
    await stream.leave()
    hour, index = np.frombuffer(columns.hour, "<u4"), np.frombuffer(columns.global_index, "<u4")
    return format_ids(0, hour, index)[0]


async def read(
    lead: Leader, request: pb.ReadHistoryRequest, token: str = "", calls: HistoryCalls | None = None
) -> list[pb.ReadHistoryResponse]:
    calls = calls or HistoryCalls(lead.node._core, Authorizer(TOKENS if token else {}))
    context: Any = Caller(token)
    responses = calls._read(request.SerializeToString(), context)
    return [pb.ReadHistoryResponse.FromString(response) async for response in responses]


def kinds(responses: list[pb.ReadHistoryResponse]) -> set[str]:
    return {row.kind for response in responses for row in response.rows}


def test_rows_are_told_to_who_has_a_right_on_their_topic_and_to_no_other(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        request = pb.ReadHistoryRequest(id=await delivered(lead))
        told = {token: kinds(await read(lead, request, token)) for token in TOKENS}
        assert told["producer"] == told["consumer"] == told["operator"]
        assert told["operator"] >= {"scheduled", "released", "delivered"}
        assert told["other"] == set()
        rows = [row for one in await read(lead, request) for row in one.rows if row.kind == "delivered"]
        assert [(row.topic, row.consumer, row.attempt) for row in rows] == [(TOPIC, "c", 1)]

    led(tmp_path, act)


def test_who_is_shown_no_row_is_told_the_same_as_of_an_id_that_is_none(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        message, ledger = await delivered(lead), lead.node._core.ledger
        await ledger.write()
        assert ledger.disk.open is not None
        ledger.disk._seal(ledger.disk.open.covered)  # the search of a later message ends before it
        ledger.disk.close_sealed(lead.node.time.now_ms())
        later = await delivered(lead)
        ledger._buffer.gap(1, 1, "SNAPSHOT", lead.node.time.now_ms(), 1)
        await ledger.write()
        none = format_ids(0, np.array([7]), np.array([7]))[0]
        told = {}
        for token in ("operator", "producer", "other"):
            requests = [pb.ReadHistoryRequest(id=one) for one in (message, later, none)]
            told[token] = [await read(lead, request, token) for request in requests]
        assert told["other"][0] == told["other"][1] == told["other"][2]
        assert not any(one.gaps for one in told["other"][0])
        for token, known in ("operator", [True, True, True]), ("producer", [True, True, False]):
            gaps = [[gap for one in found for gap in one.gaps] for found in told[token]]
            assert gaps == [["all 1..1 SNAPSHOT"] if there else [] for there in known]
            assert [found[-1].from_beginning for found in told[token]] == [True, True, False]
        assert told["operator"][1][-1].rows_looked < told["operator"][0][-1].rows_looked

    led(tmp_path, act)


def test_the_last_answer_is_complete_and_says_whether_the_beginning_was_found(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        message = await delivered(lead)
        last = (await read(lead, pb.ReadHistoryRequest(id=message)))[-1]
        assert (last.node, last.has_ledger, last.complete, last.from_beginning) == ("n1", True, True, True)
        unknown = format_ids(0, np.array([7]), np.array([7]))[0]
        last = (await read(lead, pb.ReadHistoryRequest(id=unknown)))[-1]
        assert (last.complete, last.from_beginning, last.rows_left) == (True, False, 0)

    led(tmp_path, act)


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (pb.ReadHistoryRequest(id="x"), "a message id has"),
        (pb.ReadHistoryRequest(id=format_ids(3, np.array([7]), np.array([7]))[0]), "belongs to shard 3"),
        (pb.ReadHistoryRequest(id=format_ids(0, np.array([7]), np.array([7]))[0], from_ms=-1), "times are"),
        (
            pb.ReadHistoryRequest(id=format_ids(0, np.array([7]), np.array([7]))[0], until_ms=2**63 - 1),
            "times",
        ),
    ],
)
def test_what_cannot_be_asked_for_is_refused_with_what_to_do(
    tmp_path: Path, request_: pb.ReadHistoryRequest, says: str
) -> None:
    async def act(lead: Leader) -> None:
        with pytest.raises(Refused, match=says):
            await read(lead, request_)

    led(tmp_path, act)


def test_a_node_without_a_ledger_says_so(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        (answer,) = await read(lead, pb.ReadHistoryRequest(id=await delivered(lead)))
        assert (answer.node, answer.has_ledger, answer.complete) == ("n1", False, False)

    led(tmp_path, act, ledger=LedgerSettings(enabled=False))


def test_more_searches_than_the_bound_are_refused_and_one_that_is_given_up_makes_room(tmp_path: Path) -> None:
    async def act(lead: Leader) -> None:
        request = pb.ReadHistoryRequest(id=await delivered(lead))
        calls = HistoryCalls(lead.node._core, Authorizer({}))
        context: Any = Caller()
        begun = [calls._read(request.SerializeToString(), context) for _ in range(SEARCHES_MAX)]
        for one in begun:
            await anext(one)
        with pytest.raises(Refused, match="are under way"):
            await read(lead, request, calls=calls)
        await begun[0].aclose()
        assert kinds(await read(lead, request, calls=calls)) >= {"scheduled"}
        await begun[1].aclose()

    led(tmp_path, act)
