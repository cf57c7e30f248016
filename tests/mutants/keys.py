"""Mutants of the key index: what is missing in it, and what it says of messages that do not have the key."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FIND = "tests/node/keys/test_find_by_key.py"
KEEPER = "tests/node/keys/test_keeper.py"
INDEX = "tests/wheel/keys/test_key_index.py"

MUTANTS = (
    Mutant(
        "a_hash_decides_what_a_key_finds",
        "a message is found, and cancelled, by a key that it does not have",
        "if record is not None and wanted.fits(record)",
        "if record is not None",
        (f"{FIND}::test_keys_of_equal_hashes_are_told_apart_by_the_records",),
    ),
    Mutant(
        "a_second_update_forgets_what_was_scheduled",
        "a producer that starts again is refused, for its message differs from what an update made",
        "return record.scheduled_digest or digest(record)",
        "return digest(record)",
        (
            "tests/node/services/test_changes.py::test_a_message_with_an_idempotency_key_keeps_it_and_what_it_was_scheduled_with",
        ),
    ),
    Mutant(
        "other_contents_have_one_digest",
        "a message that contains something else is taken for a repetition, and is lost",
        'b"".join(_number(len(part)) + part for part in parts)',
        'b"".join(parts)',
        ("tests/proto/test_idempotency.py",),
    ),
    Mutant(
        "a_dead_letter_has_its_messages_idempotency_key",
        "the key is used in the topic of letters",
        '        record.ClearField("idempotency_key")\n',
        "",
        (
            "tests/node/delivery/test_retries.py::test_an_idempotency_key_stays_with_retries_and_a_dead_letter_has_it_as_a_property",
        ),
    ),
    Mutant(
        "an_older_index_counts_as_complete",
        "what was applied since is not found by its keys",
        "self.complete = is_empty or 0 < needed <= self._index.generation",
        "self.complete = is_empty or 0 < needed",
        (f"{KEEPER}::test_an_index_that_is_older_than_the_checkpoint_is_not_complete",),
    ),
    Mutant(
        "a_checkpoint_needs_the_generation_before",
        "what came as a checkpoint began is not found by its keys after a start",
        "max(1, self._generation + coming)",
        "max(1, self._generation)",
        (f"{KEEPER}::test_a_checkpoint_that_is_ahead_of_what_is_written_needs_the_next_generation",),
    ),
    Mutant(
        "an_index_that_is_being_built_gets_a_manifest",
        "after a start most keys are not found",
        "            if complete:\n                index.commit(generation)",
        "            if True:\n                index.commit(generation)",
        (f"{KEEPER}::test_an_index_that_is_being_built_is_none_for_the_next_start",),
    ),
    Mutant(
        "a_lookup_passes_over_records_that_could_not_be_read",
        "a message whose record was damaged as the index was built is never found, though it is mended",
        "hashes = (key_hash, UNREAD)",
        "hashes = (key_hash,)",
        (f"{FIND}::test_a_message_with_a_damaged_record_is_counted_and_found_once_it_is_mended",),
    ),
    Mutant(
        "a_key_that_a_message_names_often_ends_a_page",
        "later messages of the key are not found",
        "        if len(some) >= most:\n            return some[:most]",
        "        return some[:most]",
        (f"{KEEPER}::test_what_is_gathered_gives_the_first_ids_of_a_hash_each_once",),
    ),
    Mutant(
        "what_is_deleted_meanwhile_ends_a_lookup",
        "messages of other hours are not found, and not cancelled, by their key",
        "left = places[np.searchsorted(places, part[0]) :]",
        "left = places[:0]",
        (f"{KEEPER}::test_what_is_deleted_while_records_are_read_hides_no_other_message",),
    ),
    Mutant(
        "what_is_thinned_meanwhile_ends_an_hour_that_is_far_off",
        "an index counts as complete that lacks messages",
        "                    await asyncio.sleep(0)\n                    break\n                found.append(",
        "                    left = left[:0]\n                    break\n                found.append(",
        (f"{KEEPER}::test_a_message_that_is_thinned_while_an_index_is_built_leaves_no_other_out",),
    ),
    Mutant(
        "a_merge_fills_the_disk",
        "the node's journal has no room",
        "- size_bytes >= self._disk_free_bytes_min",
        ">= self._disk_free_bytes_min",
        (f"{KEEPER}::test_where_the_disk_is_nearly_full_nothing_is_merged_or_built",),
    ),
    Mutant(
        "an_index_makes_the_folder_of_its_state",
        "the folder of a replaced state is there again, and holds its space",
        "self.folder.mkdir(exist_ok=True)\n            sync_path(self.folder.parent)",
        "self.folder.mkdir(parents=True, exist_ok=True)\n            sync_path(self.folder.parent)",
        (f"{INDEX}::test_what_is_written_late_fails_where_the_folder_was_removed",),
    ),
    Mutant(
        "hashing_keys_takes_no_time",
        "requests with many keys that come together hold up the event loop",
        "size += KEY_BYTES * min(raw.count(KEY_TAG), keys_max)",
        "size += 0",
        ("tests/node/keys/test_turns.py::test_keys_count_in_a_requests_share_of_a_turn",),
    ),
    Mutant(
        "a_checkpoint_leaves_keys_in_memory",
        "each start builds the index again, and answers no lookup meanwhile",
        "        await self.keys.write()\n",
        "",
        (f"{FIND}::test_keys_are_found_after_a_start_with_and_without_what_the_checkpoint_has",),
    ),
    Mutant(
        "an_index_that_failed_counts_as_complete",
        "keys that the disk did not take are not found",
        "        self.complete = False\n",
        "",
        (
            f"{KEEPER}::test_where_the_disk_takes_keys_too_slowly_memory_has_a_bound_and_the_index_is_built_again",
        ),
    ),
    Mutant(
        "a_block_is_not_compared_with_its_checksum",
        "a damaged index misses messages, and nobody is told",
        "if google_crc32c.value(bytes(data[at : at + BLOCK_BYTES])) != self._crcs[block]:",
        "if False:",
        (f"{INDEX}::test_a_damaged_run_is_found_by_its_checksums_and_never_answers",),
    ),
    Mutant(
        "a_run_that_is_not_synced",
        "after a power loss the index has runs that are empty",
        "    sync_path(path)\n    return Run(",
        "    return Run(",
        (f"{INDEX}::test_power_lost_at_any_call_leaves_all_that_was_committed",),
    ),
    Mutant(
        "what_is_in_memory_is_not_looked_at",
        "what was just acknowledged is not found by its keys",
        "for some in (self._gathered, self._writing) for part",
        "for some in (self._writing,) for part",
        (f"{FIND}::test_each_message_is_found_by_each_of_its_keys_in_its_topic_alone",),
    ),
    Mutant(
        "what_is_being_written_is_not_looked_at",
        "what is on its way to the disk is not found by its keys",
        "for some in (self._gathered, self._writing) for part",
        "for some in (self._gathered,) for part",
        (f"{KEEPER}::test_what_is_on_its_way_to_the_disk_is_found",),
    ),
    Mutant(
        "a_damaged_record_has_no_row",
        "a message whose record was damaged as the index was built is never found, though it is mended",
        "np.flatnonzero([record is None for record in part.records])",
        "np.empty(0, np.intp)",
        (f"{FIND}::test_a_message_with_a_damaged_record_is_counted_and_found_once_it_is_mended",),
    ),
    Mutant(
        "an_entry_without_noted_keys_has_none",
        "what a leader of 0.2.0 scheduled is not found by its keys",
        "if command.keys_noted and 2 * len(message) == len(key_hash)",
        "if 2 * len(message) == len(key_hash)",
        (f"{FIND}::test_an_entry_of_a_leader_that_tells_no_keys_is_looked_into",),
    ),
    Mutant(
        "a_token_reads_bodies_of_any_topic_that_it_sees",
        "who may only operate reads messages",
        "if request.records and None not in refusals:",
        "if False:",
        (f"{FIND}::test_what_a_caller_may_not_know_of_is_answered_as_if_it_were_not_there",),
    ),
)
