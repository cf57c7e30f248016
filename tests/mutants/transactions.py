"""Mutants of transactions."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MACHINE = "tests/replication/state_machine/test_transactions.py"
SERVICE = "tests/node/services/test_transactions.py"

MUTANTS = (
    Mutant(
        "an_end_is_applied_wherever_the_half_message_rests",
        "a commit that read before a check leaves the half message in the wheel, and commits what it did not read",
        "        if row.place != place_of(command.place_hour, command.place_index):\n            return Moved()\n",
        "",
        (f"{MACHINE}::test_a_commit_that_has_read_the_record_before_a_check_reads_it_again",),
    ),
    Mutant(
        "a_check_is_applied_wherever_the_half_message_rests",
        "a check that two leaders plan doubles the half message's timer",
        "        if row is None or row.place != place_of(check.place_hour, check.place_index):\n",
        "        if row is None:\n",
        (f"{MACHINE}::test_a_check_that_was_planned_before_another_does_nothing",),
    ),
    Mutant(
        "any_end_is_answered_as_the_first",
        "a producer believes that what was rolled back is committed",
        "            return Transacted(state, repeated=True) if state.state == STATES[command.end] else ended(state)\n",
        "            return Transacted(state, repeated=True)\n",
        (f"{MACHINE}::test_a_second_end_answers_what_the_first_did_and_another_is_refused",),
    ),
    Mutant(
        "what_is_committed_is_whatever_the_leader_has_read",
        "a record that has rotted unnoticed is delivered",
        "        if command.end == COMMIT and not _is_of(command.record, state):\n",
        "        if False:\n",
        (f"{MACHINE}::test_what_is_committed_is_what_was_prepared",),
    ),
    Mutant(
        "transactions_are_not_in_the_checkpoint",
        "a restart forgets them, and their half messages are committed by nobody",
        "            transactions=captured.transactions,\n",
        "",
        (f"{MACHINE}::test_any_steps_come_to_what_the_definition_says_also_after_a_checkpoint",),
    ),
    Mutant(
        "half_messages_are_not_pending",
        "transactions fill a topic beyond its pending_max",
        "        pending = wheel.pending_of(number) + queues.halves(number) if most else 0\n",
        "        pending = wheel.pending_of(number) if most else 0\n",
        (f"{MACHINE}::test_open_transactions_have_a_limit_and_count_as_pending_of_their_topic",),
    ),
    Mutant(
        "a_half_message_is_there_for_who_guesses_its_place",
        "a cancel of a check that has come due leaves its transaction open for ever",
        "            return ~halves\n",
        "            return np.ones(len(hour), np.bool_)\n",
        (f"{SERVICE}::test_a_cancel_of_a_half_message_by_its_place_finds_nothing",),
    ),
)
