"""A Dockerfile as values: its stages and their instructions, as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace

KNOWN = {"FROM", "WORKDIR", "COPY", "RUN", "ENV", "USER", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"}


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The arguments, of a JSON array or of a plain line."""
        if self.rest.startswith("["):
            words: list[str] = json.loads(self.rest)
            return words
        return shlex.split(self.rest)


@dataclass(frozen=True)
class Stage:
    """What is built on one FROM; `name` is empty where it has none."""

    base: str
    name: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True)
class Settings:
    """What instructions say of the containers to come, and of the next RUN."""

    environment: Mapping[str, str]
    folder: str = "/"
    user: str = "0"
    volumes: tuple[str, ...] = ()
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()

    def after(self, instruction: Instruction) -> Settings:
        """Return them as they are after an instruction; those that only build change none."""
        words = instruction.words
        match instruction.word:
            case "ENV":
                pairs = dict(word.split("=", 1) for word in words)
                expanded = {key: self.expanded(value) for key, value in pairs.items()}
                return replace(self, environment={**self.environment, **expanded})
            case "WORKDIR":
                return replace(self, folder=words[0])
            case "USER":
                return replace(self, user=words[0])
            case "VOLUME":
                return replace(self, volumes=(*self.volumes, *words))
            case "ENTRYPOINT":
                return replace(self, entrypoint=_exec_form(instruction), command=())
            case "CMD":
                return replace(self, command=_exec_form(instruction))
        return self

    def expanded(self, text: str) -> str:
        """Return a text with the environment's variables put in."""
        return re.sub(r"\$\{?(\w+)\}?", lambda found: self.environment.get(found[1], ""), text)


def stages(text: str) -> list[Stage]:
    """Parse a Dockerfile. Raises ValueError for an instruction that is not known here."""
    joined = re.sub(r"\\\n", " ", re.sub(r"^\s*#.*\n", "", text, flags=re.MULTILINE))
    found: list[Stage] = []
    for line in filter(str.strip, joined.splitlines()):
        word, _, rest = line.strip().partition(" ")
        instruction = Instruction(word.upper(), rest.strip())
        if instruction.word not in KNOWN:
            raise ValueError(f"nothing here carries this out: {line}")
        if instruction.word == "FROM":
            base, *named = instruction.words
            found.append(Stage(base, named[1] if named else "", ()))
        else:
            last = found[-1]
            found[-1] = replace(last, instructions=(*last.instructions, instruction))
    return found


def _exec_form(instruction: Instruction) -> tuple[str, ...]:
    if not instruction.rest.startswith("["):
        raise ValueError(f"{instruction.word} is taken as a JSON array only, as signals want it")
    return tuple(instruction.words)
