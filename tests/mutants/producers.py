"""Mutants of producers' requests: which go on a schedule stream, what its end says, and idempotency keys."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS = "tests/client/producers/test_schedule_stream.py"
KEYS = "tests/client/producers/test_idempotency_keys.py"

MUTANTS = (
    Mutant(
        "a_stream_may_be_refused_with_many_requests",
        "the refusal of one request is told to others that may have been done",
        "        self.in_flight_max = 1\n",
        "        self.in_flight_max = 32\n",
        (f"{TESTS}::test_a_stream_without_an_answer_yet_carries_one_request",),
    ),
    Mutant(
        "the_end_of_a_stream_refuses_its_requests",
        "a client is told that nothing was done, and schedules a message again",
        "            if self._proven:\n                error = OutcomeUnknown(",
        "            if False:\n                error = OutcomeUnknown(",
        (f"{TESTS}::test_the_refusal_of_a_whole_stream_is_none_of_its_requests",),
    ),
    Mutant(
        "answers_of_a_stream_go_to_any_request",
        "a producer is told the ids of other messages",
        "self._waiting.pop(response.request)",
        "self._waiting.pop(max(self._waiting))",
        (f"{TESTS}::test_requests_share_one_stream",),
    ),
    Mutant(
        "requests_of_any_size_go_on_a_stream",
        "a request over a node's limit ends others'",
        "if len(raw) <= REQUEST_BYTES_MAX else None",
        "if raw else None",
        (f"{TESTS}::test_a_large_request_is_a_call",),
    ),
    Mutant(
        "requests_that_were_given_up_pile_up_on_a_stream",
        "a stream to a stuck node takes all memory",
        "stream if stream.in_flight < stream.in_flight_max else None",
        "stream",
        (f"{TESTS}::test_unanswered_requests_on_a_stream_are_few_though_their_callers_give_up",),
    ),
    Mutant(
        "a_silent_schedule_stream_is_kept",
        "retries wait behind the request that is not answered",
        "        self.retire()\n        if not self._proven:",
        "        if not self._proven:",
        (f"{TESTS}::test_a_silent_stream_is_left_for_another",),
    ),
    Mutant(
        "a_node_without_streams_is_asked_for_one_again",
        "every schedule to it fails once",
        "self._calls_until.get(node.address, 0.0) > time.monotonic()",
        "False",
        (f"{TESTS}::test_a_node_that_takes_no_streams_gets_calls",),
    ),
    Mutant(
        "messages_with_and_without_idempotency_keys_share_a_request",
        "each is refused because of the others",
        "opened = self._open[idempotent + 2 * synced]",
        "opened = self._open[0]",
        (f"{KEYS}::test_messages_with_and_without_keys_share_no_request",),
    ),
    Mutant(
        "an_empty_idempotency_key_is_one_of_a_batch",
        "a message that should be scheduled once has no key",
        "not all(idempotency_keys)",
        "False",
        (f"{KEYS}::test_a_batch_with_keys_has_one_for_each_message",),
    ),
    Mutant(
        "a_message_with_an_idempotency_key_carries_any_trace_context",
        "its repetition is refused, for it has another",
        "context.keys() & TRACE_PROPERTIES} if idempotent else context",
        "context.keys()}",
        (f"{KEYS}::test_a_key_goes_with_the_trace_context_that_is_not_compared_and_no_other",),
    ),
    Mutant(
        "a_piece_of_a_batch_tells_of_repeats_by_its_own_positions",
        "a caller takes messages for new that are not, and the other way round",
        "piece.repeats + start for",
        "piece.repeats for",
        (f"{KEYS}::test_a_batch_tells_which_positions_of_the_whole_repeat_others",),
    ),
    Mutant(
        "a_node_that_stops_ends_its_streams_with_an_error",
        "answers that are on their way are lost, and their requests retried",
        "if not reader.cancelled():  # by `end_streams`",
        "if True:",
        (
            "tests/node/test_failures.py::test_when_its_node_stops_a_schedule_stream_ends_after_the_answers_to_what_it_has_read",
        ),
    ),
)
