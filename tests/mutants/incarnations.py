"""Mutants of what keeps a cluster that went on from a backup, or alone, apart from the one before."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ADOPTS = "tests/replication/test_spoken_peers.py::test_a_newcomer_belongs_to_the_first_incarnation_that_takes_it_in_and_others_to_their_own"
FOUNDER = "tests/replication/driver/test_first_start.py::test_no_founder_begins_beside_a_cluster_that_went_on_from_a_backup_or_alone"
FORMER = "tests/replication/transport/test_incarnations.py::test_a_node_of_another_incarnation_is_refused_and_told_to_rejoin"
ALONE = "tests/node/recovery/test_restore.py::test_a_restored_node_is_alone_in_a_new_incarnation_and_has_the_state"
IDS = "tests/replication/state_machine/test_incarnation_ids.py"

STREAMS = "tests/node/services/test_many_topics.py::test_what_another_incarnation_of_the_cluster_delivered_is_not_resumed"
CALLS = "tests/node/services/test_many_topics.py::test_calls_settle_nothing_that_another_incarnation_of_the_cluster_delivered"
CLIENT = (
    "tests/client/consumers/test_reconnects.py::test_in_another_incarnation_an_offset_is_of_another_message"
)
VERDICTS = "tests/client/consumers/test_unsettled.py::test_a_verdict_on_what_another_incarnation_has_delivered_is_stale_and_changes_nothing"

MUTANTS = (
    Mutant(
        "a_consumer_resumes_what_another_incarnation_delivered",
        "its acks settle messages that nobody was given",
        "        if subscribe.incarnation != self._core.journal.cluster_incarnation:  # it has other messages there\n",
        "        if False:\n",
        (STREAMS,),
    ),
    Mutant(
        "a_call_settles_what_another_incarnation_delivered",
        "it settles messages that nobody was given",
        "        return group if refused else None\n",
        "        return group\n",
        (CALLS,),
    ),
    Mutant(
        "a_client_settles_what_another_incarnation_delivered",
        "its acks settle messages that nobody was given",
        "return verdict.incarnation is None or verdict.incarnation == self.incarnation",
        "return True",
        (CLIENT, VERDICTS),
    ),
    Mutant(
        "a_client_takes_repeats_by_the_offsets_of_before",
        "with dedupe it drops and acknowledges messages that nobody was given",
        "            self._repeats = Repeats(REPEATS_WINDOW)\n\n",
        "            pass\n\n",
        (f"{CLIENT}[True]",),
    ),
    Mutant(
        "a_restored_cluster_has_its_old_name",
        "nodes of before vote and replicate into a cluster that was restored",
        'return f"{cluster}#{incarnation:016x}" if incarnation else cluster',
        "return cluster",
        (ADOPTS,),
    ),
    Mutant(
        "a_node_changes_its_incarnation",
        "a node with entries of one cluster takes part in another",
        "if not journal.joined or journal.last_index > 1:",
        "if not journal.joined:",
        (ADOPTS,),
    ),
    Mutant(
        "a_founder_becomes_one_of_another_incarnation",
        "a node of before takes part in a cluster that was restored",
        "if not journal.joined or journal.last_index > 1:",
        "if journal.last_index > 1:",
        (ADOPTS,),
    ),
    Mutant(
        "founders_begin_beside_a_restored_cluster",
        "emptied nodes found a second, empty cluster",
        "    if others:  # a majority",
        "    if False:  # a majority",
        (FOUNDER,),
    ),
    Mutant(
        "a_node_of_before_is_let_in",
        "a node of before opens streams to a cluster that was restored",
        "if former and not recalls and not self._adopts(request, spoken_peers):",
        "if False:",
        (FORMER,),
    ),
    Mutant(
        "a_new_cluster_is_of_the_incarnation_before",
        "nodes of before, or an old majority that comes back, mix with a cluster that was restored, or went on",
        "    journal.begin_cluster(incarnation)\n    journal.set_commit_index",
        "    journal.set_commit_index",
        (ALONE, "tests/node/recovery/test_recover_alone.py::test_a_survivor_is_alone_in_a_new_incarnation"),
    ),
    Mutant(
        "a_new_incarnation_is_of_the_level_before",
        "a node that goes back to 0.2.0, which knows of no incarnations, mixes with the nodes of before",
        "level=levels.INCARNATIONS, now_ms=now_ms",
        "level=1, now_ms=now_ms",
        (ALONE, "tests/node/recovery/test_recover_alone.py::test_a_survivor_is_alone_in_a_new_incarnation"),
    ),
    Mutant(
        "a_new_incarnation_begins_at_any_time",
        "its first entry is refused, and there is neither its level nor its id gap",
        "    now_ms = min(max(now_ms, 0), DUE_MS_MAX)",
        "    now_ms = now_ms",
        (
            "tests/node/recovery/test_recover_alone.py::test_an_incarnation_begins_at_a_time_that_no_replica_refuses",
        ),
    ),
    Mutant(
        "a_new_incarnation_gives_ids_again",
        "a cancel by an id that is stored elsewhere, of a message that is lost, cancels another one",
        "now_ms=now_ms, id_gap=gap_of(incarnation)",
        "now_ms=now_ms",
        (ALONE, "tests/node/recovery/test_recover_alone.py::test_a_survivor_is_alone_in_a_new_incarnation"),
    ),
    Mutant(
        "a_begin_leaves_no_gap",
        "a cancel by an id that is stored elsewhere, of a message that is lost, cancels another one",
        "index = index + np.uint32(gap.size) * (global_index >= gap.first_places(hour))",
        "index = index + np.uint32(0)",
        (f"{IDS}::test_an_id_that_was_given_and_lost_names_no_message_that_came_later",),
    ),
    Mutant(
        "an_id_in_a_gap_is_taken_for_a_place",
        "a cancel by an id that is stored elsewhere, of a message that is lost, cancels another one",
        "            left_out |= (index >= first + before) & ~behind\n",
        "",
        (f"{IDS}::test_an_id_that_was_given_and_lost_names_no_message_that_came_later",),
    ),
    Mutant(
        "two_incarnations_of_one_state_give_the_same_ids",
        "where a backup is restored twice, a cancel by an id of the first restored cluster cancels another message",
        "    return GAP_MIN + incarnation % (GAP_MAX - GAP_MIN)",
        "    return GAP_MIN",
        ("tests/wheel/test_id_gaps.py::test_two_incarnations_that_begin_with_one_state_give_different_ids",),
    ),
    Mutant(
        "gaps_take_more_than_half_of_all_ids",
        "behind many incarnations the ids of an hour begin again at its first ones",
        "            self._add(min(size, room), *told, floor_hour)",
        "            self._add(size, *told, floor_hour)",
        ("tests/wheel/test_id_gaps.py::test_the_last_gap_is_as_large_as_the_room_that_is_left",),
    ),
    Mutant(
        "any_gap_in_the_log_is_taken",
        "a leader's bug takes all ids, or begins an incarnation that 0.2.0 does not know of",
        "            return _gap_fault(command)",
        '            return ""',
        (f"{IDS}::test_a_gap_that_no_incarnation_begins_with_is_refused",),
    ),
    Mutant(
        "gaps_are_not_in_the_digest",
        "replicas that know other ids pass for equal",
        "topics, *sums, *self._gaps.digests",
        "topics, *sums",
        (f"{IDS}::test_replicas_of_which_one_has_no_gap_have_different_digests",),
    ),
    Mutant(
        "an_event_of_a_copy_s_message_is_named_twice",
        "behind a gap the ledger tells of a message that nobody has",
        "        by_id=bool(queues[queue].group),\n",
        "",
        (f"{IDS}::test_the_ledger_is_told_of_a_retry_s_message_by_its_id",),
    ),
    Mutant(
        "a_letter_s_message_is_looked_for_where_its_id_says",
        "behind a gap no dead letter is redriven",
        "hour, global_index = wheel.first_places_of(*np.array",
        "hour, global_index = iter(np.array",
        ("tests/node/delivery/test_redrive.py::test_a_letter_of_a_message_behind_an_id_gap_is_believed",),
    ),
    Mutant(
        "a_retry_s_copy_is_cancelled_by_its_place",
        "behind a gap a cancelled message comes again, for its retry is not found",
        "                hour=ids[0].tobytes(), global_index=ids[1].tobytes(), now_ms=",
        "                hour=hour.tobytes(), global_index=index.tobytes(), now_ms=",
        (
            "tests/node/services/test_incarnation_ids.py::test_ids_name_their_messages_behind_a_gap[a_retry_behind_many_hours_with_few_messages_each_is_cancelled]",
        ),
    ),
    Mutant(
        "a_retry_is_moved_by_its_place_as_if_that_were_an_id",
        "behind a gap a retry that waits gets no other time",
        "*(wheel.ids_of(*named) if command.copies else named)",
        "*named",
        (f"{IDS}::test_a_retry_behind_a_gap_gets_another_time",),
    ),
    Mutant(
        "a_committed_transaction_tells_a_place_for_an_id",
        "behind a gap its id names nobody, or another message",
        "hour, index = self._wheel.first_ids_of(placed.hour, placed.global_index)",
        "hour, index = placed.hour, placed.global_index",
        (f"{IDS}::test_a_committed_transaction_tells_the_id_of_its_message",),
    ),
    Mutant(
        "a_repeated_answer_tells_places_for_ids",
        "behind a gap a producer that asks again is given an id of nobody, or of another message",
        "        named = self._machine.wheel.first_ids_of(hour, global_index)  # the places of first are kept\n",
        "        named = hour, global_index\n",
        (
            "tests/node/services/test_repeated_schedules.py::test_the_answer_behind_an_id_gap_is_the_one_given_before",
        ),
    ),
    Mutant(
        "a_recovery_that_was_broken_off_is_told_of",
        "reconciling gives up what the cluster of a node that never went on alone has",
        "    if alone.incarnation == incarnation:",
        "    if True:",
        (
            "tests/node/recovery/test_recover_alone.py::test_a_node_whose_recovery_was_not_finished_is_marked_no_more_once_it_starts_as_before",
        ),
    ),
    Mutant(
        "a_node_that_lost_its_power_counts_itself",
        "where two of three lost their power, none can be recovered",
        "    own = 0 if lost_power else 1",
        "    own = 1",
        (
            "tests/node/recovery/test_recover_alone.py::test_the_word_of_one_that_lost_its_power_does_not_count",
        ),
    ),
    Mutant(
        "a_survivor_goes_on_beside_a_majority",
        "two clusters serve, although nothing was lost",
        "return there if is_majority(own + len(there), len(members)) else []",
        "return []",
        (
            "tests/node/recovery/test_recover_alone.py::test_it_is_refused_where_those_that_answer_are_a_majority",
        ),
    ),
    Mutant(
        "a_member_that_refuses_is_taken_for_lost",
        "a survivor with another peer token goes on beside the majority",
        "    there = sorted({*there, *refusing})\n",
        "",
        (
            "tests/node/recovery/test_recover_alone.py::test_members_that_refuse_to_say_what_they_have_are_there",
        ),
    ),
    Mutant(
        "a_survivor_keeps_the_term_of_before",
        "its entries and those of an old leader have one index and term",
        "    term = journal.term + 1\n    journal.set_term(term, found.node)\n",
        "    term = journal.term\n",
        ("tests/node/recovery/test_recover_alone.py::test_a_survivor_is_alone_in_a_new_incarnation",),
    ),
    Mutant(
        "any_folder_of_files_is_a_backup_s",
        "a backup removes what is somebody's own",
        'strange = sorted(there - ({FILES, BEGUN, f".{MANIFEST}.new"} if BEGUN in there else set()))',
        'strange = sorted(there - {FILES, BEGUN, f".{MANIFEST}.new"})',
        ("tests/proto/test_backup_folder.py::test_what_no_backup_has_written_is_not_removed",),
    ),
    Mutant(
        "a_backup_is_taken_without_a_leader",
        "a backup that is said to have all that was acknowledged lacks some of it",
        "    if not status.lease:\n        text = (",
        "    if False:\n        text = (",
        (
            "tests/client/operators/test_backup_source.py::test_without_a_leader_only_a_node_that_is_named_is_backed_up",
        ),
    ),
    Mutant(
        "an_empty_state_is_there_while_a_restore_runs",
        "a node that starts after a restore was killed begins an empty cluster",
        "    (data / POINTER).unlink()  # a node",
        "    # a node",
        (
            "tests/node/recovery/test_restore.py::test_no_node_starts_with_what_a_restore_that_was_killed_has_left",
        ),
    ),
    Mutant(
        "a_restored_state_is_not_compared",
        "a backup that is not what was backed up is restored",
        "    if digest != told.digest:\n",
        "    if False:\n",
        ("tests/node/recovery/test_restore.py::test_a_backup_of_another_state_than_it_tells_is_refused",),
    ),
)
