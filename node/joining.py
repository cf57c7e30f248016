"""Joining: from what a consumer asks for to its group at the leader."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tarry.node.auth import Authorizer, Right
from tarry.node.calls import CallContext
from tarry.node.config import NodeConfig
from tarry.node.consumers import Consumer
from tarry.node.delivery import Delivery
from tarry.node.group_delivery import GroupDelivery
from tarry.node.intake import check_name, unknown_topic
from tarry.node.services.handlers import refusal_of
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication import command as command_codec
from tarry.replication.driver import Driver
from tarry.replication.machine import Subscribed
from tarry.replication.queues import Queues
from tarry.replication.refusal import Reason, Refusal
from tarry.replication.status import NotLeader, Overloaded, Unknown

NAME_CHARS_MAX: Final = 100


class Joining:
    """Checks consumers' requests and opens groups."""

    def __init__(
        self,
        config: NodeConfig,
        driver: Driver,
        authorizer: Authorizer,
        delivery: Callable[[], Delivery | None],
        not_leader: Callable[[], Refusal],
        queues: Callable[[], Queues],
    ) -> None:
        self._config = config
        self._driver = driver
        self._authorizer = authorizer
        self._delivery = delivery
        self._not_leader = not_leader
        self._queues = queues

    def check(
        self, context: CallContext, request: pb.Subscribe | pb.ReceiveRequest, broadcast: bool = False
    ) -> Refusal | None:
        """Return why the request will not do."""
        limits = self._config.limits
        group = request.group.rpartition("~")[0] if broadcast else request.group
        credit = request.credit if isinstance(request, pb.Subscribe) else request.messages_max
        return (
            check_name(request.topic, limits.topic_chars_max, Reason.TOPIC_INVALID, "topic")
            or check_name(group, limits.group_chars_max, Reason.GROUP_INVALID, "group")
            or (
                check_name(request.consumer, NAME_CHARS_MAX, Reason.CONSUMER_INVALID, "consumer")
                if request.consumer
                else None
            )
            or (
                Refusal(Reason.CREDIT_INVALID, f"credit {credit} is more than {limits.credit_max}")
                if credit > limits.credit_max
                else None
            )
            or self.check_lease(request.lease_ms)
            or (
                Refusal(Reason.TOO_MANY_TAGS, f"{len(request.tags)} tags, more than {limits.tags_max}")
                if len(request.tags) > limits.tags_max
                else None
            )
            or self._authorizer.refusal(context, Right.CONSUME, [request.topic])
        )

    def check_lease(self, lease_ms: int) -> Refusal | None:
        """Return why a lease will not do; 0 is the default's."""
        low, high = self._config.delivery.lease_ms_min, self._config.delivery.lease_ms_max
        if lease_ms and not low <= lease_ms <= high:
            return Refusal(Reason.LEASE_INVALID, f"lease_ms {lease_ms} is not within {low} to {high}")
        return None

    def consumer(self, request: pb.Subscribe | pb.ReceiveRequest, name: str, credit: int) -> Consumer:
        """Return the consumer that the request describes."""
        return Consumer(
            name=name,
            topic=request.topic,
            group=request.group,
            lease_ms=request.lease_ms or self._config.delivery.lease_ms,
            credit=credit,
            tags=frozenset(request.tags),
            in_hand_bytes_max=self._config.delivery.in_hand_bytes_max,
        )

    async def group(self, consumer: Consumer, start: pb.GroupStart) -> GroupDelivery | Refusal:
        """Return the consumer's group, made in the log where it is new."""
        delivery = self._delivery()
        if delivery is None:
            return self._not_leader()
        group = delivery.find(consumer.topic, consumer.group)
        if group is None:
            if not self._config.topics_auto_create and self._queues().find(consumer.topic) is None:
                return unknown_topic(consumer.topic)
            command = log_pb.SubscribeCommand(
                topic=consumer.topic, group=consumer.group, start=start, now_ms=delivery.now_ms()
            )
            try:
                queues: Subscribed | Refusal = await self._driver.propose(command_codec.encode(command))
            except NotLeader:
                return self._not_leader()
            except (Overloaded, Unknown) as error:
                return refusal_of(error)
            if isinstance(queues, Refusal):
                return queues
            if self._delivery() is not delivery:
                return self._not_leader()
            group = delivery.group(consumer.topic, consumer.group, queues.queue, queues.retry_queue)
        return group.differs(consumer) or group

    def known(
        self, context: CallContext, request: pb.AckRequest | pb.NackRequest | pb.ExtendRequest
    ) -> GroupDelivery | Refusal:
        """Return the group that the request names; it must be there."""
        refusal = self._authorizer.refusal(context, Right.CONSUME, [request.topic])
        if refusal is not None:
            return refusal
        delivery = self._delivery()
        if delivery is None:
            return self._not_leader()
        group = delivery.find(request.topic, request.group)
        if group is not None:
            return group
        queue = self._queues().find(request.topic)
        retries = self._queues().find(request.topic, request.group)
        if queue is None or retries is None:
            text = f"group {request.group!r} has never received from topic {request.topic!r}"
            return Refusal(Reason.GROUP_UNKNOWN, text)
        return delivery.group(request.topic, request.group, queue.queue, retries.queue)
