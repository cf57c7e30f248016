"""Meanings of what is typed into the box in the header: an id, names, or a topic and a key on it."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from tarry.client.operators.cluster_status import TopicStatus

CHARACTERS_MAX: Final = 1_024
SHOWN_MAX: Final = 50
"""Topics, and groups, on a page."""
ID: Final = re.compile(r"[0-9A-Za-z]{19}", re.ASCII)
"""What may be an id; the cluster checks it."""


class Names(NamedTuple):
    """Names that contain what is looked for, those that begin with it first."""

    topics: list[str]
    groups: list[tuple[str, str]]
    """Topic and group."""
    more: int
    """Names that are not shown."""


def may_be_id(text: str) -> bool:
    """Return whether a text may be a message's id."""
    return ID.fullmatch(text) is not None


def names_with(text: str, topics: Iterable[TopicStatus]) -> Names:
    """Return the topics and groups whose names contain a text, in upper or lower case."""
    wanted, statuses = text.casefold(), list(topics)
    every = [(one.topic, group.group) for one in statuses for group in one.groups]
    in_order = sorted(
        (one.topic for one in statuses if wanted in one.topic.casefold()),
        key=lambda topic: (not topic.casefold().startswith(wanted), topic),
    )
    groups = sorted(
        (found for found in every if wanted in found[1].casefold()),
        key=lambda found: (not found[1].casefold().startswith(wanted), found[1], found[0]),
    )
    left_out = max(0, len(in_order) - SHOWN_MAX) + max(0, len(groups) - SHOWN_MAX)
    return Names(in_order[:SHOWN_MAX], groups[:SHOWN_MAX], left_out)


def topic_and_key(text: str, topics: Collection[str]) -> tuple[str, str] | None:
    """Return the topic and key that ``orders order-7`` names, where there is such a topic; else None."""
    topic, separator, key = text.partition(" ")
    return (topic, key.strip()) if separator and key.strip() and topic in topics else None
