"""Messages found by a key: what is asked for, and how answers are read."""

from __future__ import annotations

import pytest

from tarry.client.errors import InvalidQuery
from tarry.client.found import FoundMessage, find_request
from tarry.proto import tarry_query_pb2 as query_pb
from tarry.proto.tarry_message_pb2 import Record


def test_a_page_is_asked_for_by_a_key_or_by_an_idempotency_key() -> None:
    assert find_request("t", "k") == query_pb.FindByKeyRequest(topic="t", key="k")
    assert find_request("t", idempotency_key="k") == query_pb.FindByKeyRequest(topic="t", idempotency_key="k")


@pytest.mark.parametrize("key", ["", "k"])
def test_neither_or_both_of_the_keys_are_refused(key: str) -> None:
    with pytest.raises(InvalidQuery) as refused:
        find_request("t", key, idempotency_key=key)
    assert refused.value.reason == "QUERY_INVALID"


def test_a_message_that_is_found_whole_has_its_idempotency_key() -> None:
    found = query_pb.FoundMessage(id="x", record=Record(body=b"b", idempotency_key="k"))
    assert FoundMessage.of(found).idempotency_key == "k"
