"""What an entry of the log carries: a byte that says which kind, and its message."""

from __future__ import annotations

from tarry.proto.tarry_peer_pb2 import MembershipChange
from tarry.replication.journal_records import MEMBERSHIP, Entry

REGULAR = 0


def entry_payload(commands: bytes) -> bytes:
    """`commands`: a serialized LogEntry."""
    return bytes((REGULAR,)) + commands


def membership_payload(change: MembershipChange) -> bytes:
    return bytes((MEMBERSHIP,)) + change.SerializeToString(deterministic=True)


def is_regular(entry: Entry) -> bool:
    return entry[0][0] == REGULAR
