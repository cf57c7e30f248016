"""Checks: what the cluster asks about transactions is passed on to a producer of the topic that is here.

A topic stands for the producer group of its transactions. While a producer that names the topic has a stream
of Telemetry, the gateway has a stream of checks at the cluster's leader, with that producer's token; the
producer answers with EndTransaction, at whatever gateway.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

from tarry.client.aio import Half, Producer, TransactionEnd
from tarry.gateway.cluster_access import ClusterAccess
from tarry.gateway.rocketmq.access import Caller
from tarry.gateway.rocketmq.codes import Refusal
from tarry.gateway.rocketmq.config import Config
from tarry.gateway.rocketmq.handles import Handles, Prepared
from tarry.gateway.rocketmq.messages import half_message, types_of
from tarry.gateway.rocketmq.names import producer_group_of, topic_of
from tarry.gateway.rocketmq.protocol import definition_pb2 as definition
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.protocol.definition_pb2 import MessageType

log = logging.getLogger("tarry.gateway.rocketmq")


class Connected:
    """A client's stream of Telemetry: the topics that it publishes to, and what it is asked."""

    def __init__(self, checks: Checks, access: ClusterAccess) -> None:
        self.access = access
        self.topics: dict[str, definition.Resource] = {}
        """By the cluster's name the one that the client knows."""
        self._checks = checks
        self._waiting: deque[service.TelemetryCommand] = deque()
        self._came = asyncio.Event()

    def publishes(self, topics: Iterable[definition.Resource], namespace: str = "") -> None:
        """Ask the client about transactions of more topics, in this namespace where they name none."""
        for given in islice(topics, self._checks.limits.check_topics_max):
            try:
                topic = topic_of(given, namespace)
            except Refusal:  # as its route was refused
                continue
            if topic not in self.topics and self._checks.join(topic, self):
                self.topics[topic] = given

    @property
    def waiting(self) -> int:
        """Number of questions that are yet to be written."""
        return len(self._waiting)

    def offer(self, command: service.TelemetryCommand, waiting_max: int) -> bool:
        """Have a question written, unless as many wait; say whether there was room."""
        if self.waiting >= waiting_max:
            return False
        self._waiting.append(command)
        self._came.set()
        return True

    async def next(self) -> service.TelemetryCommand:
        """Return the next question, once there is one."""
        while not self._waiting:
            self._came.clear()
            await self._came.wait()
        command = self._waiting.popleft()
        self._checks.written(command)
        return command

    def leave(self) -> None:
        """Ask the client nothing more; what was not written the cluster asks again."""
        for topic in self.topics:
            self._checks.leave(topic, self)
        while self._waiting:
            self._checks.written(self._waiting.popleft())


@dataclass(slots=True)
class _Asked:
    """The producers of a topic that are here with one token, the next to be asked first."""

    stream: Producer
    """That has the stream of checks."""
    connected: deque[Connected] = field(default_factory=deque)


class Checks:
    """The producers that are here, and the streams of checks that they need."""

    def __init__(self, config: Config, handles: Handles) -> None:
        self.limits = config.limits
        self._config, self._handles = config, handles
        self._asked: dict[tuple[str, ClusterAccess], _Asked] = {}
        self._of_client: dict[Caller, Connected] = {}
        self._told_full = set[ClusterAccess]()
        self._several = len({key.token for key in config.key}) > 1
        self._waiting_bytes = 0
        self._closing: set[asyncio.Task[None]] = set()

    @contextmanager
    def producer(self, caller: Caller) -> Iterator[Connected]:
        """Ask a client about its topics' transactions while it has its stream."""
        access, _ = caller
        self._of_client[caller] = connected = Connected(self, access)
        try:
            yield connected
        finally:
            connected.leave()
            if self._of_client.get(caller) is connected:
                del self._of_client[caller]

    def sends(self, caller: Caller, topic: definition.Resource, namespace: str = "") -> None:
        """Note that a client sends transactions to a topic, which its settings need not name."""
        if (connected := self._of_client.get(caller)) is not None:
            connected.publishes([topic], namespace)

    def join(self, topic: str, connected: Connected) -> bool:
        """Ask a client about a topic; False: it takes no transactions, or there are too many topics.

        Where there are several tokens, none takes more than half of them.
        """
        if MessageType.TRANSACTION not in types_of(topic, self._config):
            return False
        key = topic, connected.access
        if key not in self._asked:
            access, most = connected.access, self.limits.check_topics_max
            own = max(1, most // 2) if self._several else most
            if len(self._asked) >= most or sum(of is access for _, of in self._asked) >= own:
                if access not in self._told_full:
                    text = "producers of %s are not asked here about transactions: check_topics_max is %d%s"
                    log.warning(text, topic, most, ", of which a token has half" if own < most else "")
                self._told_full.add(access)
                return False
            self._told_full.discard(access)
            check = partial(self.ask, connected.access)
            self._asked[key] = _Asked(
                connected.access.client.producer(group=producer_group_of(topic), check=check)
            )
        self._asked[key].connected.append(connected)
        return True

    def leave(self, topic: str, connected: Connected) -> None:
        """Ask a client no more; the last one ends the stream."""
        asked = self._asked[topic, connected.access]
        asked.connected.remove(connected)
        if not asked.connected:
            del self._asked[topic, connected.access]
            closing = asyncio.ensure_future(asked.stream.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def ask(self, access: ClusterAccess, half: Half) -> TransactionEnd:
        """Pass a check on to one who reads. The answer comes as a call, so that here it is not known yet."""
        command = await asyncio.to_thread(self._command, half)  # it hashes the body
        if (asked := self._asked.get((half.topic, access))) is not None:
            for _ in range(len(asked.connected)):
                connected = asked.connected[0]
                asked.connected.rotate(-1)
                if self._offered(connected, command, half):
                    break
        return TransactionEnd.UNKNOWN

    def _command(self, half: Half) -> service.TelemetryCommand:
        transaction_id = self._handles.transaction(Prepared(half.topic, half.name))
        message = half_message(half, definition.Resource(name=half.topic), transaction_id)
        return service.TelemetryCommand(
            recover_orphaned_transaction_command=service.RecoverOrphanedTransactionCommand(
                message=message, transaction_id=transaction_id
            )
        )

    def _offered(self, connected: Connected, command: service.TelemetryCommand, half: Half) -> bool:
        """Have a client asked, by the name of the topic that it knows; False: it does not read."""
        waiting_bytes = self._waiting_bytes + len(half.body)
        if self._waiting_bytes and waiting_bytes > self.limits.checks_bytes_max:
            return False
        command.recover_orphaned_transaction_command.message.topic.CopyFrom(connected.topics[half.topic])
        if not connected.offer(command, self.limits.checks_waiting_max):
            return False
        self._waiting_bytes = waiting_bytes
        return True

    def written(self, command: service.TelemetryCommand) -> None:
        """Note that a question waits no more."""
        self._waiting_bytes -= len(command.recover_orphaned_transaction_command.message.body)

    async def close(self) -> None:
        """Return once no stream is left; all clients have left before."""
        await asyncio.gather(*self._closing)
