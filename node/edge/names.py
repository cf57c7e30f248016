"""Names that clients give: of topics, groups and consumers."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from tarry.node.config import Limits
from tarry.proto.dead_letters import DEAD_LETTERS, MISFIRED
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.queues import Queues
from tarry.replication.state_machine.refusal import Refusal

NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@lru_cache(maxsize=4096)
def check_name(name: str, chars_max: int, reason: Reason, what: str) -> Refusal | None:
    """Return why a name will not do."""
    if not name:
        return Refusal(reason, f"the {what} is empty: name one")
    if len(name) > chars_max:
        return Refusal(reason, f"the {what} has {len(name)} characters, more than {chars_max}")
    if NAME.fullmatch(name) is None:
        text = f"the {what} {name[:80]!r} has characters other than letters, digits, '_', '-' and '.'"
        return Refusal(reason, text + ", or begins with '-' or '.'")
    return None


def check_topic(topic: str, limits: Limits) -> Refusal | None:
    """Return why a topic's name will not do; a dead-letter topic's has room for its group's."""
    more = limits.group_chars_max + len("dlq..") if topic.startswith(DEAD_LETTERS) else 0
    return check_name(topic, limits.topic_chars_max + more, Reason.TOPIC_INVALID, "topic")


def check_group(group: str, limits: Limits) -> Refusal | None:
    """Return why a group's name will not do."""
    if group == MISFIRED:
        text = f"{MISFIRED!r} stands for no group in dead-letter topics: name the group otherwise"
        return Refusal(Reason.GROUP_INVALID, text)
    return check_name(group, limits.group_chars_max, Reason.GROUP_INVALID, "group")


def unknown_topic(topic: str) -> Refusal:
    """Return the refusal for a topic that is not there and is not made on first use."""
    return Refusal(Reason.TOPIC_UNKNOWN, f"there is no topic {topic!r}: create it")


def unknown_group(topic: str, group: str) -> Refusal:
    """Return the refusal for a group that a topic has not got."""
    return Refusal(Reason.GROUP_UNKNOWN, f"topic {topic!r} has no group {group!r}: create it first")


def no_more_queues(queues: Queues, limits: Limits) -> Refusal | None:
    """Return why no topic or group is made any more: each is work for every checkpoint."""
    if queues.live < limits.queues_max:
        return None
    text = f"topics and their groups are {queues.live}, and may be {limits.queues_max}"
    facts = {"queues": str(queues.live), "queues_max": str(limits.queues_max)}
    return Refusal(Reason.TOO_MANY_QUEUES, text + ": delete some, or raise limits.queues_max", facts)
