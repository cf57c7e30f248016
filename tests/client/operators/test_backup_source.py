"""Which node a backup is taken from, by the status of the cluster."""

from __future__ import annotations

from typing import Any

import pytest

from tarry.client.errors import NotFound, Unavailable
from tarry.client.operators.backup import source_of
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.proto.tarry_operator_pb2 import ClusterStatusResponse, Member


def status(*members: Member, **more: Any) -> ClusterStatus:
    told = {"node": "n1", "leader": "n1", "lease": True, **more}
    return ClusterStatus.of(ClusterStatusResponse(members=members, **told))


def member(node: str, match_index: int = 0, *, connected: bool = True) -> Member:
    return Member(node=node, address=f"{node}:1", match_index=match_index, connected=connected)


def test_it_is_the_follower_in_touch_that_has_most() -> None:
    members = member("n1", 9), member("n2", 7), member("n3", 8), member("n4", 9, connected=False)
    assert source_of(status(*members)) == "n3:1"
    assert source_of(status(*members), "n4") == "n4:1"
    assert source_of(status(member("n1", 9))) == "n1:1"
    with pytest.raises(NotFound, match="n1, n2"):
        source_of(status(*members), "n9")
    with pytest.raises(Unavailable, match="no follower is in touch"):
        source_of(status(member("n1", 9), member("n2", 9, connected=False)))


@pytest.mark.parametrize("leader", ["", "n2"])
def test_without_a_leader_only_a_node_that_is_named_is_backed_up(leader: str) -> None:
    """What the node that answers has applied may lack what others have acknowledged."""
    alone = status(member("n1", 2), member("n2", connected=False), leader=leader, lease=False)
    with pytest.raises(Unavailable, match="--node"):
        source_of(alone)
    assert source_of(alone, "n1") == "n1:1"
