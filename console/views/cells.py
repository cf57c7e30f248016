"""Cells of tables: links, times and durations as HTML."""

from __future__ import annotations

from urllib.parse import quote

from markupsafe import Markup

from tarry.client.cli.times import duration_text, time_text


def path(*parts: str) -> str:
    """Return the address of a page; names in it are escaped."""
    return "/" + "/".join(quote(part, safe="") for part in parts)


def link(text: str, *parts: str) -> Markup:
    """Return a link to the page of these parts."""
    return Markup('<a href="{}">{}</a>').format(path(*parts), text)


def link_to(text: str, address: str) -> Markup:
    """Return a link to an address."""
    return Markup('<a href="{}">{}</a>').format(address, text)


def time(at_ms: int) -> Markup:
    """Return a time, which the browser shows as the visitor has chosen; 0: none."""
    if not at_ms:
        return Markup("")
    text = time_text(at_ms)
    return Markup('<time datetime="{}" data-ms="{}">{}</time>').format(text, at_ms, text)


def duration(ms: float) -> str:
    """Return a duration."""
    return duration_text(round(ms))


def size(count: int) -> str:
    """Return bytes, in the unit in which they are a number of four digits at most."""
    value, units = float(count), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1_024 and len(units) > 1:
        value, units = value / 1_024, units[1:]
    return f"{value:,.0f} B" if units[0] == "B" else f"{value:,.1f} {units[0]}"


def badge(text: str, kind: str) -> Markup:
    """Return a word set off: ``good``, ``bad``, ``warn`` or ``plain``."""
    return Markup('<span class="badge {}">{}</span>').format(kind, text)
