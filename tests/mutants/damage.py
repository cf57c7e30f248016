"""Mutants of what finds damage, of disks that are slow or fail, and of errors that must end a node."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "a_state_of_another_log_takes_the_place_of_a_damaged_one",
        "a replica applies its journal to a state that this journal did not make",
        "if (journal.term_at(index), journal.chain_at(index)) != (position.term, position.chain):",
        "if False:",
        ("tests/node/recovery/test_state_replacement.py::test_a_state_of_another_log_is_not_used",),
    ),
    Mutant(
        "another_history_before_an_append",
        "replicas of two histories differ for good, and nobody is told",
        "log.chain_at(prev) != append.prev_chain",
        "False",
        (
            "tests/replication/raft/guard/test_appends.py::test_another_content_of_the_same_term_stops_the_process",
        ),
    ),
    Mutant(
        "another_history_within_an_append",
        "replicas of two histories differ for good, and nobody is told",
        "if held is not None and index > log.first_index and log.entry(index)[0] != entry.payload:",
        "if False:",
        (
            "tests/replication/raft/guard/test_appends.py::test_a_repeated_entry_of_another_content_stops_the_process",
        ),
    ),
    Mutant(
        "a_snapshots_mark_is_compared",
        "a follower that has taken a snapshot ends, though nothing is wrong",
        "if held is not None and index > log.first_index and log.entry(index)[0] != entry.payload:",
        "if held is not None and log.entry(index)[0] != entry.payload:",
        (
            "tests/replication/raft/guard/test_appends.py::test_a_snapshots_mark_is_not_compared_with_the_leaders_entry_and_what_follows_it_is",
        ),
    ),
    Mutant(
        "an_index_is_not_proven_after_a_start",
        "a rotten index releases a message to another topic, on one replica",
        "            prove_index(self.log)\n        self._unproven = False\n",
        "            pass\n        self._unproven = False\n",
        (
            "tests/wheel/test_damage.py::test_an_index_that_has_rotted_since_it_was_written_decides_nothing_after_a_start",
        ),
    ),
    Mutant(
        "cancelling_goes_by_an_unproven_index",
        "a rotten index cancels what one replica has released",
        "    partition.prove()\n    return partition.log.units_at(global_index)",
        "    return partition.log.units_at(global_index)",
        (
            "tests/wheel/test_damage.py::test_a_message_whose_unit_has_rotted_is_not_taken_for_released_after_a_start",
        ),
    ),
    Mutant(
        "an_index_is_not_proven_after_it_was_closed",
        "what comes next is chained to a rotten index, which no peer's mends then",
        "            self._unproven = True\n        self.log.close()\n",
        "            self._unproven = self._unproven\n        self.log.close()\n",
        (
            "tests/wheel/test_damage.py::test_nothing_is_chained_behind_an_index_that_decays_while_its_hour_is_closed",
        ),
    ),
    Mutant(
        "far_units_are_not_proven",
        "a rotten unit of the far log moves to its hour, on one replica",
        '    sound: Flags = proofs(units) == units["proof"]\n',
        '    sound: Flags = units["proof"] == units["proof"]\n',
        ("tests/wheel/test_far_damage.py::test_calls_answer_under_damage_as_without",),
    ),
    Mutant(
        "a_far_index_is_not_looked_at_by_a_start",
        "a rotten unit of the far log is counted for another hour, on one replica",
        "            if not self._used(one.number).is_whole():\n                self._mend(one.number)\n",
        "",
        ("tests/wheel/test_far_damage.py::test_a_damaged_index_is_written_again_at_a_start",),
    ),
    Mutant(
        "units_in_the_far_logs_records_are_not_looked_at",
        "the copy that mends a far index is rotten, too, when it is needed",
        "            if bool(segment.heads_differ(units).any()):\n",
        "            if False:\n",
        ("tests/wheel/test_far_damage.py::test_units_damaged_in_the_log_are_found_and_written_again",),
    ),
    Mutant(
        "units_are_not_proven",
        "a rotten unit hands a message to another topic",
        "return len(units) == wanted and int(google_crc32c.extend(self.before, units)) == self.behind",
        "return len(units) == wanted",
        ("tests/node/repair/test_queues.py::test_units_are_taken_from_the_peer_that_has_them_whole",),
    ),
    Mutant(
        "a_damaged_unit_is_read",
        "a rotten unit hands a message to another topic",
        "        if damaged:\n            raise UnitsDamaged(self.queue, self.topic, damaged)\n",
        "",
        ("tests/node/repair/test_queues.py::test_units_are_taken_from_the_peer_that_has_them_whole",),
    ),
    Mutant(
        "any_units_mend",
        "a peer's rotten units take the place of damaged ones",
        "        if not stretch.is_proven_by(units):\n            return False\n",
        "",
        (
            "tests/replication/state_machine/test_ready_queue.py::test_damaged_units_are_mended_by_their_own_bytes_and_by_no_others",
        ),
    ),
    Mutant(
        "a_unit_of_another_topic_is_delivered",
        "a rotten index hands a message to another topic",
        "        if not own.all():\n            self._mends.deliver_proven(",
        "        if False:\n            self._mends.deliver_proven(",
        (
            "tests/node/repair/test_queues.py::test_a_message_of_which_index_and_queue_differ_waits_until_the_index_is_mended",
        ),
    ),
    Mutant(
        "the_due_time_of_a_unit_is_not_compared",
        "a rotten unit hands a message over early",
        '    same &= due_ms == units["due_ms"]\n',
        "",
        (
            "tests/node/repair/test_queues.py::test_a_message_of_which_index_and_queue_differ_waits_until_the_index_is_mended",
        ),
    ),
    Mutant(
        "the_scrub_passes_over_queues",
        "a rotten queue is found when a consumer needs it",
        'return far + hours + [("queue", q.queue) for q in self._machine.queues if q.units > q.first]',
        "return far + hours",
        ("tests/node/repair/test_queues.py::test_the_scrub_finds_a_damaged_queue_beside_damaged_hours",),
    ),
    Mutant(
        "the_scrub_passes_over_records",
        "a rotten record is found when a consumer needs it",
        "            found.append(damaged)\n            if self._ended.wait(size / self._settings.scrub",
        "            if self._ended.wait(size / self._settings.scrub",
        ("tests/node/repair/test_scrubber.py::test_damage_in_any_hour_is_reported_once_with_its_place",),
    ),
    Mutant(
        "a_damaged_state_is_given_away",
        "damage of one disk becomes a majority's",
        '            if damage:\n                self._on_damage(damage)\n                raise SnapshotFailed(f"cannot',
        '            if False:\n                self._on_damage(damage)\n                raise SnapshotFailed(f"cannot',
        (
            "tests/replication/snapshot/test_state_files.py::test_a_state_with_a_damaged_index_or_queue_is_not_given",
        ),
    ),
    Mutant(
        "a_damaged_state_is_used",
        "damage of one disk becomes a majority's",
        '        if damage:\n            self._on_damage(damage)\n            raise SnapshotFailed(f"what',
        '        if False:\n            self._on_damage(damage)\n            raise SnapshotFailed(f"what',
        ("tests/replication/snapshot/test_state_files.py::test_a_state_that_came_damaged_is_not_used",),
    ),
    Mutant(
        "indices_of_a_state_are_not_compared",
        "a rotten index becomes a majority's",
        "        if checksum(path, hour.units * UNIT_BYTES) != hour.index_crc:\n",
        "        if False:\n",
        (
            "tests/replication/snapshot/test_state_files.py::test_a_state_with_a_damaged_index_or_queue_is_not_given",
        ),
    ),
    Mutant(
        "queues_of_a_state_are_not_compared",
        "a rotten queue becomes a majority's",
        "        if found:\n            damage.queues.append",
        "        if False:\n            damage.queues.append",
        (
            "tests/replication/snapshot/test_state_files.py::test_a_state_with_a_damaged_index_or_queue_is_not_given",
        ),
    ),
    Mutant(
        "a_file_of_a_state_leads_anywhere",
        "a peer's state overwrites other files of the node",
        "    if not path.resolve().is_relative_to(side.resolve()):\n",
        "    if False:\n",
        (
            "tests/replication/snapshot/test_state_files.py::test_a_name_that_is_none_of_a_file_in_the_folder_is_refused",
        ),
    ),
    Mutant(
        "a_queue_trimmed_to_its_end_is_sent_by_half",
        "a follower cannot take the state",
        "begin = first - first % BLOCK_UNITS",
        "begin = first",
        (
            "tests/replication/state_machine/test_ready_queue.py::test_a_queue_trimmed_to_its_end_still_names_the_file_that_proves_its_block",
        ),
    ),
    Mutant(
        "an_error_of_a_sync_is_passed_over",
        "a checkpoint counts what is not on disk",
        "            raise OSError(number, os.strerror(number), str(self._folder))\n",
        "",
        ("tests/replication/test_synced.py::test_after_a_sync_that_failed_nothing_is_committed_or_trimmed",),
    ),
    Mutant(
        "each_sync_opens_anew",
        "an error that another process was told of is never heard",
        "if _syncfs(self._fd) != 0:",
        "if _syncfs(os.open(self._folder, os.O_RDONLY)) != 0:",
        (
            "tests/wheel/test_recovery.py::test_one_descriptor_that_was_there_before_the_first_write_hears_of_all_errors",
        ),
    ),
    Mutant(
        "an_old_kernels_sync_is_trusted",
        "an error in writing back is never heard",
        "return version is not None and (int(version[1]), int(version[2])) >= (5, 8)",
        "return True",
        ("tests/wheel/test_recovery.py::test_the_whole_file_system_is_synced_only_where_that_tells_errors",),
    ),
    Mutant(
        "names_of_new_hours_are_not_synced",
        "an hour's folder goes with the power",
        "        if created:\n            sync_path(self._folder)\n",
        "",
        ("tests/wheel/test_recovery.py::test_where_all_cannot_be_forced_at_once_each_file_is",),
    ),
    Mutant(
        "names_of_new_files_are_not_synced",
        "an hour's files go with the power",
        "                sync_path(self._folder / name)\n",
        "                pass\n",
        ("tests/wheel/test_recovery.py::test_where_all_cannot_be_forced_at_once_each_file_is",),
    ),
    Mutant(
        "the_name_of_the_data_is_not_synced",
        "all data goes with the power",
        "    for path in reversed(missing):\n        sync_path(path.parent)\n",
        "",
        (
            "tests/replication/test_synced.py::test_the_names_of_all_new_folders_are_synced_up_to_one_that_was_there",
        ),
    ),
    Mutant(
        "a_stall_is_not_remembered",
        "a disk that stalls now and then costs the lease each time",
        "        if took_s >= STALL_S:\n            self._pause(",
        "        if False:\n            self._pause(",
        (
            "tests/replication/driver/test_adaptive_writes.py::test_a_stall_is_remembered_for_30_s_however_many_writes_there_are",
        ),
    ),
    Mutant(
        "stalls_do_not_add_up",
        "a disk that stalls now and then costs the lease each half minute",
        "self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)",
        "pass",
        (
            "tests/replication/driver/test_adaptive_writes.py::test_stalls_that_come_again_are_remembered_for_longer_and_forgotten_in_time",
        ),
    ),
    Mutant(
        "a_slow_disk_is_written_on_the_loop",
        "heartbeats wait for the disk",
        "return max(self._took_s) < quick_s and self._now() >= self._pause_ends_s",
        "return self._now() >= self._pause_ends_s",
        (
            "tests/replication/driver/test_adaptive_writes.py::test_a_quick_disk_is_written_on_the_loop_once_that_is_known",
        ),
    ),
    Mutant(
        "an_error_that_nobody_awaits_is_logged_only",
        "messages fall out of the leader's memory",
        "        if isinstance(error, Exception) and own and not self._first.done():\n",
        "        if False:\n",
        (
            "tests/node/test_failures.py::test_an_error_of_the_nodes_own_in_a_callback_a_timer_or_a_forgotten_task_ends_it",
        ),
    ),
    Mutant(
        "an_error_of_a_connection_ends_the_node",
        "a client that breaks off ends the node",
        "return any(name.startswith(OWN) for name in names)",
        "return True",
        ("tests/node/test_failures.py::test_an_error_of_a_connection_is_logged_and_ends_nothing",),
    ),
    Mutant(
        "data_set_aside_by_half_is_used",
        "a node votes by what is left of its data",
        "return phase(data) is Phase.LEAVING and bool(_left(data))",
        "return False",
        (
            "tests/node/recovery/test_rejoin.py::test_what_a_crash_in_the_middle_left_is_set_aside_at_the_next_start",
        ),
    ),
    Mutant(
        "data_is_set_aside_unmarked",
        "after a crash in the middle a node without its journal votes",
        "    _mark(data, Phase.LEAVING, leaving)  # first",
        "    # first",
        ("tests/node/recovery/test_rejoin.py::test_what_is_set_aside_is_whole_and_out_of_the_way",),
    ),
    Mutant(
        "others_may_read_the_data",
        "every local user reads all messages",
        "    os.umask(UMASK)\n",
        "",
        ("tests/cluster/test_file_modes.py::test_nobody_else_may_read_a_file_of_a_node",),
    ),
    Mutant(
        "nothing_of_a_state_is_forced_to_disk",
        "a power loss tears what the checkpoint counts",
        "def sync_path(path: Path) -> None:\n"
        '    """Force a file or folder to disk."""\n'
        "    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)\n"
        "    try:\n"
        "        os.fsync(fd)\n",
        "def sync_path(path: Path) -> None:\n"
        '    """Force a file or folder to disk."""\n'
        "    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)\n"
        "    try:\n"
        "        pass\n",
        (
            "tests/replication/test_synced.py::test_the_names_of_all_new_folders_are_synced_up_to_one_that_was_there",
        ),
    ),
    Mutant(
        "names_of_new_queues_are_not_synced",
        "a ready queue goes with the power",
        "for path in {*touched, *folders, *(folder.parent for folder in folders)}:",
        "for path in touched:",
        (
            "tests/replication/test_synced.py::test_a_checkpoint_forces_queues_that_have_grown_to_disk_and_the_names_that_lead_to_them",
        ),
    ),
    Mutant(
        "the_name_of_a_new_queues_folder_is_not_synced",
        "a ready queue goes with the power",
        "for path in {*touched, *folders, *(folder.parent for folder in folders)}:",
        "for path in {*touched, *folders}:",
        (
            "tests/replication/test_synced.py::test_a_checkpoint_forces_queues_that_have_grown_to_disk_and_the_names_that_lead_to_them",
        ),
    ),
    Mutant(
        "what_a_queue_got_is_not_touched",
        "a power loss tears what the checkpoint counts",
        "            _write_all(self._fd(segment), part, position)\n            self._touched |= {segment}\n",
        "            _write_all(self._fd(segment), part, position)\n",
        (
            "tests/replication/state_machine/test_ready_queue.py"
            "::test_all_files_that_were_written_are_synced_also_those_that_nothing_is_in_memory_of",
        ),
    ),
    Mutant(
        "units_in_memory_are_not_written",
        "a crash loses released messages that the checkpoint counts",
        "            try:\n                _write_all(fd, part, position)\n",
        "            try:\n                pass\n",
        (
            "tests/replication/state_machine/test_ready_queue.py"
            "::test_all_files_that_were_written_are_synced_also_those_that_nothing_is_in_memory_of",
        ),
    ),
    Mutant(
        "a_file_that_units_in_memory_went_to_is_not_synced",
        "a power loss tears what the checkpoint counts",
        "                os.close(fd)\n            written.add(segment)\n",
        "                os.close(fd)\n",
        (
            "tests/replication/state_machine/test_ready_queue.py"
            "::test_all_files_that_were_written_are_synced_also_those_that_nothing_is_in_memory_of",
        ),
    ),
    Mutant(
        "any_number_of_units_stays_in_memory",
        "memory grows with what is released",
        "        if len(self._tail) > (TAIL_UNITS + self.queue % TAIL_UNITS) * UNIT_BYTES:\n",
        "        if False:\n",
        (
            "tests/replication/state_machine/test_ready_queue.py"
            "::test_units_that_are_in_memory_alone_are_read_and_a_thread_writes_them_while_more_come",
        ),
    ),
    Mutant(
        "what_was_trimmed_of_a_block_that_goes_on_is_not_mended",
        "a leader gives its state to nobody",
        "        if self.deleted or stretch.end <= self.proof.base:",
        "        if self.deleted or stretch.end <= self.first:",
        ("tests/node/repair/test_queues.py::test_what_was_trimmed_is_mended_as_long_as_its_block_goes_on",),
    ),
    Mutant(
        "what_a_file_has_lost_of_units_in_memory_is_not_looked_at",
        "a leader gives its state to nobody",
        "        self.flush()  # what memory has of it a checkpoint may have written, and the file may have lost since\n",
        "",
        (
            "tests/replication/state_machine/test_ready_queue.py"
            "::test_what_a_file_has_lost_of_units_in_memory_is_written_again",
        ),
    ),
    Mutant(
        "what_was_mended_is_not_touched",
        "a power loss brings the damage back",
        "memoryview(units), start * UNIT_BYTES)\n        self._touched |= {segment}\n",
        "memoryview(units), start * UNIT_BYTES)\n",
        (
            "tests/replication/state_machine/test_ready_queue.py::test_damaged_units_are_mended_by_their_own_bytes_and_by_no_others",
        ),
    ),
    Mutant(
        "the_name_of_the_checkpoints_file_is_not_synced",
        "the checkpoint goes with the power",
        "    for there in (folder, folder.parent):  # LMDB syncs its file, not the names that lead to it\n        sync_path(there)\n",
        "",
        (
            "tests/replication/test_synced.py::test_the_names_of_all_new_folders_are_synced_up_to_one_that_was_there",
        ),
    ),
    Mutant(
        "an_environment_cut_short_is_read",
        "the process is killed instead of saying what is damaged",
        "    if file.stat().st_size < needed:\n",
        "    if False:\n",
        ("tests/replication/journal/test_lmdb_takeover.py",),
    ),
    Mutant(
        "a_side_folder_is_not_forced_to_disk",
        "a power loss after the swap leaves a torn state in use",
        "        sync_path(self.side)\n",
        "",
        (
            "tests/replication/test_synced.py::test_a_state_that_came_is_on_disk_before_it_is_named_and_then_so_is_its_name",
        ),
    ),
    Mutant(
        "the_pointer_is_not_forced_to_disk",
        "after a power loss no state is named",
        "        sync_path(fresh)\n",
        "",
        (
            "tests/replication/test_synced.py::test_a_state_that_came_is_on_disk_before_it_is_named_and_then_so_is_its_name",
        ),
    ),
    Mutant(
        "a_missing_pointer_is_written_anew",
        "a node goes on from a state of long ago",
        "        if others and not pointer.exists():\n",
        "        if False:\n",
        (
            "tests/replication/snapshot/test_state_files.py::test_states_that_no_pointer_names_are_not_removed",
        ),
    ),
    Mutant(
        "a_second_checkpoint_follows_a_failed_sync",
        "a checkpoint counts what is not on disk",
        "            if self._failed:  # what",
        "            if False:  # what",
        ("tests/replication/test_synced.py::test_after_a_sync_that_failed_nothing_is_committed_or_trimmed",),
    ),
    Mutant(
        "checksums_that_do_not_fit_a_queue_are_taken",
        "units are proven by another block's checksum",
        "        if self.base > end or len(self._crcs) != end // BLOCK_UNITS - self.base // BLOCK_UNITS + 1:\n",
        "        if False:\n",
        (
            "tests/replication/state_machine/test_ready_queue.py::test_checksums_that_are_not_as_many_as_the_blocks_are_refused",
        ),
    ),
    Mutant(
        "units_of_before_are_taken_for_proven",
        "a queue of an earlier version counts as damaged",
        "self.base = end if base is None else base",
        "self.base = 0 if base is None else base",
        (
            "tests/replication/state_machine/test_ready_queue.py"
            "::test_units_of_a_version_without_checksums_are_read_and_later_ones_are_proven",
        ),
    ),
    Mutant(
        "the_end_of_a_block_is_not_noted",
        "a queue's units are proven by another block's checksum",
        "            if self.end % BLOCK_UNITS == 0:\n                self._crcs.append(self.crc)\n",
        "            if self.end % BLOCK_UNITS == 1:\n                self._crcs.append(self.crc)\n",
        (
            "tests/replication/state_machine/test_ready_queue.py"
            "::test_units_come_back_as_they_were_appended_also_after_a_restart",
        ),
    ),
    Mutant(
        "checksums_of_what_was_trimmed_stay",
        "memory and checkpoints grow with all that was ever released",
        "        self.proof.forget(self.first)\n        self._note()\n",
        "        self._note()\n",
        (
            "tests/replication/state_machine/test_ready_queue.py::test_what_was_trimmed_is_proven_no_more_and_the_rest_still_is",
        ),
    ),
    Mutant(
        "a_queue_is_forgotten_with_the_block_it_goes_on_in",
        "the rest of a block can be proven no more",
        "        base = offset - offset % BLOCK_UNITS\n",
        "        base = offset + -offset % BLOCK_UNITS\n",
        (
            "tests/replication/state_machine/test_ready_queue.py::test_what_was_trimmed_is_proven_no_more_and_the_rest_still_is",
        ),
    ),
    Mutant(
        "the_segment_that_a_queue_goes_on_in_is_deleted",
        "released messages are lost",
        "trimmed = range(before // SEGMENT_UNITS, self.first // SEGMENT_UNITS)",
        "trimmed = range(before // SEGMENT_UNITS, self.first // SEGMENT_UNITS + 1)",
        ("tests/replication/state_machine/test_ready_queue.py::test_what_is_trimmed_goes_by_whole_files",),
    ),
    Mutant(
        "a_queue_without_its_last_file_is_opened",
        "released messages are lost in silence",
        "if proof.end > first and not newest.exists():",
        "if False:",
        (
            "tests/replication/state_machine/test_ready_queue.py::test_a_queue_without_the_file_that_it_goes_on_in_is_not_opened",
        ),
    ),
    Mutant(
        "a_file_that_is_missing_ends_the_scrub",
        "damage behind it is never found",
        '        except FileNotFoundError:\n            data = b""\n',
        "        except FileNotFoundError:\n            return\n",
        (
            "tests/replication/state_machine/test_ready_queue.py::test_a_scan_finds_what_is_damaged_in_each_file_in_portions",
        ),
    ),
    Mutant(
        "what_is_kept_of_a_state_is_taken_for_its_beginning",
        "a state is joined from two",
        "    return kept.size_bytes if crc == kept.crc32c else 0\n",
        "    return kept.size_bytes\n",
        (
            "tests/replication/snapshot/test_transfer.py::test_of_a_file_only_what_follows_its_own_beginning_is_sent",
        ),
    ),
    Mutant(
        "a_whole_file_that_is_kept_is_not_compared",
        "a state has a rotten file",
        "            return kept.crc32c == file.crc32c\n",
        "            return True\n",
        ("tests/replication/snapshot/test_transfer.py::test_what_is_here_and_differs_is_replaced",),
    ),
    Mutant(
        "chunks_may_leave_a_hole",
        "a state with a hole in it is installed",
        "if (chunk.file, chunk.offset) != (self._file, self._offset) or not chunk.data:",
        "if chunk.file != self._file or not chunk.data:",
        (
            "tests/replication/snapshot/test_transfer.py::test_a_part_of_another_place_is_noticed_though_the_files_bytes_are_all_there",
        ),
    ),
    Mutant(
        "what_came_is_not_proven",
        "damage of one disk becomes a majority's",
        "    await run_blocking(sink.prove)\n",
        "",
        (
            "tests/replication/snapshot/test_transfer.py::test_what_came_whole_and_is_damaged_all_the_same_is_not_taken",
        ),
    ),
    Mutant(
        "files_of_another_state_stay",
        "a state has files that its checkpoint does not name",
        "            if path.is_file() and path.relative_to(side).as_posix() not in names:\n",
        "            if False:\n",
        (
            "tests/replication/snapshot/test_state_files.py"
            "::test_an_arrival_that_was_interrupted_keeps_what_came_and_no_other_file",
        ),
    ),
    Mutant(
        "a_snapshot_holds_no_files",
        "a follower's state breaks off",
        "        self._machine.snapshots += 1  # before",
        "        self._machine.snapshots += 0  # before",
        (
            "tests/replication/snapshot/test_state_files.py"
            "::test_what_a_snapshot_names_is_deleted_only_once_it_is_given",
        ),
    ),
    Mutant(
        "a_snapshot_that_fails_holds_files_for_ever",
        "nothing is ever deleted again",
        "        except BaseException:\n            self._machine.snapshots -= 1\n",
        "        except BaseException:\n            pass\n",
        (
            "tests/replication/snapshot/test_state_files.py::test_a_state_with_a_damaged_index_or_queue_is_not_given",
        ),
    ),
)
