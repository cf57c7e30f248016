"""What it costs to refuse a request that is made of nothing but empty fields."""

from __future__ import annotations

import pytest

from tarry.node.config import CLASSIC_DELAY_LEVELS_MS, Limits
from tarry.node.services.schedule_request import Intake
from tarry.proto.tarry_producer_pb2 import ScheduleBatchRequest
from tarry.replication.state_machine.refusal import Refusal
from tests import turns

LIMITS = Limits()


def empties(part: bytes) -> bytes:
    """As many of a part as a request has room for."""
    return part * ((LIMITS.batch_bytes_max - 100) // len(part))


def in_records(part: bytes) -> bytes:
    """Records of as many bytes as one may have, of nothing but a part."""
    record = part * ((LIMITS.body_bytes_max + LIMITS.record_overhead_bytes_max) // len(part))
    count = (LIMITS.batch_bytes_max - 1_000) // (len(record) + 4)
    return ScheduleBatchRequest(
        topics=["t"], records=[record] * count, due_ms=[1] * count
    ).SerializeToString()


FLOODS = {
    "topics": empties(b"\x1a\0"),
    "records": empties(b"\x4a\0"),
    "records, tags written at length": empties(b"\xca\x80\0\0"),
    "fields that nobody knows": empties(b"\xc2\x3e\0"),
    "a column that is not packed": empties(b"\x29" + bytes(8)),
    "tags": in_records(b"\x0a\0"),
    "keys": in_records(b"\x12\0"),
    "properties": in_records(b"\x1a\0"),
}


@pytest.mark.parametrize("raw", FLOODS.values(), ids=list(FLOODS))
def test_a_request_of_nothing_but_empty_fields_is_refused_within_a_turn(raw: bytes) -> None:
    intake = Intake(LIMITS, CLASSIC_DELAY_LEVELS_MS)
    refused = []
    taken_s = turns.cpu_s(lambda: refused.append(intake.batch(raw, 1)))
    assert isinstance(refused[0], Refusal), refused[0]
    assert taken_s < turns.bound_s()
