"""Nodes that have spoken to this one, over all its starts, noted in the journal before they count.

Whoever has counted a node's vote or answer has noted it. So a node that has lost its journal, and with it
what it has promised, can be told that it had one (`driver.first_start`).
"""

from __future__ import annotations

from tarry.proto.tarry_peer_pb2 import RecallResponse
from tarry.replication.cluster_name import full_name, parts_of
from tarry.replication.replica import Replica


class SpokenPeers:
    """Nodes that have spoken to one replica."""

    def __init__(self, replica: Replica) -> None:
        self._replica = replica

    @property
    def cluster(self) -> str:
        """Name of the cluster whose nodes are listed, with its incarnation."""
        return full_name(self._replica.settings.cluster, self._replica.journal.cluster_incarnation)

    def is_former(self, cluster: str) -> bool:
        """Return whether that is the name of another incarnation of this cluster."""
        return cluster != self.cluster and parts_of(cluster)[0] == parts_of(self.cluster)[0]

    def adopts(self, cluster: str) -> bool:
        """Take over a cluster's incarnation from a node that calls, where nothing has been learnt yet.

        A newcomer belongs to nobody before it has an entry; afterwards to that incarnation for good. It is
        durable no later than the first entry, because the journal's writes keep their order.
        """
        journal, (name, incarnation) = self._replica.journal, parts_of(cluster)
        if not incarnation or name != self._replica.settings.cluster or self.cluster != name:
            return False
        if not journal.joined or journal.last_index > 1:
            return False
        journal.begin_cluster(incarnation)
        self._replica.wake.set()
        return True

    @property
    def node(self) -> str:
        """Name of the node that they have spoken to."""
        return self._replica.node

    def noted(self, node: str) -> bool:
        """Return whether it is on this disk that the node has spoken."""
        return node in self._replica.journal.durable_spoken

    def note(self, node: str) -> None:
        """Note that the node is about to speak; durable with the next turn."""
        self._replica.journal.note_spoken(node)
        self._replica.wake.set()

    def recall(self) -> RecallResponse:
        """Return what a node without a journal asks for."""
        replica, journal = self._replica, self._replica.journal
        members = replica.membership.current()
        fresh = replica.node in members and journal.term == 0 and journal.last_index <= 1
        return RecallResponse(
            fresh=fresh,
            spoken=sorted(journal.spoken),
            members=sorted(members),
            cluster_incarnation=journal.cluster_incarnation,
        )
