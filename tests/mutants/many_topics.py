"""Mutants of streams with several topics, and of bytes in hand and leases, on which such streams rest."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

SEATS = "tests/node/delivery/test_many_topics.py"
SERVICE = "tests/node/services/test_many_topics.py"
RIGHTS = "tests/node/services/test_topic_choice.py"

MUTANTS = (
    Mutant(
        "a_topic_goes_ahead_of_those_that_wait",
        "a topic with a backlog starves the others of its stream",
        "bool(self._round or self._next) and seat is not self._served",
        "False",
        (f"{SEATS}::test_a_topic_that_is_looked_at_while_others_wait_waits_behind_them",),
    ),
    Mutant(
        "a_turn_of_a_topic_has_no_end",
        "a topic with a backlog starves the others of its stream",
        "            wants = min(wants, self._quantum)\n",
        "            pass\n",
        (f"{SEATS}::test_two_backlogs_have_as_much_of_a_large_credit",),
    ),
    Mutant(
        "credit_counts_for_each_topic",
        "a consumer is sent more than it has asked for",
        "        self.stream.credit -= messages\n        seat.in_hand_bytes",
        "        seat.in_hand_bytes",
        (f"{SEATS}::test_whatever_comes_credit_and_bytes_hold_and_each_message_is_given_once",),
    ),
    Mutant(
        "a_round_has_no_order",
        "of several topics the message that was due last goes first",
        "sorted(self._next, key=_due_ms)",
        "self._next[::-1]",
        (f"{SEATS}::test_a_topic_whose_message_was_due_first_has_the_first_turn_of_a_round",),
    ),
    Mutant(
        "who_waits_for_bytes_waits_for_ever",
        "a consumer with all bytes in hand gets nothing more of its other topics",
        "        if freed > 0 and self.stream.bytes_kept:\n            self.serve_soon()\n",
        "",
        (f"{SEATS}::test_an_ack_of_one_topic_lets_another_go_on_that_waits_for_bytes",),
    ),
    Mutant(
        "bytes_that_an_ack_frees_wake_nobody",
        "a consumer with all bytes in hand gets nothing more",
        "            self._bytes_kept = False\n            self._wake_in(0)  # once for all that is settled in this turn\n",
        "            self._bytes_kept = False\n",
        ("tests/node/delivery/test_bytes_in_hand.py",),
    ),
    Mutant(
        "a_topic_that_is_gone_ends_the_stream",
        "who deletes one topic ends the consumers of all",
        "if refusal.reason is Reason.GROUP_UNKNOWN:\n            self.many.forget(self)",
        "if False:\n            self.many.forget(self)",
        (
            f"{SEATS}::test_a_group_that_is_deleted_is_left_with_its_bytes_and_a_leadership_that_ends_ends_the_stream",
        ),
    ),
    Mutant(
        "what_a_release_meets_ends_the_leader_s_node",
        "a bit that has rotted on the leader's disk costs the cluster its leader",
        "            delivery.released(changed)\n            delivery.note_queues()",
        "            delivery.released(changed)\n            assert self.delivery is not None\n            delivery.note_queues()",
        (
            "tests/node/leader/test_leadership.py::test_damage_that_a_delivery_meets_ends_the_leadership_and_not_the_node",
        ),
    ),
    Mutant(
        "topics_that_come_later_are_not_noticed",
        "a pattern has only what there was at its beginning",
        "            delivery.note_queues()\n",
        "",
        (f"{SERVICE}::test_a_pattern_has_the_topics_that_there_are_and_those_that_come",),
    ),
    Mutant(
        "patterns_have_dead_letters",
        "a consumer of all topics consumes what was given up as dead",
        "prefixes = self._letters if topic.startswith(DEAD_LETTERS) else self._prefixes",
        "prefixes = self._prefixes",
        (f"{SERVICE}::test_no_dead_letter_topic_has_a_pattern_that_does_not_begin_as_they_do",),
    ),
    Mutant(
        "a_pattern_has_what_the_token_may_not_consume",
        "a tenant gets the messages of others",
        "return topic.startswith(prefixes) and self._may(topic)",
        "return topic.startswith(prefixes)",
        (RIGHTS,),
    ),
    Mutant(
        "the_old_stream_replaces_the_new_one",
        "a consumer that came back is thrown out by its own stream of before",
        "        if late and (refusal := self._replaced(seat)) is not None:\n            return refusal\n",
        "",
        (f"{SERVICE}::test_who_connects_again_replaces_the_stream_of_its_name",),
    ),
    Mutant(
        "topics_of_a_stream_have_no_bound",
        "one stream opens the groups of all topics",
        "        if count > self._limits.subscribed_topics_max:\n            return too_many(count, self._limits)\n        for start",
        "        for start",
        (f"{SERVICE}::test_more_topics_than_the_limit_are_refused_whether_they_are_there_or_come",),
    ),
    Mutant(
        "a_topic_made_anew_counts_as_joined",
        "a topic that is deleted and made again is never delivered",
        "return seat is not None and seat.ended is None",
        "return seat is not None",
        (f"{SERVICE}::test_a_topic_made_anew_is_joined_though_the_end_of_the_one_before_waits_for_its_turn",),
    ),
    Mutant(
        "the_longest_lease_is_told",
        "messages of topics with a shorter one are delivered to others as well",
        "return min((seat.lease_ms for seat",
        "return max((seat.lease_ms for seat",
        (f"{SERVICE}::test_the_lease_that_is_told_is_the_shortest_also_of_a_topic_that_comes",),
    ),
    Mutant(
        "a_shorter_lease_wakes_nobody",
        "messages that wait in a client are delivered to others as well",
        "        if shorter:\n            self._on_shorter_lease()\n",
        "",
        (
            "tests/client/consumers/test_several_topics.py::test_a_lease_that_becomes_shorter_is_extended_in_time",
        ),
    ),
    Mutant(
        "responses_of_topics_have_no_bound_in_bytes",
        "a consumer that reads its stream is told that it does not",
        "or (more > 0 and self.outgoing_bytes > self.responses_bytes_max)",
        "",
        (f"{SEATS}::test_large_messages_of_many_topics_do_not_make_a_consumer_too_slow_that_reads",),
    ),
    Mutant(
        "a_stream_without_topics_outlives_the_leadership",
        "a consumer whose topics are yet to come waits for them at a node that leads no more",
        "            turn.do(partial(self._end_several, list(self.several), refusal))",
        "            pass",
        (f"{SERVICE}::test_a_stream_whose_topics_are_yet_to_come_ends_with_the_leadership",),
    ),
)
