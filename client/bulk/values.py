"""Values of exports and imports: what is to be read, and how far it is. Nothing here needs pyarrow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit, urlunsplit

TARGETS: Final = (
    "id",
    "topic",
    "due",
    "body",
    "tags",
    "keys",
    "properties",
    "ordering_key",
    "idempotency_key",
)
"""What a column of a source may stand for; it has the target's own name where nothing else is said."""
ENCODINGS: Final = ("text", "base64", "hex")
UNITS: Final = ("auto", "ms", "s")


class InvalidSource(ValueError):
    """The source cannot be read as it is described: the text says what to give."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Meaning of a source's columns."""

    names: Mapping[str, str] = field(default_factory=dict)
    """The source's column of a target (TARGETS)."""
    topic: str = ""
    """Of all rows, where they have no column of topics."""
    due_unit: str = "auto"
    """Of numbers: ``ms``, ``s`` or ``auto``. Texts may also be ISO 8601, in UTC where they name no offset."""
    body: str = "text"
    """``text`` as they are, octets too; ``base64`` or ``hex``."""
    mark: str = ""
    """Name of the source; each message then gets the properties imported_from and imported_id."""

    def told(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {**asdict(self), "names": dict(self.names)}


@dataclass(frozen=True, slots=True)
class Files:
    """An export, or a foreign CSV or Parquet file, or a folder of Parquet files."""

    path: Path

    def told(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {"path": str(self.path.resolve())}


@dataclass(frozen=True, slots=True)
class RedisSet:
    """A sorted set of Redis: its scores are due times, its members bodies, or names of them."""

    url: str
    """``redis://host:port/db``."""
    key: str
    hash: str = ""
    """A hash that has the body of each member; or:"""
    prefix: str = ""
    """With the member behind it, the key of the string that is its body."""

    def told(self) -> dict[str, Any]:
        """Return it as JSON values, without a password."""
        return {**asdict(self), "url": without_password(self.url)}


@dataclass(frozen=True, slots=True)
class PostgresqlTable:
    """A table of PostgreSQL, or the rows of a query."""

    url: str
    """``postgresql://user@host:port/database``."""
    table: str = ""
    """``jobs`` or ``schema.jobs``; or:"""
    query: str = ""
    where: str = ""
    """A condition in SQL, of a table."""

    def told(self) -> dict[str, Any]:
        """Return it as JSON values, without a password."""
        return {**asdict(self), "url": without_password(self.url)}


Source: TypeAlias = Files | RedisSet | PostgresqlTable
Overdue: TypeAlias = Literal["now", "skip"]
Unsure: TypeAlias = Literal["stop", "send", "skip"]


@dataclass(frozen=True, slots=True)
class Exported:
    """An export as far as it is."""

    path: str
    cluster: str
    node: str
    """That was asked."""
    index: int
    """Of the last log entry in it: all that was applied by then, and nothing later."""
    now_ms: int
    pending: int
    """Messages of the topics that were asked for, whenever they are due."""
    messages: int = 0
    """Rows written."""
    retries: int = 0
    """Retries and dead letters that wait as well: they are left out."""
    half_messages: int = 0
    """Of open transactions: they are left out, for the producers that know their ends are this cluster's."""
    unreadable: int = 0
    """Messages that are left out because no node has their records whole."""
    unreadable_ids: tuple[str, ...] = ()
    """The first 1,000 of these."""
    done: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """An import as far as it is: rows = taken + refused + skipped."""

    rows: int
    """Of the source, that are decided; while a source is copied 0."""
    total: int | None
    """Of the source, where it says how many there are; while it is copied, those copied."""
    taken: int
    """Scheduled, or found by their idempotency keys."""
    refused: int
    skipped: int
    """Overdue, where these are not wanted."""
    folder: str
    """Of its progress, with the id map in ``ids/``."""
    done: bool = False


@dataclass(frozen=True, slots=True)
class DryRun:
    """Counts of an import of which nothing is sent, as far as rows have been looked at."""

    rows: int
    total: int | None
    messages: int
    """That would be sent. The cluster may refuse some by its limits."""
    overdue: int
    """Of them, due before now."""
    refused: int
    skipped: int
    body_bytes: int
    first_due_ms: int | None
    last_due_ms: int | None
    topics: Mapping[str, int]
    """Messages of the 100 topics that have most."""
    by_hour: Mapping[int, int]
    """Messages of the first 48 hours that have any, by the hour's beginning in ms."""
    faults: Mapping[str, str]
    """The first row of each reason, with the text."""
    done: bool = False


def without_password(url: str) -> str:
    """Return a URL as it may be noted: no query that names a password either."""
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")
    except ValueError:
        return f"{url.partition(':')[0]}://…"
    user = host[0].partition(":")[0]
    query = parts.query if "passw" not in unquote(parts.query).lower() else ""
    return urlunsplit(parts._replace(netloc=f"{user}@{host[2]}" if user else host[2], query=query))
