"""Mutants of what bounds memory and turns of the event loop: producers, entries by cost, and work in pieces."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MANY = "tests/replication/state_machine/test_many_producers.py"
SILENT = f"{MANY}::test_who_is_silent_for_longer_makes_room_and_nobody_else"
FULL = f"{MANY}::test_new_producers_are_refused_at_the_limit_until_one_has_been_silent"
AGAIN = f"{MANY}::test_a_replica_that_started_again_forgets_and_refuses_the_same"
TABLE = "tests/replication/state_machine/test_producer_answers.py"
COSTS = "tests/replication/state_machine/test_command_costs.py"

PRODUCERS = (
    Mutant(
        "a_producer_is_forgotten_while_it_may_retry",
        "a retry is scheduled twice",
        "return stalest.heard_ms + bounds.silent_ms < bounds.now_ms",
        "return True",
        (SILENT,),
    ),
    Mutant(
        "a_producer_is_silent_a_millisecond_too_soon",
        "a retry at its last moment is scheduled twice",
        "return stalest.heard_ms + bounds.silent_ms < bounds.now_ms",
        "return stalest.heard_ms + bounds.silent_ms <= bounds.now_ms",
        (SILENT,),
    ),
    Mutant(
        "a_producer_that_goes_on_counts_as_silent",
        "its retries are scheduled twice",
        "            known.heard_ms = max(known.heard_ms, bounds.now_ms)\n",
        "            known.heard_ms = known.heard_ms or bounds.now_ms\n",
        (f"{MANY}::test_a_producer_that_goes_on_is_not_silent",),
    ),
    Mutant(
        "a_clock_that_steps_back_makes_a_producer_silent",
        "a retry after a failover is scheduled twice",
        "known.heard_ms = max(known.heard_ms, bounds.now_ms)",
        "known.heard_ms = bounds.now_ms",
        (f"{MANY}::test_a_clock_that_is_set_back_makes_nobody_silent_sooner",),
    ),
    Mutant(
        "one_producer_more_than_there_may_be",
        "the bound of producers is overrun",
        "and len(self._table) + coming >= bounds.producers_max",
        "and len(self._table) + coming > bounds.producers_max",
        (FULL,),
    ),
    Mutant(
        "producers_of_one_entry_are_not_counted",
        "the bound of producers is overrun by an entry's",
        "and len(self._table) + coming >= bounds.producers_max",
        "and len(self._table) >= bounds.producers_max",
        (f"{MANY}::test_new_producers_of_one_entry_are_counted_together",),
    ),
    Mutant(
        "producers_that_are_known_are_refused_too",
        "at the limit nobody schedules any more",
        "            and producer not in self._table\n            and (coming",
        "            and (coming",
        (FULL,),
    ),
    Mutant(
        "the_bound_of_producers_is_not_looked_at",
        "memory grows with names",
        "return admission.too_many_producers(bounds) if self._producers.full(producer, bounds) else None",
        "return None",
        (FULL,),
    ),
    Mutant(
        "silent_producers_give_no_room",
        "at the limit new producers are refused for ever",
        "and (coming > 0 or not self._silent(bounds))",
        "and True",
        (FULL,),
    ),
    Mutant(
        "all_silent_producers_go_at_once",
        "one entry holds up the event loop",
        "for _ in range(FORGOTTEN_AT_ONCE_MAX):",
        "while True:",
        (f"{MANY}::test_many_that_were_silent_are_forgotten_a_few_at_a_time",),
    ),
    Mutant(
        "a_bound_below_those_kept_frees_nothing",
        "the table stays beyond its bound",
        "most = min(self._producers_kept, bounds.producers_max)",
        "most = self._producers_kept",
        (f"{MANY}::test_there_are_no_more_than_the_limit_also_where_more_would_be_remembered",),
    ),
    Mutant(
        "old_entries_have_the_new_bound",
        "a log of before is applied otherwise than it was",
        "        if not bounds.producers_max:\n            if len(self._table) > self._producers_kept:\n",
        "        if not bounds.producers_max:\n            if False:\n",
        (f"{MANY}::test_an_entry_from_before_the_bound_does_what_it_did",),
    ),
    Mutant(
        "answers_of_who_is_forgotten_count_on",
        "answers are forgotten though there is room, in time all",
        "        self.answers_bytes -= sum(map(len, stalest.answers.values()))\n",
        "",
        (f"{TABLE}::test_the_stalest_producer_makes_room",),
    ),
    Mutant(
        "when_a_producer_was_heard_is_not_in_the_checkpoint",
        "a restarted replica forgets others than the rest does",
        "            heard_ms=self.heard_ms,\n",
        "",
        (AGAIN,),
    ),
    Mutant(
        "when_a_producer_was_heard_is_not_recovered",
        "a restarted replica forgets others than the rest does",
        "known = _Producer(checkpoint.floor, checkpoint.highest, checkpoint.heard_ms, answers, captured)",
        "known = _Producer(checkpoint.floor, checkpoint.highest, 0, answers, captured)",
        (AGAIN,),
    ),
    Mutant(
        "who_was_heard_last_is_forgotten_first",
        "retries of busy producers are scheduled twice",
        "        self._table.move_to_end(producer)\n",
        "",
        (f"{TABLE}::test_the_stalest_producer_makes_room",),
    ),
    Mutant(
        "commands_bear_no_bound_of_producers",
        "memory grows with names",
        "            command.producers_max = self.limits.producers_max\n",
        "",
        (
            "tests/node/services/test_schedule_request.py"
            "::test_a_producer_s_command_has_the_leader_s_bounds_and_one_without_a_name_none",
        ),
    ),
    Mutant(
        "answers_of_any_size_are_kept",
        "memory grows with answers",
        "while self.answers_bytes > self._answers_bytes_max:",
        "while False:",
        (
            f"{TABLE}::test_answers_beyond_the_bytes_are_forgotten_stalest_producer_first_and_their_retries_are_too_old",
        ),
    ),
)

COST = (
    Mutant(
        "due_times_of_the_leader_cost_nothing",
        "delays over many hours hold up the event loop",
        "HOUR_NS * _hours(command.due_ms or request.due_ms)",
        "HOUR_NS * _hours(request.due_ms)",
        (f"{COSTS}::test_the_due_times_that_the_leader_worked_out_count",),
    ),
    Mutant(
        "an_hour_less_than_there_are",
        "an entry is filled with more than a turn may take",
        "return min(len(due), int(due.max()) // HOUR_MS - int(due.min()) // HOUR_MS + 1)",
        "return min(len(due), int(due.max()) // HOUR_MS - int(due.min()) // HOUR_MS)",
        (f"{COSTS}::test_a_schedule_costs_by_messages_and_hours",),
    ),
    Mutant(
        "cancels_of_many_hours_cost_nothing_more",
        "cancels over many hours hold up the event loop",
        "return len(ids) * MESSAGE_NS + HOUR_NS * len(np.unique(ids))",
        "return len(ids) * MESSAGE_NS",
        (f"{COSTS}::test_a_cancel_costs_by_hours_too",),
    ),
    Mutant(
        "retries_cost_nothing",
        "nacks of many hold up the event loop",
        "return len(command.records) * record_ns + _blocks_ns(command.offset, copies=copies)",
        "return 0",
        (f"{COSTS}::test_whatever_names_more_costs_more",),
    ),
    Mutant(
        "blocks_of_a_queue_cost_nothing",
        "acks of messages far apart hold up every replica",
        "return BLOCK_NS * blocks * (2 if copies else 1)",
        "return 0",
        (f"{COSTS}::test_what_settles_costs_by_blocks_of_the_queue_and_by_copies",),
    ),
    Mutant(
        "groups_that_begin_at_a_time_cost_nothing_more",
        "many new groups at once hold up every replica",
        "return SEARCH_NS if start.at == StartAt.START_AT_TIME else 0",
        "return 0",
        (f"{COSTS}::test_a_group_that_begins_at_a_time_costs_a_search",),
    ),
    Mutant(
        "releases_cost_nothing",
        "a backlog holds up the event loop",
        "return RELEASE_NS * (command.count + len(command.hour) // 4)",
        "return 0",
        (f"{COSTS}::test_whatever_names_more_costs_more",),
    ),
    Mutant(
        "what_overtakes_costs_nothing",
        "a backlog of many topics holds up the event loop",
        "return RELEASE_NS * (command.count + len(command.hour) // 4)",
        "return RELEASE_NS * command.count",
        (f"{COSTS}::test_whatever_names_more_costs_more",),
    ),
    Mutant(
        "trims_of_hours_cost_nothing",
        "deleting many hours holds up the event loop",
        "return sweep_ns + DROP_NS * (len(command.hour) // 4) + TRIM_NS * (len(command.queue) // 4)",
        "return sweep_ns + TRIM_NS * (len(command.queue) // 4)",
        (f"{COSTS}::test_whatever_names_more_costs_more",),
    ),
    Mutant(
        "a_turn_that_is_just_filled_is_too_full",
        "entries are smaller than they may be",
        "if commands and (len(command) > room_bytes or cost_us > room_us):",
        "if commands and (len(command) > room_bytes or cost_us >= room_us):",
        (
            "tests/replication/driver/test_proposals.py"
            "::test_an_entry_costs_no_more_than_a_turn_may_but_for_one_command",
        ),
    ),
)

UNTIL = (
    "tests/wheel/test_times.py"
    "::test_a_time_by_which_so_many_hours_have_messages_is_the_last_before_the_next_of_them"
)
SIZE = "tests/node/delivery/test_group_size.py"
TOGETHER = "tests/node/services/test_consumers_together.py"
TOLD = (
    "tests/node/delivery/test_told_groups.py"
    "::test_a_turn_that_tells_of_many_groups_has_no_room_for_deliveries_nor_for_the_end"
)
SHARE = "tests/node/delivery/test_turn_share.py"
DISPATCHER = "tests/node/leader/test_dispatcher.py"
HOURS = f"{DISPATCHER}::test_a_backlog_over_thousands_of_hours_is_released_some_hours_a_commit"

PIECES = (
    Mutant(
        "a_turn_forgets_any_number_of_entries",
        "a burst of large entries holds up the leader while hundreds of thousands of small ones are dropped",
        "min(start, self._journal.first_index + FORGOTTEN_MAX)",
        "start",
        (
            "tests/replication/test_cluster.py"
            "::test_a_turn_forgets_so_many_entries_of_the_journal_and_the_next_ones_the_rest",
        ),
    ),
    Mutant(
        "a_turn_proposes_all_that_waits",
        "many large commands at once hold up the leader",
        "if proposed_bytes and proposed_bytes + len(self._waiting[0][0]) > self._settings.turn_bytes_max:",
        "if False:",
        (
            "tests/replication/driver/test_proposals.py::test_a_turn_proposes_no_more_bytes_than_it_may_but_for_one_command",
        ),
    ),
    Mutant(
        "any_number_of_bytes_may_be_under_way",
        "what is sent and applied next is read from the disk again",
        "few_bytes = self._under_way_bytes < self._settings.entries_in_flight_bytes",
        "few_bytes = True",
        (
            "tests/replication/driver/test_proposals.py::test_nothing_is_proposed_while_as_many_bytes_are_under_way_as_may_be",
        ),
    ),
    Mutant(
        "a_backlog_of_any_number_of_hours_is_one_release",
        "after a pause one release holds up every replica",
        "until_ms = self._wheel.until_of_hours(todo.until_ms, HOURS_MAX)",
        "until_ms = todo.until_ms",
        (HOURS,),
    ),
    Mutant(
        "a_release_reaches_into_one_hour_more",
        "a release takes longer than a turn may",
        "return until_ms if beyond is None else min(until_ms, beyond * HOUR_MS - 1)",
        "return until_ms if beyond is None else min(until_ms, beyond * HOUR_MS)",
        (UNTIL,),
    ),
    Mutant(
        "a_release_counts_one_hour_too_many",
        "a release takes longer than a turn may",
        "beyond = next(islice(self._hours.counts.from_hour(first), hours_max, None), None)",
        "beyond = next(islice(self._hours.counts.from_hour(first), hours_max + 1, None), None)",
        (UNTIL,),
    ),
    Mutant(
        "acks_of_any_number_are_one_command",
        "one entry holds up every replica, or is too large for the log",
        "parts = cut(offsets, ACK_OFFSETS_MAX)",
        "parts = cut(offsets, len(offsets))",
        (f"{SIZE}::test_acks_gather_up_to_so_many_offsets_and_what_is_beyond_goes_next",),
    ),
    Mutant(
        "acks_of_any_blocks_are_one_command",
        "one entry holds up every replica that writes a ledger",
        "parts = cut(offsets, ACK_OFFSETS_MAX)",
        "parts = cut(offsets, ACK_OFFSETS_MAX, len(offsets))",
        (f"{SIZE}::test_a_command_that_acknowledges_is_of_few_blocks_of_a_queue",),
    ),
    Mutant(
        "acks_of_copies_are_of_as_many_blocks_as_others",
        "one entry holds up every replica",
        "for part in cut(offsets, ACK_COPIES_MAX, COPY_BLOCKS_MAX):",
        "for part in cut(offsets, ACK_COPIES_MAX):",
        (f"{SIZE}::test_a_command_that_acknowledges_is_of_few_blocks_of_a_queue",),
    ),
    Mutant(
        "retries_of_any_blocks_are_one_command",
        "a nack of messages far apart holds up the event loop",
        "next(cut(offsets, RETRIES_MAX, blocks_max))",
        "offsets[:RETRIES_MAX]",
        (f"{SIZE}::test_a_command_that_retries_is_of_few_blocks_of_a_queue",),
    ),
    Mutant(
        "what_is_passed_over_lets_only_its_own_feed_look",
        "a retry waits until something else happens to its group",
        "if opened or any(feed.to_look() for feed in self._feeds.values()):",
        "if opened or self._feeds[queue.queue].to_look():",
        (f"{SIZE}::test_a_retry_that_came_while_a_filter_passed_over_much_goes_out_once_that_is_committed",),
    ),
    Mutant(
        "each_lease_that_ends_is_a_command",
        "leases of single messages that end together hold up the event loop",
        "        for feed, parts in expired.items():\n            offsets, reason = np.concatenate(parts), ",
        "        for feed, offsets in ((feed, one) for feed, parts in expired.items() for one in parts):\n            reason = ",
        (f"{SIZE}::test_leases_that_end_together_share_commands",),
    ),
    Mutant(
        "leases_that_end_take_nothing_of_a_turn",
        "leases of many groups that end together hold up the event loop",
        "            self._context.turn.spend(len(offsets) / TURN_LET_GO_MAX)\n",
        "",
        (f"{SHARE}::test_leases_of_many_groups_that_end_at_once_end_in_several_turns",),
    ),
    Mutant(
        "what_is_given_back_takes_nothing_of_a_turn",
        "consumers that leave together hold up the event loop",
        "        self._context.turn.spend(count / TURN_LET_GO_MAX)\n",
        "",
        (f"{SHARE}::test_what_consumers_that_leave_together_give_back_is_shared_by_several_turns",),
    ),
    Mutant(
        "what_a_turn_has_no_room_for_is_not_given_back",
        "what a consumer had waits for the end of its leases",
        "            self._context.turn.do(partial(self._give_back_some, consumer, lost))\n        else:",
        "            pass\n        else:",
        (f"{SHARE}::test_all_that_a_consumer_gives_back_goes_out_again_at_once",),
    ),
    Mutant(
        "acks_of_any_number_go_together",
        "many consumers' acks hold up the event loop",
        "                if later := _beyond(acks, COMMIT_OFFSETS_MAX):\n                    self._acks[feed] = later + self._acks.get(feed, [])\n",
        "",
        (f"{SIZE}::test_acks_gather_up_to_so_many_offsets_and_what_is_beyond_goes_next",),
    ),
    Mutant(
        "acks_beyond_a_flight_are_forgotten",
        "a consumer's ack is never answered",
        "                    self._acks[feed] = later + self._acks.get(feed, [])\n",
        "                    pass\n",
        (f"{SIZE}::test_acks_gather_up_to_so_many_offsets_and_what_is_beyond_goes_next",),
    ),
    Mutant(
        "nacks_of_any_number_are_one_piece",
        "one nack holds up the event loop",
        "next(cut(offsets, RETRIES_MAX, blocks_max))",
        "next(cut(offsets, len(offsets), blocks_max))",
        (f"{SIZE}::test_small_copies_share_a_command_up_to_so_many",),
    ),
    Mutant(
        "copies_of_any_size_are_one_command",
        "a nack of large records is too large for the log",
        "count = retries.fitting(sizes, bytes_max)",
        "count = len(sizes)",
        (f"{SIZE}::test_what_is_nacked_at_once_is_retried_buried_and_redriven_by_commands_of_bounded_size",),
    ),
    Mutant(
        "two_pieces_of_work_share_a_turn",
        "two requests together hold up the event loop",
        "        return await self.part(1.0, work)\n",
        "        return await self.part(0.5, work)\n",
        ("tests/node/delivery/test_many_offsets.py::test_each_piece_has_a_turn_of_its_own_whoever_asks",),
    ),
    Mutant(
        "consumers_come_any_number_in_a_turn",
        "consumers that come together hold up the event loop",
        "        raw = await anext(aiter(requests), None)\n        await self._streams.enter(1 / STREAMS)\n",
        "        raw = await anext(aiter(requests), None)\n",
        (f"{TOGETHER}::test_as_many_consumers_as_there_may_be_come_and_leave_at_once",),
    ),
    Mutant(
        "consumers_that_a_group_looks_at_take_nothing_of_a_turn",
        "consumers of a large group hold up the event loop",
        "self._context.turn.spend(1 / TURN_PUMPS_MAX + looked_at / TURN_CONSUMERS_MAX)",
        "self._context.turn.spend(1 / TURN_PUMPS_MAX)",
        (f"{SHARE}::test_a_turn_has_room_for_groups_by_the_consumers_that_they_look_at",),
    ),
    Mutant(
        "requests_of_consumers_that_come_together_are_one_turn",
        "consumers that come back together hold up the event loop",
        "        await self._requests.enter(part)\n",
        "",
        (f"{TOGETHER}::test_what_many_consumers_say_together_of_what_they_hold",),
    ),
    Mutant(
        "a_repeated_request_is_answered_in_one_turn",
        "a repeated request over thousands of hours holds up the event loop",
        "[order[rows] for rows in portions(costs_ns, PIECE_NS)]",
        "[order]",
        (
            "tests/node/test_turn_bounds.py"
            "::test_repeating_requests_whose_messages_are_many_or_lie_in_files_of_thousands_of_hours",
        ),
    ),
    Mutant(
        "a_repeated_request_with_a_deleted_hour_fails",
        "a producer that repeats a request late is told of an error for ever",
        "            due_ms = hour.astype(np.int64) * HOUR_MS\n        named",
        "            raise\n        named",
        (
            "tests/node/services/test_repeated_schedules.py::test_where_an_hour_is_deleted_the_starts_of_the_hours_are_told",
        ),
    ),
    Mutant(
        "offsets_named_twice_count_twice",
        "a message is retried twice",
        "return np.unique(np.array(offsets, dtype=np.uint64))",
        "return np.array(offsets, dtype=np.uint64)",
        ("tests/node/delivery/test_many_offsets.py::test_an_offset_that_is_named_twice_is_worked_on_once",),
    ),
    Mutant(
        "a_delivery_reads_from_any_number_of_hours",
        "a delivery holds up the event loop",
        "                most = feed.within(most, hours, opened + math.ceil(turn.left * TURN_HOURS_MAX))\n",
        "",
        (f"{SIZE}::test_a_turn_delivers_so_much_and_the_next_ones_the_rest",),
    ),
    Mutant(
        "a_turn_reads_any_number_of_bytes",
        "delivering large messages holds up the event loop",
        " + read_bytes / TURN_BYTES_MAX\n",
        "\n",
        (f"{SIZE}::test_a_turn_delivers_so_much_and_the_next_ones_the_rest",),
    ),
    Mutant(
        "a_response_has_any_number_of_bytes",
        "a consumer cannot receive what it is delivered",
        "count = delivery_batch.within(sizes, self._selection.bytes_max)",
        "count = len(taken)",
        (f"{SIZE}::test_a_turn_delivers_so_much_and_the_next_ones_the_rest",),
    ),
    Mutant(
        "a_turn_delivers_any_number",
        "a delivery holds up the event loop",
        "1 / TURN_RESPONSES_MAX + most / TURN_MESSAGES_MAX",
        "1 / TURN_RESPONSES_MAX",
        (f"{SIZE}::test_a_turn_delivers_so_much_and_the_next_ones_the_rest",),
    ),
    Mutant(
        "groups_that_are_due_together_share_no_turn",
        "a thousand groups that are due at once hold up the event loop",
        "        self._context.turn.do(self._pump_now)\n",
        "        self._pump_now()\n",
        (
            "tests/node/delivery/test_turn_share.py"
            "::test_groups_whose_messages_are_due_at_once_go_one_after_the_other_some_in_each_turn",
        ),
    ),
    Mutant(
        "copies_that_come_before_a_release_are_not_counted",
        "a release of thousands of copies for retries holds up every replica",
        "        if coming and coming + self._copies_pending() > COPIES_MAX:",
        "        if False:",
        (f"{DISPATCHER}::test_copies_that_are_applied_before_a_release_count_in_it",),
    ),
    Mutant(
        "retries_that_are_proposed_are_not_counted",
        "a release of thousands of copies for retries holds up every replica",
        "        coming = self._copies_due_soon(payload) if isinstance(payload, log_pb.RetryCommand) else 0\n",
        "        coming = 0\n",
        ("tests/node/leader/test_leadership.py::test_copies_due_soon_count_until_they_are_applied",),
    ),
    Mutant(
        "chains_of_the_far_log_cost_nothing",
        "cancels of messages far down in their hours' chains hold up the event loop",
        "costs[far] = np.minimum(counts.far[at[far]], 1 << 20) * np.uint32(_CHAINED_NS)",
        "costs[far] = 0",
        (
            "tests/node/test_turn_bounds.py"
            "::test_cancelling_and_getting_what_lies_as_badly_as_it_may[chained]",
        ),
    ),
    Mutant(
        "what_a_heartbeat_tells_counts_in_no_turn",
        "a heartbeat of hundreds of groups and their deliveries together hold up the event loop",
        "        self._context.turn.spend(len(groups) / TURN_GROUPS_SERIALIZED_MAX)\n",
        "",
        (TOLD,),
    ),
    Mutant(
        "a_leadership_ends_in_whatever_turn",
        "a heartbeat, deliveries and the end of a leadership together hold up the event loop",
        "while self._context.turn.left < LOW:",
        "while False:",
        (TOLD,),
    ),
    Mutant(
        "requests_that_come_together_are_looked_at_in_one_turn",
        "large requests that come together hold up the event loop",
        "        if part <= self._left and not self._renews:\n",
        "        if True:\n",
        (
            "tests/node/edge/test_intake_turns.py"
            "::test_requests_that_come_together_take_no_more_than_a_turn_each_time_and_keep_their_order",
        ),
    ),
    Mutant(
        "a_small_request_overtakes_large_ones",
        "messages of one key are scheduled in another order than they were sent in",
        "        if part <= self._left and not self._renews:\n",
        "        if part <= self._left:\n",
        (
            "tests/node/edge/test_intake_turns.py::test_a_request_that_comes_later_overtakes_none_however_small_it_is",
        ),
    ),
    Mutant(
        "a_snapshot_is_asked_for_with_any_number_of_files",
        "a peer's request holds up the event loop",
        "        if len(request.kept) > KEPT_FILES_MAX:\n",
        "        if False:\n",
        (
            "tests/replication/transport/test_peer_transport.py"
            "::test_a_snapshot_is_asked_for_with_so_many_files_at_most",
        ),
    ),
    Mutant(
        "more_files_are_named_to_a_peer_than_it_takes",
        "a follower never gets a state of very many files once an arrival was interrupted",
        "nlargest(KEPT_FILES_MAX, some, key=lambda file: file.size_bytes)",
        "some",
        (
            "tests/replication/snapshot/test_transfer.py"
            "::test_of_more_files_than_a_request_may_name_the_largest_are_named",
        ),
    ),
    Mutant(
        "a_trim_names_any_number_of_hours",
        "deleting a year's hours holds up every replica",
        "    for start in range(0, len(queues) + len(hours), TRIMMED_MAX):\n        end = start + TRIMMED_MAX\n",
        "    for start in range(0, min(1, len(queues) + len(hours))):\n        end = len(queues) + len(hours)\n",
        (
            "tests/node/leader/test_retention.py::test_thousands_of_hours_go_some_with_each_command_and_after_the_offsets",
        ),
    ),
    Mutant(
        "planning_retention_takes_one_turn",
        "looking at many queues holds up the event loop",
        "            async for _ in self._hours.read(queue, cut):\n                await asyncio.sleep(0)\n",
        "            async for _ in self._hours.read(queue, cut):\n                pass\n",
        ("tests/node/leader/test_retention.py::test_what_is_kept_is_read_once_and_in_bounded_steps",),
    ),
    Mutant(
        "many_queues_are_looked_at_in_one_turn",
        "looking at many queues holds up the event loop",
        "            await asyncio.sleep(0)\n            cut, hard[queue.queue] = await self.reads.read_ahead_for(partial(self._cut, queue, now_ms))\n",
        "            cut, hard[queue.queue] = await self.reads.read_ahead_for(partial(self._cut, queue, now_ms))\n",
        ("tests/node/leader/test_retention.py::test_many_queues_are_looked_at_over_many_turns",),
    ),
    Mutant(
        "a_group_that_goes_back_meanwhile_is_not_seen",
        "a group finds what it has gone back for deleted",
        "            if self._floor(machine.queues[number], cut) < cut and cut > hard[number]:\n",
        "            if False:\n",
        (
            "tests/node/leader/test_retention.py::test_nothing_is_cut_where_a_group_goes_back_during_the_planning",
        ),
    ),
    Mutant(
        "a_block_that_has_grown_is_not_read_again",
        "an hour that a message points into is deleted",
        "            if known.end < end:\n",
        "            if known.end < begin + 1:\n",
        ("tests/node/leader/test_retention.py::test_an_hour_goes_whole_once_nothing_points_into_it",),
    ),
    Mutant(
        "all_groups_are_looked_at_with_one_heartbeat",
        "a heartbeat of 20,000 groups holds the loop for 60 ms",
        "        looked_at = self._to_look_at[-CLOSE_LOOKS_MAX:]\n        del self._to_look_at[-CLOSE_LOOKS_MAX:]\n",
        "        looked_at, self._to_look_at = self._to_look_at, []\n",
        (
            "tests/node/delivery/test_idle_groups.py"
            "::test_of_many_groups_that_nobody_uses_each_heartbeat_closes_some",
        ),
    ),
)

MUTANTS = (*PRODUCERS, *COST, *PIECES)
