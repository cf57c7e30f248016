"""Mutants of the gateways: whom it answers, where it posts, and what becomes of messages in hand."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

REQUESTS = "tests/gateway/test_requests.py"
STREAMS = "tests/cluster/test_gateway.py"
ROCKETMQ = "tests/gateway/test_rocketmq_parts.py"
CHECKS = "tests/gateway/test_rocketmq_checks.py"
ROCKETMQ_CALLS = "tests/cluster/test_rocketmq.py"
ROCKETMQ_HOSTILE = "tests/gateway/test_rocketmq_hostile.py"
SETTLEMENT = "tests/gateway/test_rocketmq_settlement.py"
MUTANTS = (
    Mutant(
        "what_comes_as_a_caller_is_cancelled_is_given_back_to_nobody",
        "messages that nobody has received wait for the end of their lease",
        "            await returns.give_back(puller, receiving.result())\n",
        "            pass\n",
        ("tests/gateway/test_poll.py::test_what_comes_as_its_caller_is_cancelled_is_told_or_given_back[2]",),
    ),
    Mutant(
        "an_acknowledgement_that_comes_meanwhile_is_never_sent",
        "clients repeat it, and what they have done with is delivered again",
        "            while waiting:\n",
        "            if waiting:\n",
        (f"{SETTLEMENT}::test_what_comes_while_a_request_is_under_way_shares_the_next",),
    ),
    Mutant(
        "those_who_share_a_request_are_told_each_other_s_outcomes",
        "what is in hand no more counts as done, and the other way round",
        "        return [outcomes[offset] for offset in offsets]\n",
        "        return list(outcomes.values())[: len(offsets)]\n",
        (f"{SETTLEMENT}::test_what_comes_while_a_request_is_under_way_shares_the_next",),
    ),
    Mutant(
        "posts_go_to_private_addresses",
        "whoever names a URL reaches what only the gateway's network does",
        "return address.is_global and not address.is_multicast and not address.is_reserved",
        "return not address.is_multicast and not address.is_reserved",
        ("tests/gateway/test_push_parts.py::test_addresses_of_this_host_or_network_are_not",),
    ),
    Mutant(
        "an_address_within_another_is_not_looked_at",
        "a mapped or translated address leads to this host",
        "        if inner is not None:\n            return is_public(str(inner))\n",
        "",
        ("tests/gateway/test_push_parts.py::test_addresses_of_this_host_or_network_are_not",),
    ),
    Mutant(
        "a_name_is_asked_again_once_it_was_checked",
        "a name server that answers otherwise the second time leads to this host",
        "return await self._network.connect_tcp(address, port, timeout, local_address, socket_options)",
        "return await self._network.connect_tcp(host, port, timeout, local_address, socket_options)",
        ("tests/gateway/test_post.py::test_a_name_that_leads_elsewhere_the_second_time_gains_nothing",),
    ),
    Mutant(
        "a_signature_leaves_the_id_out",
        "a recorded body is sent as another message",
        'signed = f"{time_s}.{message_id}.".encode() + body',
        'signed = f"{time_s}.".encode() + body',
        ("tests/gateway/test_push_parts.py::test_a_signature_is_verified_by_either_secret_and_by_no_other",),
    ),
    Mutant(
        "a_recorded_post_counts_for_ever",
        "whoever recorded a post sends it again",
        "return abs(now_s - time_s) <= AGE_S_MAX and any(",
        "return any(",
        ("tests/gateway/test_push_parts.py::test_a_signature_is_verified_by_either_secret_and_by_no_other",),
    ),
    Mutant(
        "a_redirect_is_an_answer_that_counts",
        "a message that nobody has taken is acknowledged",
        "return self.status is not None and 200 <= self.status < 300",
        "return self.status is not None and 200 <= self.status < 400",
        ("tests/gateway/test_post.py::test_an_answer_that_is_no_2xx_does_not_count",),
    ),
    Mutant(
        "any_name_of_the_gateway_is_answered",
        "a web site makes its own name lead here",
        'if scope["path"] not in PROBES and not self._is_own(host_name(host)):',
        'if scope["path"] not in PROBES and not host:',
        (f"{REQUESTS}::test_only_names_of_the_gateway_are_answered",),
    ),
    Mutant(
        "an_ip_address_is_no_name_of_the_gateway",
        "nobody can call a gateway that listens on all addresses",
        "return name in self._hosts or _is_address(name)",
        "return name in self._hosts",
        (f"{REQUESTS}::test_an_ip_address_is_answered_for_no_site_can_make_it_lead_here",),
    ),
    Mutant(
        "a_page_that_names_no_origin_may_call",
        "an image of a web site consumes messages",
        'origin is None and site not in {"none", "same-origin"}',
        "origin is None and False",
        (f"{REQUESTS}::test_pages_of_other_web_sites_may_not_call",),
    ),
    Mutant(
        "tokens_that_no_node_knows_are_kept",
        "made-up tokens push out those in use",
        "if not access.known and not access.requests and token is not None:",
        "if False:",
        (f"{REQUESTS}::test_a_token_that_no_node_knows_leaves_nothing_behind",),
    ),
    Mutant(
        "a_name_may_be_twice_in_a_json_object",
        "a proxy reads the one, the gateway the other",
        "    if len(made) != len(pairs):\n        names",
        "    if False:\n        names",
        ("tests/gateway/test_texts.py::test_what_could_be_misread_is_refused",),
    ),
    Mutant(
        "a_time_is_rounded_down",
        "a message is due before the time that was asked for",
        "return -((_EPOCH - time - more) // timedelta(milliseconds=1))",
        "return (time - _EPOCH) // timedelta(milliseconds=1)",
        ("tests/gateway/test_texts.py::test_a_time_is_rounded_up_so_that_nothing_is_early",),
    ),
    Mutant(
        "a_stream_settles_for_anybody",
        "who knows a handle acknowledges with the rights of another",
        "if stream is not None and stream.access is call.access and _is_of(stream, holder):",
        "if stream is not None and _is_of(stream, holder):",
        (f"{STREAMS}::test_a_stream_s_messages_are_settled_with_the_caller_s_own_token",),
    ),
    Mutant(
        "a_body_has_any_size",
        "a few requests fill the memory",
        "                    if len(body) + len(part) > self.limits.body_bytes_max:\n",
        "                    if False:\n",
        (f"{REQUESTS}::test_a_body_is_bounded_whether_it_says_its_size_or_not",),
    ),
    Mutant(
        "a_body_takes_the_room_that_its_head_names",
        "a few idle connections keep all other requests out, or a chunked body takes no room",
        "                    room.more(len(part))\n",
        "                    room.more(int(declared or 0) if not body else 0)\n",
        (f"{REQUESTS}::test_a_body_takes_room_as_it_comes_and_not_as_its_head_says",),
    ),
    Mutant(
        "a_token_counts_as_tried_for_as_long_as_it_waits",
        "calls of receive of some tenants keep others out",
        "        messages = await received(puller, body.messages_max, 0, returns)\n        call.access.known = True\n",
        "        messages = []\n",
        (f"{REQUESTS}::test_a_token_that_waits_for_messages_does_not_count_as_tried_for_so_long",),
    ),
    Mutant(
        "a_time_before_all_times_is_one",
        "a message that any program may have sent ends every receive of its group",
        "    if not 0 <= int(due_ms) <= TIME_MS_MAX:",
        "    if abs(int(due_ms)) > TIME_MS_MAX:",
        (
            f"{ROCKETMQ_HOSTILE}::test_a_message_of_another_program_is_read_whatever_it_has_in_the_property_that_is_ours",
        ),
    ),
    Mutant(
        "a_receiver_may_ask_for_less_than_the_back_off",
        "a receiver that is down, and asks for a second, uses up all attempts of its messages",
        "max(self.ms, back_off_ms) if self.at_least else self.ms",
        "self.ms",
        ("tests/node/delivery/test_retries.py::test_a_nack_may_say_how_long_at_least",),
    ),
    Mutant(
        "addresses_are_tried_one_after_another",
        "a receiver of which one address swallows packets gets nothing",
        "timeout=ATTEMPT_S if left else None, return_when",
        "timeout=None, return_when",
        (
            "tests/gateway/test_post.py::test_an_address_that_swallows_all_packets_keeps_no_post_from_the_next_one",
        ),
    ),
    Mutant(
        "a_refused_stream_of_checks_ends_for_good",
        "transactions of a token that came late to one node end undecided",
        "        return REFUSED_S * random.uniform(0.8, 1.2)",
        "        return 1e9",
        ("tests/client/transactions/test_transactions.py::test_checks_that_are_refused_are_asked_for_again",),
    ),
    Mutant(
        "a_stream_of_several_topics_settles_nothing",
        "its credit is used until leases are over",
        'stream.consumer.topic in ("", holder.topic)',
        "stream.consumer.topic == holder.topic",
        (
            "tests/gateway/test_event_stream.py::test_what_a_stream_of_several_topics_was_sent_is_settled_by_it",
        ),
    ),
    Mutant(
        "a_handshake_may_take_a_minute",
        "connections that send nothing use up the gateway's files",
        "partial(create, ssl_handshake_timeout=self._handshake_s)",
        "create",
        ("tests/gateway/test_connections.py::test_a_handshake_that_does_not_come_is_given_up",),
    ),
    Mutant(
        "posts_go_to_site_local_addresses",
        "whoever names a URL reaches what only the gateway's network does",
        "        if address.is_site_local:  # fec0::/10, which counts as global\n            return False\n",
        "",
        ("tests/gateway/test_push_parts.py::test_addresses_of_this_host_or_network_are_not",),
    ),
    Mutant(
        "a_redirect_leads_from_https_to_http",
        "the receiver has a message sent on in the clear",
        'may_be_read = push.allow_private and urlsplit(url).scheme == "http"',
        "may_be_read = push.allow_private",
        (
            "tests/gateway/test_post.py"
            "::test_a_redirect_from_https_to_http_is_not_followed_whatever_is_allowed",
        ),
    ),
    Mutant(
        "an_event_stream_is_opened_for_its_headers",
        "messages are taken that nobody is told of",
        '        route.methods.discard("HEAD")',
        "        pass",
        (f"{REQUESTS}::test_an_event_stream_is_not_opened_for_its_headers_alone",),
    ),
    Mutant(
        "silent_connections_stay",
        "a few thousand of them keep everybody out",
        "self.loop.call_later(self.bounds.head_ms / 1_000, self._head_over)",
        "self.loop.call_later(1e6, self._head_over)",
        ("tests/gateway/test_connections.py::test_a_request_whose_head_does_not_come_is_given_up",),
    ),
    Mutant(
        "a_stream_that_nobody_reads_stays",
        "its messages are kept from all others",
        "self.loop.call_later(self.bounds.answer_ms / 1_000, self.transport.abort)",
        "self.loop.call_later(1e6, self.transport.abort)",
        ("tests/gateway/test_connections.py::test_a_stream_whose_caller_does_not_read_ends",),
    ),
    Mutant(
        "a_place_is_free_before_the_answer_is_taken",
        "callers that do not read fill the memory",
        "return _Answer(content, operation.status, place.pop_all())",
        "return _Answer(content, operation.status, ExitStack())",
        (f"{REQUESTS}::test_an_answer_keeps_its_place_until_its_caller_has_taken_it",),
    ),
    Mutant(
        "a_handle_is_read_whoever_made_it",
        "made-up handles settle what another consumer of the group was given",
        "if not any(hmac.compare_digest(mac, _mac(key, version, content)) for key in self._keys):",
        "if not mac:",
        (f"{ROCKETMQ}::test_handles_are_good_wherever_the_secret_is_and_nowhere_else",),
    ),
    Mutant(
        "an_access_key_needs_no_secret",
        "whoever knows an access key's name has its rights",
        "if not hmac.compare_digest(expected, signature.lower()):",
        "if not expected:",
        ("tests/gateway/test_rocketmq_calls.py::test_calls_are_let_in_by_the_signature_of_an_access_key",),
    ),
    Mutant(
        "a_delivery_timestamp_is_rounded_down",
        "a message of a client with finer times comes early",
        "return timestamp.seconds * 1_000 - (-timestamp.nanos // 1_000_000)",
        "return timestamp.seconds * 1_000 + timestamp.nanos // 1_000_000",
        (f"{ROCKETMQ}::test_a_due_time_is_rounded_up_so_that_nothing_is_early",),
    ),
    Mutant(
        "a_message_id_is_no_idempotency_key",
        "what a client sends again, because its answer was lost, is stored twice",
        "idempotency_key=system.message_id,",
        "",
        (f"{ROCKETMQ}::test_a_message_that_is_sent_again_is_the_same_to_the_cluster_whenever_it_was_born",),
    ),
    Mutant(
        "a_vain_recall_is_told_to_python_as_to_others",
        "Python's client takes it for a success",
        'code = Code.NOT_FOUND if call.language == "PYTHON" else Code.MESSAGE_NOT_FOUND',
        "code = Code.MESSAGE_NOT_FOUND",
        (
            f"{ROCKETMQ_CALLS}::test_python_s_client_is_told_of_a_vain_recall_in_a_code_that_it_does_not_take"
            "_for_a_success",
        ),
    ),
    Mutant(
        "a_lost_answer_of_a_poll_is_kept_for_who_never_had_it",
        "what a push consumer never had stays invisible while it is there",
        "    await _give_back_the_same_attempt_s(call, request)\n",
        "",
        (f"{ROCKETMQ_CALLS}::test_an_attempt_that_is_made_again_has_what_its_lost_answer_had",),
    ),
    Mutant(
        "only_a_call_that_is_cancelled_gives_back_what_its_client_never_had",
        "a connection that is cut, or is not read, leaves messages invisible for as long as the client asked",
        "    except BaseException:\n        for receipt in receipts:",
        "    except asyncio.CancelledError:\n        for receipt in receipts:",
        (f"{ROCKETMQ_CALLS}::test_what_a_client_never_reads_is_given_back",),
    ),
    Mutant(
        "a_client_is_its_id_whatever_its_token",
        "another tenant's client ends the renewal of what a push consumer works at, and it is delivered twice",
        "        return self.access, self.client_id\n",
        '        return "", self.client_id\n',
        (f"{ROCKETMQ_HOSTILE}::test_another_token_s_client_of_the_same_id_ends_nothing_of_it",),
    ),
    Mutant(
        "bytes_of_a_message_count_while_its_client_waits",
        "clients with short deadlines fill the gateway's memory while no node answers",
        "answer.add_done_callback(partial(_let_go, held.pop_all()))",
        "answer.add_done_callback(partial(_let_go, ExitStack()))",
        (
            f"{ROCKETMQ_HOSTILE}::test_the_bytes_of_a_message_count_until_its_outcome_though_its_client"
            "_is_gone",
        ),
    ),
    Mutant(
        "a_transaction_that_has_ended_is_prepared_for_rocketmq_s_clients_again",
        "its client does what can be committed no more",
        "    if info.state is not TransactionState.OPEN:  # or its client would do what can end no more\n",
        "    if not info.name:\n",
        (
            "tests/cluster/test_rocketmq_transactions.py::test_a_half_message_sent_twice_is_prepared_once_and"
            "_not_again_once_it_has_ended",
        ),
    ),
    Mutant(
        "questions_wait_without_bound",
        "a client that does not read fills the gateway's memory",
        "        if self.waiting >= waiting_max:\n            return False\n",
        "",
        (f"{CHECKS}::test_a_client_that_does_not_read_is_passed_over",),
    ),
    Mutant(
        "a_check_is_passed_on_to_any_producer_of_the_topic",
        "who may not produce to a topic is shown its messages",
        "        key = topic, connected.access\n",
        "        key = topic, next((access for _, access in self._asked), connected.access)\n",
        (f"{CHECKS}::test_a_producer_with_another_token_is_not_shown_the_message",),
    ),
)
