"""When a transaction is asked about again, and when it ends, by the table of its producer group."""

from __future__ import annotations

import pytest

from tarry.node.config import CHECK_PAUSES_MS, CheckTimes
from tarry.node.transactions.checks import plan
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import Record

NOW_MS = 1_000_000
RECORD = Record(body=b"half").SerializeToString()


def planned(checks: int, times: CheckTimes) -> log_pb.PlannedCheck:
    state = log_pb.TransactionCheckpoint(number=7, producer_group="shop", transaction="1", checks=checks)
    return plan(state, RECORD, times, NOW_MS)


@pytest.mark.parametrize(
    ("times", "pauses_ms"),
    [
        (CheckTimes(), [*CHECK_PAUSES_MS, *[CHECK_PAUSES_MS[-1]] * 15][:15]),
        (CheckTimes(check_pauses_ms=(10, 200, 3_000), checks_max=5), [10, 200, 3_000, 3_000, 3_000]),
        (CheckTimes(check_pauses_ms=(10, 200), checks_max=1), [10]),
    ],
)
def test_each_check_is_followed_by_its_pause_of_the_table_and_the_last_by_the_end(
    times: CheckTimes, pauses_ms: list[int]
) -> None:
    for checks, pause_ms in enumerate(pauses_ms):
        one = planned(checks, times)
        assert (one.due_ms, one.record) == (NOW_MS + pause_ms, RECORD)
    last = planned(len(pauses_ms), times)
    assert last.due_ms == 0
    told = Record.FromString(last.record).properties
    assert (told["tarry.reason"], told["tarry.checks"]) == ("UNRESOLVED", f"{len(pauses_ms)}")


def test_by_default_there_are_fifteen_checks_with_several_pauses() -> None:
    assert (CheckTimes().check_after_ms, CheckTimes().checks_max) == (30_000, 15)
    assert len(set(CHECK_PAUSES_MS)) > 2
