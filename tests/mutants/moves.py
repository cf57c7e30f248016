"""Mutants of what moves pending messages to other due times."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WHEEL = "tests/wheel/test_moves.py"
MACHINE = "tests/replication/state_machine/test_reschedules.py"
NODE = "tests/node/services/test_changes.py"
RIGHTS = "tests/cluster/test_rights.py"

MUTANTS = (
    Mutant(
        "a_moved_message_stays_where_it_was",
        "it is delivered at both times",
        "        self._messages.cancel(self._release.cut, *before)\n",
        "",
        (f"{WHEEL}::test_a_moved_message_is_released_at_its_new_time_alone",),
    ),
    Mutant(
        "an_id_goes_with_its_hour",
        "a message that was moved to later is lost to its producer",
        "            kept |= (pairs.value != _NOBODY) & ~self._dropped((pairs.value >> _HALF).astype(np.uint32))\n",
        "",
        (
            f"{WHEEL}::test_an_id_answers_though_its_hour_is_dropped_and_not_as_if_cancelled_where_its_place_is",
        ),
    ),
    Mutant(
        "an_id_goes_with_its_place",
        "a message that was delivered is told of as cancelled",
        "            kept = ~self._dropped((pairs.key >> _HALF).astype(np.uint32))\n",
        "            kept = np.zeros(len(pairs.key), np.bool_)\n",
        (
            f"{WHEEL}::test_an_id_answers_though_its_hour_is_dropped_and_not_as_if_cancelled_where_its_place_is",
        ),
    ),
    Mutant(
        "where_a_moved_message_rests_is_an_id_too",
        "a message has two ids, one of which ends with its next move",
        "_columns(np.where(nobody, _NOBODY, np.where(moved, place, keys)))",
        "_columns(np.where(moved, place, keys))",
        (f"{MACHINE}::test_the_place_of_a_moved_message_is_nobodys_id",),
    ),
    Mutant(
        "what_a_message_has_left_again_is_an_id",
        "a message that was moved twice is told of as another one too, cancelled",
        "        nobody = np.full(np.count_nonzero(again), _NOBODY)\n",
        "        again[:] = False\n        nobody = left[again]\n",
        (f"{MACHINE}::test_the_place_of_a_moved_message_is_nobodys_id",),
    ),
    Mutant(
        "places_left_stay_for_ever",
        "each further move takes memory for good",
        "            kept |= (pairs.value != _NOBODY) & ~",
        "            kept |= ~",
        (f"{WHEEL}::test_a_place_that_was_left_takes_memory_until_its_hour_is_dropped",),
    ),
    Mutant(
        "moved_messages_are_not_in_the_digest",
        "replicas that know other ids pass for equal",
        "        self._total.add(message_sum.of_moved(first, place))\n        self.sweep(1)\n",
        "        self.sweep(1)\n",
        (f"{WHEEL}::test_wheels_that_know_other_ids_of_the_same_messages_have_different_digests",),
    ),
    Mutant(
        "an_older_record_replaces_a_newer_one",
        "a reschedule takes back an update",
        "            (place[0][rows] != asked.place_hour[rows]) | (place[1][rows] != asked.place_index[rows]),\n",
        "            np.zeros(len(rows), np.bool_),\n",
        (
            f"{MACHINE}::test_a_record_that_was_read_before_the_message_moved_does_not_replace_a_newer_one",
            f"{NODE}::test_changes_of_one_message_at_the_same_time_take_nothing_back",
        ),
    ),
    Mutant(
        "a_reschedule_compares_nothing",
        "the later of two programs undoes what the other has done",
        "            (asked.if_due_ms[rows] != WHENEVER) & (asked.if_due_ms[rows] != due_ms[rows]),\n",
        "            np.zeros(len(rows), np.bool_),\n",
        (f"{MACHINE}::test_a_repeated_command_changes_nothing_and_one_for_another_due_time_neither",),
    ),
    Mutant(
        "a_lane_waits_for_where_its_retry_was",
        "a key's later messages wait for ever",
        "        queues.follow(before, placed)\n",
        "        pass\n",
        (f"{MACHINE}::test_a_retry_is_moved_with_the_lane_that_it_blocks",),
    ),
    Mutant(
        "a_cancel_applies_to_where_a_message_was",
        "a rescheduled message cannot be cancelled",
        "        hour, global_index = self.wheel.places_of(*chosen)\n",
        "        hour, global_index = chosen\n",
        (f"{MACHINE}::test_the_ledger_is_told_of_ids_whatever_happens_to_a_moved_message",),
    ),
    Mutant(
        "a_moved_message_is_delivered_under_another_id",
        "a consumer cannot tell which message it has",
        "            batch = batch._replace(hour=hour, global_index=index)\n",
        "",
        (f"{NODE}::test_a_message_is_delivered_at_its_new_time_alone_under_its_id",),
    ),
    Mutant(
        "a_moved_message_is_retried_under_another_id",
        "a retry cannot be cancelled, and its dead letter names nothing",
        '            units["hour"], units["global_index"] = wheel.ids_of(units["hour"], units["global_index"])\n',
        "            pass\n",
        (f"{NODE}::test_a_retry_is_rescheduled_by_the_message_and_the_group",),
    ),
    Mutant(
        "anybody_reschedules_any_message",
        "a tenant moves the messages of others",
        "        may_know = self._edges.may_know(context, *places)\n",
        "        may_know = np.ones(len(rows), np.bool_)\n",
        (f"{RIGHTS}::test_a_message_of_others_can_neither_be_changed_nor_told_from_one_that_is_not_there",),
    ),
)
