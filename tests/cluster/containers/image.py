"""An image built from a Dockerfile: a root folder for each stage, made by its own instructions.

The base image `python:3.x-slim` is stood in for by this machine's /usr and the Python that runs the tests, so
what is in that image, and what registries have, is not proved. pip runs as the Dockerfile says, offline:
it is given wheels of what is installed here.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

from tests.cluster.containers.dockerfile import Instruction, Settings, Stage, stages
from tests.cluster.containers.processes import Bind, Entry, user_of
from tests.cluster.containers.wheels import wheels_for

BASE = re.compile(r"python:3\.\d+-slim")
PATH = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
ETC = (
    *("passwd", "group", "shadow", "login.defs", "nsswitch.conf", "ld.so.cache", "ld.so.conf"),
    *("ld.so.conf.d", "pam.d", "default", "skel", "ssl", "localtime"),
)
LINKED = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
PYTHON = str(Path(sys.base_prefix).resolve())


@dataclass(frozen=True)
class Image:
    root: Path
    settings: Settings

    def entry(self, command: list[str], *binds: Bind) -> Entry:
        """Return how a container runs a command: as the image's user, on files that it cannot change."""
        uid, gid = user_of(self.root, self.settings.user)
        return Entry(
            root=str(self.root),
            command=command,
            environment=self.settings.environment,
            folder=self.settings.folder,
            uid=uid,
            gid=gid,
            binds=[*machine(), *binds],
            read_only=True,
        )


class Builder:
    """Builds images below a folder; a stage that it has built is not built again."""

    def __init__(self, folder: Path, context: Path) -> None:
        self._folder = folder
        self._context = context
        self._built: dict[tuple[Stage, ...], Image] = {}
        self._wheels = folder / "wheels"
        self._wheels.mkdir()
        wheels_for(context, self._wheels, ["node", "console", "http"])

    def image(self, dockerfile: str) -> Image:
        """Return the image of a Dockerfile. Raises CalledProcessError, KeyError, OSError, ValueError."""
        done: tuple[Stage, ...] = ()
        named: dict[str, Image] = {}
        for stage in stages(dockerfile):
            done = (*done, stage)
            if done not in self._built:
                self._built[done] = self._build(stage, named)
            named[stage.name] = self._built[done]
        return self._built[done]

    def _build(self, stage: Stage, others: dict[str, Image]) -> Image:
        if not BASE.fullmatch(stage.base):
            raise ValueError(f"nothing here stands in for the image {stage.base}")
        root = self._folder / f"image-{len(list(self._folder.glob('image-*')))}"
        _base(root)
        image = Image(root, Settings({"PATH": PATH}))
        for instruction in stage.instructions:
            image = replace(image, settings=image.settings.after(instruction))
            match instruction.word:
                case "WORKDIR":
                    _inside(root, instruction.words[0]).mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(image, instruction, others)
                case "RUN":
                    self._run(image, instruction.rest)
        return image

    def _copy(self, image: Image, instruction: Instruction, others: dict[str, Image]) -> None:
        *options, source, target = instruction.words
        place = _inside(image.root, os.path.join(image.settings.folder, target))  # noqa: PTH118
        if not options:
            ignored = (self._context / ".dockerignore").read_text().split()
            _copy_context(self._context / source, place, ignored)
            return
        (option,) = options
        # linked, for it takes seconds less: no later instruction may write to what a stage got from another
        built = _inside(others[option.removeprefix("--from=")].root, source)
        shutil.copytree(built, place, symlinks=True, copy_function=os.link, dirs_exist_ok=True)

    def _run(self, image: Image, line: str) -> None:
        uid, gid = user_of(image.root, image.settings.user)
        entry = Entry(
            root=str(image.root),
            command=["/bin/sh", "-c", line],
            environment=image.settings.environment,
            folder=image.settings.folder,
            uid=uid,
            gid=gid,
            binds=[*machine(), Bind(str(self._wheels), "/wheels", read_only=True)],
        )
        done = subprocess.run(entry.argv(), check=False, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"RUN {line}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")


def machine() -> list[Bind]:
    """Return what a container has of this machine; its Python is where the base image has one, too."""
    links = [f"/{name}" for name in LINKED if Path(f"/{name}").is_dir() and not Path(f"/{name}").is_symlink()]
    python = [] if PYTHON == "/usr/local" else [Bind(PYTHON, "/usr/local", True), Bind(PYTHON, PYTHON, True)]
    devices = [f"/dev/{name}" for name in ("null", "zero", "urandom", "random")]
    return [
        *(Bind(path, path, read_only=True) for path in ("/usr", *links)),
        *python,
        *(Bind(path, path) for path in devices),
    ]


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _base(root: Path) -> None:
    """Lay out the folders of a system, empty but for settings: its programs are the machine's."""
    for name in ("usr", "proc", "dev", "tmp", "etc", "opt", "run", "home", "var/lib", "var/tmp", "var/mail"):
        (root / name).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    root.chmod(0o755)
    for name in LINKED:
        here = Path("/") / name
        if here.is_symlink():
            (root / name).symlink_to(here.readlink())
        elif here.is_dir():
            (root / name).mkdir()
    for name in ETC:
        here = Path("/etc") / name
        if here.is_dir():
            shutil.copytree(here, root / "etc" / name, symlinks=True)
        elif here.exists():
            shutil.copy2(here, root / "etc" / name)
    (root / "etc" / "pip.conf").write_text("[global]\nno_index = true\nfind_links = /wheels\n")


def _copy_context(source: Path, target: Path, ignored: list[str]) -> None:
    """Copy what is in a folder into another, without what .dockerignore's patterns name. Raises OSError."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        inside = Path(folder).relative_to(source)
        return {name for name in names if any(_matches(inside / name, pattern) for pattern in ignored)}

    shutil.copytree(source, target, symlinks=True, ignore=left_out, dirs_exist_ok=True)


def _matches(path: Path, pattern: str) -> bool:
    """Say whether a pattern of .dockerignore names a path: from the top, or with **/ anywhere."""
    if pattern.startswith("**/"):
        return fnmatch(path.name, pattern.removeprefix("**/"))
    return len(path.parts) == len(Path(pattern).parts) and fnmatch(str(path), pattern)
