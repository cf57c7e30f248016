"""Cancels of many messages by their keys: the index of keys says which records are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarry.node.services import bulk_cancel
from tarry.wheel.state import HOUR_MS
from tarry.wheel.wheel import Wheel
from tests.node.keys.test_find_by_key import complete, schedule
from tests.node.services.bulk_play import Bulk, led


def test_no_record_of_other_keys_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    was_read, read = set[tuple[int, int]](), Wheel.read

    def noted(wheel: Wheel, hour: Any, index: Any, *more: Any) -> Any:
        was_read.update(zip(hour.tolist(), index.tolist(), strict=True))
        return read(wheel, hour, index, *more)

    async def act(bulk: Bulk) -> None:
        await complete(bulk.lead)
        later_ms = bulk.lead.node.time.now_ms() + 2 * HOUR_MS
        await bulk.schedule("t", [later_ms] * 300)
        mine = await bulk.schedule("t", [later_ms + number * HOUR_MS for number in range(5)], keys=["x"] * 5)
        monkeypatch.setattr(Wheel, "read", noted)
        for dry_run in (True, False):
            told = await bulk.all(topic="t", keys=["x", "y"], dry_run=dry_run)
            assert (told.matched, told.looked_at) == (5, told.total)
        assert told.cancelled == 5
        assert len(was_read) == 5
        assert {await bulk.state(one) for one in mine} == {"CANCELLED"}
        assert bulk.lead.machine.wheel.pending == 300

    led(tmp_path, act)


@pytest.mark.parametrize("chosen_max", [1, 3, 2_048])
@pytest.mark.parametrize("broken", [False, True])
def test_a_message_with_several_of_the_keys_counts_once_also_where_the_index_is_not_complete_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen_max: int, broken: bool
) -> None:
    monkeypatch.setattr(bulk_cancel, "CHOSEN_MAX", chosen_max)
    monkeypatch.setattr(bulk_cancel, "LOOK_NS_MAX", 1)

    async def act(bulk: Bulk) -> None:
        lead = bulk.lead
        await complete(lead)
        later_ms = lead.node.time.now_ms() + 2 * HOUR_MS
        some = [["a", "b"], ["b"], ["c", "a", "b"], ["c"], []]
        ids = await schedule(lead, some * 2, later_ms)
        for dry_run in (True, False):
            cursor, steps = "", 0
            while True:
                told = await bulk.step(cursor, topic="t", keys=["b", "a"], dry_run=dry_run)
                steps += 1
                if broken and steps == 1:
                    lead.node._core.keys.complete = False
                if told.done:
                    break
                cursor = told.cursor
            assert (told.matched, told.cancelled) == (6, 0 if dry_run else 6)
            lead.node._core.keys.complete = True
        states = [await bulk.state(one) for one in ids]
        assert states == [*["CANCELLED"] * 3, *["PENDING"] * 2] * 2

    led(tmp_path, act)
