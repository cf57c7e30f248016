"""Options of a consumer and of a puller: the keywords of both, and no others."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest

from tarry.client import aio, sync
from tarry.client.consumers.consumer_options import ConsumerOptions, PullerOptions


def keywords(function: Callable[..., object]) -> set[str]:
    parameters = inspect.signature(function).parameters.values()
    return {parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY}


def test_the_options_are_the_keywords_of_a_consumer_and_of_a_puller() -> None:
    assert keywords(aio.Consumer) - {"on_closed"} == ConsumerOptions.__optional_keys__
    assert keywords(aio.Puller) == PullerOptions.__optional_keys__


async def test_the_async_client_names_an_unknown_option() -> None:
    async with aio.connect("127.0.0.1:1") as client:
        with pytest.raises(TypeError, match="credits"):
            client.consumer("topic", "group", credits=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="credit"):
            client.puller("topic", "group", credit=1)  # type: ignore[call-arg]


def test_the_blocking_client_names_an_unknown_option() -> None:
    with sync.connect("127.0.0.1:1") as client:
        with pytest.raises(TypeError, match="credits"):
            client.consumer("topic", "group", credits=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="credit"):
            client.puller("topic", "group", credit=1)  # type: ignore[call-arg]
