"""The engine runs only as the source that was read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pysyncobj
import pytest

from tarry.replication.raft.guard import engine_audit
from tarry.replication.raft.guarded_syncobj import check_source

SOURCE = Path(pysyncobj.__file__).parent


def test_the_installed_engine_is_the_audited_one() -> None:
    check_source()


@pytest.mark.parametrize("name", engine_audit.AUDITED)
def test_one_changed_or_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    shutil.copytree(SOURCE, tmp_path / "engine")
    changed = tmp_path / "engine" / name
    changed.write_bytes(changed.read_bytes() + b"\n")
    with pytest.raises(engine_audit.NotAudited, match=name):
        engine_audit.check(tmp_path / "engine")
    changed.unlink()
    with pytest.raises(engine_audit.NotAudited, match=name):
        engine_audit.check(tmp_path / "engine")
