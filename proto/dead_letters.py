"""Names of dead-letter topics, and of the properties that only the cluster sets."""

from __future__ import annotations

import re
from typing import Final

DEAD_LETTERS: Final = "dlq."
"""Prefix of dead-letter topics, which no producer may write to."""

RESERVED: Final = "tarry."
"""Prefix of the properties that tell of a dead letter; tarry 0.1.0 took them from producers too."""

IDEMPOTENCY_KEY: Final = "tarry.idempotency_key"
"""Property of a dead letter: the key of its message, which counts in that one's topic; it has none itself."""

REDRIVE_GROUP: Final = "~redrive"
"""Of a dead-letter topic: it has acknowledged the letters that were sent back to their groups."""

MISFIRED: Final = "misfired"
"""Stands for a group in the name of the topic that misfired messages go to."""

UNRESOLVED: Final = "transactions"
"""Likewise, in that of the topic that messages of transactions go to which no producer has ended."""

BY_NAME: Final = "default"
"""In a policy, for the topic that is named by group and topic."""

NO_TOPIC: Final = "none"
"""In a policy: the group has no dead letters, and what it gives up is gone."""

NAME_CHARS_MAX: Final = 1_000
_NAME: Final = re.compile(r"dlq\.[A-Za-z0-9_.-]+")


def dead_letter_topic(topic: str, group: str = MISFIRED) -> str:
    """Return the topic for the dead letters of a topic's group, where no policy names another."""
    return f"{DEAD_LETTERS}{group}.{topic}"


def topic_fault(given: str, topic: str = "") -> str:
    """Return why a policy cannot name a dead-letter topic so, for groups of a topic; empty: it can.

    It begins with the prefix, so that only the cluster writes to it. Groups of dead-letter topics may name
    none: the topic named after them is longer than theirs, so no message can go round in a circle.
    """
    if given in (BY_NAME, NO_TOPIC):
        return ""
    if len(given) > NAME_CHARS_MAX or _NAME.fullmatch(given) is None:
        return (
            f"a dead-letter topic is {BY_NAME!r}, {NO_TOPIC!r}, or a name that begins with {DEAD_LETTERS!r} "
            f"and has letters, digits, '_', '-' and '.', {NAME_CHARS_MAX} characters at most"
        )
    if given.startswith(dead_letter_topic("")):
        return f"{dead_letter_topic('')!r} begins the names of topics for misfired messages: name another"
    if topic.startswith(DEAD_LETTERS):
        return (
            f"{topic[:80]!r} is a dead-letter topic, whose groups may not name another, for letters might go "
            f"round in a circle: use {BY_NAME!r} or {NO_TOPIC!r}"
        )
    return ""


def target(given: str, topic: str, group: str) -> str:
    """Return where a group's dead letters go by its policy: a topic's name, or NO_TOPIC."""
    if given == NO_TOPIC or not (given == BY_NAME or topic.startswith(DEAD_LETTERS)):
        return given
    return dead_letter_topic(topic, group)
