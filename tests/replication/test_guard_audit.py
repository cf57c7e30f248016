"""The engine runs only as the source that was read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pysyncobj
import pytest

from tarry.replication.engine import check_source
from tarry.replication.guard import audit

SOURCE = Path(pysyncobj.__file__).parent


def test_the_installed_engine_is_the_audited_one() -> None:
    check_source()


@pytest.mark.parametrize("name", audit.AUDITED)
def test_one_changed_or_missing_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    shutil.copytree(SOURCE, tmp_path / "engine")
    changed = tmp_path / "engine" / name
    changed.write_bytes(changed.read_bytes() + b"\n")
    with pytest.raises(audit.NotAudited, match=name):
        audit.check(tmp_path / "engine")
    changed.unlink()
    with pytest.raises(audit.NotAudited, match=name):
        audit.check(tmp_path / "engine")
