"""Times of messages over HTTP, spans of a search, and batches of several topics."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest

from tarry.client.aio import ListedMessage, ListedState
from tarry.client.consumers.message import Columns, View
from tarry.client.found import FoundMessage, FoundPage
from tarry.client.queries.listing import ListedPage
from tarry.client.results import MessageState, StoredMessage
from tarry.gateway.http import asking, consuming, fields, scheduling
from tarry.gateway.http.config import Limits
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto.tarry_message_pb2 import Record
from tests.gateway.test_requests import BATCH, JSON, refused

TIMES = {"born_ms": 1, "stored_ms": 2}
STORED = StoredMessage("i", "t", 3, MessageState.PENDING, b"", (), (), "", "", {}, **TIMES)
LISTED = ListedMessage(
    "i", 3, ListedState.PENDING, "", 0, "", None, None, False, (), (), "", "", {}, 0, None, **TIMES
)  # fmt: skip


class Cluster:
    """A producer and a query that note what they are asked."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    async def get(self, _: str) -> StoredMessage:
        return STORED

    async def list_page(self, topic: str, **_: Any) -> ListedPage:
        return ListedPage((LISTED,), "", 0)

    async def find(self, topic: str, key: str, **asked: Any) -> FoundPage:
        self.asked = asked
        return FoundPage((FoundMessage("i", 3, MessageState.PENDING, **TIMES),), "", 0)

    async def schedule_batch(self, topic: list[str], bodies: list[bytes], **_: Any) -> Any:
        self.asked = {"topic": topic, "bodies": bodies}
        none = np.array([], np.uint32)
        return SimpleNamespace(
            ids=["a", "b", "c"], due_ms=np.arange(3), overdue=none, repeats=none, repeated=False
        )


def call(cluster: Cluster, query: Any = None, body: Any = None) -> Any:
    return SimpleNamespace(
        path={"topic": "t", "id": "i"},
        query=query,
        body=body,
        producer=cluster,
        cluster_query=lambda: cluster,
        gateway=SimpleNamespace(limits=Limits()),
    )


async def test_a_message_that_is_got_listed_or_found_has_its_times() -> None:
    cluster = Cluster()
    got = json.loads(await asking.get(call(cluster, fields.BodyQuery())))
    (listed,) = json.loads(await asking.list_messages(call(cluster, fields.ListQuery())))["messages"]
    (found,) = json.loads(await asking.find(call(cluster, fields.FindQuery(key="k"))))["messages"]
    for told in (got, listed, found):
        assert (told["born_ms"], told["stored_ms"], told["due_ms"]) == (1, 2, 3)


async def test_a_search_passes_each_span_on() -> None:
    names = [f"{time}_{end}_ms" for time in ("due", "stored", "born") for end in ("from", "to")]
    spans = {name: number for number, name in enumerate(names, 1)}
    cluster = Cluster()
    await asking.find(call(cluster, fields.FindQuery.model_validate({"key": "k", **spans})))
    assert {name: cluster.asked[name] for name in names} == spans


@pytest.mark.parametrize(("delivered_ms", "told"), [(9, 9), (0, None)])
def test_a_message_that_is_received_has_its_times(delivered_ms: int, told: int | None) -> None:
    record = Record(body=b"x", **TIMES).SerializeToString()
    deliveries = pb.Deliveries(
        topic="t", offset=[0], hour=[1], global_index=[2], due_ms=[3], released_ms=[4], records=[record]
    )
    deliveries.delivered_ms = delivered_ms
    message = View(Columns(deliveries, 10, 0), 0, 0)
    received = consuming._told(message, "g", "c", "text")
    assert (received.born_ms, received.stored_ms, received.delivered_ms) == (1, 2, told)


async def test_each_message_of_a_batch_may_name_its_topic() -> None:
    messages = [{"delay_ms": 1}, {"delay_ms": 1, "topic": "mails"}, {"delay_ms": 1, "topic": ""}]
    cluster = Cluster()
    body = fields.NewMessages.model_validate({"messages": messages})
    scheduled = await scheduling.schedule_batch(call(cluster, body=body))
    assert cluster.asked["topic"] == ["t", "mails", "t"]
    assert [message.id for message in scheduled.messages] == ["a", "b", "c"]


async def test_a_topic_of_a_single_message_is_the_paths_alone(http: httpx.AsyncClient) -> None:
    one = {"delay_ms": 1, "topic": "mails"}
    refused(await http.post("/v1/topics/t/messages", json=one, headers=JSON), 400, "REQUEST_INVALID")
    many = {"messages": [{"delay_ms": 1, "topic": 7}]}
    refused(await http.post(BATCH, json=many, headers=JSON), 400, "REQUEST_INVALID")
