"""Mutants of the journal's write-ahead log, its upkeep, and the takeover of an LMDB."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WAL = "tests/replication/journal/test_write_ahead_log.py"
TAKEOVER = "tests/replication/journal/test_lmdb_takeover.py"
POWER = f"{WAL}::test_after_a_power_loss_the_log_is_as_before_the_last_batch_or_after_it"

MUTANTS = (
    Mutant(
        "a_batch_of_the_journal_is_not_synced",
        "a power loss takes back what was acknowledged",
        "        with self._condemned_by_failure():\n            os.fdatasync(segment.fd)\n        if begins:\n",
        "        if begins:\n",
        (
            "tests/replication/test_synced.py"
            "::test_each_batch_of_the_journal_is_synced_and_a_segment_before_it_is_named",
        ),
    ),
    Mutant(
        "a_segment_of_the_journal_is_named_before_it_is_synced",
        "a power loss leaves a segment without a frame, and the log is refused",
        "        with self._condemned_by_failure():\n            os.fdatasync(segment.fd)\n        if begins:\n            self._name(segment)\n",
        "        if begins:\n            self._name(segment)\n        os.fdatasync(segment.fd)\n",
        (
            "tests/replication/test_synced.py"
            "::test_each_batch_of_the_journal_is_synced_and_a_segment_before_it_is_named",
        ),
    ),
    Mutant(
        "damage_of_the_journal_is_cut_off_as_an_unfinished_write",
        "what was acknowledged is gone after a restart",
        "    return lacks and not _frame_follows(",
        "    return lacks or not _frame_follows(",
        (f"{WAL}::test_a_flipped_bit_anywhere_in_what_is_written_is_refused",),
    ),
    Mutant(
        "frames_behind_a_damaged_one_are_cut_off_with_it",
        "what was acknowledged is gone after a restart",
        "    return lacks and not _frame_follows(data, at + HEADER_BYTES, mark)",
        "    return lacks",
        (f"{WAL}::test_zeros_in_place_of_any_sector_before_the_last_frame_are_refused",),
    ),
    Mutant(
        "an_unfinished_write_is_refused",
        "a node does not start after a power loss",
        "unfinished = self._lost_power or wal_frames.is_unfinished(data, self._end, segment.mark)",
        "unfinished = self._lost_power",
        (POWER,),
    ),
    Mutant(
        "frames_are_written_over_an_unfinished_one",
        "a frame is followed by the remains of another, and the log is refused",
        "            self._end = segment.size_bytes  #",
        "            pass  #",
        (f"{WAL}::test_what_is_left_of_an_unfinished_write_is_never_written_over",),
    ),
    Mutant(
        "frames_count_that_another_segment_has_replaced",
        "a log is refused whose unfinished write turns out to be whole",
        "    while sequence != end and (frame",
        "    while (frame",
        (f"{WAL}::test_what_is_left_of_an_unfinished_write_is_never_written_over",),
    ),
    Mutant(
        "the_last_frame_is_not_written_again_when_the_journal_is_opened",
        "what a killed process had not synced is acknowledged, and goes with the power",
        "        _write(segment.fd, data[first : self._end], first)\n",
        "",
        (
            "tests/replication/test_synced.py"
            "::test_the_last_batch_of_the_journal_is_written_and_synced_again_when_it_is_opened",
        ),
    ),
    Mutant(
        "the_names_of_segments_are_not_synced_when_the_journal_is_opened",
        "a segment that a killed process has made goes with the power, or an LMDB comes back",
        "        for there in (self._folder, self._folder.parent):  # the process before may have ended without it\n"
        "            sync_path(there)\n",
        "",
        (
            "tests/replication/test_synced.py"
            "::test_the_last_batch_of_the_journal_is_written_and_synced_again_when_it_is_opened",
        ),
    ),
    Mutant(
        "a_batch_of_the_journal_is_written_after_one_that_failed",
        "a second sync succeeds for what the first one has lost",
        "        if self._failed or self._flush_failed:\n"
        '            raise JournalMisused("a write after one that failed")\n',
        "",
        (f"{WAL}::test_a_failed_write_is_not_taken_in",),
    ),
    Mutant(
        "frames_need_not_follow_each_other",
        "a frame that the disk has put in the place of another counts",
        "        if (frame.fields.sequence, frame.fields.crc_before) != (sequence, crc):",
        "        if False:",
        (f"{WAL}::test_a_frame_that_lies_where_another_was_is_refused",),
    ),
    Mutant(
        "a_log_of_which_no_frame_is_left_counts_as_new",
        "term, vote and what was acknowledged are forgotten",
        "        if last == self._end or (",
        "        if (",
        (f"{WAL}::test_a_segment_without_a_frame_is_refused",),
    ),
    Mutant(
        "a_segment_may_have_any_length",
        "a file that was cut where a frame ends has lost what was acknowledged",
        "    if header.size_bytes != size_bytes:",
        "    if False:",
        (f"{WAL}::test_a_file_that_is_cut_is_refused_also_where_a_frame_ends",),
    ),
    Mutant(
        "a_frame_is_filled_with_zeros",
        "damage to the last batch is cut off as an unfinished write",
        '_FILL: Final = b"\\xff"',
        '_FILL: Final = b"\\0"',
        (f"{WAL}::test_damage_to_a_last_frame_that_ends_in_zeros_is_refused",),
    ),
    Mutant(
        "a_whole_log_is_taken_over_again_from_an_lmdb_beside_it",
        "what was acknowledged since the takeover is gone",
        "        if head is None and old is not None:\n",
        "        if old is not None:\n",
        (f"{TAKEOVER}::test_an_lmdb_beside_a_whole_log_is_removed_and_not_taken_over_again",),
    ),
    Mutant(
        "a_takeover_that_was_interrupted_counts_as_done",
        "LMDB goes before all of it is in the log",
        "    if (folder / MARK).exists():\n",
        "    if False:\n",
        (f"{TAKEOVER}::test_a_takeover_that_was_interrupted_begins_anew",),
    ),
    Mutant(
        "the_body_of_a_frame_is_not_compared",
        "half a batch is taken for a whole one",
        "    if len(body) < fields.body_bytes or google_crc32c.value(body) != fields.body_crc:",
        "    if len(body) < fields.body_bytes:",
        (POWER,),
    ),
    Mutant(
        "segments_of_the_journal_need_not_follow_each_other",
        "a lost segment in the middle is read over",
        "        elif (following.sequence, following.crc_before) != (self._sequence + 1, self._crc):",
        "        elif False:",
        (f"{WAL}::test_a_missing_segment_is_refused",),
    ),
    Mutant(
        "lmdb_goes_before_the_log_that_replaces_it_is_checked",
        "a damaged journal is deleted",
        "        Journal(log, incarnation=1)  # it checks all of it\n",
        "",
        (
            "tests/replication/journal/test_lmdb_takeover.py::test_no_lost_page_is_read_over_or_ends_the_process",
        ),
    ),
    Mutant(
        "the_journal_of_a_folder_that_was_put_back_is_deleted",
        "a node that was started on an empty folder deletes the journal that is put there",
        "        if head is None and old is not None:\n",
        "        if False:\n",
        (
            "tests/replication/journal/test_lmdb_takeover.py::test_an_lmdb_that_is_put_into_the_folder_of_an_empty_log_is_taken_over",
        ),
    ),
    Mutant(
        "one_of_two_journals_is_deleted",
        "of two journals in a folder one is deleted",
        "parse_head(head).incarnation != old.incarnation:",
        "False:",
        (
            "tests/replication/journal/test_lmdb_takeover.py::test_a_log_and_an_lmdb_of_two_journals_are_refused_and_both_kept",
        ),
    ),
    Mutant(
        "a_mark_of_a_takeover_stays",
        "a mark that was left over makes a later LMDB replace the log",
        "        (folder / MARK).unlink(missing_ok=True)\n",
        "",
        (
            "tests/replication/journal/test_lmdb_takeover.py::test_a_mark_that_a_takeover_left_does_not_outlive_the_next_start",
        ),
    ),
    Mutant(
        "segments_that_nobody_needs_stay_at_the_opening",
        "segments without entries fill the disk of a node that writes little",
        "        while self._has_removable():\n            self._unlink_first()\n\n    def _open_segment",
        "\n    def _open_segment",
        (
            "tests/replication/journal/test_write_ahead_log.py::test_segments_that_no_entry_needs_go_at_the_next_opening",
        ),
    ),
    Mutant(
        "a_full_disk_ends_a_node_that_has_segments_to_remove",
        "a full disk ends a node whose segments have no entries",
        "if error.errno not in _FULL or not self._has_removable():",
        "if True:",
        (
            "tests/replication/journal/test_write_ahead_log.py::test_segments_that_no_entry_needs_make_room_on_a_full_disk",
        ),
    ),
    Mutant(
        "what_is_retained_counts_payloads_alone",
        "small entries keep many times the disk and the time to open that was configured",
        "return max(of_payloads, min(index, self._storage.first_within(bytes_max)))",
        "return of_payloads",
        (
            "tests/replication/journal/test_write_ahead_log.py::test_what_is_retained_is_bounded_by_what_the_log_takes_on_the_disk",
        ),
    ),
    Mutant(
        "a_new_segment_counts_as_a_slow_disk",
        "each new segment makes the journal's writes go by a thread for a while",
        "            run = self._write_journal.long\n",
        "            pass\n",
        (
            "tests/replication/test_cluster.py::test_a_write_that_takes_long_whatever_the_disk_does_not_tell_of_the_disk",
        ),
    ),
    Mutant(
        "a_stall_in_a_thread_is_remembered",
        "a busy machine writes the journal by a thread for half a minute, again and again",
        "if took_s >= STALL_S and now < self._pause_ends_s:",
        "if took_s >= STALL_S:",
        (
            "tests/replication/driver/test_adaptive_writes.py::test_a_stall_in_a_thread_alone_is_not_remembered",
        ),
    ),
    Mutant(
        "what_is_larger_is_written_on_the_loop_as_long_as_what_is_small",
        "many batches make entries of one each, with half as many messages a second",
        "quick_s = SMALL_QUICK_S if size_bytes <= SMALL_BYTES_MAX else QUICK_S",
        "quick_s = SMALL_QUICK_S",
        (
            "tests/replication/driver/test_adaptive_writes.py::test_one_slow_write_is_enough_to_go_to_a_thread_for_a_while",
        ),
    ),
    Mutant(
        "a_long_write_counts_as_a_slow_disk",
        "each new segment makes the journal's writes go by a thread for a while",
        "return await self._in_thread(work)",
        "return await self._in_thread(lambda: self._timed(work, self._note))",
        (
            "tests/replication/driver/test_adaptive_writes.py::test_a_long_write_goes_to_the_same_thread_and_says_nothing_of_the_disk",
        ),
    ),
    Mutant(
        "no_segment_is_allocated_ahead",
        "each new segment holds up votes and small writes",
        "            if self._lacks_next():\n",
        "            if False:\n",
        (f"{WAL}::test_a_segment_is_allocated_ahead_and_named_with_its_first_frame",),
    ),
    Mutant(
        "upkeep_of_the_journal_never_begins",
        "segments without entries fill the disk until the next start",
        "            self._begin_upkeep()\n",
        "            pass\n",
        (
            "tests/replication/test_cluster.py"
            "::test_upkeep_of_the_journal_runs_beside_the_turns_and_its_error_ends_the_node",
        ),
    ),
    Mutant(
        "a_full_disk_ends_a_node_whose_segment_has_room",
        "a node ends before its log needs the disk",
        "                    if error.errno not in _FULL:\n                        raise\n",
        "                    raise\n",
        (f"{WAL}::test_a_full_disk_is_told_by_the_write_that_needs_a_segment_not_by_upkeep",),
    ),
)
