"""Mutants of listings: what they leave out or repeat, and who is shown what."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WHEEL = "tests/wheel/test_due_scan.py"
NODE = "tests/node/services/test_listing.py"
ONCE = "test_what_is_there_all_the_time_is_listed_once_whatever_happens_between_the_pages"
RIGHTS = (
    f"{NODE}::test_a_caller_sees_topics_that_it_has_a_right_on_and_bodies_of_those_it_produces_to_or_consumes"
)

MUTANTS = (
    Mutant(
        "a_pass_without_room_is_taken_for_complete",
        "what lies behind the first messages of a large hour is never listed",
        "        self._is_full = True\n",
        "",
        (f"{WHEEL}::{ONCE}",),
    ),
    Mutant(
        "a_pass_that_was_cut_short_goes_on_to_the_end_of_its_last_millisecond",
        "what is due in the same millisecond as the last that was kept is never listed",
        'return found, Cut(int(found["due_ms"][-1]), int(found["global_index"][-1]))',
        'return found, Cut(int(found["due_ms"][-1]), NONE)',
        (f"{WHEEL}::{ONCE}",),
    ),
    Mutant(
        "an_hour_that_moved_out_of_the_far_log_is_looked_at_as_before",
        "messages that move while they are listed are left out",
        "        if partition is not work.partition:\n",
        "        if work.partition is not None and partition is not work.partition:\n",
        (f"{WHEEL}::test_an_hour_that_moves_out_of_the_far_log_while_it_is_looked_at_is_found",),
    ),
    Mutant(
        "a_scan_is_believed_to_have_what_it_has_forgotten",
        "a page that is asked for once more lacks messages",
        "        if not kept.since <= after <= kept.scan.seen:\n",
        "        if not after <= kept.scan.seen:\n",
        (f"{NODE}::test_a_listing_goes_on_without_its_scan_and_with_a_page_that_is_asked_for_again",),
    ),
    Mutant(
        "a_cursor_of_another_listing_is_taken",
        "a listing with another filter begins in the middle, and nobody is told",
        "    if of != key:\n",
        "    if False:\n",
        (f"{NODE}::test_what_cannot_be_listed_is_refused_with_what_to_do",),
    ),
    Mutant(
        "a_scan_is_found_by_numbers_alone",
        "who guesses them is shown messages, with bodies, of a topic that it may not know of",
        "(self._driver.status().term, listing)",
        "(self._driver.status().term, listing.key)",
        (f"{NODE}::test_a_scan_that_another_listing_has_left_is_not_taken_for_its_number_and_checksum",),
    ),
    Mutant(
        "a_cursor_of_a_topic_that_was_deleted_is_taken",
        "a listing of the topic that was made again begins in the middle, and nobody is told",
        "    if of_topic != topic:\n",
        "    if False:\n",
        (f"{NODE}::test_a_listing_ends_with_its_topic_also_where_that_is_made_again",),
    ),
    Mutant(
        "a_pass_reads_too_little_ahead",
        "the event loop waits for a cold disk",
        "-(-_STEP_COST // BLOCK_UNITS) * BLOCK_UNITS",
        "_STEP_COST",
        (f"{WHEEL}::test_what_a_step_looks_at_was_read_ahead",),
    ),
    Mutant(
        "a_listing_asks_for_no_right",
        "a token sees messages of topics that it may not know of",
        "        if not self._authorizer.sees(context)(topic):\n            return unknown_topic(topic)\n"
        "        if request.bodies",
        "        if request.bodies",
        (RIGHTS,),
    ),
    Mutant(
        "bodies_are_shown_to_who_may_only_operate",
        "an operator reads what only producers and consumers may",
        "        if request.bodies and not self._may_read(context, topic):\n",
        "        if False:\n",
        (RIGHTS,),
    ),
    Mutant(
        "what_is_cancelled_once_released_is_listed",
        "a message that nobody will get is shown as waiting",
        "        state[queues.cancelled.contains(queue.queue, offsets)] = 0\n",
        "",
        (f"{NODE}::test_what_a_group_has_done_with_messages_is_told",),
    ),
)
