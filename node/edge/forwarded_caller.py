"""The caller of a call, also where another node passes it on."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from tarry.node.edge.grpc_types import CallContext, metadata_value
from tarry.node.edge.peer_auth import certified_names

FORWARDED_KEY: Final = "tarry-forwarded"
"""Metadata of a forwarded call: it is not forwarded again."""
CALLER_KEY: Final = "tarry-caller-bin"
"""Who has called the node that forwards the call; JSON."""
NODE_KEY: Final = "tarry-node"
"""The peer token, by which a node that forwards such a call shows that it is one."""
NAMES_MAX: Final = 8
CHARS_MAX: Final = 200
SHOWN_CHARS_MAX: Final = 100
_ODD: Final = re.compile(r"[^0-9A-Za-z.:\[\]%_/-]")
"""What no address has. One that another node tells, if it is one, is any text."""

IsNode: TypeAlias = Callable[[CallContext], bool]
"""Whether the caller of a forwarded call has shown that it is a node."""


@dataclass(frozen=True, slots=True)
class Caller:
    address: str
    certificate: tuple[str, ...] = ()
    """The names of its certificate; none: it has shown none."""
    via: tuple[str, ...] = ()
    """The address of the node that passed the call on, then the names of that one's certificate."""


def named(context: CallContext) -> dict[str, Any]:
    """Return address and names of who has opened the connection, as values of JSON."""
    names = sorted(name[:CHARS_MAX] for name in certified_names(context))
    return {"address": str(context.peer())[:CHARS_MAX], "certificate": names[:NAMES_MAX]}


def caller_of(context: CallContext, is_node: IsNode) -> Caller:
    """Return who has called; what another than a node says of a caller counts for nothing."""
    here = named(context)
    metadata = context.invocation_metadata()
    said = metadata_value(metadata, CALLER_KEY)
    if isinstance(said, bytes) and metadata_value(metadata, FORWARDED_KEY) and is_node(context):
        there = _parsed(said)
        return Caller(*there, via=(here["address"], *here["certificate"]))
    return Caller(here["address"], tuple(here["certificate"]))


def _parsed(said: bytes) -> tuple[str, tuple[str, ...]]:
    try:
        found = json.loads(said)
        names = tuple(str(name)[:CHARS_MAX] for name in found["certificate"][:NAMES_MAX])
        return str(found["address"])[:CHARS_MAX], names
    except (ValueError, KeyError, TypeError):
        return "not said", ()


def shown_address(address: str) -> str:
    """Return an address that gRPC gave, as host:port and fit to be shown: cut, odd characters as ``?``."""
    text = unquote(address[:CHARS_MAX]).removeprefix("ipv4:").removeprefix("ipv6:")
    return _ODD.sub("?", text)[:SHOWN_CHARS_MAX]
