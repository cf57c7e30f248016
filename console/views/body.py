"""A message's body as a person reads it: text, JSON or hexadecimal."""

from __future__ import annotations

import json
from typing import Final

SHOWN_BYTES_MAX: Final = 64 * 1024
JSON_CHARACTERS_MAX: Final = 256 * 1024
"""Of JSON with its lines indented: what is nested deeply grows much."""
FORMS: Final = ("text", "json", "hex")


def form_of_body(body: bytes, asked: str) -> str:
    """Return the form to show: the one asked for, or the one that suits the body."""
    if asked in FORMS:
        return asked
    try:
        body.decode()
    except UnicodeDecodeError:
        return "hex"
    return "json" if body[:1] in (b"{", b"[") and _json(body) is not None else "text"


def body_text(body: bytes, form: str) -> str:
    """Return the first 64 KiB of a body in a form; in JSON what is none, or too large, is shown as text."""
    if form == "hex":
        return "\n".join(_hex_lines(body[:SHOWN_BYTES_MAX]))
    found = _json(body) if form == "json" else None
    return body[:SHOWN_BYTES_MAX].decode(errors="replace") if found is None else found


def _json(body: bytes) -> str | None:
    """Return JSON with its lines indented; None where it is none, or would be too large."""
    if len(body) > SHOWN_BYTES_MAX:
        return None
    parts, length = [], 0
    try:
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(body.decode())):
            parts.append(part)
            length += len(part)
            if length > JSON_CHARACTERS_MAX:
                return None
        text = "".join(parts)
        text.encode()  # a lone half of a pair, as JSON may have it, cannot be shown
    except (ValueError, RecursionError):
        return None
    return text


def _hex_lines(body: bytes) -> list[str]:
    lines = []
    for start in range(0, len(body), 16):
        part = body[start : start + 16]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{start:08x}  {part.hex(' '):<47}  {shown}")
    return lines
