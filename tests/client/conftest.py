"""Stand-ins for clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.client.stand_in import ClusterStandIn, GroupStandIn


@pytest.fixture
async def cluster() -> AsyncIterator[ClusterStandIn]:
    """Three nodes; the first leads."""
    started = ClusterStandIn()
    await started.start(3)
    yield started
    await started.stop()


@pytest.fixture
def group(cluster: ClusterStandIn) -> GroupStandIn:
    """Consumer streams of the cluster, as a script."""
    return GroupStandIn(cluster)
