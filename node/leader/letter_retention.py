"""Retention of dead letters where their topic's settings say nothing: as the groups say whose they are.

A topic may have letters of several groups. The longest counts, for no letter may go before its time.
"""

from __future__ import annotations

import asyncio
from typing import Final

from tarry.node.config import NodeConfig
from tarry.node.delivery.policy import policy_of
from tarry.proto.dead_letters import DEAD_LETTERS, MISFIRED, NO_TOPIC, dead_letter_topic
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.machine import Machine
from tarry.replication.state_machine.ready_queue import ReadyQueue

GROUPS: Final = 200
"""Whose policies one turn of the event loop looks at, at some 0.03 ms each."""


class LetterRetention:
    """Retention of dead-letter topics by name, as groups and topics were at the last ``read``."""

    def __init__(self, machine: Machine, config: NodeConfig) -> None:
        self._machine = machine
        self._config = config
        self._longest_ms: dict[str, int] = {}

    async def read(self) -> None:
        """Look at the policies of all groups, in turns of the event loop."""
        longest: dict[str, int] = {}
        for at, queue in enumerate(list(self._machine.queues)):
            if at % GROUPS == 0:
                await asyncio.sleep(0)
            if queue.deleted:
                continue
            for topic, kept_ms in self._of(queue):
                longest[topic] = max(longest.get(topic, 0), kept_ms)
        self._longest_ms = longest

    def _of(self, queue: ReadyQueue) -> list[tuple[str, int]]:
        """Return where a group's letters go or have gone, or misfired messages, and for how long."""
        queues = self._machine.queues
        policy = policy_of(queues, self._config, queue.topic, queue.group or MISFIRED)
        kept_ms = policy.dead_letter_retention_ms
        if not queue.group:
            return [(dead_letter_topic(queue.topic), kept_ms)]
        named = {dead_letter_topic(queue.topic, queue.group), policy.dead_letter_topic}
        named.update(queues[number].topic for number in queue.letters)
        return [(name, kept_ms) for name in named - {NO_TOPIC}]

    def of(self, topic: str) -> int | None:
        """Return the retention of a topic's dead letters, ms; None: it has none, or is of a lower level.

        Of a topic whose groups are all gone, that of a group which sets nothing.
        """
        if self._machine.level < levels.LETTERS or not topic.startswith(DEAD_LETTERS):
            return None
        known = self._longest_ms.get(topic)
        if known is not None:
            return known
        return policy_of(self._machine.queues, self._config, topic, MISFIRED).dead_letter_retention_ms
