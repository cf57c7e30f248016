"""What a command must hold to be applied at all."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import FieldDescriptor

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.reasons import Reason
from tarry.replication.state_machine.command_validity import refusal
from tarry.replication.state_machine.commands import PAYLOADS
from tarry.replication.state_machine.schedule import DUE_MS_MAX

DERIVED = {"key_message", "key_hash"}
"""Of no part of the state: versions that do not know them apply the command, so no other may refuse it."""
STORED = {"spec", "record"}
"""Bytes of a schedule that recurs, which are no columns."""
COLUMNS = [
    (payload, field.name)
    for payload in dict.fromkeys(PAYLOADS.values())
    for field in payload.DESCRIPTOR.fields
    if field.type == FieldDescriptor.TYPE_BYTES
    and not field.is_repeated
    and field.name not in DERIVED | STORED
]


@pytest.mark.parametrize(("payload", "name"), COLUMNS, ids=lambda part: getattr(part, "__name__", part))
def test_every_column_of_every_command_is_refused_where_it_ends_within_a_value(
    payload: type, name: str
) -> None:
    found = refusal(payload(**{"now_ms": 1, name: b"\x00\x01\x02"}))
    assert found is not None
    assert (found.reason, name in found.text) == (Reason.COLUMNS_DIFFER, True)


@pytest.mark.parametrize(
    ("now_ms", "taken"), [(0, True), (DUE_MS_MAX, True), (-1, False), (2**63 - 1, False)]
)
def test_a_time_is_one_that_a_cluster_can_have(now_ms: int, taken: bool) -> None:
    assert (refusal(log_pb.AckCommand(now_ms=now_ms)) is None) is taken
    assert (refusal(log_pb.ReleaseCommand(until_ms=now_ms)) is None) is taken
