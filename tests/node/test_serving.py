"""What a node's process sets up for itself."""

from __future__ import annotations

import resource

from structlog.testing import capture_logs

from tarry.node.serving import may_open_all


def test_a_node_may_open_as_many_files_as_the_system_allows_and_says_so() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard - 1, hard))
    try:
        with capture_logs() as logs:
            may_open_all()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert logs == [{"event": "open files", "at_most": hard, "at_start": hard - 1, "log_level": "info"}]
