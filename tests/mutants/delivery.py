"""Mutants of the wheel, release, delivery, order, producers and time."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

EARLY = "tests/node/delivery/test_early_units.py"
FEED = "tests/node/delivery/test_feed.py"
GROUP = "tests/node/delivery/test_group.py"
DAMAGE = "tests/wheel/test_damage.py::test_a_small_index_that_rots_while_its_hour_is_open_decides_nothing"

MUTANTS = (
    Mutant(
        "a_small_index_is_not_held",
        "a bit that rots in an open hour's index makes a replica another than the others",
        "            if held:\n                self._view = np.frombuffer(held, self.unit)\n",
        "",
        (DAMAGE,),
    ),
    Mutant(
        "a_small_index_is_held_unproven",
        "a bit that rots in a closed hour's index makes a replica another than the others",
        "        self.check_index(google_crc32c.value(index))\n",
        "",
        (DAMAGE,),
    ),
    Mutant(
        "a_leader_that_was_deposed_tells_its_own_state",
        "what the next leader had delivered is delivered again, unmarked",
        "if self.delivery is None or self._heard.term > self.delivery.term:",
        "if self.delivery is None:",
        (
            "tests/node/leader/test_leadership.py"
            "::test_a_state_of_the_next_leader_that_comes_before_the_end_of_this_leadership_is_kept",
        ),
    ),
    Mutant(
        "a_message_behind_the_cut_waits_for_ever",
        "what is scheduled for now is never released",
        "return due_ms <= self.cut.due_ms if self.cut.complete else due_ms < self.cut.due_ms",
        "return due_ms < self.cut.due_ms",
        (
            "tests/wheel/test_times.py::test_a_message_of_the_millisecond_being_released_is_taken_last_and_after_it_is_overdue",
        ),
    ),
    Mutant(
        "a_cancelled_message_is_released",
        "a message is delivered though it was cancelled",
        "            if not partition.gone:\n                return head, None\n",
        "            if True:\n                return head, None\n",
        ("tests/wheel/test_times.py::test_a_message_cancelled_after_it_was_loaded_is_not_released",),
    ),
    Mutant(
        "a_released_message_is_cancelled",
        "a cancel is answered as done, and the message is delivered",
        "pending = ~gone & ~_are_behind(cut, at, units, some)",
        "pending = ~gone",
        ("tests/replication/state_machine/test_machine.py::test_a_cancelled_message_is_never_released",),
    ),
    Mutant(
        "a_message_that_a_cancel_names_twice_is_cancelled_twice",
        "the pending messages of an hour are counted too low, and some of them are not released",
        "            fresh = fresh[first_rows(some[fresh])]\n",
        "",
        ("tests/wheel/test_times.py::test_a_message_that_one_cancel_names_twice_is_cancelled_once",),
    ),
    Mutant(
        "overtaken_messages_are_released_again",
        "a message is released twice",
        "        self.lose(global_index, due_in_hour_ms)\n        self.overtaken.update(global_index)",
        "        self.overtaken.update(global_index)",
        ("tests/wheel/test_overtaking.py::test_topics_with_little_go_ahead_of_one_with_a_crowd",),
    ),
    Mutant(
        "the_cut_may_move_back",
        "messages are released twice",
        "if until_ms < self.cut.due_ms or (until_ms == self.cut.due_ms and self.cut.complete):",
        "if False:",
        ("tests/wheel/test_times.py::test_the_cut_says_how_far_everything_is_released",),
    ),
    Mutant(
        "messages_arrive_unsorted",
        "messages are released out of the order of their due times",
        "        first = by_due(_joined(",
        "        first = (_joined(",
        ("tests/wheel/test_order.py::test_many_messages_of_few_seconds_come_out_sorted_in_slices",),
    ),
    Mutant(
        "the_first_due_beyond_is_not_moved_up",
        "a message that comes in later and is due earlier is late",
        "                self._next_beyond = min(self._next_beyond, int(beyond.min()))\n",
        "                pass\n",
        (
            "tests/wheel/test_times.py::test_an_earlier_message_is_found_although_a_later_one_was_looked_for_already",
        ),
    ),
    Mutant(
        "the_chain_loses_its_head",
        "messages of a second are not found",
        "        self._head[places.second] = places.newest + 1\n",
        "",
        ("tests/wheel/test_times.py::test_nothing_pending_has_no_next_due_time",),
    ),
    Mutant(
        "an_hour_ahead_of_the_cut_is_dropped",
        "pending messages are deleted",
        "        if (hour + 1) * HOUR_MS > self._release.cut.due_ms:\n            raise ValueError",
        "        if False:\n            raise ValueError",
        ("tests/wheel/test_order.py",),
    ),
    Mutant(
        "a_retried_request_is_scheduled_again",
        "a message is scheduled twice",
        "known = self._known(*key, bounds) if producer else None",
        "known = None",
        (
            "tests/replication/state_machine/test_machine.py::test_a_repeated_request_returns_the_first_answer_and_schedules_nothing",
        ),
    ),
    Mutant(
        "a_request_twice_in_one_entry_is_scheduled_twice",
        "a message is scheduled twice",
        "if key in taken or (producer and self._producers.full(producer, bounds, len(parts))):",
        "if producer and self._producers.full(producer, bounds, len(parts)):",
        (
            "tests/replication/state_machine/test_machine.py::test_a_request_repeated_within_one_entry_is_scheduled_once",
        ),
    ),
    Mutant(
        "a_request_is_remembered_with_the_messages_of_the_next",
        "a producer that repeats a request is told of messages of another",
        "    begins[starts] = True\n",
        "    begins[0] = True\n",
        (
            "tests/replication/state_machine/test_schedule.py::test_joined_columns_make_the_state_and_the_answers_of_single_ones",
        ),
    ),
    Mutant(
        "a_record_that_does_not_parse_is_taken_for_a_short_body",
        "a consumer gets what it cannot read",
        "(tag == BODY_TAG) & (short | longer)",
        "tag == BODY_TAG",
        (
            "tests/node/services/test_schedule_request.py::test_records_are_taken_where_each_parses_and_its_body_is_small_enough",
        ),
    ),
    Mutant(
        "a_mistyped_id_among_many_is_read",
        "a message is cancelled that nobody named",
        "wrong |= np.bitwise_xor.reduce(expected, axis=0) != check",
        "wrong |= False",
        ("tests/proto/test_message_id.py::test_a_mistyped_character_among_many_is_noticed",),
    ),
    Mutant(
        "a_forgotten_request_is_scheduled_again",
        "a message is scheduled twice",
        "return known is not None and sequence < known.floor",
        "return False",
        (
            "tests/replication/state_machine/test_producer_answers.py::test_the_window_forgets_the_oldest_and_says_so",
        ),
    ),
    Mutant(
        "a_batch_is_taken_by_half",
        "a topic's bound is overrun",
        "        if most and pending + coming > most:\n",
        "        if False:\n",
        (
            "tests/replication/state_machine/test_shaping.py::test_a_refused_request_may_come_again_under_its_number",
        ),
    ),
    Mutant(
        "the_bound_of_a_second_is_not_looked_at",
        "a second is overrun",
        "        if most and self._wheel.pending + coming > most:\n",
        "        if False:\n",
        (
            "tests/replication/state_machine/test_shaping.py::test_the_nearest_second_with_room_has_room_for_all_and_is_not_past",
        ),
    ),
    Mutant(
        "acknowledged_offsets_above_the_floor_are_forgotten",
        "acknowledged messages are delivered again",
        "        self.acked.update(offsets[~stale].tolist())\n",
        "",
        ("tests/replication/state_machine/test_acknowledgements.py::test_it_is_a_set_with_a_floor",),
    ),
    Mutant(
        "the_floor_runs_over_a_gap",
        "a message that nobody acknowledged is lost",
        "if self.acked.rank(self.floor + run + step - 1) == run + step:",
        "if self.acked.rank(self.floor + run + step) >= run + 1:",
        ("tests/replication/state_machine/test_acknowledgements.py::test_it_is_a_set_with_a_floor",),
    ),
    Mutant(
        "a_blocked_lane_is_open",
        "a message with an ordering key overtakes its retry",
        "closed |= np.array([retry is not None for retry in retries])",
        "closed |= np.array([False for retry in retries])",
        ("tests/node/delivery/test_group_keys.py::test_a_cancelled_retry_is_waited_for_no_more",),
    ),
    Mutant(
        "a_taken_lane_is_open",
        "two messages of an ordering key are under way",
        "        closed |= self._taken.has(lanes)\n",
        "        closed = closed\n",
        (
            "tests/node/delivery/test_group_keys.py::test_messages_of_a_key_come_one_after_another_and_other_keys_are_not_held_up",
        ),
    ),
    Mutant(
        "a_held_lane_is_open",
        "after a failover a message overtakes the one in hand",
        "        closed |= self._held.has(lanes)\n",
        "        closed = closed\n",
        (
            "tests/node/delivery/test_group_keys.py::test_what_may_be_in_hand_after_a_failover_holds_its_key_until_its_consumer_is_back",
        ),
    ),
    Mutant(
        "a_lane_that_waits_for_its_turn_to_open_is_open",
        "a message overtakes a parked one of its ordering key",
        "np.fromiter(map(behind.__contains__, listed), np.bool_, len(listed))",
        "np.zeros(len(listed), np.bool_)",
        (
            "tests/node/delivery/test_feed.py::test_no_message_overtakes_a_parked_one_whose_key_is_open_and_has_not_had_its_turn",
        ),
    ),
    Mutant(
        "two_messages_of_a_lane_are_taken_at_once",
        "two messages of an ordering key are under way",
        "first = found[np.unique(lanes[found], return_index=True)[1]]",
        "first = found",
        (
            "tests/node/delivery/test_group_keys.py::test_messages_of_a_key_come_one_after_another_and_other_keys_are_not_held_up",
        ),
    ),
    Mutant(
        "what_is_given_back_stays_given_back",
        "a message is delivered again and again",
        "        self._back -= listed\n        self._resumed -= listed\n",
        "        self._resumed -= listed\n",
        (f"{FEED}::test_what_is_given_back_waits_again_only_where_there_is_room",),
    ),
    Mutant(
        "what_waits_again_keeps_its_lane",
        "an ordering key is stuck",
        "keyed = self.lanes.leave(self.queue.queue, back)",
        "keyed = False",
        (f"{FEED}::test_a_key_keeps_its_order_and_none_is_stuck_however_few_lanes_open_in_a_turn",),
    ),
    Mutant(
        "what_is_given_back_waits_though_there_is_no_room",
        "memory and turns of the event loop grow with what consumers give back",
        "return bool(np.count_nonzero(out) < WINDOW)",
        "return True",
        (f"{FEED}::test_what_is_given_back_waits_again_only_where_there_is_room",),
    ),
    Mutant(
        "nobody_looks_at_what_was_given_back_without_room",
        "what was given back stays undelivered until something else happens",
        "return bool(self._opened) or some or self._back_has_room()",
        "return bool(self._opened) or some",
        (f"{GROUP}::test_what_is_given_back_without_room_goes_out_though_nothing_else_happens",),
    ),
    Mutant(
        "what_a_rate_has_not_opened_takes_the_room_of_what_is_given_back",
        "what was given back waits for the rate of others",
        'self._waiting["offset"][self._waiting["maybe_duplicate"] != 0] < np.uint64(self.cursor)',
        'self._waiting["offset"] < np.uint64(self.cursor)',
        (f"{FEED}::test_what_a_rate_has_not_opened_does_not_keep_what_is_given_back_from_waiting",),
    ),
    Mutant(
        "what_was_resumed_is_put_back",
        "two messages of an ordering key are under way",
        'taken = taken[~contains(self._resumed, taken["offset"])]',
        "taken = taken",
        (f"{FEED}::test_what_is_put_back_after_a_consumer_has_resumed_it_keeps_its_key_to_itself",),
    ),
    Mutant(
        "a_crowd_that_nobody_has_had_is_held",
        "after a failover a crowd waits for a lease, for one message behind it had been delivered",
        '        later = units["due_ms"] > self._held_due_ms\n',
        '        later = units["due_ms"] < 0\n',
        (
            f"{EARLY}::test_a_crowd_that_is_not_due_is_not_held_though_the_leader_before_has_delivered_what_was_early",
        ),
    ),
    Mutant(
        "what_is_due_before_a_crowd_is_behind_it",
        "messages are seconds late while a crowd of their topic has been released and is not due",
        "        passed += self._look_on(end - self.next)\n",
        "",
        (f"{EARLY}::test_what_is_due_before_a_crowd_is_not_behind_it",),
    ),
    Mutant(
        "what_is_early_goes_before_what_is_not_loaded",
        "a message goes out before an earlier one of its ordering key that the window has no room for",
        '            due = min(due, bisect_right(self._waiting["due_ms"], sure_ms))\n',
        "",
        (f"{EARLY}::test_what_is_early_and_due_behind_the_window_waits_for_what_the_window_has_no_room_for",),
    ),
    Mutant(
        "what_was_early_comes_again",
        "each message that was scheduled behind a crowd is delivered twice",
        "            self._ahead |= BitMap64(offsets.tolist())\n            passed",
        "            passed",
        (f"{EARLY}::test_what_is_due_before_a_crowd_is_not_behind_it",),
    ),
    Mutant(
        "small_pieces_that_wait_again_are_not_charged",
        "a turn of the event loop sorts all that waits for each consumer that leaves",
        "share = len(rows) / TURN_SORTED_MAX",
        "share = 0.0",
        (f"{FEED}::test_to_let_one_wait_again_is_charged_for_all_that_it_is_sorted_among",),
    ),
    Mutant(
        "a_lane_of_what_is_held_is_open_until_its_piece_is_closed",
        "after a failover a message overtakes the one in hand",
        "if not all(feed.close_held() for feed in self.feeds.values()):",
        "if False:",
        (
            "tests/node/delivery/test_group_keys.py::test_nothing_is_delivered_before_the_keys_of_all_that_may_be_in_hand_are_closed",
        ),
    ),
    Mutant(
        "more_is_delivered_than_reserved",
        "a crash repeats messages without their mark",
        "ends = [] if self.reservation.limit is None else [self.reservation.limit]",
        "ends = []",
        (
            "tests/simulation/test_whole_nodes.py::test_what_a_leader_delivers_while_nobody_hears_it_is_marked_when_it_comes_again",
        ),
    ),
    Mutant(
        "the_reserve_is_not_confirmed",
        "a crash repeats messages without their mark",
        "confirmed = self._sent and self._sent[0][0] <= confirmed_s",
        "confirmed = bool(self._sent)",
        (
            "tests/node/delivery/test_reservation.py::test_nothing_is_delivered_before_a_majority_has_answered",
        ),
    ),
    Mutant(
        "what_may_be_in_hand_is_not_held",
        "after a failover messages go to two consumers at once",
        "        if self._held:\n            self.held_until_ms, ",
        "        if False:\n            self.held_until_ms, ",
        (
            "tests/node/delivery/test_feed.py::test_after_a_failover_what_may_be_in_hand_is_held_then_goes_out_marked",
        ),
    ),
    Mutant(
        "a_repeated_message_bears_no_mark",
        "a repeated delivery cannot be told from the first",
        "self._wait(held[~self._acknowledged.contains(held)], maybe_duplicate=True)",
        "self._wait(held[~self._acknowledged.contains(held)], maybe_duplicate=False)",
        (
            "tests/node/delivery/test_feed.py::test_after_a_failover_what_may_be_in_hand_is_held_then_goes_out_marked",
        ),
    ),
    Mutant(
        "what_was_acknowledged_is_given_out_again",
        "an acknowledged message is delivered again after a failover",
        "self._wait(held[~self._acknowledged.contains(held)], maybe_duplicate=True)",
        "self._wait(held, maybe_duplicate=True)",
        (
            "tests/node/delivery/test_feed.py::test_after_a_failover_what_may_be_in_hand_is_held_then_goes_out_marked",
        ),
    ),
    Mutant(
        "anothers_message_can_be_acknowledged",
        "a late acknowledgement settles what another has in hand",
        "if batch is not None and batch.consumer == consumer:",
        "if batch is not None:",
        ("tests/node/delivery/test_feed.py::test_an_ack_of_what_another_has_in_hand_is_not_taken",),
    ),
    Mutant(
        "leases_never_end",
        "what a dead consumer had in hand is never delivered again",
        "while most > 0 and self._heap and (self._heap[0][3].left == 0 or self._heap[0][0] <= now_ms):",
        "while most > 0 and self._heap and self._heap[0][3].left == 0:",
        ("tests/node/delivery/test_feed.py::test_what_is_still_in_hand_when_a_lease_ends_is_given_up",),
    ),
    Mutant(
        "attempts_have_no_end",
        "a message that cannot be handled comes round for ever",
        "dead = no_more or copy.attempt > policy.attempts_max",
        "dead = no_more",
        (
            "tests/node/delivery/test_retries.py::test_after_the_last_attempt_it_is_a_dead_letter_with_its_history",
        ),
    ),
    Mutant(
        "a_rate_is_not_kept",
        "a topic's rate is overrun",
        "        if due and self.queue.pace.bounded:\n",
        "        if False:\n",
        ("tests/node/delivery/test_feed.py::test_a_rate_holds_back_what_is_due_until_it_opens",),
    ),
    Mutant(
        "hours_that_are_needed_are_deleted",
        "a message waiting for its group is deleted",
        "for hour in hours.keys() - needed}\n",
        "for hour in hours}\n",
        ("tests/node/leader/test_retention.py::test_an_hour_goes_whole_once_nothing_points_into_it",),
    ),
    Mutant(
        "queues_are_cut_ahead_of_their_groups",
        "unacknowledged messages are deleted",
        "return max(hard, min(kept, self._floor(queue, queue.units))), hard",
        "return max(hard, kept), hard",
        ("tests/node/leader/test_retention.py::test_what_every_group_is_past_goes_when_its_time_is_over",),
    ),
    Mutant(
        "retention_does_not_wait_for_groups_that_are_being_made",
        "what a new group was to get is deleted",
        "            if self._moves.under_way or not past:\n",
        "            if not past:\n",
        (
            "tests/node/leader/test_retention.py::test_nothing_is_deleted_that_a_group_may_want_which_is_being_made",
        ),
    ),
    Mutant(
        "retention_goes_on_after_a_group_has_gone_back",
        "what a group was to get again is deleted",
        "            self._floor(queue, cut) >= cut or cut <= self._hard(queue, command.now_ms, pread)\n",
        "            True\n",
        ("tests/node/leader/test_retention.py::test_a_cut_is_not_proposed_once_a_group_has_gone_back",),
    ),
    Mutant(
        "a_due_time_is_cut_to_the_second",
        "messages come early",
        "    start_ms = max(next_due_ms, frontier_ms) - commit_ms\n",
        "    start_ms = max(next_due_ms, frontier_ms) // 1000 * 1000 - commit_ms\n",
        ("tests/node/leader/test_dispatch_plan.py::test_a_steady_stream_needs_one_release_a_period",),
        argued="a release before its time is only early to be committed: the delivery waits for each due time",
    ),
    Mutant(
        "a_message_is_delivered_when_released",
        "messages come early by what releases run ahead",
        'return bisect_right(self._waiting["due_ms"], now_ms - self.delay.ms)',
        "return len(self._waiting)",
        (
            "tests/node/delivery/test_feed.py::test_what_a_leader_nobody_heard_may_have_delivered_goes_out_at_its_time_marked",
        ),
    ),
    Mutant(
        "a_deposed_leader_delivers",
        "two leaders deliver the same message",
        "        if not self._context.may_serve():\n            self._wake_in(LEASE_LOOK_S)",
        "        if False:\n            self._wake_in(LEASE_LOOK_S)",
        (
            "tests/node/delivery/test_group.py::test_what_falls_due_while_the_lease_is_over_is_delivered_once_it_is_back",
        ),
    ),
    Mutant(
        "an_ack_is_answered_before_its_commit",
        "an acknowledged message is delivered again",
        "                    stale = await self._acknowledge(feed.queue.queue, offsets)\n",
        "                    self._context.spawn(self._acknowledge(feed.queue.queue, offsets))\n",
        ("tests/node/delivery/test_group.py::test_an_ack_is_answered_once_it_is_committed_and_not_before",),
    ),
    Mutant(
        "work_that_waits_is_looked_through_for_its_first",
        "the end of delivery to thousands of groups holds up the event loop",
        "            work, _ = self._waiting.popitem(last=False)\n",
        "            work = list(self._waiting)[0]\n            del self._waiting[work]\n",
        (
            "tests/node/delivery/test_turn_share.py::test_work_that_waits_and_takes_nothing_is_done_within_a_turn",
        ),
    ),
    Mutant(
        "a_feed_is_asked_again_while_its_records_are_read",
        "the event loop does nothing else while the disk is slow",
        "due_ms = None if feed.awaits_disk else feed.next_due_ms()",
        "due_ms = feed.next_due_ms()",
        (
            "tests/node/delivery/test_cold_records.py::test_while_records_are_read_the_group_does_not_look_again_and_again",
        ),
    ),
    Mutant(
        "what_is_dropped_from_memory_again_is_never_delivered",
        "a node that is short of memory reads ahead for ever",
        "            read = self._context.machine.wheel.read\n",
        "            pass\n",
        (
            "tests/node/delivery/test_cold_records.py::test_what_is_dropped_from_memory_at_once_is_delivered_all_the_same",
        ),
    ),
    Mutant(
        "what_is_cold_is_lost_to_the_feed",
        "messages wait until another node leads",
        "            feed.refuse(taken)\n            feed.awaits_disk = True\n",
        "            feed.awaits_disk = True\n",
        (
            "tests/node/delivery/test_cold_records.py::test_what_is_due_is_delivered_in_order_once_it_was_read_ahead_together",
        ),
    ),
    Mutant(
        "records_are_read_ahead_one_batch_at_a_time",
        "a mass expiry waits for the disk as often as it has batches",
        "due = feed.due_of_hours(hours, self._context.time.now_ms(), AHEAD_RECORDS_MAX)",
        "due = feed.due_of_hours(hours, self._context.time.now_ms(), 1)",
        (
            "tests/node/delivery/test_cold_records.py::test_what_is_due_is_delivered_in_order_once_it_was_read_ahead_together",
        ),
    ),
    Mutant(
        "a_retry_waits_for_the_disk",
        "a leader is silent while the disk stalls",
        "await do(share, partial(work, self._context.damage.reads.cached))",
        "await do(share, partial(work, self._context.machine.wheel.read))",
        (
            "tests/node/delivery/test_cold_records.py::test_a_retry_is_copied_from_a_record_that_is_on_disk_only",
        ),
    ),
    Mutant(
        "a_read_that_is_short_is_taken_for_whole",
        "a record of which a part is on disk only is taken for damaged",
        "    if read_bytes < size_bytes:\n        raise NotCached\n",
        "",
        ("tests/wheel/test_cached_reads.py::test_what_is_in_memory_in_part_is_not_read",),
    ),
    Mutant(
        "acks_that_wait_are_committed_after_a_move",
        "a group that is moved back misses what was acked just then",
        "                if not self._has(feed):\n                    stale = offsets",
        "                if False:\n                    stale = offsets",
        (
            "tests/node/delivery/test_group.py::test_what_waits_to_be_acknowledged_as_the_group_is_moved_back_is_delivered_again",
        ),
    ),
    Mutant(
        "retention_waits_for_the_disk",
        "a leader is silent while the disk stalls",
        "                return work(self._pread)\n",
        "                return work(None)\n",
        (
            "tests/node/leader/test_retention.py::test_what_is_on_disk_only_is_read_ahead_in_a_thread_and_the_plan_is_the_same",
        ),
    ),
    Mutant(
        "a_batch_larger_than_what_is_read_ahead_is_read_whole",
        "the event loop waits for the disk, or the feed reads ahead for ever",
        "            if count < len(taken):\n                feed.refuse(taken[count:])\n                taken = taken[:count]\n",
        "",
        (
            "tests/node/delivery/test_cold_records.py::test_what_was_read_ahead_and_not_delivered_for_want_of_credit_is_read_again_later",
        ),
    ),
    Mutant(
        "what_is_read_ahead_is_trusted_for_ever",
        "the event loop waits for the disk",
        "        feed.read_ahead = NONE\n        if not feed",
        "        if not feed",
        (
            "tests/node/delivery/test_cold_records.py::test_what_was_read_ahead_is_taken_for_cached_for_one_batch_only",
        ),
    ),
    Mutant(
        "a_retry_whose_group_was_moved_goes_on",
        "a message is delivered again and retried",
        "return not self.ended and feed in self._feeds.values()",
        "return not self.ended",
        (
            "tests/node/delivery/test_cold_records.py::test_what_is_nacked_as_the_group_is_moved_back_is_not_retried_beside_what_is_delivered_again",
        ),
    ),
    Mutant(
        "a_bad_sector_is_read_ahead_again_and_again",
        "all deliveries that wait for the disk wait for it",
        "                if error.files == lacked:\n                    break\n",
        "",
        (
            "tests/node/repair/test_record_reads.py::test_a_place_that_never_is_cached_is_read_ahead_once_and_then_waited_for",
        ),
    ),
    Mutant(
        "any_number_of_records_is_read_ahead",
        "a turn finds the places of a whole backlog",
        "hour, global_index = hour[:AHEAD_RECORDS_MAX], global_index[:AHEAD_RECORDS_MAX]",
        "pass",
        ("tests/node/repair/test_record_reads.py::test_only_so_many_records_are_read_ahead_at_once",),
    ),
    Mutant(
        "a_redrive_fails_where_retention_trims",
        "a redrive of old letters ends with an error",
        "            if queue.first == first:\n                raise",
        "            if True:\n                raise",
        (
            "tests/node/delivery/test_redrive.py::test_a_redrive_goes_on_where_retention_trims_while_it_reads_letters",
        ),
    ),
)
