"""What ``tarry history`` says of a row of a ledger."""

from __future__ import annotations

import pytest

from tarry.client.cli.history import detail_text
from tarry.client.queries.life import HistoryRow
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.ledger.fires import FireDetail, detail_of

FIRE_MS = 1_767_225_600_000  # 2026-01-01T00:00Z


@pytest.mark.parametrize(
    ("kind", "detail", "text"),
    [
        ("scheduled", "", ""),
        ("scheduled", "DEAD_LETTER", "dead_letter"),
        (
            "scheduled",
            detail_of(FireDetail(7, "nightly", FIRE_MS, 1)),
            "fire 2026-01-01T00:00:00.000Z of schedule nightly",
        ),
        ("scheduled", detail_of(FireDetail(7, "nightly", None)), "schedule nightly was triggered"),
        ("retried", "NACKED", "nacked"),
    ],
)
def test_the_detail_of_a_row_is_told_in_words(kind: str, detail: str, text: str) -> None:
    assert detail_text(HistoryRow.of(pb.HistoryRow(kind=kind, detail=detail))) == text
