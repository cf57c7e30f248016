"""Options of a single message: both clients refuse one that no message has."""

from __future__ import annotations

import inspect

import pytest

from tarry.client import aio, sync
from tarry.client.producers.message_options import MessageOptions, check_options
from tarry.client.producers.producer import Producer


def test_the_options_are_the_keywords_of_a_message() -> None:
    parameters = inspect.signature(Producer._put).parameters.values()
    keywords = {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}
    assert keywords == MessageOptions.__optional_keys__


async def test_the_async_client_names_an_unknown_option() -> None:
    async with aio.connect("127.0.0.1:1") as client:
        producer = client.producer()
        with pytest.raises(TypeError, match="due_at"):
            producer.schedule("topic", delay_ms=0, due_at=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="due_at"):
            producer.schedule_one_way("topic", delay_ms=0, due_at=1)  # type: ignore[call-arg]


def test_the_blocking_client_names_an_unknown_option_to_the_caller() -> None:
    with sync.connect("127.0.0.1:1") as client:
        producer = client.producer()
        with pytest.raises(TypeError, match="due_at"):
            producer.schedule("topic", delay_ms=0, due_at=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="due_at"):
            producer.schedule_one_way("topic", delay_ms=0, due_at=1)  # type: ignore[call-arg]


def test_known_options_are_accepted() -> None:
    check_options({"delay_ms": 1, "tags": ["a"]})
