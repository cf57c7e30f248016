"""Patterns of topics, in rights and in subscriptions: a name, or what names begin with and then ``*``."""

from __future__ import annotations


def matches(pattern: str, topic: str) -> bool:
    """Return whether a pattern has a topic."""
    return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern


def overlap(one: str, other: str) -> bool:
    """Return whether some topic, there or to come, has both patterns."""
    if one.endswith("*") and other.endswith("*"):
        return one.startswith(other[:-1]) or other.startswith(one[:-1])
    return matches(one, other) if one.endswith("*") else matches(other, one)
