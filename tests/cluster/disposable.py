"""Clusters of which nothing is looked at once a test is through: they are killed, which takes no time."""

from __future__ import annotations

from tarry.chaos.cluster.cluster import Cluster
from tarry.client.local.cluster import LocalCluster


class Disposable(LocalCluster):
    """A local cluster whose nodes are killed at its end; an orderly end hands over and writes checkpoints."""

    __slots__ = ()

    def close(self) -> None:
        kill_all(self)
        super().close()


class DisposableRun(Cluster):
    """The same of a cluster that writes down what is done to it."""

    async def __aexit__(self, *error: object) -> None:
        kill_all(self.local)
        await super().__aexit__(*error)


def kill_all(cluster: LocalCluster) -> None:
    """Kill every node that runs."""
    for node in cluster.nodes.values():
        if node.running:
            cluster.kill(node.name)
