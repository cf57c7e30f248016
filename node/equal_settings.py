"""Settings of the configuration that have to be equal on all nodes: told in hellos, compared by the leader.

What is of the cluster's settings is not among them, since files do not count for it, nor what only bounds one
machine: its disk, its ledger, its connections.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from tarry.node.config import CheckTimes, Consensus, Limits, NodeConfig
from tarry.proto.tarry_peer_pb2 import SettingList

OF_MACHINES: Final = frozenset({"disk_free_bytes_min"})
"""Limits that are of one machine."""
KEYS: Final = (
    "shard", "topics_auto_create", "groups_auto_create", "upgrade.finish",
    *(f"consensus.{name}" for name in Consensus.model_fields),
    *(f"limits.{name}" for name in Limits.model_fields if name not in OF_MACHINES),
    *(
        f"delivery.{name}"
        for name in (
            "lease_ms_min", "lease_ms_max", "wait_ms_max", "resume_ms", "in_hand_bytes_max",
            "reserved_messages_max", "batch_messages_max", "batch_bytes_max",
        )
    ),
    "transactions.check_after_ms", "transactions.check_pauses_ms", "transactions.checks_max",
    "transactions.checks_per_s_max", "transactions.groups",
    "dispatch.clock_offset_ms_max", "dispatch.clock_wrong_ms_max",
)  # fmt: skip
NAMES_MAX: Final = 1_000
"""That are looked at of a peer's."""
VALUE_CHARS_MAX: Final = 200
DIFFERENCES_MAX: Final = 100


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that has other values on two nodes."""

    key: str
    node: str
    value: str
    other: str
    other_value: str


def told(config: NodeConfig) -> bytes:
    """Return what a node tells the others: a SettingList, serialized."""
    values = {key: _value(config, key) for key in sorted(KEYS)}
    return SettingList(names=values.keys(), values=values.values()).SerializeToString()


def _value(config: NodeConfig, key: str) -> str:
    section, _, name = key.rpartition(".")
    value = getattr(getattr(config, section) if section else config, name)
    if isinstance(value, dict):
        return _tables(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _tables(tables: Mapping[str, CheckTimes]) -> str:
    """Return tables of producer groups as JSON; of what is too long to be shown whole, a digest.

    What is as by default is left out, so that a version with one key more tells of equal files the same.
    """
    text = json.dumps(
        {name: table.model_dump(exclude_defaults=True) for name, table in tables.items()}, sort_keys=True
    )
    if len(text) <= VALUE_CHARS_MAX:
        return text
    return f"{len(tables)} tables, sha256 {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def heard(settings: bytes) -> dict[str, str]:
    """Return what a node has told, by key, as far as it can be read; it may be of any version, or hostile."""
    try:
        listed = SettingList.FromString(settings)
    except DecodeError:
        return {}
    pairs = zip(listed.names[:NAMES_MAX], listed.values[:NAMES_MAX], strict=False)
    return {name: _shown(value) for name, value in pairs}


def _shown(value: str) -> str:
    """Return a value as it may be logged and printed: a terminal does as control characters say."""
    return "".join(char if char.isprintable() else "?" for char in value[:VALUE_CHARS_MAX])


def differences(node: str, own: bytes, others: Mapping[str, bytes]) -> list[Difference]:
    """Return what differs between a node and others, of the keys that both know; of many, the first."""
    mine, found = heard(own), list[Difference]()
    for other, settings in sorted(others.items()):
        theirs = {} if settings == own else heard(settings)
        found += [
            Difference(key, node, value, other, theirs[key])
            for key, value in mine.items()
            if theirs.get(key, value) != value
        ]
    return sorted(found, key=lambda one: (one.key, one.other))[:DIFFERENCES_MAX]
