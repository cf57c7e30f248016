"""Programs with RocketMQ's own clients, one for each language, run as processes on this machine.

A program is a file of one name in a folder: `load.py`, `load.cjs`, `Load.java`, `load.go`, `load.rs`. The
clients are those that `.ci/rocketmq-clients` puts into the cache folder, and Python's package.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tarry.client.local.cache_folder import cache_folder

JAR: Final = "rocketmq-client-java-5.2.0.jar"
BUILT_S: Final = 240.0


class NotBuilt(RuntimeError):
    """A program of Go or Rust was not built; the text is the compiler's."""


def missing_python() -> str:
    """Return what the client for Python lacks on this machine; empty: nothing."""
    return "" if find_spec("rocketmq") else "rocketmq-python-client is not installed"


def missing_node() -> str:
    return missing("node", "node", "node_modules/rocketmq-client-nodejs")


def missing_java() -> str:
    return missing("java", "java", JAR)


def missing_go() -> str:
    return missing("go", "go", "go.sum")


def missing_rust() -> str:
    return missing("rust", "cargo", "target/debug/delayed")


LANGUAGES: Final[Mapping[str, Callable[[], str]]] = {
    "python": missing_python,
    "node": missing_node,
    "java": missing_java,
    "go": missing_go,
}
"""By name: what says why its client is not there. Rust's is not among them: it has no push consumer."""


@dataclass(frozen=True, slots=True)
class Command:
    """Words that run a program, before its own arguments."""

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


async def command_of(language: str, folder: Path, name: str, home: Path) -> Command:
    """Return what runs a language's program, built first where it has to be; its client logs into `home`.

    Raises NotBuilt.
    """
    module, environment = installed(language), {"HOME": str(home)}
    if language == "python":  # -P: a file beside the program may have the name of a package
        return Command((sys.executable, "-P", str(folder / f"{name}.py")), environment)
    if language == "node":
        modules = str(module / "node_modules")
        return Command(("node", str(folder / f"{name}.cjs")), {**environment, "NODE_PATH": modules})
    if language == "java":
        options = ("-Xmx256m", f"-Duser.home={home}", "-cp", str(module / JAR))
        return Command(("java", *options, str(folder / f"{name.capitalize()}.java")), environment)
    if language == "rust":
        return Command((str(await _of_rust(module, folder / f"{name}.rs", home)),), environment)
    built = home / name
    await _built(module, {}, "go", "build", "-o", str(built), str(folder / f"{name}.go"))
    return Command((str(built),), environment)


async def _of_rust(module: Path, program: Path, home: Path) -> Path:
    """Return a program, a package of its own in `home`, built beside what its client was built to."""
    name, target = program.stem, module / "target"
    packaged = (module / "Cargo.toml").read_text().replace('name = "delayed"', f'name = "{name}"', 1)
    (home / "Cargo.toml").write_text(packaged)
    shutil.copy(module / "Cargo.lock", home)
    (home / "src").mkdir()
    shutil.copy(program, home / "src" / "main.rs")
    environment = {"CARGO_PROFILE_DEV_DEBUG": "0"}
    await _built(home, environment, "cargo", "build", "--quiet", "--offline", f"--target-dir={target}")
    return Path(shutil.copy(target / "debug" / name, home / name))


async def _built(folder: Path, environment: Mapping[str, str], *words: str) -> None:
    building = await asyncio.create_subprocess_exec(
        *words, cwd=folder, env={**os.environ, **environment}, stderr=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(BUILT_S):
            _, errors = await building.communicate()
    except TimeoutError:
        building.kill()
        await building.wait()
        raise NotBuilt(f"it was not built within {BUILT_S:.0f} s") from None
    if building.returncode:
        raise NotBuilt(errors.decode(errors="replace"))


def missing(language: str, program: str, file: str) -> str:
    """Return why a language's client, of which this file is proof, is not there; empty: it is."""
    if shutil.which(program) is None:
        return f"{program} is not installed"
    there = (installed(language) / file).exists()
    return "" if there else f"RocketMQ's client for {language} is not there: .ci/rocketmq-clients installs it"


def installed(language: str) -> Path:
    """Return the folder of a language's client."""
    return cache_folder() / "rocketmq" / language
