"""Cancels of many messages that are rescheduled or updated, before they begin and between two calls."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarry.node.leader import pending_pages
from tarry.node.services import bulk_cancel
from tarry.wheel.state import HOUR_MS
from tests.node.services.bulk_play import Bulk, led
from tests.node.services.test_changes import reschedule, update

FILTERS: tuple[dict[str, Any], ...] = ({}, {"keys": ["k"]}, {"tags": ["a"]})


async def moved(bulk: Bulk, message: str, due_ms: int) -> None:
    assert await reschedule(bulk.lead, message, due_ms=[due_ms]) == ["CHANGED"]


@pytest.mark.parametrize("wanted", FILTERS)
@pytest.mark.parametrize("often", [1, 2])
def test_what_counts_is_when_a_message_is_due_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wanted: dict[str, Any], often: int
) -> None:
    monkeypatch.setattr(pending_pages, "PAGE_UNITS", 3)

    async def act(bulk: Bulk) -> None:
        begin_ms = (bulk.lead.node.time.now_ms() // HOUR_MS + 3) * HOUR_MS
        end_ms = begin_ms + 2 * HOUR_MS
        within = {"topic": "t", "due_from_ms": begin_ms, "due_to_ms": end_ms, **wanted}
        kept = await bulk.schedule("t", [begin_ms + number for number in range(5)])
        out = await bulk.schedule("t", [begin_ms + number for number in range(5)])
        into = await bulk.schedule("t", [end_ms + HOUR_MS - number for number in range(5)])
        for time in range(often):
            for one in out:
                await moved(bulk, one, end_ms + (time + 1) * HOUR_MS)
            for one in reversed(into):
                await moved(bulk, one, begin_ms + (often - time) * 7)
        assert (await bulk.all(dry_run=True, **within)).matched == 10
        told = await bulk.all(**within)
        assert (told.matched, told.cancelled, told.released, told.not_found) == (10, 10, 0, 0)
        assert {await bulk.state(one) for one in (*kept, *into)} == {"CANCELLED"}
        assert {await bulk.state(one) for one in out} == {"PENDING"}

    led(tmp_path, act)


@pytest.mark.parametrize("wanted", FILTERS)
@pytest.mark.parametrize("before", [False, True])
def test_what_is_rescheduled_between_two_calls_is_cancelled_where_it_still_matches_and_counted_once(
    tmp_path: Path, wanted: dict[str, Any], before: bool
) -> None:
    async def act(bulk: Bulk) -> None:
        begin_ms = (bulk.lead.node.time.now_ms() // HOUR_MS + 3) * HOUR_MS
        end_ms = begin_ms + 3 * HOUR_MS
        within = {"topic": "t", "due_from_ms": begin_ms, "due_to_ms": end_ms, **wanted}
        stays, out, later, passed = await bulk.schedule("t", [begin_ms] * 3 + [end_ms])
        for one in (out, later, passed) if before else ():
            await moved(bulk, one, end_ms + 1 if one == passed else begin_ms + 1)
        first = await bulk.step(**within)
        assert (first.matched, first.done) == (3, False)
        await moved(bulk, out, end_ms)
        await moved(bulk, later, end_ms - 1)
        again = await bulk.step(first.cursor, **within)
        told = await bulk.step(first.cursor, **within)  # its answer was lost
        assert (told.matched, told.cancelled) == (again.matched, again.cancelled)
        told = told if told.done else await bulk.all(told.cursor, **within)
        assert (told.matched, told.cancelled, told.released, told.not_found) == (2, 2, 0, 0)
        states = [await bulk.state(one) for one in (stays, out, later, passed)]
        assert states == ["CANCELLED", "PENDING", "CANCELLED", "PENDING"]

    led(tmp_path, act)


def test_what_is_given_another_tag_or_key_between_two_calls_stays(tmp_path: Path) -> None:
    filters: tuple[dict[str, Any], ...] = ({"tags": ["a"]}, {"keys": ["k"]}, {"key_prefix": "k"})

    async def act(bulk: Bulk) -> None:
        later_ms = bulk.lead.node.time.now_ms() + 2 * HOUR_MS
        for wanted in filters:
            changed, same, body = await bulk.schedule("t", [later_ms] * 3)
            first = await bulk.step(topic="t", **wanted)
            assert first.matched == 3
            changes: dict[str, Any] = (
                {"tags": {"texts": ["b"]}} if "tags" in wanted else {"keys": {"texts": ["z"]}}
            )
            assert await update(bulk.lead, changed, **changes) == "CHANGED"
            assert await update(bulk.lead, body, body=b"other") == "CHANGED"
            told = await bulk.all(first.cursor, topic="t", **wanted)
            assert (told.matched, told.cancelled) == (2, 2)
            states = [await bulk.state(one) for one in (changed, same, body)]
            assert states == ["PENDING", "CANCELLED", "CANCELLED"]
            await bulk.cancel(changed)

    led(tmp_path, act)


def test_a_message_that_moves_for_the_second_time_while_records_are_read_is_not_said_to_be_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = bulk_cancel.BulkCancels._as_wanted

    async def act(bulk: Bulk) -> None:
        later_ms = bulk.lead.node.time.now_ms() + 2 * HOUR_MS
        (one,) = await bulk.schedule("t", [later_ms])
        await moved(bulk, one, later_ms + 1)

        async def meanwhile(*asked: Any) -> Any:
            flags = await look(*asked)
            monkeypatch.undo()
            await moved(bulk, one, later_ms + 2)
            return flags

        monkeypatch.setattr(bulk_cancel.BulkCancels, "_as_wanted", meanwhile)
        told = await bulk.all(topic="t", tags=["a"])
        assert await bulk.state(one) == "CANCELLED"
        assert (told.matched, told.cancelled) == (1, 1)

    led(tmp_path, act)
