"""The topics that a subscription names: by name, and by patterns, which end in ``*``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from tarry.node.config import Limits
from tarry.node.edge.names import check_name, check_topic
from tarry.proto.dead_letters import DEAD_LETTERS
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal


class TopicChoice:
    """Names and patterns, and which of the topics that fit a pattern the caller may consume."""

    def __init__(self, topics: Iterable[str], may: Callable[[str], bool]) -> None:
        asked = tuple(topics)
        self.names = tuple(dict.fromkeys(one for one in asked if not is_pattern(one)))
        self._named = frozenset(self.names)
        self._prefixes = tuple(one[:-1] for one in asked if is_pattern(one))
        self.patterns = len(self._prefixes)
        self._letters = tuple(prefix for prefix in self._prefixes if prefix.startswith(DEAD_LETTERS))
        self._may = may

    def has(self, topic: str) -> bool:
        """Return whether the subscription has a topic, by name or by pattern."""
        if topic in self._named:
            return True
        prefixes = self._letters if topic.startswith(DEAD_LETTERS) else self._prefixes
        return topic.startswith(prefixes) and self._may(topic)

    def names_it(self, topic: str) -> bool:
        """Return whether the subscription has a topic by its name."""
        return topic in self._named


def is_pattern(topic: str) -> bool:
    """Return whether it stands for several topics."""
    return topic.endswith("*")


def check_topics(topics: Sequence[str], topic: str, limits: Limits) -> Refusal | None:
    """Return why several topics of a subscription, and beside them one, will not do."""
    if topic:
        text = f"the subscription names the topic {topic[:80]!r} beside others: name all as topics"
        return Refusal(Reason.TOPIC_INVALID, text)
    if len(topics) > limits.subscribed_topics_max:
        return too_many(len(topics), limits)
    for one in topics:
        if not is_pattern(one):
            refusal = check_topic(one, limits)
        elif one != "*":
            chars_max = limits.topic_chars_max + limits.group_chars_max
            refusal = check_name(one[:-1], chars_max, Reason.TOPIC_INVALID, "pattern before its '*'")
        else:
            refusal = None
        if refusal is not None:
            return refusal
    return None


def too_many(count: int, limits: Limits) -> Refusal:
    """Return the refusal of a subscription that has so many topics."""
    most = limits.subscribed_topics_max
    text = f"the subscription has {count} topics, more than {most}"
    does = "subscribe to fewer, by several streams or a longer pattern, or raise limits.subscribed_topics_max"
    return Refusal(Reason.TOO_MANY_TOPICS, f"{text}: {does}", {"subscribed_topics_max": str(most)})
