"""What a node's process sets up for itself."""

from __future__ import annotations

import os
import resource
from pathlib import Path

from structlog.testing import capture_logs

from tarry.node.process import keep_private, may_open_all


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


def test_folders_of_data_that_others_may_read_are_closed_to_them_and_the_rest_is_left_alone(
    tmp_path: Path,
) -> None:
    for name in ("journal", "state-3", "ledger", "damaged-1", "of somebody else"):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(0o755)
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        keep_private(tmp_path)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in [tmp_path, *tmp_path.iterdir()]}
    wide = {name for name, mode in modes.items() if mode == 0o755}
    assert wide == {tmp_path.name, "of somebody else"}
    assert set(modes.values()) == {0o755, 0o700}
