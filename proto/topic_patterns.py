"""Patterns of topics in tokens' rights: a name, or what names begin with and then ``*``."""

from __future__ import annotations


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern has a topic."""
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern
