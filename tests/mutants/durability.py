"""Mutants of the journal, checkpoints, snapshots and recovery."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a_state_is_named_before_its_folder_is",
        "after a power loss `current` names a folder that is not there, and the node refuses its data",
        "sync_path(self._root)  # its name, before `current` has it",
        "pass",
        (
            "tests/node/recovery/test_power.py::test_power_lost_at_any_write_of_a_restore_leaves_nothing_that_starts_or_all_of_it",
        ),
    ),
    Mutant(
        "lmdb_does_not_sync",
        "a power loss takes back what was acknowledged",
        "metasync=True, sync=True, **options)",
        "metasync=True, sync=False, **options)",
        ("tests/replication/test_synced.py::test_each_commit_of_the_checkpoint_is_synced",),
    ),
    Mutant(
        "checksums_of_entries_are_not_compared",
        "rotten entries are applied",
        "    if google_crc32c.value(payload) != crc:\n",
        "    if False:\n",
        (
            "tests/replication/journal/test_damage.py::test_an_entry_that_rots_after_the_start_is_refused_when_it_is_read",
        ),
    ),
    Mutant(
        "the_chain_of_entries_is_not_compared",
        "an entry of another log passes",
        "                if not follows(entry, stored, chain):\n",
        "                if False:\n",
        ("tests/replication/journal/test_damage.py::test_an_entry_of_another_log_is_refused_at_the_start",),
    ),
    Mutant(
        "the_end_of_the_log_is_not_compared",
        "a log that lost its end starts and votes",
        "if end and (self._last, chain) != (end, self._head.last_chain):",
        "if False:",
        ("tests/replication/journal/test_damage.py::test_a_missing_entry_is_refused_at_the_start",),
    ),
    Mutant(
        "the_head_of_the_journal_is_not_compared",
        "a rotten vote or term counts",
        "if len(sealed) < _CRC.size or seal(sealed[_CRC.size :]) != sealed:",
        "if False:",
        (
            "tests/replication/journal/test_damage.py::test_a_flipped_bit_of_term_or_vote_is_refused_at_the_start",
        ),
    ),
    Mutant(
        "committed_entries_may_be_deleted",
        "a defect elsewhere loses acknowledged entries",
        "if index <= max(self._head.commit_index, self._first):",
        "if False:",
        ("tests/replication/journal/test_journal.py::test_committed_entries_cannot_be_deleted",),
    ),
    Mutant(
        "the_log_may_be_compacted_beyond_commit",
        "uncommitted entries are forgotten",
        "if first > self._head.commit_index:",
        "if False:",
        ("tests/replication/journal/test_journal.py::test_what_is_not_committed_cannot_be_compacted",),
    ),
    Mutant(
        "the_log_may_become_empty",
        "the engine finds an empty log and fails in each turn",
        "first = min(index, self._last - 1)",
        "first = index",
        (
            "tests/replication/journal/test_journal.py::test_compacting_moves_the_start_and_keeps_at_least_two_entries",
        ),
    ),
    Mutant(
        "the_term_may_go_back",
        "a node votes twice in a term",
        "if term < self._head.term:",
        "if False:",
        ("tests/replication/journal/test_journal.py::test_a_term_never_goes_back",),
    ),
    Mutant(
        "commit_ahead_of_the_disk",
        "after a restart entries count as committed that are on no majority",
        "return max(1, min(self._head.commit_index, self.durable_index))",
        "return max(1, self._head.commit_index)",
        ("tests/replication/journal/test_journal.py::test_a_commit_index_never_exceeds_what_is_durable",),
    ),
    Mutant(
        "a_boot_has_no_number",
        "frames of an earlier start count",
        "        self._head.boot += 1\n        self._first",
        "        self._first",
        (
            "tests/replication/journal/test_journal.py::test_each_opening_has_a_higher_boot_number_and_the_same_incarnation",
        ),
    ),
    Mutant(
        "an_installed_state_keeps_the_boot_number",
        "what was said before an install is taken as said after",
        "        self._head.boot += 1  # nothing said before may be taken as said after\n",
        "",
        (
            "tests/replication/driver/test_install_snapshot.py::test_what_was_said_before_an_install_can_be_told_from_what_is_said_after",
        ),
    ),
    Mutant(
        "a_reset_forgets_what_follows_the_state",
        "entries acknowledged to a leader go with an install",
        "if self.term_at(position.index) == position.term and position.index > self._first:",
        "if False:",
        (
            "tests/replication/journal/test_journal.py::test_a_reset_to_an_entry_that_the_log_contains_keeps_what_follows_it",
        ),
    ),
    Mutant(
        "a_truncation_is_not_written",
        "a node that follows another leader finds a gap in its log, and ends",
        "            self._staged.delete_from = index if staged is None else min(staged, index)\n",
        "",
        (
            "tests/replication/journal/test_journal.py"
            "::test_deleting_the_end_and_appending_anew_leaves_only_the_new",
        ),
    ),
    Mutant(
        "truncated_entries_count_as_durable",
        "an answer speaks of entries that are not on disk",
        "            self.durable_index = before\n",
        "            pass\n",
        (
            "tests/replication/journal/test_journal.py::test_what_was_deleted_is_not_durable_when_others_take_its_place",
        ),
    ),
    Mutant(
        "an_install_is_not_marked",
        "a crash between swap and the journal's new start leaves two that do not belong together",
        "        self._head.installing.CopyFrom(position)\n        self._staged.head = True\n",
        "        self._head.installing.CopyFrom(position)\n",
        ("tests/replication/journal/test_journal.py::test_a_reset_leaves_a_mark_from_which_the_log_goes_on",),
    ),
    Mutant(
        "an_interrupted_install_is_not_finished",
        "a node refuses to start after a crash in an install",
        "        if applied >= journal.installing.index:\n            journal.reset()",
        "        if False:\n            journal.reset()",
        (
            "tests/replication/driver/test_install_snapshot.py::test_a_state_that_was_swapped_in_before_a_crash_has_its_journal_begin_with_it",
        ),
    ),
    Mutant(
        "state_and_journal_may_differ",
        "a node starts with a hole between its state and its log",
        "if not journal.first_index - 1 <= applied <= journal.last_index:",
        "if False:",
        (
            "tests/replication/driver/test_install_snapshot.py::test_a_state_with_a_hole_between_it_and_the_journal_is_refused",
        ),
    ),
    Mutant(
        "a_late_state_replaces_a_newer_one",
        "acknowledged entries are taken back",
        "return position.index > state.commit_index and is_plausible(position.term, state.term)",
        "return is_plausible(position.term, state.term)",
        (
            "tests/replication/driver/test_install_snapshot.py::test_a_state_is_taken_only_if_it_is_ahead_and_of_a_term_that_elections_lead_to",
        ),
    ),
    Mutant(
        "an_install_forgets_what_was_promised",
        "a follower elects while its leader's lease runs",
        "        replica.consensus.elections.contact = contact  # what has been promised stays so\n",
        "",
        (
            "tests/simulation/test_state_and_members.py::test_a_replica_that_takes_a_snapshot_still_knows_whom_it_has_promised_what",
        ),
    ),
    Mutant(
        "chunks_are_not_checked",
        "a damaged state is taken for the leader's",
        "if chunk.crc32c != google_crc32c.value(chunk.data):",
        "if False:",
        ("tests/replication/snapshot/test_transfer.py",),
        argued="the same bytes are in the checksum of their file, which is compared before anything is used",
    ),
    Mutant(
        "files_of_a_state_are_not_checked",
        "a state with a hole in it is installed",
        "if self._file >= 0 and self._crc != files[self._file].crc32c:",
        "if False:",
        (
            "tests/replication/snapshot/test_transfer.py::test_a_part_damaged_together_with_its_checksum_is_noticed_by_the_files",
        ),
    ),
    Mutant(
        "an_incomplete_state_is_taken",
        "a state without its last files is installed",
        "        if self._file < len(self.manifest.files):\n            raise SnapshotFailed",
        "        if False:\n            raise SnapshotFailed",
        ("tests/replication/snapshot/test_transfer.py::test_a_missing_part_is_noticed",),
    ),
    Mutant(
        "a_state_of_an_uncommitted_entry_is_given_away",
        "a follower has what is committed nowhere",
        "if term is None or index > replica.consensus.state.commit_index:",
        "if term is None:",
        ("tests/replication/snapshot/test_transfer.py",),
        argued="a state is of applied entries, and what is applied is committed: the check is a second line",
    ),
    Mutant(
        "an_arriving_state_is_not_synced",
        "a power loss after the swap leaves a torn state in use",
        '        for path in sorted(self.side.rglob("*")):\n            sync_path(path)\n',
        "",
        ("tests/simulation/test_torn_state.py::test_a_state_that_has_been_installed_outlasts_power_losses",),
    ),
    Mutant(
        "the_swap_of_states_is_not_synced",
        "a power loss brings the old state back under the new journal",
        "        fresh.replace(path)\n",
        "        fresh.replace(path)\n        return\n",
        ("tests/simulation/test_torn_state.py::test_a_state_that_has_been_installed_outlasts_power_losses",),
    ),
    Mutant(
        "ready_queues_are_not_synced",
        "a power loss tears what the checkpoint counts",
        "            self.queues.take_files(),\n",
        "            [],\n",
        (
            "tests/node/recovery/test_checkpoints.py::test_once_a_checkpoint_has_failed_this_process_writes_no_other",
        ),
    ),
    Mutant(
        "hours_are_not_synced",
        "a power loss tears what the checkpoint counts",
        "        if len(grown) < _FEW or not self.sync_filesystem():\n            self._sync_each(grown, created)",
        "        if False:\n            self._sync_each(grown, created)",
        ("tests/wheel/test_recovery.py::test_syncing_forces_only_what_has_grown",),
    ),
    Mutant(
        "a_checkpoint_of_half_an_entry_is_written",
        "half of an entry is lost for good",
        "        if self._halfway:\n            raise CheckpointRefused",
        "        if False:\n            raise CheckpointRefused",
        (
            "tests/replication/state_machine/test_starting_again.py::test_a_command_that_cannot_be_read_ends_the_replica_and_is_not_skipped",
        ),
    ),
    Mutant(
        "a_rotten_checkpoint_is_opened",
        "a node goes on from a damaged state",
        'if google_crc32c.value(stored[4:]).to_bytes(4, "little") != stored[:4]:',
        "if False:",
        (
            "tests/replication/snapshot/test_state_files.py::test_a_stored_checkpoint_with_a_flipped_bit_is_refused_at_the_start",
        ),
    ),
    Mutant(
        "another_versions_state_is_opened",
        "replicas of two versions apply differently",
        '    levels.demand(f"the state in {folder}", levels.of_checkpoint(checkpoint.apply_version), applies)\n',
        "",
        (
            "tests/replication/state_machine/test_levels.py::test_a_state_of_a_higher_level_is_refused_before_anything_is_changed",
        ),
    ),
    Mutant(
        "messages_without_a_checkpoint_are_deleted",
        "a lost checkpoint deletes all data",
        "        if not from_start and _holds_something(folder):\n",
        "        if False:\n",
        (
            "tests/replication/state_machine/test_starting_again.py::test_without_a_checkpoint_only_a_log_from_its_start_takes_the_place_of_what_is_there",
        ),
    ),
    Mutant(
        "files_are_not_cut_back",
        "after a crash messages exist twice",
        "    if there > length:\n        os.truncate(path, length)",
        "    if False:\n        os.truncate(path, length)",
        ("tests/wheel/test_recovery.py::test_what_came_after_the_checkpoint_is_cut_off",),
    ),
    Mutant(
        "a_short_file_is_recovered",
        "a torn hour counts as whole",
        "    if there < length:\n        raise WheelDamaged",
        "    if False:\n        raise WheelDamaged",
        ("tests/wheel/test_damage.py::test_a_file_shorter_than_the_checkpoint_says_is_named",),
    ),
    Mutant(
        "a_short_ready_queue_is_recovered",
        "a torn ready queue counts as whole",
        "            if size < wanted * UNIT_BYTES:\n",
        "            if False:\n",
        (
            "tests/replication/state_machine/test_ready_queue.py::test_a_file_that_is_shorter_than_its_checkpoint_says_is_not_opened",
        ),
    ),
    Mutant(
        "the_journal_is_trimmed_beyond_the_checkpoint",
        "entries that no checkpoint has are forgotten",
        "if self._journal.first_index < index <= self._replica.applied:",
        "if self._journal.first_index < (index := self._replica.applied):",
        (
            "tests/simulation/test_small_clusters.py::test_a_node_by_itself_keeps_every_entry_that_no_checkpoint_contains",
        ),
    ),
    Mutant(
        "files_of_a_state_given_away_are_deleted",
        "a snapshot breaks off for ever",
        "while self._obsolete and self.snapshots == 0:",
        "while self._obsolete:",
        (
            "tests/replication/state_machine/test_starting_again.py::test_a_replica_starts_though_a_power_cut_took_what_a_deleted_topic_had_just_got",
        ),
    ),
    Mutant(
        "records_are_not_proven",
        "damaged messages are delivered",
        'return records, (checksums(records) == rows["crc32c"]) & inside',
        "return records, inside",
        ("tests/wheel/test_damage.py::test_a_record_with_a_flipped_bit_is_none_and_the_others_are_read",),
    ),
    Mutant(
        "a_lone_record_is_not_proven",
        "a damaged message is delivered",
        "return record if google_crc32c.value(record) == crc else None",
        "return record",
        (
            "tests/wheel/test_damage.py::test_a_damaged_record_is_repaired_by_the_bytes_of_a_peer_and_by_no_others",
        ),
    ),
    Mutant(
        "any_record_mends",
        "a peer's rotten record takes the place of a damaged one",
        'if len(record) != unit["size"] or google_crc32c.value(record) != unit["crc32c"]:',
        "if False:",
        (
            "tests/wheel/test_damage.py::test_a_damaged_record_is_repaired_by_the_bytes_of_a_peer_and_by_no_others",
        ),
    ),
    Mutant(
        "a_record_is_repaired_at_a_rotten_place",
        "a repair overwrites other messages where the index rotted",
        'if unit["offset"] != end + self.head_bytes:',
        "if False:",
        ("tests/wheel/test_damage.py::test_a_record_is_not_repaired_at_a_place_that_rotted_in_the_index",),
    ),
    Mutant(
        "an_answer_leaves_before_the_write_within_the_turn",
        "a follower acknowledges what a power loss takes back",
        "            early, outbox = self._barrier.split(outbox)",
        "            early, outbox = outbox, []",
        (
            "tests/replication/test_cluster.py::test_an_answer_leaves_after_the_write_within_the_turn_that_it_rests_on",
        ),
    ),
    Mutant(
        "an_answer_that_commits_waits_for_the_next_tick",
        "each commit takes as long as the pause between heartbeats",
        "answer.success and answer.next_index <= state.commit_index + 1 and state",
        "answer.success and state",
        ("tests/simulation/test_votes_and_answers.py::test_a_commit_waits_for_no_slower_follower",),
    ),
    Mutant(
        "the_last_answer_lets_no_leader_rest",
        "an idle cluster sends empty appends for ever",
        'if message.HasField("appended") and consensus.log_replication.settled():',
        "if False:",
        ("tests/simulation/test_votes_and_answers.py::test_a_leader_rests_once_all_have_answered",),
    ),
    Mutant(
        "a_large_batch_is_written_within_the_turn",
        "heartbeats wait for the disk",
        "small = batch.size_bytes <= AT_ONCE_BYTES_MAX and not",
        "small = not",
        (
            "tests/replication/test_cluster.py::test_a_quick_disk_is_written_within_the_turn_if_the_batch_is_small",
        ),
    ),
    Mutant(
        "a_slow_disk_is_written_within_the_turn",
        "heartbeats wait for the disk",
        "        return small and (batch.deferred or quick)",
        "        return small",
        (
            "tests/replication/test_cluster.py::test_a_turn_applies_what_is_durable_while_its_own_entries_are_being_written",
        ),
    ),
    Mutant(
        "a_leader_is_silent_while_its_disk_stalls",
        "each stall of a quarter of a second costs an election",
        "while beats and now_s < ends_s and not writing.done() and not replica.stopping:",
        "while False:",
        (
            "tests/simulation/test_slow_nodes_and_links.py::test_a_leader_whose_disk_stalls_for_less_than_a_second_stays_the_leader",
        ),
    ),
    Mutant(
        "a_leader_whose_disk_is_gone_leads_for_ever",
        "nothing is taken until somebody ends the node",
        "while beats and now_s < ends_s and not writing.done() and not replica.stopping:",
        "while beats and not writing.done() and not replica.stopping:",
        (
            "tests/simulation/test_slow_nodes_and_links.py::test_a_leader_whose_disk_does_not_come_back_is_replaced",
        ),
    ),
    Mutant(
        "answers_wait_for_the_disk_while_somebody_awaits_a_turn",
        "a leader whose disk stalls loses its lease",
        "        if replica.consensus.transfer.running:\n",
        "        if replica.consensus.transfer.running or replica.awaited:\n",
        (
            "tests/simulation/test_slow_nodes_and_links.py::test_a_leader_whose_disk_stalls_for_less_than_a_second_stays_the_leader",
        ),
    ),
)
