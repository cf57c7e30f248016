"""The node that a backup is taken from: a follower, unless the leader is asked for or is alone."""

from __future__ import annotations

from tarry.client.errors import NotFound, Unavailable
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.proto.reasons import Reason


def source_of(status: ClusterStatus, node: str = "") -> str:
    """Return the address of the node to ask: the named one, or the follower in touch that has most.

    Raises NotFound: no member has that name; Unavailable: no follower is in touch, or nobody leads, so that
    the status does not say how much has been acknowledged.
    """
    members = {member.node: member for member in status.members}
    if node:
        if node not in members:
            text = f"{node!r} is no member: name one of {', '.join(sorted(members))}"
            raise NotFound(Reason.MEMBER_INVALID, text)
        return members[node].address
    if not status.lease:
        text = (
            "no node leads, so nobody knows how much has been acknowledged: wait for a leader, or take what "
            "one node has, perhaps not all of it, with --node"
        )
        raise Unavailable(Reason.BACKUP_UNAVAILABLE, text)
    if list(members) == [status.leader]:
        return members[status.leader].address
    followers = [m for m in members.values() if m.connected and m.node != status.leader]
    if not followers:
        text = "no follower is in touch with the leader: wait for one, or take it from the leader with --node"
        raise Unavailable(Reason.BACKUP_UNAVAILABLE, text)
    return max(followers, key=lambda member: member.match_index).address
