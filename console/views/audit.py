"""Operators' calls as the nodes' audit logs have them: what an address asks for, and a row for each call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from tarry.client.cli.times import time_text
from tarry.client.operators.audit_log import READING, AuditLine
from tarry.console.forms import read_time
from tarry.console.views import cells

FIELDS: Final = ("who", "what", "from", "to")
"""Of the form that chooses calls."""
CHARACTERS_MAX: Final = 200
COLUMNS: Final = ("Asked for at", "Node", "Call", "By", "From", "Of", "Result")
OPEN: Final = "none yet, or on a newer page"


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of calls by an address; ``faults``: why a field of it cannot be read, by its name."""

    filled: Mapping[str, str]
    from_ms: int
    to_ms: int
    faults: Mapping[str, str]

    @property
    def who(self) -> str:
        """Name of a token; empty: all."""
        return self.filled.get("who", "")

    @property
    def what(self) -> str:
        """Name of a call; empty: all but readings of the log."""
        return self.filled.get("what", "")

    def older(self, to_ms: int) -> str:
        """Return the address of what is older, of the same choice."""
        return "?" + urlencode({**self.filled, "to": time_text(to_ms)})


def choice_of(values: Mapping[str, str]) -> Choice:
    """Return what an address asks for."""
    filled = {name: values.get(name, "").strip()[:CHARACTERS_MAX] for name in FIELDS}
    filled = {name: text for name, text in filled.items() if text}
    faults, times_ms = dict[str, str](), dict[str, int]()
    for name in ("from", "to"):
        try:
            times_ms[name] = read_time(filled[name]) if name in filled else 0
        except ValueError as error:
            faults[name] = str(error)
    return Choice(filled, times_ms.get("from", 0), times_ms.get("to", 0), faults)


def call_rows(lines: Iterable[AuditLine], what: str = "") -> list[tuple[object, ...]]:
    """Return a row for each call, the newest first; its two lines may be on two pages.

    ``lines``: the newest first. Readings of the log are left out unless ``what`` names them.
    """
    rows, answered = list[tuple[object, ...]](), dict[tuple[str, str], AuditLine]()
    shown = [line for line in lines if line.method != READING or what == READING]
    asked = {(line.node, line.call) for line in shown if line.stage == "asked"}
    for line in shown:
        call = line.node, line.call
        if line.stage == "answered" and call in asked:
            answered[call] = line
        else:
            rows.append(_row(line, answered.get(call)))
    return rows


def _row(line: AuditLine, answer: AuditLine | None) -> tuple[object, ...]:
    return (
        cells.time(line.at_ms),
        line.node,
        line.method or f"the node {line.stage}",
        line.token or ", ".join(line.certificate),
        f"{line.address} via {line.via}" if line.via else line.address,
        json.dumps(line.arguments, ensure_ascii=False) if line.arguments else "",
        _result(answer or line) if line.method else "",
    )


def _result(line: AuditLine) -> object:
    if line.stage == "asked":
        return cells.badge(OPEN, "warn")
    more = f" ({line.left_out:,} more)" if line.left_out else ""
    text = f"{line.result}: {line.text}" if line.text else line.result
    return cells.badge(text + more, "good" if line.result == "OK" else "bad")
