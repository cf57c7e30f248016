"""Listings of messages: what an address asks for, and the addresses of pages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast
from urllib.parse import urlencode

from tarry.client.aio import ListedMessage, ListedState
from tarry.client.queries.listing import ListOptions
from tarry.console.forms import read_time

FIELDS: Final = ("tag", "key", "key_prefix", "due_from", "due_to", "state", "group")
"""Of the form that chooses messages."""
OF_GROUPS: Final = (ListedState.WAITING, ListedState.IN_HAND, ListedState.SETTLED)
"""States that only a group gives to messages."""
CHARACTERS_MAX: Final = 1_024
"""Of a field, and of a cursor."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Choice of messages by an address; ``faults``: why a field of it cannot be read, by its name."""

    filled: Mapping[str, str]
    cursor: str
    options: ListOptions
    faults: Mapping[str, str]

    def address(self, cursor: str) -> str:
        """Return the address of the page at a cursor, of the same choice."""
        return "?" + urlencode({**self.filled, "cursor": cursor})


def choice_of(values: Mapping[str, str]) -> Choice:
    """Return what an address asks for; tags and keys are set off by spaces, of which any will do."""
    filled = {name: values.get(name, "").strip()[:CHARACTERS_MAX] for name in FIELDS}
    filled = {name: text for name, text in filled.items() if text}
    faults, times_ms = dict[str, str](), dict[str, int]()
    for name in ("due_from", "due_to"):
        try:
            times_ms[f"{name}_ms"] = read_time(filled[name]) if name in filled else 0
        except ValueError as error:
            faults[name] = str(error)
    state = filled.get("state", "")
    if state and state not in list(ListedState):
        faults["state"] = f"there is no state {state[:40]!r}"
    elif state in OF_GROUPS and "group" not in filled:
        faults["group"] = f"{state} is what a message is to a group: name one"
    options = {
        "tags": filled.get("tag", "").split(),
        "keys": filled.get("key", "").split(),
        "key_prefix": filled.get("key_prefix"),
        **times_ms,
        "states": [state] if state else [],
        "group": filled.get("group"),
    }
    only = cast(ListOptions, {name: value for name, value in options.items() if value})
    return Choice(filled, values.get("cursor", "")[:CHARACTERS_MAX], only, faults)


def notes_of(message: ListedMessage) -> str:
    """Return what there is to say of a message beside its columns."""
    notes = []
    if message.group:
        reason = message.reason.replace("_", " ")
        notes.append(f"delivery {message.attempt} to {message.group}, {reason}")
    if message.damaged:
        notes.append("damaged: its record cannot be read now")
    notes += [f"{name}={value}" for name, value in message.properties.items()]
    return ", ".join(notes)
