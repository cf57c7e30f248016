"""Settings of all tests: properties without deadlines, logging set back, and tests that share a process."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import structlog
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

SPARK = Path(__file__).parent / "spark"


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Keep the tests of Spark in one worker: they share a session, which takes most of a core to start."""
    for item in items:
        if item.path.is_relative_to(SPARK):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()
