"""The answer to a status call, as values."""

from __future__ import annotations

from tarry.client.operators.cluster_status import ClusterStatus, GroupStatus, LedgerStatus, Member
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
