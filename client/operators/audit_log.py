"""Lines of the nodes' audit logs, read backwards, of one node and of all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from tarry.client.errors import InvalidQuery, NotPermitted, Overloaded, TarryError
from tarry.proto import tarry_operator_pb2 as pb

CALLS_MAX: Final = 40
"""Of one node for one page: 10 MB of its log; a page may have no line then, and the next one goes on."""
WAITS_MAX: Final = 5
"""For a node that has as many readings under way as it allows; each takes it some 10 ms."""
READING: Final = "ReadAudit"
"""The call that reads the logs, and is recorded, too."""


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A line of a node's audit log."""

    at_ms: int
    """By the node's clock."""
    node: str
    stage: str
    """``asked``, before the call was done; ``answered``; ``started``, of a node."""
    call: str = ""
    """An id, by which the two lines of a call belong together."""
    method: str = ""
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Long ones cut."""
    token: str = ""
    """Its name."""
    certificate: tuple[str, ...] = ()
    address: str = ""
    """Of who has called."""
    via: str = ""
    """The node that passed the call on."""
    result: str = ""
    """Of an answer: ``OK``, a reason, or ``CANCELLED``."""
    text: str = ""
    left_out: int = 0
    """Refusals since the line before that have no line."""

    @classmethod
    def of(cls, text: str) -> AuditLine:
        """Return the line of a JSON object. Raises ValueError."""
        read = json.loads(text)
        try:
            at_ms = round(datetime.fromisoformat(read["at"]).timestamp() * 1_000)
        except (KeyError, TypeError) as error:
            raise ValueError(f"the line has no time: {error}") from None
        texts = {
            name: str(read.get(name, ""))
            for name in ("node", "stage", "call", "method", "token", "address", "result", "text")
        }
        arguments, left_out = read.get("arguments", {}), read.get("left_out")
        return cls(
            at_ms,
            **texts,
            arguments=arguments if isinstance(arguments, dict) else {"": arguments},
            certificate=_names(read.get("certificate")),
            via=", ".join(_names(read.get("via"))),
            left_out=left_out if isinstance(left_out, int) else 0,
        )


def _names(value: object) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),) if value else ()


@dataclass(frozen=True, slots=True)
class AuditPage:
    """Lines of one node, the newest first."""

    node: str
    enabled: bool
    """It writes an audit log."""
    lines: tuple[AuditLine, ...]
    cursor: str
    """Goes on with what is older; empty: there is nothing older."""
    looked_to_ms: int
    """All lines of that time or later have been looked at; 0: none."""
    unreadable: int
    """Lines looked at that are none, as one that a crash has cut."""

    @classmethod
    def of(cls, response: pb.ReadAuditResponse) -> AuditPage:
        """Return what a node has answered."""
        lines, unreadable = list[AuditLine](), response.unreadable
        for text in response.lines:
            try:
                lines.append(AuditLine.of(text))
            except ValueError:
                unreadable += 1
        return cls(
            response.node,
            response.has_audit,
            tuple(lines),
            response.cursor,
            response.looked_to_ms,
            unreadable,
        )


@dataclass(frozen=True, slots=True)
class AuditTrail:
    """Lines of all nodes, the newest first."""

    lines: tuple[AuditLine, ...]
    older_to_ms: int
    """As ``to_ms`` it gives the lines that follow; 0: there are none."""
    without: tuple[str, ...]
    """Nodes that write no audit log, by name."""
    silent: Mapping[str, str]
    """Why a node has not answered, by address; its lines are missing."""
    unreadable: int


async def read_node(
    read: Callable[[str], Awaitable[AuditPage]],
    lines_max: int,
    *,
    readings: bool = True,
    wait: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> AuditPage | TarryError:
    """Return a node's newest lines, so many if there are, by calls of ``read`` with cursors; or why not.

    ``readings``: also those of readings of the log; ``wait``: for so many seconds, where the node has no room
    for another reading. Raises NotPermitted, InvalidQuery.
    """
    lines, unreadable, looked_to_ms, cursor, waits = list[AuditLine](), 0, 0, "", WAITS_MAX
    try:
        for _ in range(CALLS_MAX):
            while True:
                try:
                    page = await read(cursor)
                    break
                except Overloaded as error:
                    if not waits:
                        raise
                    waits -= 1
                    await wait((error.retry_ms or 1_000) / 1_000)
            lines += [line for line in page.lines if readings or line.method != READING]
            unreadable += page.unreadable
            cursor, looked_to_ms = page.cursor, page.looked_to_ms or looked_to_ms
            if not cursor or len(lines) >= lines_max:
                break
    except (NotPermitted, InvalidQuery):
        raise
    except TarryError as error:
        return error
    return replace(page, lines=tuple(lines), unreadable=unreadable, looked_to_ms=looked_to_ms)


async def read_all(
    addresses: Iterable[str], node: Callable[[str], Awaitable[AuditPage | TarryError]]
) -> AuditTrail:
    """Return the lines of the nodes at these addresses. Raises NotPermitted."""
    at = list(addresses)
    return merged(dict(zip(at, await asyncio.gather(*map(node, at)), strict=True)))


def merged(answers: Mapping[str, AuditPage | TarryError]) -> AuditTrail:
    """Return the lines of several nodes as far back as all of them have been read.

    A node that has answered at two addresses, as at a name of its own and at one of a proxy, counts once.
    """
    of_node = {answer.node: answer for answer in answers.values() if isinstance(answer, AuditPage)}
    pages = list(of_node.values())
    read_to_ms = max((page.looked_to_ms for page in pages if page.cursor), default=0)
    lines = [line for page in pages for line in page.lines if line.at_ms >= read_to_ms]
    return AuditTrail(
        tuple(sorted(lines, key=lambda line: line.at_ms, reverse=True)),
        read_to_ms,
        tuple(page.node for page in pages if not page.enabled),
        {
            address: f"{answer.reason}: {answer.text}"
            for address, answer in answers.items()
            if isinstance(answer, TarryError)
        },
        sum(page.unreadable for page in pages),
    )
