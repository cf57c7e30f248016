"""A gateway's TOML file: tables of which every key is known, and what is wrong with one."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError


class Table(BaseModel):
    """A table of the file: every key is known, and of its type."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Whole = TypeVar("Whole", bound=Table)


def read(path: Path, whole: type[Whole]) -> Whole:
    """Return the file as a table of this type. Raises OSError, and ValueError with a line for each fault."""
    try:
        given: dict[str, Any] = tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"it is no TOML: {error}") from None
    try:
        return whole.model_validate(given)
    except ValidationError as error:
        faults = [
            f"{'.'.join(map(str, fault['loc'])) or 'the file'}: {fault['msg'].removeprefix('Value error, ')}"
            for fault in error.errors(include_url=False, include_input=False, include_context=False)
        ]
        raise ValueError("\n".join(faults)) from None
