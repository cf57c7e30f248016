"""Mutants of the streams between peers: frames, queues, windows, and what strangers and slow links may cost."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "appends_go_with_the_heartbeats",
        "bulk keeps heartbeats waiting, and a slow link loses its leader",
        'BULK: Final = frozenset({"append", "need_snapshot"})',
        "BULK: Final = frozenset()",
        ("tests/simulation/test_slow_nodes_and_links.py::test_bulk_over_slow_links_keeps_its_leader",),
    ),
    Mutant(
        "only_whole_frames_are_life",
        "a slow link is cut while it carries a frame",
        "        listener = self._listener\n        self._heard = self._loop.time()\n        try:",
        "        listener = self._listener\n        try:",
        (
            "tests/replication/transport/test_stream_listener.py::test_a_frame_may_take_as_long_as_the_slowest_link_needs_for_it_and_no_byte_may_stay_away",
        ),
    ),
    Mutant(
        "a_large_frame_has_no_longer",
        "a slow link is cut while it carries a frame",
        "allowed_s = self._silence_s + self._unframer.begun_bytes / SLOWEST_BYTES_PER_S",
        "allowed_s = self._silence_s",
        (
            "tests/replication/transport/test_stream_listener.py::test_a_frame_may_take_as_long_as_the_slowest_link_needs_for_it_and_no_byte_may_stay_away",
        ),
    ),
    Mutant(
        "a_frame_may_take_for_ever",
        "a stream that gets nowhere is kept",
        "self._unframer.begun_bytes > 0 and now - self._whole >= allowed_s",
        "False",
        (
            "tests/replication/transport/test_stream_listener.py::test_a_frame_may_take_as_long_as_the_slowest_link_needs_for_it_and_no_byte_may_stay_away",
        ),
    ),
    Mutant(
        "a_frame_may_have_any_size",
        "a peer takes all memory",
        "if mark != _MARK or size > self._frame_bytes_max:",
        "if mark != _MARK:",
        (
            "tests/replication/transport/test_framing.py::test_a_frame_of_the_largest_size_fits_and_a_larger_one_does_not",
        ),
    ),
    Mutant(
        "a_message_may_have_any_size",
        "a peer takes all memory by pieces",
        "if sum(map(len, pieces)) > self._message_bytes_max:",
        "if False:",
        ("tests/replication/transport/test_envelope.py::test_a_message_without_end_is_refused_at_its_limit",),
    ),
    Mutant(
        "pieces_with_a_hole_are_joined",
        "what was lost in the middle of a message goes unnoticed",
        "        if frame.sequence > before + 1:\n            self.pieces[frame.bulk].clear()\n",
        "",
        ("tests/replication/transport/test_envelope.py::test_a_message_in_pieces_comes_whole_or_not_at_all",),
    ),
    Mutant(
        "one_order_for_both_streams",
        "an append that a heartbeat has overtaken counts for nothing",
        "before = self.sequences[frame.bulk]",
        "before = max(self.sequences.values())",
        (
            "tests/replication/transport/test_envelope.py::test_each_of_two_streams_has_its_own_order_and_waits_for_no_other",
        ),
    ),
    Mutant(
        "the_window_of_a_slow_link_stays",
        "the queue of a slow link grows without end",
        "            self._shrink(int(self.window_bytes * wanted_s / taken_s))\n",
        "            pass\n",
        (
            "tests/replication/raft/guard/test_flow_control.py::test_the_window_follows_a_link_that_becomes_slower",
        ),
    ),
    Mutant(
        "patience_regardless_of_size",
        "what a slow link still carries is sent again, and again",
        "patience_s = self.patience_s + self.under_way_bytes / _SLOWEST_BYTES_PER_S",
        "patience_s = self.patience_s",
        (
            "tests/replication/raft/guard/test_flow_control.py::test_what_could_still_come_on_a_slow_way_is_not_lost",
        ),
    ),
    Mutant(
        "strangers_have_no_bound",
        "silent connections take all descriptors",
        "        if len(self._strangers) >= STRANGERS_MAX:\n",
        "        if False:\n",
        (
            "tests/replication/transport/test_stream_listener.py::test_hundreds_who_say_nothing_keep_no_peer_out",
        ),
    ),
    Mutant(
        "a_handshake_with_anybody",
        "strangers take the event loop by handshakes that they begin",
        "if not self._announce(shown, loop.time()):",
        "if not shown:",
        (
            "tests/replication/transport/test_stream_listener.py::test_a_handshake_is_begun_with_nobody_who_shows_no_ticket",
        ),
    ),
    Mutant(
        "a_pass_is_good_twice",
        "who has overheard a pass takes the event loop by handshakes",
        'self._passes.pop(shown, b"")',
        'self._passes.get(shown, b"")',
        (
            "tests/replication/transport/test_stream_listener.py::test_a_pass_is_shown_once_and_as_long_as_its_ticket_is_good",
        ),
    ),
    Mutant(
        "who_has_a_pass_is_a_stranger_still",
        "a peer behind a slow link is ended in its handshake for strangers",
        "            del self._strangers[task]\n            self._announced.add(task)\n",
        "            pass\n",
        (
            "tests/replication/transport/test_stream_listener.py::test_who_is_in_its_handshake_with_a_ticket_is_not_ended_for_hundreds_without",
        ),
    ),
    Mutant(
        "strangers_may_stay",
        "silent connections take all places",
        "async with asyncio.timeout(self._deadline_s) as patience:",
        "async with asyncio.timeout(None) as patience:",
        (
            "tests/replication/transport/test_stream_listener.py::test_who_shows_no_ticket_in_time_is_closed_and_a_peer_is_not",
        ),
    ),
    Mutant(
        "a_peer_opens_any_number_of_streams",
        "one peer takes all descriptors",
        "for other in own[: max(0, len(own) + 1 - STREAMS_OF_A_PEER_MAX)]:",
        "for other in own[:0]:",
        (
            "tests/replication/transport/test_stream_listener.py::test_hundreds_who_say_nothing_keep_no_peer_out",
        ),
    ),
    Mutant(
        "a_frame_that_came_before_counts_again",
        "a repeated frame counts twice",
        "if start < self.start or frame.sequence <= before:",
        "if start < self.start or frame.sequence < before:",
        ("tests/replication/transport/test_envelope.py::test_a_repeated_or_overtaken_frame_brings_nothing",),
    ),
    Mutant(
        "a_piece_without_its_beginning_is_joined",
        "half of a message is taken for one",
        "        elif not pieces:\n            return []\n",
        "",
        (
            "tests/replication/transport/test_envelope.py"
            "::test_pieces_of_an_earlier_pair_of_streams_are_not_joined_with_those_of_the_next",
        ),
    ),
    Mutant(
        "a_message_begins_within_another",
        "two messages are taken for one",
        "        if not frame.continued:\n            pieces.clear()\n        elif not pieces:",
        "        if frame.continued and not pieces:",
        (
            "tests/replication/transport/test_envelope.py"
            "::test_a_message_that_was_begun_and_not_ended_is_not_joined_with_the_next",
        ),
    ),
    Mutant(
        "a_new_start_goes_on_with_old_pieces",
        "pieces of two starts are taken for one message",
        "            self.pieces = {False: [], True: []}\n",
        "",
        (
            "tests/replication/transport/test_envelope.py"
            "::test_pieces_of_an_earlier_pair_of_streams_are_not_joined_with_those_of_the_next",
        ),
    ),
    Mutant(
        "new_streams_go_on_with_old_numbers",
        "a peer that comes back is not heard",
        "        self.epoch = next(self.epochs)\n",
        "        self.epoch = 1\n",
        (
            "tests/replication/transport/test_envelope.py::test_a_receiver_that_was_left_and_found_again_hears_the_sender",
        ),
    ),
    Mutant(
        "a_queue_takes_any_number_of_bytes",
        "memory grows with a peer that reads nothing",
        "if full or size_bytes > self._settings.peer_queue_bytes_max:",
        "if full:",
        (
            "tests/replication/transport/test_send_queue.py::test_a_queue_takes_so_many_messages_and_bytes_and_more_once_some_have_left",
        ),
    ),
    Mutant(
        "a_queue_takes_any_number_of_messages",
        "memory grows with a peer that reads nothing",
        "if full or size_bytes > self._settings.peer_queue_bytes_max:",
        "if size_bytes > self._settings.peer_queue_bytes_max:",
        (
            "tests/replication/transport/test_send_queue.py::test_a_queue_takes_so_many_messages_and_bytes_and_more_once_some_have_left",
        ),
    ),
    Mutant(
        "bytes_of_pieces_stay_counted",
        "a queue that has sent large messages takes nothing more",
        "        self._waiting_bytes -= len(piece)\n",
        "",
        (
            "tests/replication/transport/test_send_queue.py::test_a_queue_takes_so_many_messages_and_bytes_and_more_once_some_have_left",
        ),
    ),
    Mutant(
        "what_waited_is_said_on_the_next_stream",
        "what a peer hears is old",
        "            for queue in self._queues.values():\n                queue.clear()\n",
        "",
        (
            "tests/replication/transport/test_peer_transport.py::test_what_waited_for_a_stream_is_not_said_on_the_next",
        ),
    ),
    Mutant(
        "a_stream_is_written_though_it_takes_nothing",
        "memory grows with a peer that reads nothing",
        "        while queue and stream.takes:\n",
        "        while queue:\n",
        (
            "tests/replication/transport/test_peer_transport.py::test_a_peer_that_stops_reading_fills_the_queue_and_no_more",
        ),
    ),
    Mutant(
        "one_stream_goes_on_without_the_other",
        "a peer is sent heartbeats and no appends for ever",
        "        while not any(end.done() for end in ends):\n",
        "        while not all(end.done() for end in ends):\n",
        ("tests/replication/transport/test_peer_transport.py::test_with_one_stream_the_other_ends",),
    ),
    Mutant(
        "an_idle_stream_says_nothing",
        "an idle stream is taken for a dead one, again and again",
        "                if not stream.spoke():  # so that",
        "                if False:  # so that",
        (
            "tests/replication/transport/test_peer_transport.py"
            "::test_a_silent_stream_is_closed_and_a_stream_with_nothing_to_say_is_not",
        ),
    ),
    Mutant(
        "a_silent_stream_is_kept",
        "a peer that is gone takes a place for ever",
        "return now - self._heard >= self._silence_s or (",
        "return False or (",
        (
            "tests/replication/transport/test_peer_transport.py"
            "::test_a_silent_stream_is_closed_and_a_stream_with_nothing_to_say_is_not",
        ),
    ),
    Mutant(
        "bytes_without_a_mark_are_a_frame",
        "a stream that lost bytes is read at the wrong place",
        "if mark != _MARK or size > self._frame_bytes_max:",
        "if size > self._frame_bytes_max:",
        (
            "tests/replication/transport/test_framing.py::test_a_stream_that_lost_bytes_is_known_at_the_next_frame",
        ),
    ),
    Mutant(
        "a_frame_of_the_largest_size_is_refused",
        "an append of the largest size is sent for ever",
        "if mark != _MARK or size > self._frame_bytes_max:",
        "if mark != _MARK or size >= self._frame_bytes_max:",
        (
            "tests/replication/transport/test_framing.py::test_a_frame_of_the_largest_size_fits_and_a_larger_one_does_not",
        ),
    ),
    Mutant(
        "tickets_have_no_bound",
        "memory grows with who asks for tickets",
        "        while len(self._given) >= TICKETS_MAX:\n",
        "        while False:\n",
        (
            "tests/replication/transport/test_framing.py::test_the_oldest_ticket_goes_where_there_are_too_many",
        ),
    ),
    Mutant(
        "a_ticket_opens_a_connection_that_is_being_ended",
        "an error in a callback ends the node",
        "if ticket is not None and (not peer or self.entered.done()):",
        "if ticket is not None and not peer:",
        (
            "tests/replication/transport/test_stream_listener.py"
            "::test_a_ticket_that_comes_while_its_connection_is_being_ended_fails_nothing",
        ),
    ),
    Mutant(
        "the_window_grows_beyond_its_bound",
        "memory grows with a quick peer",
        "self.window_bytes = min(self.window_bytes_max, self.window_bytes + grown_bytes)",
        "self.window_bytes = self.window_bytes + grown_bytes",
        (
            "tests/replication/raft/guard/test_flow_control.py::test_a_long_and_wide_link_gets_the_whole_window",
        ),
    ),
    Mutant(
        "an_empty_way_is_measured_once",
        "on a way that has become longer the window stays the smallest",
        "        if now >= self._empty_until:  # with",
        "        if self._empty_until == 0.0:  # with",
        (
            "tests/replication/raft/guard/test_flow_control.py::test_a_way_that_has_become_longer_is_measured_anew",
        ),
    ),
    Mutant(
        "each_late_answer_shrinks_the_window_again",
        "after one slow append the window is the smallest",
        "        elif latest.number <= self._shrunk_at:\n            return  # sent by an earlier window\n",
        "",
        (
            "tests/replication/raft/guard/test_flow_control.py::test_the_window_follows_a_link_that_becomes_slower",
        ),
    ),
    Mutant(
        "a_window_that_is_not_filled_grows",
        "a burst after a quiet time fills a slow link's queue",
        "self._adapt(latest, size_bytes if filled else 0, now)",
        "self._adapt(latest, size_bytes, now)",
        (
            "tests/replication/raft/guard/test_flow_control.py::test_a_slow_link_is_used_and_its_queue_stays_short",
        ),
    ),
    Mutant(
        "a_peer_that_is_left_is_still_spoken_to",
        "a node that has moved is sent to where it was",
        "            if addresses.get(peer) != streams.address:\n",
        "            if peer not in addresses:\n",
        (
            "tests/replication/transport/test_peer_transport.py::test_a_peer_that_listens_elsewhere_is_left_where_it_was",
        ),
    ),
    Mutant(
        "acks_that_nobody_awaits_fail_silently",
        "an application that does not await its acks never learns that messages will come again",
        "            self.on_failed(verdict.queue, offsets, outcome)",
        "            pass",
        (
            "tests/client/consumers/test_consumer.py::test_acks_that_nobody_awaits_are_told_of_where_they_do_not_count",
        ),
    ),
    Mutant(
        "an_error_in_on_ack_failed_ends_the_stream",
        "what the application raises where it is told of an ack ends its stream",
        """        if key not in self._failed:
            asyncio.get_running_loop().call_soon(self._tell_failed, *key)
        self._failed.setdefault(key, []).extend(offsets)
