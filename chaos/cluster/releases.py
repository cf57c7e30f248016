"""Released versions, for nodes to run with: taken out of the repository's history into a cache folder, once.

    cache folder/releases/0.2.0-fa041d8e71d6/.src     the release's code, for PYTHONPATH
                                            /venv     its packages, where it needs others than the tree

The packages of the running interpreter serve a release whose requirements the tree still has, word for word:
an environment of its own would then have the same ones in it, and take half a minute and 0.3 GB.

`python -m tarry.chaos.cluster.releases` does it for all and prints where they are; runs do so by themselves.
"""

from __future__ import annotations

import io
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tarry.client.local.cache_folder import cache_folder
from tarry.client.local.cluster import LocalNode

RELEASES = {
    "0.1.0": "1103e5579889182089c23ab88f72a12b9d6ddf7f",  # before all that the changelog has for 0.2.0
    "0.2.0": "fa041d8e71d6556748a7cee831799b4b0b97e2c8",
}
"""The commit of each."""
ROOT = Path(__file__).resolve().parents[2]
PARTS = (".src", "pyproject.toml", "client", "node", "proto", "replication", "wheel")
GIT_S_MAX = 60
INSTALL_S_MAX = 600


class NoRelease(RuntimeError):
    """A release cannot be run here; the text says why and what helps."""


@dataclass(frozen=True, slots=True)
class Release:
    """A version's code, and an interpreter that has the packages it needs."""

    version: str
    python: Path
    source: Path
    """For PYTHONPATH."""

    def put_on(self, node: LocalNode) -> None:
        """Let the node's next processes run this version."""
        node.python = str(self.python)
        node.environment["PYTHONPATH"] = str(self.source)


def take_off(node: LocalNode) -> None:
    """Let the node's next processes run the tree's code again."""
    node.python = sys.executable
    node.environment.pop("PYTHONPATH", None)


def lacking(version: str) -> str:
    """Return why a release cannot be run here, after trying to make it ready; empty: it can."""
    try:
        release(version)
    except NoRelease as reason:
        return str(reason)
    return ""


def release(version: str) -> Release:
    """Return a release, made ready first where it is not. Raises NoRelease."""
    commit = RELEASES[version]
    folder = cache_folder() / "releases" / f"{version}-{commit[:12]}"
    try:
        if not folder.is_dir():
            folder.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
                _take_out(version, commit, Path(fresh) / "whole")
                (Path(fresh) / "whole").replace(folder)  # whole or not at all
        needs = requirements(folder / "pyproject.toml")
        shared = set(needs) <= set(requirements(ROOT / "pyproject.toml"))
        python = Path(sys.executable) if shared else _environment(version, folder / "venv", needs)
    except OSError as error:
        raise NoRelease(f"{version} cannot be kept in {folder}: {error}") from error
    return Release(version, python, folder / ".src")


def requirements(pyproject: Path) -> list[str]:
    """Return what a node of this version needs; of the tree also what is there for tests."""
    content = tomllib.loads(pyproject.read_text())
    extras = content["project"]["optional-dependencies"]
    groups = content["dependency-groups"]
    of_tree = [*extras.get("chaos", ()), *groups["dev"]] if pyproject.parent == ROOT else []
    return [*content["project"]["dependencies"], *extras.get("node", ()), *of_tree]


def _take_out(version: str, commit: str, folder: Path) -> None:
    _say(f"taking {version} ({commit[:12]}) out of the history (once)")
    command = ["git", "-C", str(ROOT), "archive", "--format=tar", commit, *PARTS]
    try:
        made = subprocess.run(command, check=True, capture_output=True, timeout=GIT_S_MAX)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", b"") or b"").decode(errors="replace").strip() or str(error)
        raise NoRelease(
            f"the code of {version} is commit {commit} of the repository's history, which cannot be read "
            f"from {ROOT}: use a clone with all of it (`git fetch --unshallow`). git says: {said}"
        ) from error
    with tarfile.open(fileobj=io.BytesIO(made.stdout)) as archive:
        archive.extractall(folder, filter="data")
    about = folder / ".src" / f"tarry-{version}.dist-info"  # what the node says its version is
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: tarry\nVersion: {version}\n")


def _environment(version: str, folder: Path, needs: Sequence[str]) -> Path:
    """Return the interpreter of the release's own environment, made first where there is none."""
    done = folder / "done"
    if not done.exists():
        _say(f"building an environment for {version} in {folder} (once; a minute at most)")
        for command in (
            [sys.executable, "-m", "venv", "--clear", str(folder)],
            [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *needs],
        ):
            try:
                subprocess.run(command, check=True, timeout=INSTALL_S_MAX, capture_output=True, text=True)
            except subprocess.SubprocessError as error:
                said = (getattr(error, "stderr", "") or str(error)).strip()[-1_000:]
                raise NoRelease(f"{version} needs packages that could not be installed: {said}") from error
        done.touch()
    return folder / "bin/python"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    """Make every release ready, print where each is, return the exit code."""
    code = 0
    for version in RELEASES:
        try:
            found = release(version)
        except NoRelease as error:
            print(error, file=sys.stderr)
            code = 1
        else:
            print(f"{version}  {found.source}  {found.python}")
    return code


if __name__ == "__main__":
    sys.exit(main())
