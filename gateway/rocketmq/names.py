"""Names of topics and groups: as RocketMQ's clients write them, and as the cluster has them.

A namespace is what a topic's name begins with, up to a dot. Clients allow no dots in names but percent signs,
which stand for dots here, so that every topic has a name that they can send: ``dlq%billing%orders``. A topic
of dead letters has the namespace in its name, ``dlq%billing%eu%orders``, and is named so in it, too.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code, Resource

TOPIC_CHARS_MAX: Final = 127
GROUP_CHARS_MAX: Final = 100
WHOLE_CHARS_MAX: Final = 320
"""Of a topic with its namespace: no cluster has longer ones, and those that were seen are remembered."""
DEAD_LETTERS: Final = "dlq."
"""That names of topics of dead letters begin with."""
PRODUCER_GROUPS: Final = "rocketmq."
"""That names of producer groups begin with, apart from those of tarry's own producers."""
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_OF_THE_BROKER: Final = ("rmq_sys_", "schedule_topic_xxxx")


def topic_of(resource: Resource, namespace: str = "") -> str:
    """Return the cluster's name of a topic, in this namespace where it names none. Raises Refusal."""
    return _topic(resource.resource_namespace or namespace, resource.name)


@lru_cache(maxsize=4096)
def producer_group_of(topic: str) -> str:
    """Return the producer group of a topic's transactions: clients know none, so their topic stands for it.

    Nodes bound a group's name below a topic's: of a long one the end is a digest.
    """
    group = f"{PRODUCER_GROUPS}{topic}"
    if len(group) <= GROUP_CHARS_MAX:
        return group
    digest = hashlib.sha256(topic.encode()).hexdigest()[:32]
    return f"{group[: GROUP_CHARS_MAX - 33]}.{digest}"


def group_of(resource: Resource) -> str:
    """Return the cluster's name of a group; of namespaces that of its topic counts. Raises Refusal."""
    return _group(resource.name)


@lru_cache(maxsize=4096)
def _topic(namespace: str, given: str) -> str:
    name = given.replace("%", ".")
    if not name.strip():
        raise Refusal(Code.ILLEGAL_TOPIC, "The specified topic is blank")
    if len(name) > TOPIC_CHARS_MAX:
        text = f"The specified topic is longer than topic max length {TOPIC_CHARS_MAX}."
        raise Refusal(Code.ILLEGAL_TOPIC, text)
    if name.lower().startswith(_OF_THE_BROKER):
        raise Refusal(Code.ILLEGAL_TOPIC, "cannot access system topic")
    of_letters = name.startswith(DEAD_LETTERS) and f".{namespace}." in name  # has it behind the group's name
    whole = f"{namespace}.{name}" if namespace and not of_letters else name
    if len(whole) > WHOLE_CHARS_MAX:
        text = f"The specified topic is longer than {WHOLE_CHARS_MAX} characters with its namespace."
        raise Refusal(Code.ILLEGAL_TOPIC, text)
    if _NAME.fullmatch(whole) is None:
        text = f"The specified topic[{given[:80]}] contains illegal characters, allowing only letters, digits"
        raise Refusal(Code.ILLEGAL_TOPIC, f"{text}, '_' and '-', '%' for a dot, and no '-' or dot first")
    return whole


@lru_cache(maxsize=4096)
def _group(given: str) -> str:
    name = given.replace("%", ".")
    if not name.strip():
        raise Refusal(Code.ILLEGAL_CONSUMER_GROUP, "the specified group is blank")
    if len(name) > GROUP_CHARS_MAX:
        text = f"the specified group is longer than group max length {GROUP_CHARS_MAX}."
        raise Refusal(Code.ILLEGAL_CONSUMER_GROUP, text)
    if _NAME.fullmatch(name) is None:
        text = f"the specified group[{given[:80]}] contains illegal characters, allowing only letters, digits"
        raise Refusal(Code.ILLEGAL_CONSUMER_GROUP, f"{text}, '_' and '-', and no '-' first")
    return name
