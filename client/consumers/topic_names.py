"""Names of what a consumer receives: one topic, or several by names and patterns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypedDict

from tarry.client.errors import InvalidSubscription
from tarry.proto.reasons import Reason


class Named(TypedDict, total=False):
    """Fields of a request that subscribes or receives: one of them is set."""

    topic: str
    topics: Sequence[str]


def named(topic: str, topics: Iterable[str]) -> Named:
    """Return the fields; a pattern is several topics. Raises InvalidSubscription for both."""
    several = (topics,) if isinstance(topics, str) else tuple(topics)
    if topic and several:
        text = f"the topic {topic!r} is named beside others: name all as topics"
        raise InvalidSubscription(Reason.TOPIC_INVALID, text)
    if topic.endswith("*"):
        several = (topic,)
    return Named(topics=several) if several else Named(topic=topic)
