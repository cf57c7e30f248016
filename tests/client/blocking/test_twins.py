"""The blocking client and the async one: the same methods, parameters, docstrings and results."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterator
from typing import Any, get_origin, get_type_hints

import pytest

from tarry.client import aio, sync
from tarry.client.operators.ledger_export import LedgerPart

BLOCKING = [
    "Bulk",
    "Client",
    "Consumer",
    "Message",
    "MessageBatch",
    "Operator",
    "Producer",
    "Puller",
    "Query",
    "Recurring",
    "Transaction",
    "Transactions",
]
SAME_AS_STATE = {"closed", "in_hand", "lease_ms", "lost", "reconnects", "stale_acks"}
SAME_AS_COLUMNS = {
    "attempts",
    "born_ms",
    "delay_ms",
    "delivered_ms",
    "due_ms",
    "extending",
    "keep",
    "maybe_duplicates",
    "nacking",
    "places",
    "records",
    "released_ms",
    "stamp",
    "stored_ms",
}
SETTLING = {"settle", "settle_many", "settle_many_soon", "settle_soon"}
"""Methods that messages call."""

ASYNC_ONLY = {
    "Consumer": {"forget_expired", "holds", "next_batch"} | SAME_AS_STATE | SETTLING,
    "MessageBatch": SAME_AS_COLUMNS,
    "Puller": {"settle"},
}
SYNC_ONLY = {
    "Consumer": {"receive", "state"},
    "Producer": {"group", "id"},
    "Transaction": {"info"},
    "Puller": {"name"},
}
OWN_WORDS = {("Client", "close"), ("Producer", "schedule_soon")}
"""Methods that do more in the blocking client: its thread ends; it waits for room."""


def members(owner: type) -> dict[str, Any]:
    return {name: getattr(owner, name) for name in dir(owner) if not name.startswith("_")}


@pytest.mark.parametrize("name", BLOCKING)
def test_both_twins_have_the_same_methods_parameters_and_docstrings(name: str) -> None:
    asynchronous, blocking = members(getattr(aio, name)), members(getattr(sync, name))
    assert asynchronous.keys() - blocking.keys() == ASYNC_ONLY.get(name, set())
    assert blocking.keys() - asynchronous.keys() == SYNC_ONLY.get(name, set())
    for each in asynchronous.keys() & blocking.keys():
        ours, theirs = blocking[each], asynchronous[each]
        if (name, each) not in OWN_WORDS:
            assert inspect.getdoc(ours) == inspect.getdoc(theirs), each
        if inspect.isfunction(ours):
            assert inspect.signature(ours).parameters == inspect.signature(theirs).parameters, each


@pytest.mark.parametrize("name", BLOCKING)
def test_type_hints_of_a_blocking_method_name_nothing_to_await(name: str) -> None:
    hints = {
        each: get_type_hints(method)["return"]
        for each, method in members(getattr(sync, name)).items()
        if inspect.isfunction(method)
    }
    awaited = {
        each: hint
        for each, hint in hints.items()
        if issubclass(get_origin(hint) or (hint if isinstance(hint, type) else type(hint)), Awaitable)
    }
    assert awaited == {}


def test_type_hints_of_a_blocking_method_are_of_its_results() -> None:
    assert get_type_hints(sync.Producer.schedule)["return"] is sync.Scheduled
    assert get_type_hints(sync.MessageBatch.ack)["return"] == list[sync.AckOutcome]
    assert get_type_hints(sync.Operator.status)["return"] is sync.ClusterStatus
    assert get_type_hints(sync.Operator.status)["digest"] is bool
    assert get_type_hints(sync.Query.list_messages)["return"] == Iterator[sync.ListedMessage]
    assert get_type_hints(sync.Operator.export_ledger)["return"] == Iterator[LedgerPart]


def test_the_annotation_of_a_blocking_method_is_what_the_async_one_gives_when_awaited() -> None:
    assert inspect.signature(sync.Producer.schedule).return_annotation == "Scheduled"
    assert inspect.signature(sync.MessageBatch.ack).return_annotation == "list[AckOutcome]"
    assert inspect.signature(sync.Operator.status).return_annotation == "ClusterStatus"
    assert inspect.signature(sync.Query.list_messages).return_annotation == "Iterator[ListedMessage]"
    assert inspect.signature(sync.Operator.purge_topic).return_annotation == "Iterator[BulkCancel]"
