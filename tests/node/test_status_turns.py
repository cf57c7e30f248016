"""A status, a page of metrics or a list of consumers holds the event loop no longer than a turn may take."""

from __future__ import annotations

import asyncio

import numpy as np

from tarry.node.config import Limits
from tarry.node.delivery.in_flight import Batch
from tarry.node.monitoring.pages import Renderings
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_operator_pb2 as operator_pb
from tests import turns as cost
from tests.node.lone_leader import GROUP, TOPIC, Leader, Stream, play, subscription

IN_HAND = Limits().credit_max


def test_a_brief_status_has_what_a_client_looks_for() -> None:
    async def act(lead: Leader, _: cost.Steps) -> None:
        await lead.propose(log_pb.SubscribeCommand(topic=TOPIC, group="g"))
        brief = operator_pb.ClusterStatusResponse.FromString(await lead.status(brief=True))
        assert (brief.node, brief.leader, brief.term, brief.lease) == ("n1", "n1", 1, True)
        assert [member.node for member in brief.members] == ["n1"]
        assert not brief.topics
        whole = operator_pb.ClusterStatusResponse.FromString(await lead.status())
        assert [topic.groups[0].group for topic in whole.topics] == ["g"]

    cost.busiest(play(act))


def test_a_status_of_many_topics_and_of_many_groups() -> None:
    many = 10_000

    async def act(lead: Leader, steps: cost.Steps) -> None:
        names = [(f"t{number}", "g") for number in range(many)] + [("t0", f"g{n}") for n in range(many)]
        made = [log_pb.SubscribeCommand(topic=topic, group=group) for topic, group in names]
        for start in range(0, len(made), 2_000):
            await asyncio.gather(*map(lead.propose, made[start : start + 2_000]))
        async with steps.step("brief"):
            await lead.status(brief=True)
        async with steps.step("whole"):
            raw = await lead.status()
        topics = {topic.topic: topic for topic in operator_pb.ClusterStatusResponse.FromString(raw).topics}
        assert len(topics) == many
        assert len(topics["t0"].groups) == many + 1
        assert [group.group for group in topics["t1"].groups] == ["g"]
        async with steps.step("metrics"):
            page = (await Renderings(lead.node._families).newest()).body
        assert (
            page.count(b"\ntarry_topic_pending_messages{") == page.count(b"\ntarry_ready_messages{") == 1_001
        )
        async with steps.step("describe"):
            described = await lead.topics.one(lead.machine.queues.of("t0"))
        assert len(described.groups) == many + 1

    assert cost.too_long(play(act)) == {}


def test_showing_the_first_of_very_many_consumers_one_of_whom_has_very_many_leases() -> None:
    async def act(lead: Leader, steps: cost.Steps) -> None:
        stream = Stream(lead.edge, subscription("0", 1))
        await stream.answer()
        in_flight = lead.group().feeds[lead.machine.queues.of(TOPIC).queue].in_flight
        one, ends_ms = np.zeros(1, np.uint64), lead.node.time.now_ms() + 60_000
        for number in range(IN_HAND):
            in_flight.add(Batch(f"{number % 97}-{number}", one, ends_ms))
            in_flight.add(Batch("0", one, ends_ms + number))
        async with steps.step("shown"):
            shown, left_out = await lead.topics.consumers(TOPIC, GROUP)
        assert (len(shown), left_out) == (1_000, IN_HAND + 1 - 1_000)
        assert (shown[0].consumer, shown[0].in_hand, shown[0].lease_end_ms) == ("0", IN_HAND, ends_ms)
        in_flight.clear()

    assert cost.too_long(play(act)) == {}
