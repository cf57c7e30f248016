"""Mutants of transactions."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MACHINE = "tests/replication/state_machine/test_transactions.py"
SERVICE = "tests/node/services/test_transactions.py"
CLIENT = "tests/client/transactions/test_transactions.py"
CHECKS = "tests/node/services/test_transaction_checks.py"
SIMULATED = "tests/simulation/test_transactions.py"
EXPORT = "tests/node/services/test_pending_export.py"

MUTANTS = (
    Mutant(
        "a_look_at_checks_does_not_go_round",
        "a check that is due waits until something else wakes the look, where more arrived behind it",
        "around = np.concatenate((further[start:], further[:start]))",
        "around = further[start:] if start < len(further) else further",
        (
            "tests/node/services/test_transactions.py::test_a_look_that_begins_behind_a_check_goes_round_to_it",
        ),
    ),
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
    Mutant(
        "whatever_a_leader_says_is_done_with_is_settled",
        "a transaction stays open for ever, and nobody is asked about it",
        "        self._done(offsets[within & ~self._table.rest_at(hour, index)])\n",
        "        self._done(offsets[within])\n",
        (f"{MACHINE}::test_a_check_that_is_said_to_be_done_with_and_was_not_handed_over_stays_due",),
    ),
    Mutant(
        "columns_of_a_check_may_differ_in_length",
        "a replica ends as it applies a command, again at each start",
        "        if len(command.hour) // 4 != len(offsets) or len(command.global_index) // 4 != len(offsets):\n",
        "        if False:\n",
        (f"{MACHINE}::test_a_check_of_columns_that_differ_in_length_is_refused",),
    ),
    Mutant(
        "a_committed_message_has_no_times",
        "consumers are not told when a message of a transaction was born and stored",
        "            record = command.record + times(state.born_ms, command.now_ms)  # as a message it is stored now\n",
        "            record = command.record\n",
        (f"{MACHINE}::test_a_message_tells_when_it_was_prepared_and_committed",),
    ),
    Mutant(
        "a_forgotten_end_is_said_never_to_have_been",
        "a program takes what was committed for what was never prepared",
        "    if table.forgotten:\n",
        "    if False:\n",
        (f"{MACHINE}::test_the_latest_ends_are_remembered_and_no_more",),
    ),
    Mutant(
        "answers_to_checks_wait_for_one_another",
        "of many checks that come due together most are asked again before they are answered",
        "                    ending.create_task(work).add_done_callback(lambda _: room.release())\n",
        "                    await work\n                    room.release()\n",
        (f"{SERVICE}::test_an_answer_does_not_wait_for_the_end_of_the_one_before",),
    ),
    Mutant(
        "a_failed_rollback_hides_the_blocks_error",
        "the application is told of the cluster, and not of its own error",
        "            except TarryError as failed:  # the application's error is the one to be told\n",
        "            except ZeroDivisionError as failed:\n",
        (f"{CLIENT}::test_the_error_of_a_block_is_raised_though_its_rollback_fails",),
    ),
    Mutant(
        "exports_are_silent_about_half_messages",
        "who moves a cluster's messages elsewhere does not hear of those that are prepared",
        "        self.half_messages = sum(one.state == OPEN and (of_all or one.topic in of_topics) for one in states)\n",
        "        self.half_messages = 0\n",
        (f"{EXPORT}::test_half_messages_are_left_out_and_counted_by_their_topics",),
    ),
    Mutant(
        "a_prepare_is_answered_before_it_is_flushed",
        "a loss of power takes a half message whose database transaction stands, and nobody asks about it",
        "            self._machine.encode(command), cost_us(command), flushed=True\n        )\n        if isinstance(done, Refusal):",
        "            self._machine.encode(command), cost_us(command)\n        )\n        if isinstance(done, Refusal):",
        (
            f"{SIMULATED}::test_whatever_the_durability_a_prepare_and_an_end_are_answered_once_a_majority_has_flushed_them",
        ),
    ),
    Mutant(
        "checks_count_though_producers_that_are_there_had_no_room",
        "transactions of a busy producer become unresolved, and it was never asked",
        "            if left == 0 and now_ms < due_ms + self._settings.of(group).check_pauses_ms[0]:\n",
        "            if False:\n",
        (f"{CHECKS}::test_checks_wait_in_the_queue_while_the_producers_that_are_there_have_no_room",),
    ),
    Mutant(
        "checks_have_no_rate",
        "half messages that come due together take the leader's time from all deliveries",
        "        return max(0.0, self._paced_s - now_s)\n",
        "        return 0.0\n",
        (f"{CHECKS}::test_so_many_checks_are_handed_over_in_a_second_and_no_more",),
    ),
    Mutant(
        "refusals_of_answers_have_no_bound",
        "a producer that answers, and reads nothing, fills the leader's memory",
        "        if len(self._waiting) < CHECKS_WAITING_MAX + REFUSALS_WAITING_MAX:\n",
        "        if True:\n",
        (
            f"{CHECKS}::test_a_producer_that_reads_none_of_its_refusals_loses_its_stream_and_no_more_of_it_is_taken",
        ),
    ),
    Mutant(
        "checks_are_written_onto_a_full_disk",
        "records of half messages take the room that deliveries need",
        "            if due.rows and not self._has_disk():\n",
        "            if False:\n",
        (f"{CHECKS}::test_no_check_writes_a_record_anew_while_the_leader_lacks_disk",),
    ),
    Mutant(
        "a_half_message_is_moved_as_a_retry_is",
        "its transaction can neither be ended nor is asked about, for ever",
        "    outcomes[rows[np.isin(queue, np.array(halves, np.uint32))]] = NOT_FOUND\n",
        "",
        (f"{MACHINE}::test_a_half_message_is_not_moved_by_its_place",),
    ),
)