""",
        """        self._failed.setdefault(key, []).extend(offsets)
        self._tell_failed(*key)
""",
        (
            "tests/client/consumers/test_consumer.py::test_an_error_of_the_application_where_it_is_told_of_an_ack_ends_no_stream",
        ),
    ),
    Mutant(
        "frames_of_before_count",
        "a message of a broken stream counts a second time",
        "if start < self.start or frame.sequence <= before:",
        "if False:",
        (
            "tests/replication/transport/test_envelope.py::test_what_is_left_of_an_earlier_stream_brings_nothing",
        ),
    ),
    Mutant(
        "repeated_frames_of_a_replaced_disk_count",
        "what a disk that is gone has said counts a second time",
        "if frame.incarnation not in heard:",
        "if frame.incarnation != next(reversed(heard), 0):",
        (
            "tests/replication/transport/test_envelope.py::test_a_replaced_disk_is_a_new_sender_and_what_is_repeated_of_the_old_one_brings_nothing",
        ),
    ),
    Mutant(
        "a_sender_of_many_incarnations_takes_memory",
        "memory grows with each replaced disk",
        "if len(heard) > INCARNATIONS_MAX:",
        "if False:",
        (
            "tests/replication/transport/test_envelope.py::test_a_sender_of_ever_new_incarnations_takes_no_more_memory",
        ),
    ),
    Mutant(
        "frames_for_another_cluster_count",
        "a node of another cluster is obeyed",
        "if (frame.cluster, frame.receiver) != (self.cluster, self._node) or not frame.sender:",
        "if frame.receiver != self._node or not frame.sender:",
        (
            "tests/replication/transport/test_envelope.py::test_a_frame_of_another_cluster_for_another_node_or_with_a_wrong_checksum_is_refused",
        ),
    ),
    Mutant(
        "frames_are_not_checked",
        "a frame that the network has damaged is obeyed",
        "if frame.crc32c != _crc32c(frame.messages):",
        "if False:",
        (
            "tests/replication/transport/test_envelope.py::test_a_frame_of_another_cluster_for_another_node_or_with_a_wrong_checksum_is_refused",
        ),
    ),
    Mutant(
        "an_uncertified_sender_counts",
        "a client's certificate speaks for a node",
        "if certified is not None and frame.sender not in certified:",
        "if False:",
        (
            "tests/replication/transport/test_envelope.py::test_who_may_not_speak_for_the_sender_is_refused_and_leaves_no_trace",
        ),
    ),
)
