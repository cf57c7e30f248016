"""A puller: a consumer that receives due messages call by call, and settles them by its name.

Any node answers; no stream is kept open, so that a script or a request handler may pull.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from tarry.client.cluster.calls import Calls
from tarry.client.cluster.nodes import Node, Nodes
from tarry.client.consumers.message import Columns, View
from tarry.client.consumers.topic_names import named
from tarry.client.consumers.unsettled import AckOutcome, Verdict
from tarry.client.errors import InvalidSubscription
from tarry.client.integers import UINT64_MAX, whole
from tarry.client.records import check_texts
from tarry.client.start_position import Start, group_start
from tarry.client.tracing import tracing_of
from tarry.proto import tarry_consumer_pb2 as consumer_pb
from tarry.proto.reasons import Reason

if TYPE_CHECKING:
    from tarry.client.consumers.process_spans import ProcessSpans

ANSWER_MS = 5_000
"""Beyond its wait, how long an attempt to receive may take."""


class Puller:
    """One consumer of a group, by calls. Made by ``Client.puller``; tasks, or threads, may share it.

    A program that settles in a later run gives itself a name.
    """

    def __init__(
        self,
        nodes: Nodes,
        topic: str,
        group: str,
        *,
        topics: Iterable[str] = (),
        name: str = "",
        tags: Iterable[str] = (),
        filter: str = "",  # noqa: A002 - its name to who calls
        lease_ms: int = 0,
        start: Start | None = None,
    ) -> None:
        self._names = named(topic, topics)
        self.topic = self._names.get("topic", "")
        """Its one topic; empty: it has several, and each message says of which it is."""
        self.group = group
        self.name = name or f"puller-{uuid.uuid4().hex[:16]}"
        self._calls = Calls(nodes)
        self._deadline_ms = nodes.settings.deadline_ms
        check_texts(tags=tags)
        self._tags = list(tags)
        self._filter = filter
        self._lease_ms = whole("lease_ms", lease_ms, InvalidSubscription, Reason.LEASE_INVALID)
        self._start = None if start is None else group_start(start)
        self._spans: ProcessSpans | None = None
        if (tracing := tracing_of(nodes.settings.tracing)) is not None:
            from tarry.client.consumers.process_spans import ProcessSpans  # loads opentelemetry

            self._spans = ProcessSpans(tracing, group, self.name)

    async def receive(
        self, messages_max: int = 1, *, wait_ms: int = 0, deadline_ms: int | None = None
    ) -> list[View]:
        """Return up to ``messages_max`` due messages, leased; wait for the first, up to 30 s.

        Empty where nothing came due. An answer that is lost on its way leaves its
        messages leased to nobody who knows: they come again, with a higher attempt.

        Args:
            deadline_ms: until it gives up, with all repetitions; at most the client's own behind the wait.

        Raises Refused, Overloaded or Unavailable.
        """
        wait_ms = whole("wait_ms", wait_ms, InvalidSubscription, Reason.RECEIVE_INVALID)
        request = consumer_pb.ReceiveRequest(
            **self._names,
            group=self.group,
            consumer=self.name,
            messages_max=whole(
                "messages_max", messages_max, InvalidSubscription, Reason.RECEIVE_INVALID, lowest=1
            ),
            wait_ms=wait_ms,
            lease_ms=self._lease_ms,
            tags=self._tags,
            filter=self._filter,
            start=self._start,
        )
        began_ns, ends_s = time.time_ns(), time.monotonic() + wait_ms / 1_000
        attempts = 0

        def method(node: Node) -> Any:
            nonlocal attempts
            attempts += 1
            if attempts > 1:  # it waits for what is left
                request.wait_ms = max(0, int((ends_s - time.monotonic()) * 1_000))
            return node.consumer.Receive

        answer = await self._calls.call(
            method,
            request,
            deadline_ms=min(deadline_ms or UINT64_MAX, wait_ms + self._deadline_ms),
            attempt_ms=wait_ms + ANSWER_MS,
            changes=False,
        )
        self._begin_where_it_was(began_ns)
        received_ms = int(time.time() * 1_000)
        batches = [
            Columns(deliveries, received_ms, answer.incarnation, self._spans)
            for deliveries in answer.deliveries
        ]
        if self._spans is not None and batches:
            for topic in dict.fromkeys(batch.topic for batch in batches):
                of_topic = [batch for batch in batches if batch.topic == topic]
                self._spans.received(topic, of_topic, began_ns)
        return [View(batch, n, offset) for batch in batches for n, offset in enumerate(batch.offsets)]

    def _begin_where_it_was(self, began_ns: int) -> None:
        """Have topics that come between two calls begin where the first call would have had them."""
        latest = self._start is not None and self._start.at == consumer_pb.START_AT_LATEST
        if latest and self._names.get("topics"):
            self._start = group_start(began_ns // 1_000_000)

    async def ack(self, messages: Sequence[View]) -> list[AckOutcome]:
        """Acknowledge; return an outcome for each: fsynced on a majority, or stale."""
        return await self._settle(messages, Verdict(0))

    async def nack(
        self,
        messages: Sequence[View],
        delay_ms: int | None = None,
        *,
        at_least: bool = False,
        dead_letter: bool = False,
    ) -> list[AckOutcome]:
        """Have them delivered again after ``delay_ms``, or by the group's back-off table.

        With ``at_least`` the table counts where it has more than ``delay_ms``. With ``dead_letter`` they are
        not delivered again: they are dead letters at once, as after their last attempt.
        """
        verdict = Verdict.nacking(0, delay_ms, at_least=at_least, dead_letter=dead_letter)
        return await self._settle(messages, verdict)

    async def extend(self, messages: Sequence[View], lease_ms: int) -> list[AckOutcome]:
        """Keep them for ``lease_ms`` from now on; return whether each still was in hand."""
        return await self._settle(messages, Verdict.extending(0, lease_ms))

    async def settle(self, verdict: Verdict, offsets: Sequence[int], topic: str = "") -> list[AckOutcome]:
        """Give a verdict on what an earlier run received, by its queue and offsets.

        A puller of several topics names theirs. Where the verdict names the incarnation of the cluster that
        delivered them (``message.batch.incarnation``), they are stale in another: offsets are of other
        messages there.
        """
        named: dict[str, Any] = {
            "topic": topic or self.topic,
            "group": self.group,
            "consumer": self.name,
            "queue": whole("queue", verdict.queue, InvalidSubscription, Reason.QUEUE_UNKNOWN),
            "offset": [
                whole("offset", offset, InvalidSubscription, Reason.OFFSET_NOT_DELIVERED, UINT64_MAX)
                for offset in offsets
            ],
            "incarnation": verdict.incarnation,
        }
        if verdict.extend_ms is not None:
            extend = consumer_pb.ExtendRequest(**named, lease_ms=verdict.extend_ms)
            answer = await self._calls.call(lambda node: node.consumer.Extend, extend)
        elif verdict.nack:
            nack = consumer_pb.NackRequest(
                **named,
                delay_ms=verdict.delay_ms,
                dead_letter=verdict.dead_letter,
                at_least=verdict.at_least,
            )
            answer = await self._calls.call(lambda node: node.consumer.Nack, nack)
        else:
            answer = await self._calls.call(lambda node: node.consumer.Ack, consumer_pb.AckRequest(**named))
        stale = set(answer.stale)
        outcomes = [AckOutcome.STALE if offset in stale else AckOutcome.OK for offset in offsets]
        if self._spans is not None:
            self._spans.settled(verdict, offsets, outcomes)
        return outcomes

    async def _settle(self, messages: Sequence[View], verdict: Verdict) -> list[AckOutcome]:
        outcomes: dict[tuple[tuple[str, int, int], int], AckOutcome] = {}
        sources = [(message.topic, message.queue, message.batch.incarnation) for message in messages]
        for source in set(sources):
            topic, queue, incarnation = source
            offsets = [message.offset for message, of in zip(messages, sources, strict=True) if of == source]
            of_source = verdict._replace(queue=queue, incarnation=incarnation)
            answers = await self.settle(of_source, offsets, topic)
            outcomes.update(zip(((source, offset) for offset in offsets), answers, strict=True))
        return [outcomes[of, message.offset] for message, of in zip(messages, sources, strict=True)]
