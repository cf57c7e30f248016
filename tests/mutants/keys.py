"""Mutants of the key index: what is missing in it, and what it says of messages that do not have the key."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

FIND = "tests/node/keys/test_find_by_key.py"
KEEPER = "tests/node/keys/test_keeper.py"
INDEX = "tests/wheel/keys/test_key_index.py"
CRASHES = (
    f"{KEEPER}::test_after_crashes_at_any_moment_every_key_is_found_or_the_index_says_that_it_is_not_complete",
)

MUTANTS = (
    Mutant(
        "a_hash_decides_what_a_key_finds",
        "a message is found, and cancelled, by a key that it does not have",
        "if record is not None and wanted.key in Record.FromString(record).keys",
        "if record is not None",
        (f"{FIND}::test_keys_of_equal_hashes_are_told_apart_by_the_records",),
    ),
    Mutant(
        "an_older_index_counts_as_complete",
        "what was applied since is not found by its keys",
        "self.complete = is_empty or 0 < needed <= self._index.generation",
        "self.complete = is_empty or 0 < needed",
        (f"{FIND}::test_a_missing_or_an_older_index_is_built_again_before_it_answers",),
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
        CRASHES,
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
