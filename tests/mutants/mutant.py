"""One mutant: a line that guards safety, changed, and the tests that must notice."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("client", "console", "gateway", "node", "proto", "replication", "wheel")
"""Where mutants live: what runs in production."""


class PatternLost(Exception):
    """The text that a mutant changes is not in the tree exactly once."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """A patch by pattern: it survives a move of the code, and is told when the code changes."""

    name: str
    harm: str
    """What the cluster would do with it."""
    before: str
    """Text that occurs once in all product files; the mutant has `after` in its place."""
    after: str
    noticed_by: tuple[str, ...]
    """Arguments for pytest: at least one of these tests must fail."""
    argued: str = ""
    """Why no test can notice it; then none has to."""


def product_sources(root: Path = ROOT) -> list[Path]:
    """Return the product's modules, without generated code."""
    return [
        path
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*.py"))
        if "_pb2" not in path.name
    ]


def locate(mutant: Mutant, texts: dict[Path, str]) -> Path:
    """Return the one file with the mutant's text. Raises PatternLost."""
    found = [(path, text.count(mutant.before)) for path, text in texts.items() if mutant.before in text]
    if len(found) != 1 or found[0][1] != 1:
        places = ", ".join(f"{path.name} × {count}" for path, count in found) or "nowhere"
        raise PatternLost(f"{mutant.name}: its text is in {places}; it has to be in one place, once")
    return found[0][0]


def mutated(mutant: Mutant, text: str) -> str:
    """Return a file's text with the mutant in it."""
    return text.replace(mutant.before, mutant.after)
