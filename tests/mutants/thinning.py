"""Mutants of what gives disk space back: thinned hours and expired groups."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WHEEL = "tests/wheel/test_thinning.py"
QUEUE = "tests/replication/state_machine/test_ready_queue.py"
EXPIRY = "tests/node/leader/test_group_expiry.py"
TRIMMED = "tests/node/delivery/test_trimmed_groups.py"
NODE = "tests/node/recovery/test_thinning.py"

MUTANTS = (
    Mutant(
        "an_hour_goes_while_idempotency_keys_of_it_count",
        "a producer that starts again schedules a second message with the same key",
        "end_ms = min(self._machine.frontier_ms, now_ms - self.window_ms)",
        "end_ms = self._machine.frontier_ms",
        (
            "tests/node/leader/test_retention.py::test_an_hour_is_kept_until_its_end_lies_the_window_of_idempotency_keys_behind",
        ),
    ),
    Mutant(
        "the_window_of_the_configuration_counts_for_retention",
        "a longer window that an operator sets keeps no hour",
        "self._kept.window_ms = times.idempotency_window_ms",
        "self._kept.window_ms = self._settings.idempotency_window_ms",
        ("tests/node/leader/test_retention.py::test_retention_goes_by_the_window_that_counts_now",),
    ),
    Mutant(
        "an_hour_is_thinned_while_idempotency_keys_of_it_count",
        "the key of a message that was cancelled, or acknowledged by all, is free on the nodes that have thinned",
        "(self._machine.frontier_ms - window_ms) // HOUR_MS - 1",
        "self._machine.frontier_ms // HOUR_MS - 1",
        (f"{NODE}::test_an_hour_is_whole_while_idempotency_keys_of_its_messages_count",),
    ),
    Mutant(
        "any_thin_index_is_taken_after_a_crash",
        "messages are gone that a checkpoint needs",
        "if thin.stat().st_size >= size and checksum(thin, size) == state.index_crc:",
        "if thin.stat().st_size >= size:",
        (f"{WHEEL}::test_a_crash_between_any_two_steps_loses_nothing_that_a_checkpoint_names",),
    ),
    Mutant(
        "an_hour_that_has_changed_is_thinned",
        "a message that came meanwhile is gone",
        "            and (partition.units, partition.log.index_crc) == (state.units, state.index_crc)\n",
        "",
        (f"{WHEEL}::test_an_hour_that_changes_meanwhile_is_not_thinned",),
    ),
    Mutant(
        "a_rotten_index_is_thinned",
        "rot gets a checksum of its own, and is found no more",
        "        if crc != state.index_crc:\n            raise WheelDamaged(source,",
        "        if False:\n            raise WheelDamaged(source,",
        (f"{WHEEL}::test_an_index_that_has_rotted_is_not_written_anew",),
    ),
    Mutant(
        "hours_are_thinned_under_a_snapshot",
        "an index changes while it is sent",
        "return self._checkpoints.writing.locked() or self._machine.snapshots > 0",
        "return False",
        (f"{NODE}::test_nothing_is_thinned_while_a_snapshot_is_given_away",),
    ),
    Mutant(
        "the_last_page_goes_under_a_snapshot",
        "a backup fails, for a log is not what was told of it",
        "        if not self._is_busy():  # else a snapshot",
        "        if True:  # else a snapshot",
        (f"{NODE}::test_a_snapshot_gives_what_it_has_told_also_of_hours_that_were_thinned_just_before",),
    ),
    Mutant(
        "a_part_of_a_thin_index_is_taken_for_all_of_it",
        "a full disk damages an index that no peer has",
        "if os.pwrite(target.fileno(), pages, start * UNIT_BYTES + begin) != len(pages):",
        "if not os.pwrite(target.fileno(), pages, start * UNIT_BYTES + begin):",
        (f"{WHEEL}::test_an_index_of_which_a_full_disk_takes_only_a_part_is_not_used",),
    ),
    Mutant(
        "an_index_is_not_found_while_it_gets_its_name",
        "a node ends, or finds damage that is none",
        "    except FileNotFoundError:\n        return use(folder / INDEX_NAME)\n",
        "    except NotADirectoryError:\n        return use(folder / INDEX_NAME)\n",
        (f"{WHEEL}::test_an_index_is_found_whenever_the_thread_gives_it_its_name",),
    ),
    Mutant(
        "an_hour_is_thinned_with_what_came_since_queues_were_read",
        "a message that came meanwhile is gone",
        "if state is None or state.units != units or not len(kept) or self._is_busy():",
        "if state is None or not len(kept) or self._is_busy():",
        (f"{NODE}::test_what_comes_or_is_released_meanwhile_stays",),
    ),
    Mutant(
        "the_last_page_goes_though_something_has_come",
        "a message that came meanwhile is gone",
        "if partition is not None and partition.log.index_crc == one.index_crc:",
        "if partition is not None:",
        (f"{WHEEL}::test_what_comes_before_the_last_page_goes_keeps_it",),
    ),
    Mutant(
        "the_last_page_goes_though_a_record_lies_in_it",
        "a message that is kept is gone",
        "if thinned.kept_bytes <= begin < thinned.state.log_bytes:",
        "if begin < thinned.state.log_bytes:",
        (f"{WHEEL}::test_the_last_page_of_a_log_goes_where_nothing_is_kept_in_it_and_nothing_has_come",),
    ),
    Mutant(
        "a_queue_gives_back_the_block_that_it_goes_on_in",
        "what is left of a ready queue cannot be proven",
        "        end = self.first - self.first % BLOCK_UNITS\n        segment, within",
        "        end = self.first\n        segment, within",
        (
            f"{QUEUE}::test_a_segment_gives_back_what_a_durable_checkpoint_trims_but_for_the_block_it_goes_on_in",
        ),
    ),
    Mutant(
        "a_queue_gives_back_what_a_snapshot_sends",
        "a replica is sent zeros",
        "while self._holes and self.snapshots == 0:",
        "while self._holes:",
        (
            f"{QUEUE}::test_a_segment_gives_back_what_a_durable_checkpoint_trims_but_for_the_block_it_goes_on_in",
        ),
    ),
    Mutant(
        "what_expires_of_all_queues_goes_in_one_command",
        "what many groups have not had in time holds up every replica",
        "or expired + more > EXPIRED_ALL:",
        "or False:",
        ("tests/node/leader/test_retention.py::test_so_do_retries_of_many_groups",),
    ),
    Mutant(
        "a_retry_that_expires_keeps_its_lane_closed",
        "what follows it under its key is delivered never",
        "if opens and self.blocked.any_of(queue):",
        "if False:",
        ("tests/replication/state_machine/test_lanes.py::test_a_retry_that_expires_opens_its_lane",),
    ),
    Mutant(
        "retries_expire_while_a_node_of_before_is_there",
        "a node of 0.2.0 keeps a lane closed that others have opened",
        "if queue.group and self._machine.level < levels.RETRIES_EXPIRE:",
        "if False:",
        ("tests/node/leader/test_retention.py::test_a_retry_that_is_too_old_goes_with_its_topics_setting",),
    ),
    Mutant(
        "a_group_begins_anew_whenever_something_expires",
        "all that consumers have in hand is delivered twice, unmarked",
        "            known.forget_trimmed()\n",
        "            known.begin_again()\n",
        (f"{TRIMMED}::test_what_is_in_hand_above_the_cut_stays_in_hand_and_can_be_acknowledged",),
    ),
    Mutant(
        "what_expires_in_hand_keeps_its_lease",
        "a lease ends of what cannot be read any more, and its key waits for ever",
        " if batch.lowest < first]",
        " if batch.lowest < 0]",
        (f"{TRIMMED}::test_what_expires_in_hand_is_stale_and_lets_what_waits_for_its_key_out",),
    ),
    Mutant(
        "a_retry_reads_what_has_expired",
        "the leader ends, for the message's hour is gone",
        "        if int(offsets.min()) < feed.queue.first:\n            return None\n        bytes_max",
        "        bytes_max",
        (f"{TRIMMED}::test_a_nack_of_what_expires_meanwhile_reads_nothing_of_it",),
    ),
    Mutant(
        "a_new_leader_waits_for_no_consumers",
        "groups are deleted whose consumers are about to come back",
        "return True if idle_ms >= expires_ms + noted_ms and now_ms >= returned_ms else None",
        "return True if idle_ms >= expires_ms + noted_ms else None",
        (
            f"{EXPIRY}::test_consumers_have_time_to_come_back_to_a_new_leader",
            f"{EXPIRY}::test_after_the_cluster_was_away_they_have_as_long_as_it_was",
        ),
    ),
    Mutant(
        "a_group_that_opens_meanwhile_is_deleted",
        "a consumer that has just come loses its group",
        "due = self._step(one.topic, one.group, self._counting())",
        "due = one",
        (
            f"{EXPIRY}::test_a_group_that_is_opened_while_others_are_deleted_stays",
            f"{EXPIRY}::test_a_group_that_is_used_or_wanted_while_others_are_deleted_stays",
        ),
    ),
    Mutant(
        "a_group_expires_that_is_being_made",
        "an operator's new group is gone at once, and what it was to get",
        "if due is None or (due.expired and self._moves.under_way):",
        "if due is None:",
        (f"{EXPIRY}::test_no_group_is_deleted_while_one_is_being_made_or_moved",),
    ),
    Mutant(
        "a_group_of_before_becomes_what_its_consumer_says",
        "an upgrade has operators' groups deleted",
        "        if not made and command.life and not command.asked:\n",
        "        if known.used_ms and command.life and not command.asked:\n",
        (
            "tests/replication/state_machine/test_group_uses.py"
            "::test_a_group_of_before_uses_were_kept_stays_whoever_consumes_as_it",
        ),
    ),
    Mutant(
        "an_expiry_for_a_group_that_is_there_is_forgotten",
        "an operator's expiry of a group that is there is answered with success, and the group stays for ever",
        "        if not made and command.life and not command.asked:\n",
        "        if not made and command.life:\n",
        (
            "tests/replication/state_machine/test_group_uses.py"
            "::test_an_operator_gives_a_group_that_is_there_another_life_and_it_keeps_its_counts",
        ),
    ),
    Mutant(
        "any_consumer_takes_its_group_with_it",
        "a consumer that calls itself temporary deletes a group of others",
        "if self._machine.queues.uses.of(*name).life != log_pb.GROUP_LIFE_TEMPORARY:",
        "if False:",
        (
            "tests/node/services/test_temporary_groups.py::test_no_consumer_takes_a_group_with_it_that_it_has_not_made_temporary",
        ),
    ),
)
