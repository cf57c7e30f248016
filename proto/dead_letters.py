"""Names of dead-letter topics, and of the properties that only the cluster sets."""

from __future__ import annotations

from typing import Final

DEAD_LETTERS: Final = "dlq."
"""Prefix of dead-letter topics."""

RESERVED: Final = "tarry."
"""Prefix of the properties that tell of a dead letter; tarry 0.1.0 took them from producers too."""

MISFIRED: Final = "misfired"
"""Stands for a group in the name of the topic that misfired messages go to."""


def dead_letter_topic(topic: str, group: str = MISFIRED) -> str:
    """Return the topic for the dead letters of a topic's group."""
    return f"{DEAD_LETTERS}{group}.{topic}"
