"""Settings of all tests: properties without deadlines, logging set back, and tests that share a process."""

import gc
from collections.abc import Generator, Iterator
from typing import Any

import pytest
import structlog
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tarry.client.local import free_ports
from tarry.wheel.delay_log import DelayLog

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


class Scheduling(LoadScopeScheduling):
    """Distributes tests one by one, but those that share something to one worker.

    Those of Spark share a session and its tables, those of a file of tests/cluster what it started.
    """

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith("tests/spark/"):
            return "spark"
        return nodeid.partition("::")[0] if nodeid.startswith("tests/cluster/") else nodeid


def pytest_configure(config: pytest.Config) -> None:
    """Give each worker ports of its own: what one has found free, it may not have come to listen on yet."""
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        count = worker["workercount"]
        number = int(worker["workerid"].removeprefix("gw"))
        free_ports.PORTS = free_ports.PORTS[number % count :: count]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put Spark's tests first: its JVM is forked, which fails beside threads in gRPC."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/spark/"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep modules and test items out of garbage collections: tests of turns collect before each try."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.collect()
        gc.freeze()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadScopeScheduling:
    """Return what distributes tests to the workers of pytest-xdist."""
    return Scheduling(config, log)


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()


@pytest.fixture
def index_read_from_its_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing of an hour's index be held in memory, as of one with more than 1,024 units."""
    monkeypatch.setattr(DelayLog, "held_units_max", 0)
