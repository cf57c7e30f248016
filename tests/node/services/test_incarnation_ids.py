"""Ids name their messages behind an id gap, where they are no places.

Tests of what uses ids are played again on wheels that begin with a gap.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tarry.wheel.id_gaps import GAP_MIN
from tarry.wheel.state import WheelSettings, WheelState
from tarry.wheel.wheel import Wheel
from tests.node.keys import test_find_by_key as by_key
from tests.node.services import test_bulk_cancel as bulk_cancel
from tests.node.services import test_cancel as cancel
from tests.node.services import test_changes as changes
from tests.node.services import test_idempotency as idempotency
from tests.node.services import test_life as life
from tests.node.services import test_life_of_rescheduled as rescheduled
from tests.node.services import test_listing as listing
from tests.node.services import test_recurring as recurring
from tests.node.services import test_transactions as transactions

PLAYED_AGAIN: list[Callable[..., Any]] = [
    bulk_cancel.test_a_purge_takes_retries_too_in_the_wheel_and_in_their_queue,
    bulk_cancel.test_what_consumers_have_stays_and_all_else_of_a_topic_is_purged,
    by_key.test_each_message_is_found_by_each_of_its_keys_in_its_topic_alone,
    cancel.test_a_message_is_cancelled_while_it_is_pending_and_once_it_is_released,
    changes.test_a_message_is_delivered_at_its_new_time_alone_under_its_id,
    changes.test_a_moved_message_that_is_released_is_cancelled_by_its_id,
    changes.test_a_retry_is_rescheduled_by_the_message_and_the_group,
    idempotency.test_a_cancelled_a_rescheduled_and_an_updated_message_keep_their_keys,
    idempotency.test_the_same_key_gives_the_same_answer_and_stores_one_message,
    life.test_a_nack_leads_to_a_back_off_then_to_another_delivery_then_to_a_dead_letter,
    life.test_a_retry_behind_many_hours_with_few_messages_each_is_cancelled,
    life.test_a_retry_in_the_retry_queue_is_followed_to_who_has_it_and_to_its_end,
    listing.test_pending_messages_come_by_due_time_with_what_their_records_say,
    recurring.test_a_fire_waits_for_the_acknowledgement_of_the_last_and_of_its_retry,
    transactions.test_a_commit_makes_the_half_message_one_that_is_released,
    partial(rescheduled.test_of_a_rescheduled_message_its_deliveries_and_retries_are_told_under_its_id,
            ordering_key="k"),
]  # fmt: skip


@pytest.fixture
def _begun(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have each empty wheel begin with an id gap; one at least must have had messages behind it."""
    opened, begun = Wheel.__init__, list[Wheel]()

    def begin(wheel: Wheel, folder: Path, settings: WheelSettings, state: WheelState | None = None) -> None:
        opened(wheel, folder, settings, state)
        if (state or WheelState()) == WheelState():
            wheel.begin_incarnation(GAP_MIN)
            begun.append(wheel)

    monkeypatch.setattr(Wheel, "__init__", begin)
    yield
    assert any(wheel.ids_differ and wheel.hours() for wheel in begun)


@pytest.mark.usefixtures("_begun")
@pytest.mark.parametrize("again", PLAYED_AGAIN, ids=lambda one: getattr(one, "func", one).__name__[5:])
def test_ids_name_their_messages_behind_a_gap(tmp_path: Path, again: Callable[..., Any]) -> None:
    done = again(tmp_path)
    if inspect.iscoroutine(done):
        asyncio.run(done)


@pytest.mark.usefixtures("_begun")
def test_a_retry_that_was_not_found_is_looked_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes.test_the_retry_of_a_cancelled_message_is_looked_for_once(tmp_path, monkeypatch)
