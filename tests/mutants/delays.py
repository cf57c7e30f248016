"""Mutants of groups' delays."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

DELAY = "tests/node/delivery/test_delay.py"
TOLD = "tests/node/delivery/test_delay_told.py"
POLICIES = "tests/replication/state_machine/test_group_policies.py"

MUTANTS = (
    Mutant(
        "a_delay_has_no_bound",
        "a typing error keeps a topic's messages on disk for ever",
        "    if policy.delay_ms > DELAY_MS_MAX:\n",
        "    if False:\n",
        (f"{POLICIES}::test_what_no_leader_can_act_by_is_refused_and_what_would_do_is_said",),
    ),
    Mutant(
        "what_waits_for_the_delay_is_due",
        "a delayed group gets messages up to ten seconds early",
        'return bisect_right(self._waiting["due_ms"], now_ms - self.delay.ms)',
        'return bisect_right(self._waiting["due_ms"], now_ms)',
        (
            f"{DELAY}::test_a_message_opens_to_the_millisecond_and_the_feed_says_when",
            f"{DELAY}::test_what_is_given_when_is_what_a_model_of_one_list_says",
        ),
    ),
    Mutant(
        "a_retry_is_delayed_again",
        "what a consumer gave back for a second comes in half an hour",
        "feed.delay.ms = 0 if feed.queue.group else delay_ms",
        "feed.delay.ms = delay_ms",
        (f"{DELAY}::test_a_retry_is_not_delayed_again",),
    ),
    Mutant(
        "another_delay_counts_after_a_failover_only",
        "an operator who shortens a delay waits for the old one",
        "        self._set_delay(policy.delay_ms)\n",
        "",
        (f"{DELAY}::test_a_delay_that_is_changed_counts_at_once_and_nobody_has_to_come_anew",),
    ),
    Mutant(
        "a_new_leader_knows_no_delay",
        "a failover hands everything out early",
        "        self._set_delay(self._context.policy(self.topic, self.group).delay_ms)\n",
        "",
        (f"{DELAY}::test_the_next_leader_waits_as_well_and_marks_nothing_that_nobody_can_have_had",),
    ),
    Mutant(
        "all_that_is_delayed_is_loaded",
        "each delayed group costs memory for thousands of messages that nobody needs for days",
        "        shut = due_ms > now_ms + LOADED_AHEAD_MS - self.ms\n",
        "        shut = due_ms > now_ms + 2**50\n",
        (f"{DELAY}::test_what_is_delayed_for_long_is_not_loaded_and_costs_no_memory",),
    ),
    Mutant(
        "nobody_wakes_for_what_is_on_disk",
        "a delayed message waits until something else happens",
        "                times += [] if (looks_ms := feed.looks_ms()) is None else [looks_ms]\n",
        "",
        (f"{DELAY}::test_one_group_gets_a_message_when_it_is_due_and_another_half_an_hour_later_by_a_timer",),
    ),
    Mutant(
        "a_feed_reserves_what_the_delay_keeps",
        "after a failover, thousands that nobody has had are marked as perhaps repeated",
        "        return min(needed + most, max(needed, self.next)) if shut else needed + most\n",
        "        return needed + most\n",
        (f"{DELAY}::test_a_feed_reserves_nothing_of_what_the_delay_keeps_on_disk",),
    ),
    Mutant(
        "a_delivery_says_the_message_s_due_time",
        "consumers and receipts take a delayed delivery for half an hour late, and an early one for none",
        'due_ms=(batch.units["due_ms"] + delay_ms).tobytes(),',
        'due_ms=batch.units["due_ms"].tobytes(),',
        (f"{DELAY}::test_a_delivery_says_when_it_was_due_for_the_group_and_by_how_much_that_is_later",),
    ),
    Mutant(
        "the_longest_retention_ignores_delays",
        "what a delayed group was never to have by then is gone",
        "queue.find_released(now_ms - longest_ms - self._delay_ms(queue), pread)",
        "queue.find_released(now_ms - longest_ms, pread)",
        (f"{TOLD}::test_the_longest_retention_begins_behind_the_longest_delay_of_a_topic_s_groups",),
    ),
    Mutant(
        "lateness_counts_the_delay",
        "alerts ring for each delayed group",
        '            delay_ms = queues.delay_ms(queue.topic, event.group or "")\n',
        "            delay_ms = 0\n",
        (f"{TOLD}::test_a_delivery_is_as_late_as_it_comes_behind_the_delay",),
    ),
    Mutant(
        "a_ledger_says_the_message_s_due_time",
        "Spark takes each delivery to a delayed group for late, and an early one for none",
        'units["due_ms"] + delay_ms,\n                units["offset"],',
        'units["due_ms"],\n                units["offset"],',
        (
            "tests/node/ledger/test_ledger.py::test_a_delivery_to_a_group_with_a_delay_is_due_so_much_later_and_says_so",
        ),
    ),
)
