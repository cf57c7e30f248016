"""Subscriptions of consumers: their requests checked, and their groups opened at the leader."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final

from tarry.node.assembly import Core
from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.group import GroupDelivery
from tarry.node.delivery.in_flight import Batch
from tarry.node.delivery.policy import policy_of
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.grpc_types import CallContext
from tarry.node.edge.leader_calls import refusal_of
from tarry.node.edge.names import check_group, check_name, check_topic, no_more_queues, unknown_topic
from tarry.node.filters.parser import FilterInvalid, prepare
from tarry.node.filters.property_filter import PropertyFilter, property_filter
from tarry.node.services.topic_choice import TopicChoice, check_topics, is_pattern
from tarry.proto import tarry_consumer_pb2 as pb
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.errors import NotLeader, Overloaded, Unknown
from tarry.replication.state_machine.command_costs import cost_us
from tarry.replication.state_machine.levels import LevelTooLow
from tarry.replication.state_machine.outcomes import Subscribed
from tarry.replication.state_machine.refusal import Refusal

NAME_CHARS_MAX: Final = 100
QUEUES_HELD_MAX: Final = 16
"""A group's two; more are named only by those who have it from before a topic was made anew."""


class Subscriptions:
    """Checks consumers' requests and opens groups."""

    def __init__(self, core: Core, authorizer: Authorizer) -> None:
        self._config, self._driver, self._machine = core.config, core.driver, core.machine
        self._leadership = core.leadership
        self._authorizer = authorizer
        prepare()

    def check(
        self, context: CallContext, request: pb.Subscribe | pb.ReceiveRequest, broadcast: bool = False
    ) -> Refusal | None:
        """Return why the request will not do."""
        limits = self._config.limits
        group = request.group.rpartition("~")[0] if broadcast else request.group
        names = [one for one in request.topics if not is_pattern(one)] if request.topics else [request.topic]
        return (
            (
                check_topics(request.topics, request.topic, limits)
                if request.topics
                else check_topic(request.topic, limits)
            )
            or check_group(group, limits)
            or (
                check_name(request.consumer, NAME_CHARS_MAX, Reason.CONSUMER_INVALID, "consumer")
                if request.consumer
                else None
            )
            or self._check_credit(request)
            or self._check_holding(request)
            or self.check_lease(request.lease_ms)
            or self._check_tags(request.tags)
            or self._authorizer.refusal(context, Right.CONSUME, names)
            or self._authorizer.pattern_refusal(context, filter(is_pattern, request.topics))
            or self._check_filter(request.filter)  # last: to read a long one takes up to a turn
        )

    def choice(self, context: CallContext, topics: Sequence[str]) -> TopicChoice:
        """Return which topics a caller has by these names and patterns."""
        return TopicChoice(topics, self._authorizer.may_consume(context))

    def _check_credit(self, request: pb.Subscribe | pb.ReceiveRequest) -> Refusal | None:
        most = self._config.limits.credit_max
        if isinstance(request, pb.ReceiveRequest):
            credit, needed = request.messages_max, False  # 0: one message
        else:
            credit, needed = (
                request.credit,
                not request.holding,
            )  # who resumes may have all of its credit in use
        if credit > most:
            return Refusal(Reason.CREDIT_INVALID, f"credit {credit} is more than {most}: ask for less")
        if needed and not credit:
            return Refusal(Reason.CREDIT_INVALID, f"with credit 0 nothing comes: ask for 1 to {most}")
        return None

    def _check_holding(self, request: pb.Subscribe | pb.ReceiveRequest) -> Refusal | None:
        if isinstance(request, pb.ReceiveRequest):
            return None
        several = 4 * self._config.limits.subscribed_topics_max if request.topics else 0
        queues_max = max(QUEUES_HELD_MAX, several)
        if len(request.holding) > queues_max:
            text = f"holding names {len(request.holding)} queues: a group of a topic has two"
            return Refusal(Reason.TOO_MANY_OFFSETS, text)
        return self.check_offsets(sum(len(held.offset) for held in request.holding))

    def check_offsets(self, count: int) -> Refusal | None:
        """Return why a request that names so many offsets will not do."""
        most = self._config.limits.offsets_max
        if count <= most:
            return None
        text = f"{count} offsets, more than {most}: split the request"
        return Refusal(Reason.TOO_MANY_OFFSETS, text, {"offsets_max": str(most)})

    def _check_tags(self, tags: Collection[str]) -> Refusal | None:
        most = self._config.limits.filter_tags_max
        if len(tags) > most:
            return Refusal(Reason.TOO_MANY_TAGS, f"{len(tags)} tags to filter by, more than {most}")
        if "" in tags:
            return Refusal(
                Reason.TAG_INVALID, "a tag to filter by is empty: leave it out to get all messages"
            )
        return None

    def _check_filter(self, text: str) -> Refusal | None:
        try:
            self._filter(text)
        except FilterInvalid as error:
            limits = self._config.limits
            facts = {
                "filter_chars_max": str(limits.filter_chars_max),
                "filter_tests_max": str(limits.filter_tests_max),
                "filter_depth_max": str(limits.filter_depth_max),
            }
            return Refusal(Reason.FILTER_INVALID, str(error), facts)
        return None

    def _filter(self, text: str) -> PropertyFilter | None:
        """Return the filter of a request, None of an empty text. Raises FilterInvalid."""
        limits = self._config.limits
        if not text:
            return None
        most = limits.filter_chars_max, limits.filter_tests_max, limits.filter_depth_max
        return property_filter(text, *most)

    def check_lease(self, lease_ms: int) -> Refusal | None:
        """Return why a lease will not do; 0 is the default's."""
        low, high = self._config.delivery.lease_ms_min, self._config.delivery.lease_ms_max
        if lease_ms and not low <= lease_ms <= high:
            return Refusal(Reason.LEASE_INVALID, f"lease_ms {lease_ms} is not within {low} to {high}")
        return None

    def consumer(self, request: pb.Subscribe | pb.ReceiveRequest, name: str, credit: int) -> Consumer:
        """Return the consumer that the request describes."""
        policy = policy_of(self._machine.queues, self._config, request.topic, request.group)
        return Consumer(
            name=name,
            topic=request.topic,
            group=request.group,
            lease_ms=request.lease_ms or policy.lease_ms,
            asks_no_lease=not request.lease_ms,
            credit=credit,
            tags=frozenset(request.tags),
            filter=self._filter(request.filter),
            in_hand_bytes_max=self._config.delivery.in_hand_bytes_max,
            topics=tuple(request.topics),
        )

    async def group(self, consumer: Consumer, start: pb.GroupStart) -> GroupDelivery | Refusal:
        """Return the consumer's group, made in the log where it is new."""
        delivery = self._leadership.delivery
        if delivery is None:
            return self._leadership.not_leader()
        group = delivery.find(consumer.topic, consumer.group)
        if group is None:
            refusal = self._check_known(consumer)
            if refusal is not None:
                return refusal
            command = log_pb.SubscribeCommand(
                topic=consumer.topic,
                group=consumer.group,
                start=start,
                now_ms=delivery.now_ms(),
                life=log_pb.GROUP_LIFE_TEMPORARY if consumer.temporary else log_pb.GROUP_LIFE_EXPIRES,
            )
            try:
                queues: Subscribed | Refusal = await self._leadership.group_moves.propose(
                    self._machine.encode(command), cost_us(command)
                )
            except NotLeader:
                return self._leadership.not_leader()
            except (Overloaded, Unknown, LevelTooLow) as error:
                return refusal_of(error)
            if isinstance(queues, Refusal):
                return queues
            if self._leadership.delivery is not delivery:
                return self._leadership.not_leader()
            if (consumer.group, queues.queue) not in self._machine.queues.acknowledged:
                text = f"group {consumer.group!r} of topic {consumer.topic!r} has been deleted meanwhile"
                return Refusal(Reason.GROUP_UNKNOWN, text)
            group = delivery.group(consumer.topic, consumer.group, queues.queue, queues.retry_queue)
        return group.differs(consumer) or group

    async def left(self, group: GroupDelivery) -> None:
        """Delete a temporary group that its last consumer has left; if that fails, it expires."""
        delivery, name = self._leadership.delivery, (group.topic, group.group)
        if delivery is None or delivery.find(*name) is not group or group.consumers:
            return
        if self._machine.queues.uses.of(*name).life != log_pb.GROUP_LIFE_TEMPORARY:
            return
        command = log_pb.DeleteGroupCommand(topic=group.topic, group=group.group, now_ms=delivery.now_ms())
        with suppress(NotLeader, Overloaded, Unknown):
            await self._driver.propose(self._machine.encode(command), cost_us(command))

    def _check_known(self, consumer: Consumer) -> Refusal | None:
        queue = self._machine.queues.find(consumer.topic)
        if queue is None and not self._config.topics_auto_create:
            return unknown_topic(consumer.topic)
        known = queue is not None and (consumer.group, queue.queue) in self._machine.queues.acknowledged
        if not known and not self._config.groups_auto_create:
            text = f"topic {consumer.topic!r} has no group {consumer.group!r}: create it"
            return Refusal(Reason.GROUP_UNKNOWN, text)
        return None if known else no_more_queues(self._machine.queues, self._config.limits)

    def known(
        self, context: CallContext, request: pb.AckRequest | pb.NackRequest | pb.ExtendRequest
    ) -> GroupDelivery | Refusal:
        """Return the group that the request names; it must be there."""
        refusal = self._authorizer.refusal(context, Right.CONSUME, [request.topic])
        if refusal is not None:
            return refusal
        delivery = self._leadership.delivery
        if delivery is None:
            return self._leadership.not_leader()
        group = delivery.find(request.topic, request.group)
        if group is not None:
            return group
        queue = self._machine.queues.find(request.topic)
        retries = self._machine.queues.find(request.topic, request.group)
        there = self._machine.queues.acknowledged  # a retry queue may outlive its group
        if queue is None or retries is None or (request.group, retries.queue) not in there:
            text = f"group {request.group!r} has never received from topic {request.topic!r}"
            return Refusal(Reason.GROUP_UNKNOWN, text)
        return delivery.group(request.topic, request.group, queue.queue, retries.queue)


def subscribed(
    consumer: str,
    lease_ms: int,
    node: str,
    term: int,
    incarnation: int,
    resumed: Mapping[int, Sequence[Batch]],
) -> bytes:
    """Return the response that tells a consumer its lease, and what of it goes on, by queue."""
    holding = [
        log_pb.HoldingColumns(queue=queue, offset=b"".join(map(_resumed, batches)))
        for queue, batches in resumed.items()
        if batches
    ]
    told = log_pb.SubscribedColumns(
        consumer=consumer,
        lease_ms=lease_ms,
        node=node,
        term=term,
        resumed=holding,
        incarnation=incarnation,
    )
    return log_pb.ConsumedColumns(subscribed=told).SerializeToString()


def _resumed(batch: Batch) -> bytes:
    return batch.offsets.astype("<u8", copy=False).tobytes()
