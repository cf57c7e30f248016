"""Mutants of who may speak, what strangers and requests may cost, and what may reach the log."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

PEERS = (
    Mutant(
        "anybody_speaks_as_a_peer",
        "a stranger with a certificate is heard as a node",
        "return node in self._known_peers",
        "return True",
        (
            "tests/cluster/test_peer_certificates.py::test_a_client_that_speaks_as_a_node_or_as_one_more_is_told_why_not",
        ),
    ),
    Mutant(
        "messages_of_strangers_are_taken_in",
        "a stranger on an open stream moves the term",
        "        if peer not in self._known_peers:\n            self._replica.dropped",
        "        if False:\n            self._replica.dropped",
        ("tests/simulation/test_votes_and_answers.py::test_what_a_stranger_says_counts_for_nothing",),
    ),
    Mutant(
        "a_stranger_passes_the_gate",
        "a stranger is given tickets and the state",
        "        if not self.admits(claimed):\n",
        "        if False:\n",
        (
            "tests/replication/transport/test_peer_gate.py::test_nobody_speaks_for_another_and_no_stranger_speaks",
        ),
    ),
    Mutant(
        "a_certificate_speaks_for_any_node",
        "a client's certificate speaks for a node",
        "if names is not None and claimed not in names:",
        "if False:",
        (
            "tests/replication/transport/test_peer_gate.py::test_nobody_speaks_for_another_and_no_stranger_speaks",
        ),
    ),
    Mutant(
        "who_left_to_come_back_is_a_stranger",
        "a node with an emptied disk can never join again",
        "return frozenset((*self.named(), *returning, *self._configured))",
        "return frozenset((*self.named(), *self._configured))",
        (
            "tests/replication/raft/test_membership.py::test_peers_are_those_named_those_configured_and_those_who_have_left_to_come_back",
        ),
    ),
    Mutant(
        "an_absurd_term_is_believed",
        "one message takes the cluster to a term that none follows",
        "if not terms.is_plausible(terms.highest(message), self._engine.term):",
        "if False:",
        (
            "tests/replication/raft/test_consensus.py::test_a_message_of_a_term_that_no_election_leads_to_counts_for_nothing",
        ),
    ),
    Mutant(
        "a_term_may_leap",
        "one message takes the cluster to a term that none follows",
        "return term < TERM_END and (own == 0 or term <= own + TERM_STEP_MAX)",
        "return term < TERM_END",
        (
            "tests/replication/raft/test_consensus.py::test_a_message_of_a_term_that_no_election_leads_to_counts_for_nothing",
        ),
    ),
    Mutant(
        "terms_of_entries_are_not_looked_at",
        "an absurd term comes within an entry",
        "    named.extend(entry.term for entry in message.append.entries)\n",
        "",
        (
            "tests/replication/raft/test_consensus.py::test_a_message_of_a_term_that_no_election_leads_to_counts_for_nothing",
        ),
    ),
    Mutant(
        "a_state_of_an_absurd_term_is_taken",
        "an absurd term comes with a state",
        "return position.index > state.commit_index and is_plausible(position.term, state.term)",
        "return position.index > state.commit_index",
        (
            "tests/replication/driver/test_install_snapshot.py::test_a_state_is_taken_only_if_it_is_ahead_and_of_a_term_that_elections_lead_to",
        ),
    ),
    Mutant(
        "a_ticket_is_good_for_ever",
        "who has overheard a ticket comes in with it",
        'return node if now < until else ""',
        "return node",
        ("tests/replication/transport/test_stream_listener.py::test_a_ticket_lets_in_once_and_for_a_while",),
    ),
    Mutant(
        "a_ticket_is_good_twice",
        "who has overheard a ticket comes in with it",
        "self._forget(ticket)",
        "pass",
        ("tests/replication/transport/test_stream_listener.py::test_a_ticket_lets_in_once_and_for_a_while",),
    ),
    Mutant(
        "a_ticket_speaks_for_any_node",
        "a node speaks as another one",
        "listener.inbound.open(frame, {self._peer})",
        "listener.inbound.open(frame)",
        ("tests/replication/transport/test_peer_transport.py::test_garbage_ends_the_stream_and_no_other",),
    ),
    Mutant(
        "any_token_meets",
        "who lacks the peers' token is given tickets",
        "if not self._tokens.take(context.invocation_metadata()):",
        "if False:",
        (
            "tests/replication/transport/test_peer_transport.py::test_a_peer_without_the_clusters_token_is_not_listened_to",
        ),
    ),
    Mutant(
        "nodes_of_another_cluster_meet",
        "a node of another cluster is given tickets",
        "        if request.cluster != spoken_peers.cluster and not former:\n",
        "        if False:\n",
        (
            "tests/replication/transport/test_peer_transport.py::test_a_node_of_another_cluster_is_given_no_ticket",
        ),
    ),
)

CALLS = (
    Mutant(
        "who_has_no_token_is_read",
        "requests of anybody are received and parsed",
        "return handler if refusal is None else _refusing(refusal)",
        "return handler",
        ("tests/cluster/test_strangers.py::test_a_call_of_any_kind_is_refused_by_its_headers_alone",),
    ),
    Mutant(
        "calls_have_no_bound",
        "anybody with a token takes all memory by calls",
        "if refusal is None and self.calls >= self._bounds.calls_max:",
        "if False:",
        ("tests/cluster/test_strangers.py::test_a_node_takes_no_more_connections_and_calls_than_it_says",),
    ),
    Mutant(
        "a_silent_call_stays",
        "calls without a request are kept for ever",
        "async with asyncio.timeout(wait_ms / 1_000) as patience:",
        "async with asyncio.timeout(None) as patience:",
        ("tests/node/edge/test_call_admission.py::test_a_silent_call_is_ended_when_its_time_is_over",),
    ),
    Mutant(
        "silent_calls_have_no_bound",
        "calls without a request fill the node",
        "        if len(self._waiting) >= self._bounds.waiting_calls_max:\n",
        "        if False:\n",
        (
            "tests/node/edge/test_call_admission.py::test_of_too_many_silent_calls_the_oldest_is_ended_unless_it_is_young",
        ),
    ),
    Mutant(
        "a_request_may_have_any_size",
        "a large request is parsed on the event loop",
        "if bytes_max is not None and isinstance(request, bytes) and len(request) > bytes_max:",
        "if False:",
        ("tests/node/edge/test_call_admission.py::test_a_request_is_taken_up_to_its_size",),
    ),
    Mutant(
        "anybody_operates",
        "a token without the right operates the cluster",
        "allowed = token.operate\n",
        "allowed = True\n",
        ("tests/cluster/test_rights.py::test_only_an_operator_moves_leadership",),
    ),
    Mutant(
        "rights_are_not_of_topics",
        "a token reads another tenant's topic",
        "refused = [topic for topic in topics if not any(matches(p, topic) for p in patterns)]",
        "refused: list[str] = []",
        ("tests/cluster/test_rights.py::test_a_token_without_the_right_is_refused",),
    ),
    Mutant(
        "the_status_shows_all_topics",
        "a tenant sees the topics of others",
        "return lambda topic: any(matches(pattern, topic) for pattern in patterns)",
        "return lambda topic: True",
        (
            "tests/cluster/test_rights.py::test_a_status_names_only_topics_that_the_token_may_do_anything_with",
        ),
    ),
    Mutant(
        "anybody_gets_any_message",
        "a tenant reads the messages of others",
        "if state not in STATES or not self._may_know(context, hour, index).all():",
        "if state not in STATES:",
        ("tests/cluster/test_rights.py::test_a_message_of_others_is_looked_up_as_if_it_were_not_there",),
    ),
    Mutant(
        "anybody_cancels_any_message",
        "a tenant cancels the messages of others",
        "            piece = piece[chosen(*wheel.places_of(hour[piece], index[piece]))]\n",
        "",
        (
            "tests/cluster/test_rights.py::test_a_message_of_others_can_neither_be_cancelled_nor_told_from_one_that_is_not_there",
        ),
    ),
    Mutant(
        "a_request_names_any_number_of_offsets",
        "one request holds up the event loop",
        '        if count <= most:\n            return None\n        text = f"{count} offsets',
        '        if True:\n            return None\n        text = f"{count} offsets',
        ("tests/node/delivery/test_many_offsets.py::test_offsets_are_taken_up_to_the_limit",),
    ),
    Mutant(
        "a_resumption_names_any_number_of_queues",
        "one request holds up the event loop",
        "if len(request.holding) > queues_max:",
        "if False:",
        (
            "tests/node/delivery/test_many_offsets.py::test_what_a_consumer_holds_is_of_few_queues_and_its_offsets_count_together",
        ),
    ),
    Mutant(
        "many_offsets_are_one_piece_of_work",
        "one request holds up the event loop",
        "[await self.alone(partial(work, piece)) for piece",
        "[work(piece) for piece",
        ("tests/node/delivery/test_many_offsets.py::test_each_piece_has_a_turn_of_its_own_whoever_asks",),
    ),
    Mutant(
        "a_piece_of_work_is_of_any_blocks",
        "one request holds up the event loop",
        "        yield from np.split(part, block_starts(part)[blocks_max::blocks_max])\n",
        "        yield part\n",
        ("tests/node/delivery/test_many_offsets.py::test_a_piece_is_of_few_blocks_of_the_queue",),
    ),
    Mutant(
        "pieces_of_work_share_a_turn",
        "many requests at once hold up the event loop",
        "        await self._turns.enter(min(part, 1.0))\n",
        "",
        ("tests/node/delivery/test_many_offsets.py::test_each_piece_has_a_turn_of_its_own_whoever_asks",),
    ),
    Mutant(
        "an_entry_is_filled_by_bytes_alone",
        "applying one entry holds up the event loop",
        "if commands and (len(command) > room_bytes or cost_us > room_us):",
        "if commands and len(command) > room_bytes:",
        (
            "tests/replication/driver/test_proposals.py::test_an_entry_costs_no_more_than_a_turn_may_but_for_one_command",
        ),
    ),
    Mutant(
        "hours_cost_nothing",
        "applying schedules of many hours holds up the event loop",
        "hours = HOUR_NS * _hours(command.due_ms or request.due_ms)",
        "hours = 0",
        (
            "tests/replication/state_machine/test_command_costs.py::test_a_schedule_costs_by_messages_and_hours",
        ),
    ),
    Mutant(
        "any_token_of_a_client_is_good",
        "anybody calls what is for who has a token",
        "        if hmac.compare_digest(secret.encode(), given):\n",
        "        if True:\n",
        ("tests/node/edge/test_auth.py::test_who_shows_no_token_that_is_known_may_call_nothing",),
    ),
    Mutant(
        "a_right_for_a_topic_is_one_for_all_that_begin_alike",
        "a token reads another tenant's topic",
        'return topic.startswith(pattern[:-1]) if pattern.endswith("*") else topic == pattern',
        'return topic.startswith(pattern.rstrip("*"))',
        ("tests/node/edge/test_auth.py::test_a_right_is_for_a_topic_or_for_all_that_begin_as_it_says",),
    ),
    Mutant(
        "who_may_operate_sees_no_topics",
        "an operator's status is empty",
        "if not self.on or (token is not None and token.operate):",
        "if not self.on:",
        ("tests/node/edge/test_auth.py::test_who_may_do_anything_with_a_topic_and_who_operates_knows_of_it",),
    ),
    Mutant(
        "any_token_is_a_peers",
        "a stranger asks a node for what is for nodes",
        "    if tokens.take(metadata):\n",
        "    if True:\n",
        ("tests/node/edge/test_auth.py::test_what_is_for_nodes_is_for_who_shows_their_token",),
    ),
    Mutant(
        "all_of_health_is_for_everybody",
        "who has no token holds streams of a node",
        "None if path == HEALTH_CHECK else authorizer.unknown(metadata)",
        "None",
        (
            "tests/node/edge/test_auth.py::test_everybody_may_ask_whether_a_node_serves_and_nothing_else_of_its_health",
        ),
    ),
    Mutant(
        "health_is_for_who_has_a_token",
        "a load balancer takes a node for dead",
        "None if path == HEALTH_CHECK else authorizer.unknown(metadata)",
        "authorizer.unknown(metadata)",
        (
            "tests/node/edge/test_auth.py::test_everybody_may_ask_whether_a_node_serves_and_nothing_else_of_its_health",
        ),
    ),
    Mutant(
        "calls_that_have_ended_stay_counted",
        "a node refuses every call in time",
        "            self.calls -= 1\n",
        "            pass\n",
        (
            "tests/node/edge/test_call_admission.py::test_calls_of_each_kind_are_counted_while_they_are_under_way",
        ),
    ),
    Mutant(
        "calls_of_streams_are_not_counted",
        "anybody with a token takes all memory by streams",
        "            with self._counted():\n                request = await given(requests, context)\n                async with (",
        "            if True:\n                request = await given(requests, context)\n                async with (",
        (
            "tests/node/edge/test_call_admission.py::test_calls_of_each_kind_are_counted_while_they_are_under_way",
        ),
    ),
    Mutant(
        "one_call_more_than_there_may_be",
        "the bound of calls is overrun",
        "if refusal is None and self.calls >= self._bounds.calls_max:",
        "if refusal is None and self.calls > self._bounds.calls_max:",
        (
            "tests/node/edge/test_call_admission.py::test_calls_of_each_kind_are_counted_while_they_are_under_way",
        ),
    ),
    Mutant(
        "young_calls_are_ended_for_others",
        "who calls without end keeps everybody out",
        "            if now - since >= GRACE_S:\n",
        "            if True:\n",
        (
            "tests/node/edge/test_call_admission.py::test_of_too_many_silent_calls_the_oldest_is_ended_unless_it_is_young",
        ),
    ),
    Mutant(
        "calls_that_have_spoken_count_as_silent",
        "calls that work are ended for silent ones",
        "                    self._waiting.pop(patience, None)\n",
        "                    pass\n",
        (
            "tests/node/edge/test_call_admission.py::test_calls_of_each_kind_are_counted_while_they_are_under_way",
        ),
    ),
    Mutant(
        "later_requests_of_a_stream_have_any_size",
        "a large request is parsed on the event loop",
        "        async for request in requests:\n            await _check(request, context, bytes_max)\n",
        "        async for request in requests:\n",
        (
            "tests/node/edge/test_call_admission.py::test_each_request_of_a_stream_is_taken_up_to_its_size_and_a_call_needs_one",
        ),
    ),
    Mutant(
        "a_call_without_a_request_goes_on",
        "a service fails on a request that never came",
        "            if first is None:\n                await abort",
        "            if False:\n                await abort",
        (
            "tests/node/edge/test_call_admission.py::test_each_request_of_a_stream_is_taken_up_to_its_size_and_a_call_needs_one",
        ),
    ),
    Mutant(
        "a_consumer_may_be_silent_as_long_as_a_request_may_take",
        "silent consumers take all calls",
        "wait_ms = self._bounds.subscribe_ms if path == SUBSCRIBING else self._bounds.request_ms",
        "wait_ms = self._bounds.request_ms",
        (
            "tests/node/edge/test_call_admission.py::test_a_consumer_is_to_say_sooner_than_others_what_it_wants",
        ),
    ),
    Mutant(
        "connections_have_no_bound",
        "silent connections take all descriptors",
        '        ("grpc.max_allowed_incoming_connections", min(bounds.connections_max, files // 2)),\n',
        "",
        ("tests/cluster/test_strangers.py::test_a_node_takes_no_more_connections_and_calls_than_it_says",),
    ),
    Mutant(
        "connections_take_all_descriptors",
        "connections keep a node from opening its files",
        "min(bounds.connections_max, files // 2)",
        "bounds.connections_max",
        ("tests/node/edge/test_call_admission.py::test_connections_leave_half_of_the_descriptors_to_files",),
    ),
    Mutant(
        "idle_connections_stay",
        "idle connections take all places",
        '        ("grpc.max_connection_idle_ms", bounds.idle_ms),\n',
        "",
        (
            "tests/node/edge/test_call_admission.py::test_grpc_holds_connections_to_the_bounds_of_the_configuration",
        ),
    ),
    Mutant(
        "a_connection_may_begin_without_end",
        "connections that never begin take all places",
        '        ("grpc.server_handshake_timeout_ms", bounds.handshake_ms),\n',
        "",
        (
            "tests/node/edge/test_call_admission.py::test_grpc_holds_connections_to_the_bounds_of_the_configuration",
        ),
    ),
    Mutant(
        "who_may_do_less_keeps_the_stream",
        "who has a token that was removed goes on consuming",
        "            return has is None or had is None or not _within(had, has)\n",
        "            return False\n",
        ("tests/node/edge/test_auth.py::test_who_may_do_less_with_other_tokens_is_known",),
    ),
    Mutant(
        "a_stream_that_is_to_end_goes_on",
        "who has a token that was removed goes on consuming",
        "            until.reschedule(asyncio.get_running_loop().time())\n",
        "",
        (
            "tests/node/edge/test_call_admission.py::test_streams_whose_callers_may_do_less_now_are_ended_with_the_reason_and_no_others",
        ),
    ),
    Mutant(
        "a_renewed_certificate_is_shown_to_nobody",
        "a node shows a certificate until it has expired, and after that",
        "        renewed, self._renewed = self._renewed, None\n        return renewed\n",
        "        return None\n",
        (
            "tests/node/edge/test_tls.py::test_new_certificates_are_shown_at_every_address_and_what_is_open_stays",
        ),
    ),
    Mutant(
        "streams_between_nodes_keep_their_certificates",
        "nodes with renewed certificates do not find together again",
        "        self.server, self.client = other.server, other.client\n",
        "        return\n",
        (
            "tests/replication/transport/test_stream_listener.py::test_with_renewed_certificates_new_peers_come_in_and_those_that_are_there_stay",
        ),
    ),
    Mutant(
        "files_that_go_together_no_more_count",
        "a certificate that is being replaced is read in the middle of that",
        "        if asked or self._read != found == self._seen:\n",
        "        if asked or self._read != found:\n",
        ("tests/node/test_reload.py::test_a_file_that_has_changed_is_read_once_it_stays_as_it_is",),
    ),
    Mutant(
        "what_cannot_be_recorded_is_done",
        "an operator's call leaves no trace where there has to be one",
        "        if not why or not self._settings.required:\n",
        "        if True:\n",
        (
            "tests/node/edge/test_audit.py::test_where_nothing_can_be_written_a_call_is_refused_or_done_as_it_is_set",
        ),
    ),
    Mutant(
        "anybody_says_who_has_called",
        "an operator's call is recorded as another's",
        "metadata_value(metadata, FORWARDED_KEY) and is_node(context):",
        "metadata_value(metadata, FORWARDED_KEY):",
        (
            "tests/node/edge/test_audit.py::test_a_call_that_a_node_passes_on_is_its_callers_and_others_speak_for_nobody",
        ),
    ),
    Mutant(
        "who_may_not_operate_fills_the_audit_log",
        "refused calls push out the record of those that were done",
        "        if denied and not self._denied.take(self._wall_ms()):\n",
        "        if False:\n",
        ("tests/node/edge/test_audit.py::test_a_caller_without_the_right_fills_no_log",),
    ),
    Mutant(
        "half_a_line_stays",
        "the audit log is no JSON behind a full disk",
        "                    os.ftruncate(at, size)\n",
        "                    pass\n",
        ("tests/node/edge/test_audit_file.py::test_of_lines_for_which_there_is_no_room_none_is_there",),
    ),
)

LOGGED = (
    Mutant(
        "a_sequence_may_be_the_greatest",
        "a request takes the table of producers to its end",
        "if request.sequence > SEQUENCE_MAX:",
        "if False:",
        ("tests/node/services/test_schedule_request.py::test_a_bad_batch_is_refused_by_its_reason",),
    ),
    Mutant(
        "a_floor_may_run_over",
        "a checkpoint cannot be written, on every node",
        "self.floor = max(self.floor, min(sequence + 1, FLOOR_MAX))",
        "self.floor = max(self.floor, sequence + 1)",
        (
            "tests/replication/state_machine/test_producer_answers.py::test_the_greatest_sequence_that_0_1_0_took_goes_into_a_checkpoint_and_makes_room_like_any",
        ),
    ),
    Mutant(
        "a_copy_may_name_any_hour",
        "the ledger's columns run over while applying, on every node",
        "known = (attempt > 0) & (hour <= INT32_MAX)",
        "known = attempt > 0",
        ("tests/replication/state_machine/test_events.py",),
    ),
    Mutant(
        "producers_may_use_reserved_names",
        "a producer forges a dead letter",
        "            if name.startswith(RESERVED):\n",
        "            if False:\n",
        ("tests/node/services/test_schedule_request.py::test_a_bad_batch_is_refused_by_its_reason",),
    ),
    Mutant(
        "producers_may_write_dead_letters",
        "a producer forges a dead letter",
        "if not topic.startswith(DEAD_LETTERS):",
        "if True:",
        ("tests/node/services/test_schedule_request.py::test_a_bad_batch_is_refused_by_its_reason",),
    ),
    Mutant(
        "a_letter_of_another_group_is_believed",
        "a forged letter takes a message to a group of another tenant",
        "    if not _takes_letters_of(letter, queue, machine):\n        return False\n",
        "",
        (
            "tests/node/delivery/test_redrive.py::test_a_letter_in_a_topic_that_is_not_its_groups_is_passed_over",
        ),
    ),
    Mutant(
        "a_letter_of_no_message_is_believed",
        "a forged letter makes a message that nobody scheduled",
        "return origin.hour < wheel.floor_hour and not wheel.units_in_hour(origin.hour)",
        "return True",
        ("tests/node/delivery/test_redrive.py::test_a_letter_that_the_log_does_not_bear_out_is_passed_over",),
    ),
    Mutant(
        "a_letter_names_any_time",
        "a forged letter ends every redrive of its topic",
        "    if not 0 <= due_ms <= DUE_MS_MAX:\n        return None\n",
        "",
        ("tests/node/delivery/test_redrive.py::test_a_letter_that_the_log_does_not_bear_out_is_passed_over",),
    ),
    Mutant(
        "a_history_has_rows_of_any_topic",
        "who has no right on a topic is told of its messages",
        'if sees(row.get("topic", ""))]',
        "if True]",
        (
            "tests/node/services/test_history.py"
            "::test_rows_are_told_to_who_has_a_right_on_their_topic_and_to_no_other",
        ),
    ),
    Mutant(
        "a_life_is_told_to_anybody",
        "who has no right on a topic is told of its messages",
        "return queue if self._authorizer.sees(context)(queue.topic) else None",
        "return queue",
        (
            "tests/node/services/test_life.py"
            "::test_who_has_no_right_on_the_topic_is_told_as_if_there_were_no_message",
        ),
    ),
    Mutant(
        "an_entry_may_have_half_a_value",
        "every replica ends, again at each start",
        "        if len(getattr(command, name)) % width:\n",
        "        if False:\n",
        ("tests/replication/state_machine/test_command_validity.py",),
    ),
    Mutant(
        "an_entry_may_have_any_time",
        "every replica ends, again at each start",
        "if not 0 <= command.now_ms <= DUE_MS_MAX:",
        "if False:",
        (
            "tests/replication/state_machine/test_command_validity.py::test_a_time_is_one_that_a_cluster_can_have",
        ),
    ),
)

MUTANTS = (
    *PEERS,
    *CALLS,
    *LOGGED,
)
