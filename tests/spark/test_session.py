"""Java 17 is looked for before Spark is started, and named where it is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tarry.spark.errors import JavaMissing
from tarry.spark.session import java_major


def java(home: Path, version: str) -> None:
    """Put a program there that says it is a Java of this version."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)


def test_no_java_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaMissing, match=r"Java 17 or newer, found none on PATH.*openjdk-17-jre-headless"):
        java_major()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(JavaMissing, match=f"found none .JAVA_HOME is {tmp_path}"):
        java_major()


@pytest.mark.parametrize(
    ("version", "enough"), [("11.0.2", False), ("16.0.1", False), ("17.0.15", True), ("21", True)]
)
def test_a_java_that_is_too_old_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, enough: bool
) -> None:
    java(tmp_path, version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if enough:
        assert java_major() == int(version[:2])
        return
    with pytest.raises(JavaMissing, match=f'found version "{version[:2]}'):
        java_major()
