"""Real clusters for tests: three processes each, on loopback, in temporary folders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.client.local.cluster import LocalCluster, Setting
from tests.cluster.disposable import Disposable
from tests.cluster.steady import STEADY

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


def started(size: int, folder: Path, **settings: Setting) -> Iterator[LocalCluster]:
    with Disposable(size, folder, settings) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        yield cluster


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Three nodes that serve, for the tests of a file that break none of them: topics are that file's own."""
    yield from started(3, tmp_path_factory.mktemp("shared-cluster"), consensus=STEADY)


@pytest.fixture(scope="session")
def lone_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One node, which leads however busy the machine is, for tests of what a leader answers."""
    yield from started(1, tmp_path_factory.mktemp("lone-cluster"))


@pytest.fixture
def unused_cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """One node that no other test asked anything, for tests of what a node counts of itself."""
    yield from started(1, tmp_path)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Three nodes of the test's own, to be killed as it likes."""
    yield from started(3, tmp_path)
