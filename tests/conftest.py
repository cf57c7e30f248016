"""What all tests share: no deadlines for properties, for a busy machine is no failure; logs as they were."""

from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")


@pytest.fixture(autouse=True)
def _logging_as_it_was() -> Iterator[None]:
    yield
    structlog.reset_defaults()
