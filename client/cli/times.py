"""Durations and times as people write them on the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import typer

from tarry.client.start_position import Start

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+")


def parse_duration_ms(text: str | int) -> int:
    """Return the milliseconds of ``10s``, ``1m30s``, ``1.5h``, ``250ms``, ``0s``; a number as it is.

    Raises typer.BadParameter for anything else, a bare number in text included.
    """
    if isinstance(text, int):
        return text
    if not _DURATION.fullmatch(text):
        raise typer.BadParameter(f"{text!r} is no duration: write 250ms, 10s, 1m30s, 2h, 7d")
    total = sum(Decimal(number) * UNITS_MS[unit] for number, unit in _PART.findall(text))
    if total != int(total):
        raise typer.BadParameter(f"{text!r} is not a whole number of milliseconds")
    return int(total)


def duration_option(*names: str, **settings: Any) -> Any:
    """Return an option whose value is a duration, in milliseconds."""
    return typer.Option(*names, parser=parse_duration_ms, metavar="DURATION", **settings)


def parse_time_ms(text: str) -> int:
    """Return the milliseconds since the epoch of an ISO 8601 time, or of milliseconds.

    A time without an offset is UTC. Raises typer.BadParameter for anything else.
    """
    if re.fullmatch(r"-?\d{9,}", text):
        return int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no time: write 2026-11-21T08:30:00Z, or milliseconds since the epoch"
        ) from None
    if time.tzinfo is None:
        time = time.replace(tzinfo=UTC)
    seconds = int(time.replace(microsecond=0).timestamp())
    return seconds * 1_000 + time.microsecond // 1_000


def time_option(*names: str, **settings: Any) -> Any:
    """Return an option whose value is a time, in milliseconds since the epoch."""
    return typer.Option(*names, parser=parse_time_ms, metavar="TIME", **settings)


def parse_start(text: str) -> Start:
    """Return ``earliest``, ``latest``, or a time as ``parse_time_ms`` reads it."""
    match text:
        case "earliest" | "latest":
            return text
        case _:
            return parse_time_ms(text)


def start_option(*names: str, **settings: Any) -> Any:
    """Return an option whose value is the position at which a group begins."""
    return typer.Option(*names, parser=parse_start, metavar="WHERE", **settings)


def time_text(time_ms: int) -> str:
    """Return a time as ISO 8601 in UTC with milliseconds; years beyond 9999 as milliseconds."""
    seconds, ms = divmod(time_ms, 1_000)
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms:03d}Z"
    except (ValueError, OverflowError):
        return str(time_ms)


def duration_text(duration_ms: int) -> str:
    """Return a duration in its two largest units: 850ms, 1.250s, 1m30s, 2h5m, 3d4h."""
    if abs(duration_ms) < 1_000:
        return f"{duration_ms}ms"
    sign, left = ("-", -duration_ms) if duration_ms < 0 else ("", duration_ms)
    if left < 60_000:
        seconds, ms = divmod(left, 1_000)
        return f"{sign}{seconds}.{ms:03d}s" if ms else f"{sign}{seconds}s"
    parts: list[tuple[int, str]] = []
    for unit in ("d", "h", "m", "s"):
        count, left = divmod(left, UNITS_MS[unit])
        if count or parts:
            parts.append((count, unit))
    return sign + "".join(f"{count}{unit}" for count, unit in parts[:2] if count)
