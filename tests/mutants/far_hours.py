"""Mutants of messages that are far off: the far log, its checkpoints, and the sum by which replicas compare."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FAR = "tests/wheel/test_far_messages.py"
PLAY = f"{FAR}::test_whatever_is_done_to_far_messages_they_are_a_sorted_list_and_files_go_when_they_are_empty"
NEXT = f"{FAR}::test_what_is_in_the_far_log_alone_is_found_as_next"
COST = "tests/wheel/test_cost.py"

ROWS = (
    Mutant(
        "a_far_chain_begins_anew_with_each_append",
        "what an hour had in the far log is never found again",
        "        before[starts] = self._counts.head[hours]\n",
        "        before[starts] = 0\n",
        (PLAY,),
    ),
    Mutant(
        "a_far_hours_numbers_begin_anew",
        "two messages have one id",
        "there = counts.written[distinct].astype(np.int64) + counts.far[distinct]",
        "there = counts.written[distinct].astype(np.int64)",
        (PLAY,),
    ),
    Mutant(
        "a_far_segment_takes_one_more",
        "a row is looked for in the wrong file",
        "until = min(len(units), done + SEGMENT_UNITS - segment.units)",
        "until = min(len(units), done + SEGMENT_UNITS + 1 - segment.units)",
        (PLAY,),
    ),
    Mutant(
        "an_id_behind_the_last_is_looked_for",
        "a lookup of an id that was never given damages the hour",
        "(behind >= 0) & (behind < counts.far[at]))\n        heads,",
        "(behind >= 0) & (behind <= counts.far[at]))\n        heads,",
        (PLAY,),
    ),
    Mutant(
        "an_id_of_the_partition_is_looked_for_in_the_far_log",
        "reading a message of the partition is told as damage",
        "left = np.flatnonzero((hour == at) & (behind >= 0) & (behind",
        "left = np.flatnonzero((hour == at) & (behind",
        (PLAY,),
    ),
    Mutant(
        "rows_that_moved_away_count_after_a_start",
        "messages are pending twice",
        'alive = (row >= self.first) & (units["global_index"] >= counts.written[units["hour"]])',
        'alive = (row >= self.first) & (units["global_index"] >= 0)',
        (PLAY,),
    ),
    Mutant(
        "rows_that_were_cleaned_count_after_a_start",
        "messages are pending twice",
        'alive = (row >= self.first) & (units["global_index"] >= counts.written[units["hour"]])',
        'alive = (row >= 0) & (units["global_index"] >= counts.written[units["hour"]])',
        (PLAY,),
    ),
    Mutant(
        "rows_of_dropped_hours_count_after_a_start",
        "deleted messages come back",
        '            alive &= ~contains(self._dropped_hours, units["hour"])\n',
        "",
        (PLAY,),
    ),
    Mutant(
        "dropped_far_hours_are_not_noted",
        "deleted messages come back after a restart",
        "            self._dropped_hours.add(hour)\n",
        "",
        (PLAY,),
    ),
    Mutant(
        "dropped_far_hours_are_noted_once",
        "deleted messages come back after a restart",
        "            self._dropped_hours.add(hour)\n            self._dropped_hours_bytes = None\n",
        "            self._dropped_hours.add(hour)\n",
        (PLAY,),
    ),
    Mutant(
        "what_is_far_is_not_dropped",
        "deleted messages stay, and are not counted",
        "        self.far.drop(hour)\n",
        "",
        (PLAY,),
    ),
    Mutant(
        "an_hour_of_the_far_log_alone_is_passed_over",
        "its messages are never released",
        "        counts.end = max(counts.end, int(distinct[-1]) + 1)\n",
        "",
        (NEXT,),
    ),
    Mutant(
        "an_hour_of_the_far_log_alone_is_passed_over_after_a_start",
        "its messages are never released",
        "            counts.end = max(counts.end, int(pending.max(initial=0)) + 1)\n",
        "",
        (NEXT,),
    ),
    Mutant(
        "an_hour_of_a_partition_alone_is_passed_over",
        "its messages are never released",
        "            self.end = max(self.end, hour + 1)\n",
        "",
        (f"{FAR}::test_what_is_in_partitions_alone_is_found_as_next",),
    ),
)

MOVING = (
    Mutant(
        "cancelled_messages_move_as_pending",
        "a cancelled message is delivered",
        "        if bool(gone.any()):\n            lost = np.flatnonzero(gone)",
        "        if False:\n            lost = np.flatnonzero(gone)",
        (PLAY,),
    ),
    Mutant(
        "cancelled_rows_are_cleaned_into_pending_ones",
        "a cancelled message is delivered",
        "            self._mark(gone + end)\n",
        "",
        (PLAY,),
    ),
    Mutant(
        "what_moves_is_counted_twice",
        "an hour is never free of pending messages",
        "        self.grown(partition, 0)\n",
        "        self.grown(partition, len(rows))\n",
        (PLAY,),
    ),
    Mutant(
        "what_moves_stays_in_the_far_log",
        "messages exist twice",
        "        self.far.forget(hour, rows, units)  # so that the partition is not asked to settle again\n",
        "",
        (PLAY,),
    ),
    Mutant(
        "an_hour_is_used_before_what_is_far_has_moved",
        "far messages are never released",
        "        if self.counts.far_of(hour):\n            self.settle(hour)\n",
        "",
        (PLAY,),
    ),
    Mutant(
        "cleaning_looks_at_a_row_once_too_few",
        "a message is lost",
        "until = begin + int(chosen[fit])",
        "until = begin + int(chosen[fit]) + 1",
        (PLAY,),
    ),
    Mutant(
        "cleaning_leaves_dead_rows_only",
        "a message is lost",
        "        chosen = np.flatnonzero(self._is_live(units))\n        if len(chosen):\n",
        "        chosen = np.flatnonzero(self._is_live(units))\n        if len(chosen) > 1:\n",
        (PLAY,),
    ),
    Mutant(
        "a_row_of_a_dropped_hour_is_cleaned",
        "the far log never gets shorter",
        "live: Flags = (behind >= 0) & (behind < counts.far[",
        "live: Flags = (behind >= 0) | (behind < counts.far[",
        (PLAY,),
    ),
    Mutant(
        "the_far_log_is_never_cleaned",
        "the far log fills the disk",
        "        if dead <= self.live + SEGMENT_UNITS:\n            return\n",
        "        if dead >= 0:\n            return\n",
        (f"{COST}::test_what_has_moved_from_the_far_log_frees_its_place_also_where_nothing_more_comes",),
    ),
    Mutant(
        "segments_that_are_empty_stay",
        "the far log fills the disk",
        "            self.dropped.append(number)\n",
        "",
        (PLAY,),
    ),
    Mutant(
        "a_segment_goes_with_its_last_row_alive",
        "a message is lost",
        "for number in [number for number, end in ends.items() if end <= first]:",
        "for number in [number for number, end in ends.items() if end <= first + 1]:",
        (PLAY,),
    ),
    Mutant(
        "the_number_of_a_segment_is_used_again",
        "a new segment meets the files of an old one",
        "self.first = self.end = -(-first // SEGMENT_UNITS) * SEGMENT_UNITS",
        "self.first = self.end = first",
        (f"{FAR}::test_the_number_of_a_segment_is_not_used_again",),
    ),
    Mutant(
        "the_next_hour_goes_to_the_far_log_when_it_is_due",
        "messages that are overdue are counted as pending",
        "near = (distinct <= near_hour) | (distinct >= HOURS)",
        "near = distinct >= HOURS",
        (PLAY,),
    ),
    Mutant(
        "hours_beyond_the_counts_go_to_the_far_log",
        "a message due after the year 2209 ends every replica",
        "near = (distinct <= near_hour) | (distinct >= HOURS)",
        "near = distinct <= near_hour",
        (f"{FAR}::test_hours_beyond_those_that_are_counted_in_columns_have_files_of_their_own",),
    ),
    Mutant(
        "the_lowest_full_hours_move_first",
        "the chains of the highest hours grow without bound",
        'fullest = full[np.argsort(far[full], kind="stable")[::-1]]',
        "fullest = full",
        (f"{FAR}::test_no_hour_is_left_in_the_far_log_while_others_move",),
    ),
    Mutant(
        "all_full_hours_move_at_once",
        "one append holds up the event loop",
        "for at in fullest[: min(_MOVED_HOURS, 1 + len(hour) // _FULL_UNITS)].tolist():",
        "for at in fullest.tolist():",
        (f"{FAR}::test_hours_with_enough_in_the_far_log_get_their_files_some_with_each_append",),
    ),
    Mutant(
        "hours_of_any_size_move_together",
        "one append holds up the event loop",
        "        if moved >= _MOVED_BYTES:\n            break\n",
        "",
        (f"{FAR}::test_hours_with_enough_in_the_far_log_get_their_files_some_with_each_append",),
    ),
    Mutant(
        "many_dense_hours_get_files_at_once",
        "one append holds up the event loop",
        "    if int(dense.sum()) > _DENSE_HOURS:\n",
        "    if False:\n",
        (f"{FAR}::test_few_hours_get_files_of_their_own_in_one_append",),
    ),
    Mutant(
        "several_hours_are_opened_ahead_at_once",
        "one release holds up the event loop",
        "            if hour is not None and second // HOUR_SECONDS != hour:\n",
        "            if False:\n",
        (f"{FAR}::test_no_more_than_one_hour_is_opened_ahead_at_once",),
    ),
)

LASTING = (
    Mutant(
        "a_checkpoint_has_an_older_far_segment",
        "acknowledged messages are cut off at the next start",
        "            segment.extend(units[done:until], records[done:until])\n            segment.captured = None\n",
        "            segment.extend(units[done:until], records[done:until])\n",
        (f"{FAR}::test_each_checkpoint_has_what_the_far_log_has_got_and_lost_by_then",),
    ),
    Mutant(
        "a_checkpoint_has_older_cancellations_of_far_messages",
        "a cancelled message is delivered after a restart",
        ".astype(np.uint32))\n            segment.captured = None\n",
        ".astype(np.uint32))\n",
        (f"{FAR}::test_each_checkpoint_has_what_the_far_log_has_got_and_lost_by_then",),
    ),
    Mutant(
        "far_segments_without_a_state_stay",
        "a new segment meets the files of an old one",
        "if hour_of(path.name) is not None or segment_number(path.name) is not None:",
        "if hour_of(path.name) is not None:",
        (PLAY,),
    ),
    Mutant(
        "a_partitions_pending_counts_what_is_far",
        "messages are counted twice after a restart",
        "pending = self.counts.of(hour) - self.counts.far_pending_of(hour)",
        "pending = self.counts.of(hour)",
        (PLAY,),
    ),
    Mutant(
        "an_hour_keeps_its_pending_of_before",
        "after a restart released messages count as pending",
        "if captured is not None and captured.pending == pending:",
        "if captured is not None:",
        (PLAY,),
    ),
    Mutant(
        "an_hour_that_is_closed_is_not_captured",
        "acknowledged messages are cut off at the next start",
        "            self._note(closed.hour)  # now,",
        "            self._changed.discard(closed.hour)  # now,",
        (PLAY,),
    ),
    Mutant(
        "an_hours_part_of_a_checkpoint_is_written_once",
        "acknowledged messages are cut off at the next start",
        "if known is None or known[0] is not state:",
        "if known is None:",
        (
            "tests/replication/state_machine/test_checkpoint_cost.py"
            "::test_an_hour_is_built_once_in_the_thread_that_writes_and_anew_only_when_it_changes",
        ),
    ),
    Mutant(
        "a_far_log_is_told_to_versions_that_know_none",
        "an older node opens the state without its far messages",
        "apply_version=levels.checkpoint_version(self.level, far=far),",
        "apply_version=levels.checkpoint_version(self.level, far=False),",
        (
            "tests/replication/state_machine/test_starting_again.py"
            "::test_a_state_with_a_far_log_is_refused_by_versions_that_know_none",
        ),
    ),
    Mutant(
        "far_segments_are_not_synced",
        "a power loss tears what the checkpoint counts",
        "        grown += [segment_name(one) for one, units in segments.items() if self._segments.get(one) != units]\n",
        "",
        (f"{FAR}::test_of_the_far_log_only_what_has_grown_is_forced_to_disk",),
    ),
    Mutant(
        "names_of_new_far_segments_are_not_synced",
        "a segment of the far log goes with the power",
        "        created.update(map(segment_name, segments.keys() - self._segments.keys()))\n",
        "",
        (f"{FAR}::test_of_the_far_log_only_what_has_grown_is_forced_to_disk",),
    ),
    Mutant(
        "far_segments_go_before_their_checkpoint",
        "a crash leaves a checkpoint that names files that are gone",
        "        self._condemned_segments = set(dropped_segments).difference(segments)\n",
        "        self._delete(map(segment_name, dropped_segments))\n",
        (PLAY,),
    ),
    Mutant(
        "far_segments_are_never_deleted",
        "the far log fills the disk",
        "            self._delete(map(segment_name, self._condemned_segments))\n",
        "",
        (PLAY,),
    ),
    Mutant(
        "files_go_while_a_state_is_given_away",
        "a follower's state breaks off",
        "        if not keep:\n            self._delete(map(folder_name",
        "        if True:\n            self._delete(map(folder_name",
        (
            "tests/replication/snapshot/test_state_files.py"
            "::test_what_a_snapshot_names_is_deleted_only_once_it_is_given",
        ),
    ),
    Mutant(
        "far_segments_of_a_state_are_not_compared",
        "a rotten far index becomes a majority's",
        "        if checksum(path, segment.units * FAR_UNIT_BYTES) != segment.index_crc:\n",
        "        if False:\n",
        (
            "tests/replication/snapshot/test_state_files.py::test_a_state_with_a_damaged_index_or_queue_is_not_given",
        ),
    ),
    Mutant(
        "a_state_is_given_without_its_far_records",
        "a follower cannot read far messages",
        '        files.append((f"{name}/delay.log", segment.log_bytes))\n',
        "",
        (
            "tests/replication/snapshot/test_state_files.py"
            "::test_a_state_with_far_messages_goes_on_where_it_was_taken",
        ),
    ),
    Mutant(
        "a_damaged_far_record_is_delivered",
        "a consumer gets a rotten message",
        "            records[damaged] = None\n        records += self._read_written",
        "            pass\n        records += self._read_written",
        ("tests/node/repair/test_scrubber.py::test_damage_in_the_far_log_is_reported",),
    ),
    Mutant(
        "a_damaged_far_record_moves_its_neighbours",
        "records behind a damaged one are read at the wrong place",
        "record if len(record) == size else bytes(size)",
        "record",
        (f"{FAR}::test_a_far_record_that_cannot_be_read_moves_none_of_its_neighbours",),
    ),
    Mutant(
        "a_far_index_that_rots_is_not_told",
        "the scrub passes over a rotten far index",
        "        found = await self._run_blocking(partial(self._read, wheel.upkeep.walk_far(state)))",
        "        found = np.empty(0, np.uint32)",
        ("tests/node/repair/test_scrubber.py::test_damage_in_the_far_log_is_reported",),
    ),
)

TWICE = "tests/wheel/test_far_damage.py"
STARTED = f"{TWICE}::test_a_damaged_index_is_written_again_at_a_start"
CALLED = f"{TWICE}::test_calls_answer_under_damage_as_without"
ANOTHER = f"{TWICE}::test_no_damage_makes_one_message_of_another"
LOGGED = f"{TWICE}::test_units_damaged_in_the_log_are_found_and_written_again"

DAMAGED = (
    Mutant(
        "a_rotten_far_index_is_counted",
        "a rotten row sends a message to another hour",
        "            if not self._used(one.number).is_whole():\n                self._mend(one.number)\n            self._count",
        "            self._count",
        (STARTED,),
    ),
    Mutant(
        "a_short_far_index_ends_the_start",
        "a node cannot start, though it has all that it needs",
        '        _fill_file(path / "delay.index", segment.units * FAR_UNIT_BYTES)  # the log',
        "        # the log",
        (STARTED,),
    ),
    Mutant(
        "a_far_unit_is_not_proven",
        "a rotten unit sends a message to another topic",
        'sound: Flags = proofs(units) == units["proof"]',
        "sound: Flags = np.ones(len(units), np.bool_)",
        (f"{TWICE}::test_every_single_bit_of_a_unit_is_proven",),
    ),
    Mutant(
        "the_last_word_of_a_far_unit_is_not_proven",
        "a rotten unit sends a message to another topic",
        "    for place in range(_WORDS - 1):\n",
        "    for place in range(_WORDS - 2):\n",
        (f"{TWICE}::test_every_single_bit_of_a_unit_is_proven",),
    ),
    Mutant(
        "a_far_unit_that_is_found_is_not_proven",
        "a rotten unit is taken for another message's",
        "            rows[left[found]] = np.where(sound, row[found], -1)\n",
        "            rows[left[found]] = row[found]\n",
        (ANOTHER,),
    ),
    Mutant(
        "few_far_units_that_are_found_are_not_proven",
        "a rotten unit is taken for another message's",
        "        rows[found[~sound]] = -1\n",
        "",
        (ANOTHER,),
    ),
    Mutant(
        "a_chain_may_lead_to_another_hour",
        "a message of another hour is cancelled",
        'sound = are_sound(units[found]) & (units["hour"][found] == wanted[0, found])',
        "sound = are_sound(units[found])",
        (ANOTHER,),
    ),
    Mutant(
        "a_chain_may_end_too_soon",
        "a message that is there is not found",
        "on = ~found & (before >= self.first) & (before < row)",
        "on = ~found & (before < row)",
        (ANOTHER,),
    ),
    Mutant(
        "far_units_are_taken_as_they_are",
        "a rotten unit sends a message to another topic",
        "            sound = are_sound(units)\n            if bool(sound.all()):\n",
        "            sound = are_sound(units) | True\n            if bool(sound.all()):\n",
        (CALLED,),
    ),
    Mutant(
        "a_far_hour_may_have_units_of_another",
        "messages of two hours are mixed",
        'if bool((units["global_index"][order] != np.arange(first, first + left)).any()) or bool(',
        "if False and bool(",
        (f"{TWICE}::test_a_unit_in_another_ones_place_mends_nothing_and_moves_nowhere",),
    ),
    Mutant(
        "scattered_units_are_mended_one_by_one_however_many",
        "damage holds up the event loop",
        "if self.runs > _RUNS_MAX or (end := self._mend_run(place)) <= place:\n",
        "if (end := self._mend_run(place)) <= place:\n",
        (f"{TWICE}::test_units_that_lie_scattered_are_mended_one_by_one_up_to_32_and_then_together",),
    ),
    Mutant(
        "cleaning_takes_rotten_rows_for_dead_ones",
        "a message is lost",
        "        if not bool(sound.all()):\n            self._mend(number, ",
        "        if False:\n            self._mend(number, ",
        (f"{TWICE}::test_cleaning_moves_no_damage",),
    ),
    Mutant(
        "an_index_mended_by_half_is_taken",
        "a rotten row sends a message to another hour",
        "        if google_crc32c.value(index) != self.index_crc:\n            return False\n        self._write",
        "        self._write",
        (f"{TWICE}::test_a_unit_damaged_twice_is_told_and_what_was_appended_since_changes_nothing",),
    ),
    Mutant(
        "a_far_unit_that_is_mended_is_not_proven",
        "a unit that has rotted twice is used",
        "if log_end != behind or not bool(are_sound(np.frombuffer(mended, FAR_UNIT)).all()):",
        "if log_end != behind:",
        (f"{TWICE}::test_a_unit_damaged_twice_is_told_and_what_was_appended_since_changes_nothing",),
    ),
    Mutant(
        "a_far_unit_is_mended_by_that_of_another_row",
        "a message of another hour is cancelled",
        "if log_end != behind or not bool(are_sound(",
        "if not bool(are_sound(",
        (f"{TWICE}::test_a_unit_in_another_ones_place_mends_nothing_and_moves_nowhere",),
    ),
    Mutant(
        "units_that_rot_in_the_log_are_not_found",
        "the second copy of units rots in silence",
        "            if bool(segment.heads_differ(units).any()):\n",
        "            if False:\n",
        (LOGGED,),
    ),
    Mutant(
        "units_that_rot_in_the_log_are_not_mended",
        "the second copy of units is gone when it is needed",
        "        segment.mend_heads()\n",
        "",
        (LOGGED,),
    ),
    Mutant(
        "what_a_far_log_has_mended_is_not_told",
        "an operator does not know that a disk rots",
        "        self.mended.add(number)\n",
        "",
        (STARTED,),
    ),
)

SUMS = (
    Mutant(
        "messages_are_not_in_the_digest",
        "replicas with other messages pass for equal",
        "sums = counts.total, counts.message_sum.value",
        "sums = counts.total, 0",
        ("tests/wheel/test_recovery.py::test_wheels_that_differ_in_one_message_have_different_digests",),
    ),
    Mutant(
        "a_message_alone_has_another_sum",
        "equal replicas pass for different ones, by how entries were cut",
        ' + int(unit["tag_mask"]) * _MASK\n',
        "\n",
        (PLAY,),
    ),
    Mutant(
        "records_are_not_in_the_sum",
        "replicas with other records pass for equal",
        '    column += _joined(units["size"], units["crc32c"]) * np.uint64(_RECORD)\n',
        "",
        ("tests/wheel/test_recovery.py::test_wheels_that_differ_in_one_message_have_different_digests",),
    ),
    Mutant(
        "due_times_are_not_in_the_sum",
        "replicas that release at other times pass for equal",
        '    column += _joined(units["due_in_hour_ms"], units["topic"]) * np.uint64(_DUE)\n',
        "",
        ("tests/wheel/test_recovery.py::test_wheels_that_differ_in_one_message_have_different_digests",),
    ),
    Mutant(
        "far_cancellations_are_not_in_the_sum",
        "replicas of which one cancelled pass for equal",
        '        counts.message_sum.add(message_sum.of_gone(units["hour"], units["global_index"]))\n',
        "",
        (PLAY,),
    ),
    Mutant(
        "cancelled_far_messages_change_the_sum_when_they_move",
        "equal replicas pass for different ones",
        "self._counts.message_sum.add(-_sum_of(units, self.is_gone(rows)))",
        "self._counts.message_sum.add(-_sum_of(units))",
        (PLAY,),
    ),
    Mutant(
        "a_start_sums_cancelled_far_messages_as_pending",
        "a restarted replica passes for another one",
        "counts.message_sum.add(_sum_of(units[alive], contains(segment.gone, index[alive])))",
        "counts.message_sum.add(_sum_of(units[alive]))",
        (PLAY,),
    ),
    Mutant(
        "dropped_hours_stay_in_the_sum",
        "a restarted replica passes for another one",
        "        self.close()\n        self._add(-self.message_sum)\n",
        "        self.close()\n",
        (PLAY,),
    ),
    Mutant(
        "the_sum_does_not_wrap",
        "a checkpoint cannot be written",
        "self.message_sum = (self.message_sum + some) % (1 << 64)",
        "self.message_sum = self.message_sum + some",
        ("tests/replication/state_machine/test_starting_again.py",),
    ),
)

MUTANTS = (*ROWS, *MOVING, *LASTING, *DAMAGED, *SUMS)
