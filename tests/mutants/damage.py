"""Mutants of what finds damage, of disks that are slow or fail, and of errors that must end a node."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "an_index_is_not_proven_after_a_start",
        "a rotten index releases a message to another topic, on one replica",
        "            prove_index(self.log)\n            self._unproven = False\n",
        "            self._unproven = False\n",
        (
            "tests/wheel/test_damage.py::test_an_index_that_has_rotted_since_it_was_written_decides_nothing_after_a_start",
        ),
    ),
    Mutant(
        "cancelling_goes_by_an_unproven_index",
        "a rotten index cancels what one replica has released",
        "    partition.prove()\n",
        "",
        (
            "tests/wheel/test_damage.py::test_a_message_whose_unit_has_rotted_is_not_taken_for_released_after_a_start",
        ),
    ),
    Mutant(
        "units_are_not_proven",
        "a rotten unit hands a message to another topic",
        "return len(units) == wanted and int(google_crc32c.extend(self.before, units)) == self.behind",
        "return len(units) == wanted",
        ("tests/node/test_queue_damage.py::test_units_are_taken_from_the_peer_that_has_them_whole",),
    ),
    Mutant(
        "a_damaged_unit_is_read",
        "a rotten unit hands a message to another topic",
        "        if damaged:\n            raise UnitsDamaged(self.queue, self.topic, damaged)\n",
        "",
        ("tests/node/test_queue_damage.py::test_units_are_taken_from_the_peer_that_has_them_whole",),
    ),
    Mutant(
        "any_units_mend",
        "a peer's rotten units take the place of damaged ones",
        "        if not stretch.is_proven_by(units):\n            return False\n",
        "",
        (
            "tests/replication/test_ready_queue.py::test_damaged_units_are_mended_by_their_own_bytes_and_by_no_others",
        ),
    ),
    Mutant(
        "a_unit_of_another_topic_is_handed_over",
        "a rotten index hands a message to another topic",
        "        if not own.all():\n            self._context.spawn(self._hand_over_proven",
        "        if False:\n            self._context.spawn(self._hand_over_proven",
        (
            "tests/node/test_queue_damage.py::test_a_message_of_which_index_and_queue_differ_waits_until_the_index_is_mended",
        ),
    ),
    Mutant(
        "the_due_time_of_a_unit_is_not_compared",
        "a rotten unit hands a message over early",
        '    same &= due_ms == units["due_ms"]\n',
        "",
        (
            "tests/node/test_queue_damage.py::test_a_message_of_which_index_and_queue_differ_waits_until_the_index_is_mended",
        ),
    ),
    Mutant(
        "the_scrub_passes_over_queues",
        "a rotten queue is found when a consumer needs it",
        'return far + hours + [("queue", q.queue) for q in self._machine.queues if q.units > q.first]',
        "return far + hours",
        ("tests/node/test_queue_damage.py::test_the_scrub_finds_a_damaged_queue_beside_damaged_hours",),
    ),
    Mutant(
        "the_scrub_passes_over_records",
        "a rotten record is found when a consumer needs it",
        "            found.append(damaged)\n            if self._ended.wait(size / self._settings.scrub",
        "            if self._ended.wait(size / self._settings.scrub",
        ("tests/node/test_scrub.py::test_damage_in_any_hour_is_reported_once_with_its_place",),
    ),
    Mutant(
        "a_damaged_state_is_given_away",
        "damage of one disk becomes a majority's",
        '            if damage:\n                self._on_damage(damage)\n                raise SnapshotFailed(f"cannot',
        '            if False:\n                self._on_damage(damage)\n                raise SnapshotFailed(f"cannot',
        (
            "tests/replication/test_state_transfer.py::test_a_state_with_a_damaged_index_or_queue_is_not_given",
        ),
    ),
    Mutant(
        "a_damaged_state_is_used",
        "damage of one disk becomes a majority's",
        '        if damage:\n            self._on_damage(damage)\n            raise SnapshotFailed(f"what',
        '        if False:\n            self._on_damage(damage)\n            raise SnapshotFailed(f"what',
        ("tests/replication/test_state_transfer.py::test_a_state_that_came_damaged_is_not_used",),
    ),
    Mutant(
        "indices_of_a_state_are_not_compared",
        "a rotten index becomes a majority's",
        "        if checksum(path, hour.units * UNIT_BYTES) != hour.index_crc:\n",
        "        if False:\n",
        (
            "tests/replication/test_state_transfer.py::test_a_state_with_a_damaged_index_or_queue_is_not_given",
        ),
    ),
    Mutant(
        "queues_of_a_state_are_not_compared",
        "a rotten queue becomes a majority's",
        "        if found:\n            damage.queues.append",
        "        if False:\n            damage.queues.append",
        (
            "tests/replication/test_state_transfer.py::test_a_state_with_a_damaged_index_or_queue_is_not_given",
        ),
    ),
    Mutant(
        "a_file_of_a_state_leads_anywhere",
        "a peer's state overwrites other files of the node",
        "            if not path.resolve().is_relative_to(side.resolve()):\n",
        "            if False:\n",
        ("tests/replication/test_state_transfer.py::test_a_name_that_leads_out_of_the_folder_is_refused",),
    ),
    Mutant(
        "a_queue_trimmed_to_its_end_is_sent_by_half",
        "a follower cannot take the state",
        "begin = first - first % BLOCK_UNITS",
        "begin = first",
        (
            "tests/replication/test_ready_queue.py::test_a_queue_trimmed_to_its_end_still_names_the_file_that_proves_its_block",
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
        "        if created:\n            _sync_path(self._folder)\n",
        "",
        ("tests/wheel/test_recovery.py::test_where_all_cannot_be_forced_at_once_each_file_is",),
    ),
    Mutant(
        "names_of_new_files_are_not_synced",
        "an hour's files go with the power",
        "                _sync_path(self._folder / name)\n",
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
        "            if now - began >= STALL_S:\n                self._pause(now)\n",
        "",
        (
            "tests/replication/test_quick_disk.py::test_a_stall_is_remembered_for_30_s_however_many_writes_there_are",
        ),
    ),
    Mutant(
        "stalls_do_not_add_up",
        "a disk that stalls now and then costs the lease each half minute",
        "self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)",
        "pass",
        (
            "tests/replication/test_quick_disk.py::test_stalls_that_come_again_are_remembered_for_longer_and_forgotten_in_time",
        ),
    ),
    Mutant(
        "a_slow_disk_is_written_on_the_loop",
        "heartbeats wait for the disk",
        "if max(self._took_s) < QUICK_S and self._now() >= self._pause_ends_s:",
        "if self._now() >= self._pause_ends_s:",
        (
            "tests/replication/test_quick_disk.py::test_a_quick_disk_is_written_on_the_loop_once_that_is_known",
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
            "tests/node/test_rejoining.py::test_what_a_crash_in_the_middle_left_is_set_aside_at_the_next_start",
        ),
    ),
    Mutant(
        "data_is_set_aside_unmarked",
        "after a crash in the middle a node without its journal votes",
        "    _mark(data, Phase.LEAVING)  # first",
        "    # first",
        ("tests/node/test_rejoining.py::test_what_is_set_aside_is_whole_and_out_of_the_way",),
    ),
    Mutant(
        "others_may_read_the_data",
        "every local user reads all messages",
        "    os.umask(UMASK)\n",
        "",
        ("tests/cluster/test_file_modes.py::test_nobody_else_may_read_a_file_of_a_node",),
    ),
)
