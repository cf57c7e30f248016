"""Mutants of filters by properties: of what is unknown, of what is asked again, and of what they may cost."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TABLE = "tests/node/filters/test_conformance.py"
PARSER = "tests/node/filters/test_parser.py"
GROUP = "tests/node/delivery/test_filters.py"
COST = "tests/node/delivery/test_selection.py"

MUTANTS = (
    Mutant(
        "what_is_unknown_matches",
        "a group has messages without the property that it asks for",
        "        return [test(message.properties) is True for message in messages]\n",
        "        return [test(message.properties) is not False for message in messages]\n",
        (f"{GROUP}::test_what_does_not_match_is_passed_over_without_a_delivery_or_credit",),
    ),
    Mutant(
        "not_of_what_is_unknown_is_true",
        "a group has messages without the property that it asks for",
        "        return None if (said := inner(properties)) is None else not said\n",
        "        return not inner(properties)\n",
        (f"{TABLE}::test_and_or_and_not_are_those_of_three_values",),
    ),
    Mutant(
        "the_offsets_of_a_filter_are_kept_for_ever",
        "a leader's memory grows with every message that was ever delivered",
        "            matched.remove_range(0, acknowledged.floor)\n",
        "            pass\n",
        (f"{GROUP}::test_offsets_of_the_filter_are_forgotten_below_the_floor",),
    ),
    Mutant(
        "another_filter_takes_over_what_the_one_before_has_decided",
        "a group has messages that its filter leaves out",
        "            self._matched.clear()\n",
        "            pass\n",
        (f"{GROUP}::test_another_filter_asks_anew",),
    ),
    Mutant(
        "consumers_of_a_group_have_filters_of_their_own",
        "a message that a consumer asks for is acknowledged by the filter of another",
        '        return self.tags, "" if self.filter is None else self.filter.text\n',
        '        return self.tags, ""\n',
        (f"{GROUP}::test_consumers_of_a_group_have_the_same_filter",),
    ),
    Mutant(
        "a_filter_has_any_number_of_comparisons",
        "a consumer's filter holds up the event loop of the leader",
        "    if found.tests > tests_max:\n",
        "    if False:\n",
        (f"{PARSER}::test_a_filter_has_as_many_tests_as_its_limit_and_no_more",),
    ),
    Mutant(
        "contains_counts_the_same_for_any_text",
        "a consumer's filter holds up the event loop of the leader",
        "CONTAINS_TESTS + len(text) // CONTAINS_CHARS if",
        "CONTAINS_TESTS if",
        (f"{PARSER}::test_the_text_that_contains_searches_for_counts_by_its_length",),
    ),
    Mutant(
        "a_filter_is_read_before_its_caller_is_known",
        "who has no token holds up the event loop of the leader",
        "            or self._check_tags(request.tags)\n",
        "            or self._check_tags(request.tags)\n            or self._check_filter(request.filter)\n",
        ("tests/node/services/test_filters.py::test_a_filter_is_not_read_for_who_may_not_consume",),
    ),
    Mutant(
        "a_filter_is_nested_without_end",
        "a message ends the leader with a RecursionError",
        "    if found.depth > depth_max:\n",
        "    if False:\n",
        (f"{PARSER}::test_a_filter_is_as_deep_as_its_limit_and_no_deeper",),
    ),
    Mutant(
        "a_text_of_any_length_is_read_as_a_number",
        "a producer's property holds up the event loop of the leader",
        "    if len(text) > NUMBER_CHARS_MAX:\n        return None\n",
        "",
        (f"{PARSER}::test_a_long_text_is_no_number_and_costs_nothing_to_read",),
    ),
    Mutant(
        "more_is_delivered_than_a_consumer_has_credit_for",
        "a consumer with little credit is sent all that the group asked about",
        "        if len(batch.units) > wanted:\n",
        "        if False:\n",
        (f"{GROUP}::test_a_consumer_with_little_credit_is_not_asked_for_one_by_one",),
    ),
    Mutant(
        "a_batch_asks_any_number_of_comparisons",
        "a consumer's filter holds up the event loop of the leader",
        "        return min(self._limits.batch_messages_max, TURN_TESTS_MAX // self._tests)\n",
        "        return self._limits.batch_messages_max\n",
        (f"{COST}::test_a_batch_asks_so_many_comparisons_and_no_more",),
    ),
    Mutant(
        "a_batch_is_asked_of_any_number_of_bytes",
        "a consumer's filter holds up the event loop of the leader",
        "        return min(self._limits.batch_bytes_max, TURN_TESTED_BYTES_MAX // self._tests)\n",
        "        return self._limits.batch_bytes_max\n",
        (f"{COST}::test_a_batch_is_asked_of_so_many_bytes_and_no_more",),
    ),
    Mutant(
        "what_a_filter_asks_is_not_counted",
        "a consumer's filter holds up the event loop of the leader",
        "        self._context.turn.spend(self._selection.share(len(taken), read_bytes))\n",
        "",
        (f"{COST}::test_what_is_asked_counts_in_the_turn",),
    ),
)
