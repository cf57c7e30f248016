"""Mutants of cancels of released messages: of the leader's question and marks, and of what is applied."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

LEADER = "tests/node/delivery/test_cancels.py"
MACHINE = "tests/replication/state_machine/test_released_cancels.py"
WHEEL = "tests/wheel/test_recovery.py"
BULK = "tests/node/services/test_bulk_cancel.py"
CHANGES = "tests/node/services/test_bulk_cancel_changes.py"
MATCHING = "tests/node/services/test_cancel_matching.py"

MUTANTS = (
    Mutant(
        "a_checkpoint_forgets_what_was_withdrawn_of_a_closed_hour",
        "after a restart a cancelled message is a released one, and replicas differ",
        "                self._hours.note_withdrawn(at)\n",
        "",
        (
            f"{WHEEL}::test_a_message_that_is_cancelled_after_its_release_is_so_also_in_an_hour_that_is_closed",
        ),
    ),
    Mutant(
        "a_cancel_is_proposed_without_marks",
        "a message that was cancelled is delivered while its cancel is under way",
        "        self._sets[queue] = self.of(queue) | chosen\n",
        "        self._sets[queue] = self.of(queue)\n",
        (f"{LEADER}::test_while_its_cancel_is_under_way_nothing_is_handed_over_to_anybody",),
    ),
    Mutant(
        "what_waits_is_handed_over_though_marked",
        "a message that was cancelled is delivered while its cancel is under way",
        '            self._waiting = self._waiting[~np.isin(self._waiting["offset"], chosen)]\n'
        "            self._parked.forget(set(chosen",
        "            self._parked.forget(set(chosen",
        (f"{LEADER}::test_while_its_cancel_is_under_way_nothing_is_handed_over_to_anybody",),
    ),
    Mutant(
        "what_the_leader_before_may_have_delivered_is_cancelled",
        "a consumer has a message whose cancel was answered with CANCELLED",
        "        fresh &= offsets >= np.uint64(max(self._had_below, self.doubtful))\n",
        "",
        (f"{LEADER}::test_what_the_leader_before_may_have_delivered_counts_as_handed_over",),
    ),
    Mutant(
        "what_consumers_of_a_closed_group_may_have_had_is_cancelled",
        "a consumer has a message whose cancel was answered with CANCELLED",
        "fresh = ~acknowledged & (found.offset >= np.uint64(self._inherited(group, queue.queue)))",
        "fresh = ~acknowledged",
        (f"{LEADER}::test_what_a_closed_group_s_consumers_may_have_had_counts_as_handed_over",),
    ),
    Mutant(
        "a_cancel_is_decided_without_the_lease",
        "another leader may have delivered what is answered with CANCELLED",
        "        if not self._context.may_serve():\n            await self._lift(number, found.offset)\n",
        "        if False:\n            await self._lift(number, found.offset)\n",
        (f"{LEADER}::test_without_the_lease_nothing_is_decided",),
    ),
    Mutant(
        "a_consumer_may_claim_what_is_being_cancelled",
        "a message that was cancelled is in a consumer's hands",
        "        offsets = offsets[~contains(self._aside, offsets)]  # never delivered, and being cancelled\n",
        "",
        (f"{LEADER}::test_a_consumer_that_claims_what_is_being_cancelled_does_not_get_it",),
    ),
    Mutant(
        "what_follows_under_a_key_goes_ahead_of_what_is_marked",
        "messages of a key are delivered out of order where a cancel comes to nothing",
        "        self.lanes.hold(self.queue.queue, offsets, lanes)\n\n    def end_marks",
        "\n    def end_marks",
        (f"{LEADER}::test_while_its_cancel_is_under_way_nothing_is_handed_over_to_anybody",),
    ),
    Mutant(
        "a_retry_that_is_handed_over_meanwhile_counts_as_cancelled",
        "a consumer has a message again whose cancel was answered with CANCELLED",
        "outcomes[rows] = np.where(answer == REPEATED, CANCELLED, answer)",
        "outcomes[rows] = CANCELLED",
        (f"{LEADER}::test_a_copy_that_is_handed_over_meanwhile_is_not_said_to_be_cancelled",),
    ),
    Mutant(
        "a_retry_that_is_rescheduled_meanwhile_counts_as_cancelled",
        "a consumer has a message again whose cancel was answered with CANCELLED",
        "            gone[left] = outcomes == CANCELLED\n",
        "            gone[left] = np.isin(outcomes, (CANCELLED, REPEATED))\n",
        (
            "tests/node/services/test_changes.py"
            "::test_a_retry_that_is_rescheduled_while_it_is_cancelled_is_cancelled_or_the_answer_is_no",
        ),
    ),
    Mutant(
        "a_retry_is_cancelled_though_another_group_has_it",
        "what a consumer has in hand is answered with CANCELLED",
        "        self._had_somewhere |= had & ~waits\n",
        "        self._had_somewhere |= had & ~waits & False\n",
        (f"{LEADER}::test_where_another_group_has_it_in_hand_a_retry_is_cancelled_for_the_rest_alone",),
    ),
    Mutant(
        "a_later_group_gets_what_was_cancelled",
        "a message that was cancelled is delivered to a group made afterwards",
        "        self.acknowledged[group, queue.queue].include(self.cancelled.of(queue.queue))\n",
        "",
        (f"{MACHINE}::test_of_a_topic_without_groups_it_is_cancelled_for_those_that_come",),
    ),
    Mutant(
        "a_group_that_is_moved_back_gets_what_was_cancelled",
        "a message that was cancelled is delivered to a group that was moved back",
        "        acknowledged.include(self.cancelled.of(queue.queue))\n",
        "",
        (f"{MACHINE}::test_what_is_cancelled_no_group_is_to_get_also_one_made_later_or_moved_back",),
    ),
    Mutant(
        "a_letter_on_its_way_back_is_cancelled",
        "a dead letter is delivered again though its cancel was answered with CANCELLED",
        "        outcomes[redriven.contains(offset)] = producer_pb.CANCEL_OUTCOME_ALREADY_DELIVERED\n",
        "        pass\n",
        (f"{MACHINE}::test_a_letter_that_is_sent_back_while_its_cancel_is_under_way_is_not_cancelled",),
    ),
    Mutant(
        "a_checkpoint_lacks_what_was_cancelled",
        "replicas differ after a start, and later groups get what was cancelled",
        "        self.cancelled.recover(checkpoint.cancelled)\n",
        "",
        (f"{MACHINE}::test_the_state_of_a_checkpoint_has_what_was_cancelled",),
    ),
    Mutant(
        "a_repeated_call_loses_what_its_first_try_has_cancelled",
        "the counts of a cancel of many messages lack those of a call whose answer was lost",
        "GONE: Final = (producer_pb.CANCEL_OUTCOME_CANCELLED, producer_pb.CANCEL_OUTCOME_ALREADY_CANCELLED)\n",
        "GONE: Final = (producer_pb.CANCEL_OUTCOME_CANCELLED,)\n",
        (f"{BULK}::test_every_call_may_be_repeated_and_the_sums_are_exact",),
    ),
    Mutant(
        "a_cursor_cancels_what_it_names_of_any_topic",
        "a tenant cancels the messages of others by a forged cursor",
        'np.isin(lanes.queue_of(units["topic"]), numbers) & walk.wanted.due(due_ms)',
        "walk.wanted.due(due_ms)",
        (f"{BULK}::test_a_forged_cursor_cancels_nothing_of_another_topic_and_breaks_nothing",),
    ),
    Mutant(
        "what_was_rescheduled_since_it_was_named_is_cancelled",
        "a cancel by due time cancels a message that is due at another time",
        "numbers) & walk.wanted.due(due_ms)",
        "numbers)",
        (
            f"{CHANGES}::test_what_is_rescheduled_between_two_calls_is_cancelled_where_it_still_matches_and_counted_once",
        ),
    ),
    Mutant(
        "what_was_updated_since_it_was_named_is_cancelled",
        "a cancel by tags or keys cancels a message that has others now",
        "        fit[rows] = await self._as_wanted(walk, at_hour[rows], at_index[rows])\n",
        "",
        (f"{CHANGES}::test_what_is_given_another_tag_or_key_between_two_calls_stays",),
    ),
    Mutant(
        "a_purge_goes_on_with_any_cursor_unrecorded",
        "a topic is purged and the audit log has nothing of it",
        "self._given.get(purge) == hash(request.cursor)",
        "purge in self._given",
        (f"{MATCHING}::test_a_purge_with_a_cursor_of_an_earlier_one_is_in_the_audit_log_too",),
    ),
    Mutant(
        "a_cursor_of_before_a_restore_counts",
        "a cancel by tags cancels messages without them that have the ids of others of before a restore",
        '    told = f"{asked.DESCRIPTOR.full_name} {incarnation} ".encode()\n',
        "    told = asked.DESCRIPTOR.full_name.encode()\n",
        (f"{BULK}::test_a_cursor_of_before_a_restore_names_nothing_of_after_it",),
    ),
    Mutant(
        "a_cursor_counts_for_any_request",
        "a cancel goes on with another filter in the middle, and its counts are of two",
        "    if cursor.request != request:\n",
        "    if False:\n",
        (f"{BULK}::test_a_cursor_counts_only_for_the_request_and_the_topic_that_it_was_given_for",),
    ),
    Mutant(
        "whoever_may_produce_anything_cancels_any_topic",
        "a tenant cancels the messages of others",
        "        may = self._authorizer.refusal(context, Right.PRODUCE, [topic])\n",
        "        may = None\n",
        (
            "tests/node/services/test_cancel_matching.py::test_a_producer_of_the_topic_cancels_who_sees_it_counts_and_operators_purge",
        ),
    ),
    Mutant(
        "what_a_deleted_topic_left_is_counted",
        "a status tells of pending messages that will not be released",
        "    return machine.wheel.pending - machine.wheel.pending_of_all(deleted_with_pending(machine))\n",
        "    return machine.wheel.pending\n",
        (
            "tests/node/services/test_cancel_matching.py::test_a_deleted_topic_s_pending_messages_are_counted_and_go_and_another_topic_of_its_name_has_none",
        ),
    ),
)
