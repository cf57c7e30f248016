"""Wheels of what is installed here, so that pip in an image resolves and installs without a registry."""

from __future__ import annotations

import tomllib
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


def wheels_for(project: Path, folder: Path, extras: Iterable[str]) -> None:
    """Put a wheel of each package into the folder that a project with these extras needs, its build too."""
    table = tomllib.loads((project / "pyproject.toml").read_text())
    wanted = [*table["build-system"]["requires"], *table["project"]["dependencies"]]
    for extra in extras:
        wanted += table["project"]["optional-dependencies"][extra]
    for found in closure(wanted):
        _pack(found, folder)


def closure(wanted: Iterable[str]) -> list[Distribution]:
    """Return the installed packages of these requirements, and those that they need in turn."""
    found: dict[str, Distribution] = {}
    waiting = [Requirement(text) for text in wanted]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        extras = ["", *requirement.extras]
        if name not in found:
            found[name] = distribution(name)
        elif extras == [""]:
            continue
        for text in found[name].requires or ():
            each = Requirement(text)
            if each.marker is None or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(each)
    return list(found.values())


def _pack(package: Distribution, folder: Path) -> None:
    lines = (package.read_text("WHEEL") or "").splitlines()
    tags = [line.removeprefix("Tag: ").split("-") for line in lines if line.startswith("Tag: ")]
    tag = "-".join(".".join(dict.fromkeys(column)) for column in zip(*tags, strict=True))
    name = canonicalize_name(package.metadata["Name"]).replace("-", "_")
    files = [
        file for file in package.files or () if ".." not in file.parts and "__pycache__" not in file.parts
    ]
    with zipfile.ZipFile(folder / f"{name}-{package.version}-{tag}.whl", "w") as wheel:
        for file in files:
            if file.name == "RECORD":
                wheel.writestr(str(file), "".join(f"{each},,\n" for each in files))
            elif file.name not in {"INSTALLER", "REQUESTED", "direct_url.json"}:
                wheel.write(str(file.locate()), str(file))
