"""Mutants of idempotency keys: a message is scheduled twice, or one that is new is taken for another."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS = "tests/node/services/test_idempotency.py"
SAME = f"{TESTS}::test_the_same_key_gives_the_same_answer_and_stores_one_message"
TOGETHER = f"{TESTS}::test_requests_at_the_same_time_take_turns"
GONE = f"{TESTS}::test_a_caller_that_goes_away_leaves_its_keys_under_way_until_what_is_proposed_is_decided"
MOVES = f"{TESTS}::test_a_message_that_moves_while_its_key_is_looked_up_is_found"
WINDOW = f"{TESTS}::test_a_key_counts_while_its_message_is_pending_and_for_the_window_behind_its_release"
LATE = f"{TESTS}::test_a_message_that_is_released_late_just_after_a_look_keeps_its_key"

MUTANTS = (
    Mutant(
        "requests_with_the_same_keys_are_decided_together",
        "two requests at the same time schedule a message each",
        "for name in rows.keys() & self._under_way.keys()}",
        "for name in set()}",
        (TOGETHER,),
    ),
    Mutant(
        "a_caller_that_goes_away_frees_its_keys",
        "what it proposed is not applied yet, and a retry schedules it again",
        "return await asyncio.shield(deciding)",
        "return await deciding",
        (GONE,),
    ),
    Mutant(
        "what_was_looked_up_is_proposed_in_any_term",
        "another leader has scheduled it in between",
        "if self._driver.consensus.state.term != term:",
        "if False:",
        (f"{TESTS}::test_what_was_looked_up_in_another_term_is_not_proposed",),
    ),
    Mutant(
        "an_idempotency_key_has_no_row",
        "no repeated message is recognized",
        "    if not together.idempotency_key:\n        return keys",
        "    if together.idempotency_key or True:\n        return keys",
        (SAME,),
    ),
    Mutant(
        "a_message_that_moves_meanwhile_is_overlooked",
        "a message that is rescheduled as its schedule is repeated is there twice",
        "if refusal is not None or not search.displaced:",
        "if True:",
        (MOVES,),
    ),
    Mutant(
        "the_keys_of_pending_messages_go_with_the_window",
        "a message that is released late is scheduled twice",
        "(since != _NEVER) & (pending | (due_ms >= since))",
        "(since != _NEVER) & (due_ms >= since)",
        (f"{TESTS}::test_a_pending_message_keeps_its_key_however_late_it_is",),
    ),
    Mutant(
        "what_is_yet_to_be_released_late_is_forgotten",
        "a message that is released late, just after a look, is scheduled twice",
        "since_ms = since_ms if next_due_ms is None else min(since_ms, next_due_ms)",
        "since_ms = since_ms",
        (LATE,),
    ),
    Mutant(
        "keys_count_for_ever",
        "a key whose window has passed cannot be used again",
        "(since != _NEVER) & (pending | (due_ms >= since))",
        "(since != _NEVER)",
        (WINDOW,),
    ),
    Mutant(
        "requests_that_wait_for_each_other_have_no_bound",
        "callers that give up and try again fill the memory",
        "if too_much or len(self._deciding) >= REQUESTS_MAX:",
        "if False:",
        (f"{TESTS}::test_requests_that_wait_have_a_bound_and_more_are_refused",),
    ),
)
