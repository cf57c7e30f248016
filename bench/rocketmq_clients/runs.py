"""A program of RocketMQ's client for one language, run to its end; what it tells."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

from tarry.client.local.rocketmq_programs import command_of

PROGRAMS: Final = Path(__file__).parent / "programs"
ERRORS: Final = "errors"
"""The file in a program's folder that has what it writes on stderr."""
PARTS: Final = ("rate", "single", "late", "crowd")
TAKES_S: Final = 400.0
"""The longest for which a program may run."""


class ProgramFailed(RuntimeError):
    """A program ended with an error, did not end, or did not tell all; the text has what it said last."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The work of each program, as `programs/measure.py` describes it: its arguments, in this order."""

    tasks: int = 32
    rate_ms: int = 5_000
    singles: int = 300
    per_s: int = 500
    late_ms: int = 8_000
    crowd: int = 20_000
    lead_ms: int = 3_000


async def told_by(
    language: str, address: str, topic: str, plan: Plan, folder: Path
) -> Mapping[str, list[Any]]:
    """Return all parts that a program tells, by name. Raises ProgramFailed, NotBuilt."""
    home = folder / language
    home.mkdir()
    told = parts(await printed_by(language, address, topic, plan, home))
    if absent := [name for name in PARTS if name not in told]:
        raise ProgramFailed(f"{language} has not told: {', '.join(absent)}{_tail(home)}")
    if not told["rate"][0]:
        raise ProgramFailed(f"{language} has sent nothing{_tail(home)}")
    return told


async def printed_by(language: str, address: str, topic: str, plan: Plan, home: Path) -> str:
    """Run a program in a folder of its own; return what it prints. Raises ProgramFailed, NotBuilt."""
    command = await command_of(language, PROGRAMS, "measure", home)
    with (home / ERRORS).open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *command.words,
            address,
            topic,
            *map(str, astuple(plan)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            cwd=home,
            env={**os.environ, **command.environment},
        )
    try:
        printed, _ = await asyncio.wait_for(process.communicate(), TAKES_S)
    except TimeoutError:
        raise ProgramFailed(f"{language} has not ended after {TAKES_S:.0f} s{_tail(home)}") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise ProgramFailed(f"{language} ended with {process.returncode}{_tail(home)}")
    return printed.decode(errors="replace")


def parts(printed: str) -> Mapping[str, list[Any]]:
    """Return the parts that a program has printed among other lines, by name; of one told twice the last."""
    lines = (json.loads(line) for line in printed.splitlines() if line.startswith('["'))
    return {name: values for name, *values in lines}


def _tail(home: Path) -> str:
    return f":\n{(home / ERRORS).read_text(errors='replace')[-2_000:]}"
