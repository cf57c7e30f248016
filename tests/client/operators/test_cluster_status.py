"""The answer to a status call, as values."""

from __future__ import annotations

from tarry.client.operators.cluster_status import (
    ClusterStatus,
    Consumer,
    GroupStatus,
    Lateness,
    LedgerStatus,
    Member,
)
from tarry.client.operators.group_policy import GroupDescription
from tarry.proto import tarry_operator_pb2 as operator_pb


def test_an_answer_is_read_by_the_names_of_its_fields() -> None:
    group = operator_pb.GroupStatus(
        group="g", floor=1, acked_above_floor=2, retrying=3, consumers=4, in_hand=5
    )
    hold = operator_pb.Hold(cause="gc", held_us=1_500, cpu_us=500, at_ms=9)
    status = ClusterStatus.of(
        operator_pb.ClusterStatusResponse(
            node="n1",
            term=7,
            lease=True,
            state_digest=b"\xab",
            members=[operator_pb.Member(node="n2", address="a:1", connected=True, match_index=6)],
            topics=[operator_pb.TopicStatus(topic="t", released=8, held_until_ms=10, groups=[group])],
            ledger=operator_pb.LedgerStatus(enabled=True, segments=11, bytes=12, failure="full"),
            turns=operator_pb.TurnStatus(longest=hold, over_20_ms=13, causes=[hold]),
        )
    )
    assert (status.node, status.term, status.lease, status.state_digest) == ("n1", 7, True, "ab")
    assert status.members == (Member("n2", "a:1", True, 6, 0),)
    (topic,) = status.topics
    assert (topic.topic, topic.released, topic.held_until_ms) == ("t", 8, 10)
    assert topic.groups == (GroupStatus("g", 1, 2, 3, 4, 5),)
    assert status.ledger == LedgerStatus(True, 11, 12, 0, 0, "full", 0)
    assert (status.turns.longest.held_ms, status.turns.longest.cpu_ms) == (1.5, 0.5)
    assert status.turns.causes == (status.turns.longest,)
    assert (status.turns.over_20_ms, status.turns.over_100_ms) == (13, 0)


def test_what_is_late_is_read_and_nothing_where_a_node_does_not_say() -> None:
    late = operator_pb.Lateness(released=5, p50_ms=1, p99_ms=2, max_ms=3)
    topic = operator_pb.TopicStatus(topic="t", overdue=6, oldest_overdue_ms=7, lateness=late)
    response = operator_pb.ClusterStatusResponse(
        topics=[topic], overdue=8, oldest_overdue_ms=9, lateness=late
    )
    status = ClusterStatus.of(response)
    assert (status.overdue, status.oldest_overdue_ms, status.lateness) == (8, 9, Lateness(5, 1, 2, 3))
    [told] = status.topics
    assert (told.overdue, told.oldest_overdue_ms, told.lateness) == (6, 7, Lateness(5, 1, 2, 3))
    silent = ClusterStatus.of(operator_pb.ClusterStatusResponse())
    assert (silent.overdue, silent.oldest_overdue_ms, silent.lateness) == (0, 0, Lateness())


def test_a_groups_consumers_are_read_with_their_tags() -> None:
    consumer = operator_pb.Consumer(
        consumer="c",
        address="a:1",
        since_ms=2,
        polls=True,
        connected=True,
        credit=3,
        in_hand=4,
        lease_end_ms=5,
        tags=["x", "y"],
    )
    response = operator_pb.DescribeGroupResponse(consumers=[consumer], consumers_left_out=6)
    described = GroupDescription.of(response)
    assert described.consumers == (Consumer("c", "a:1", 2, True, True, 3, 4, 5, ("x", "y")),)
    assert described.consumers_left_out == 6
