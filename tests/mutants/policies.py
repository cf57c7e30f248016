"""Mutants of policies: which one counts for a group, and what may be kept as one."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

POLICY = "tests/node/delivery/test_policy.py"
CHANGED = "tests/node/delivery/test_changed_policy.py"
RATE = "tests/node/delivery/test_delivery_rate.py"
DEFAULTS = "tests/node/test_defaults.py"
CLUSTER = "tests/replication/state_machine/test_cluster_settings.py"
HEARTBEATS = "tests/replication/raft/test_heartbeats.py"
LETTERS = "tests/node/leader/test_letter_retention.py"
MACHINE = "tests/replication/state_machine/test_group_policies.py"

MUTANTS = (
    Mutant(
        "a_group_s_own_policy_does_not_count",
        "a failover changes how a group is delivered to",
        "        own if own is not None else _NOTHING,\n",
        "        _NOTHING,\n",
        (f"{POLICY}::test_a_group_counts_before_its_topic_and_that_before_the_configuration",),
    ),
    Mutant(
        "a_topic_s_policy_does_not_count",
        "a failover changes how the groups of a topic are delivered to",
        "        of_topic.settings.group_policy if of_topic is not None else _NOTHING,\n",
        "        _NOTHING,\n",
        (f"{POLICY}::test_a_group_counts_before_its_topic_and_that_before_the_configuration",),
    ),
    Mutant(
        "a_policy_that_nobody_can_act_by_is_kept",
        "every leader ends as it delivers by it",
        "    if text := _setting_fault(command):\n",
        '    if text := "":\n',
        (f"{MACHINE}::test_what_no_leader_can_act_by_is_refused_and_what_would_do_is_said",),
    ),
    Mutant(
        "a_topic_s_policy_is_proposed_before_the_raise",
        "nodes of an earlier version do not keep it",
        '    log_pb.TopicCommand: {"settings.group_policy": 2},\n',
        "",
        (f"{MACHINE}::test_a_policy_needs_the_level_of_its_command_also_in_a_topic_s_settings",),
    ),
    Mutant(
        "a_policy_is_in_no_checkpoint",
        "a restart forgets how a group is delivered to",
        "        policy=queue.policy,\n",
        "",
        (f"{MACHINE}::test_a_policy_is_of_the_state_of_its_checkpoint_and_of_its_digest",),
    ),
    Mutant(
        "the_rows_of_two_back_off_tables_are_joined",
        "a changed back-off begins with the waits of the one before",
        "        result.ClearField(field.name)",
        "        pass",
        (f"{MACHINE}::test_a_change_is_that_of_a_dictionary",),
    ),
    Mutant(
        "a_changed_policy_is_not_noticed",
        "open groups deliver by the lease of before",
        "        self.changes_of_policy += 1\n",
        "",
        (f"{CHANGED}::test_a_lease_counts_for_what_is_delivered_from_then_on_and_open_streams_are_told",),
    ),
    Mutant(
        "groups_of_a_dead_letter_topic_name_another",
        "letters go round between two topics for ever",
        "    if topic.startswith(DEAD_LETTERS):\n",
        "    if False:\n",
        (f"{MACHINE}::test_groups_of_a_dead_letter_topic_name_no_other",),
    ),
    Mutant(
        "a_topic_s_or_the_cluster_s_name_counts_for_groups_of_dead_letter_topics",
        "letters go round in their own topic for ever",
        "(given == BY_NAME or topic.startswith(DEAD_LETTERS))",
        "given == BY_NAME",
        (f"{POLICY}::test_no_letter_comes_back_to_a_topic_that_it_has_been_in",),
    ),
    Mutant(
        "dead_letters_go_to_topics_of_producers",
        "a producer forges dead letters, and a redrive gives them to other topics' groups",
        'r"dlq\\.[A-Za-z0-9_.-]+"',
        'r"[A-Za-z0-9_.-]+"',
        (f"{MACHINE}::test_what_no_leader_can_act_by_is_refused_and_what_would_do_is_said",),
    ),
    Mutant(
        "letters_in_any_topic_are_believed_of_any_group",
        "what a producer of 0.1.0 wrote there is given to a group",
        "retries is not None and queue.queue in retries.letters",
        "retries is not None",
        (
            "tests/node/delivery/test_redrive.py::"
            "test_a_letter_in_a_topic_of_another_name_is_believed_of_a_group_whose_letters_went_there",
        ),
    ),
    Mutant(
        "the_shortest_retention_of_a_shared_dead_letter_topic_counts",
        "a group's letters are deleted before their time",
        "max(longest.get(topic, 0), kept_ms)",
        "min(longest.get(topic, kept_ms), kept_ms)",
        (f"{LETTERS}::test_the_longest_counts_of_the_groups_whose_letters_are_in_a_topic",),
    ),
    Mutant(
        "where_letters_went_is_in_no_checkpoint",
        "after a restart they are never redriven, and replicas differ",
        "        letters=queue.letters,\n",
        "",
        (f"{MACHINE}::test_where_letters_went_is_noted_with_their_group_once_and_is_of_the_checkpoint",),
    ),
    Mutant(
        "a_drop_is_proposed_before_the_raise",
        "an earlier version takes it for a dead letter without a topic",
        '    log_pb.RetryCommand: {"dropped": 2},\n',
        "",
        (f"{MACHINE}::test_to_give_up_for_good_needs_the_level",),
    ),
    Mutant(
        "a_new_leader_gives_a_burst_first",
        "each failover adds a burst to a group's delivery rate",
        "        self._parts = 0\n",
        "        self._parts = self._parts_max\n",
        (f"{RATE}::test_the_next_leader_begins_with_nothing_saved_up",),
    ),
    Mutant(
        "a_delivery_rate_is_saved_up_without_end",
        "after a quiet hour a group gets an hour's messages at once",
        "min(self._parts_max, self._parts + come)",
        "self._parts + come",
        (
            f"{RATE}::test_in_any_time_there_come_what_the_rate_says_and_a_burst_at_most_also_over_a_failover",
            f"{RATE}::test_a_group_is_given_its_rate_by_a_timer_and_what_waits_is_not_in_flight",
        ),
    ),
    Mutant(
        "what_a_group_is_given_does_not_count",
        "a group with a delivery rate gets everything at once",
        "            self._rate.take(len(batch.units))\n",
        "",
        (f"{RATE}::test_a_group_is_given_its_rate_by_a_timer_and_what_waits_is_not_in_flight",),
    ),
    Mutant(
        "a_changed_delivery_rate_counts_after_a_failover_only",
        "an operator who slows a group down to save what is behind it does not",
        "        self._rate.change(policy.delivery_per_s_max, self._context.time.now_ms())\n",
        "",
        (f"{RATE}::test_a_rate_that_is_lifted_lets_all_go_at_once",),
    ),
    Mutant(
        "the_cluster_s_policy_does_not_count",
        "a failover changes how groups are delivered to",
        "        queues.defaults.settings.group_policy,\n",
        "        _NOTHING,\n",
        (f"{DEFAULTS}::test_the_seed_is_what_the_configuration_says_itself_and_then_no_file_counts",),
    ),
    Mutant(
        "every_leader_seeds_the_cluster_s_settings",
        "each failover brings back what an operator has unset",
        "        if command.seed and self.seeded:\n            return\n",
        "",
        (f"{CLUSTER}::test_a_seed_leaves_what_an_operator_has_set_and_only_the_first_counts",),
    ),
    Mutant(
        "a_seed_replaces_what_an_operator_has_set",
        "a setting made during the raise is lost",
        "            _set(changed, self.settings)\n",
        "",
        (f"{CLUSTER}::test_a_seed_leaves_what_an_operator_has_set_and_only_the_first_counts",),
    ),
    Mutant(
        "files_count_after_the_seed",
        "a failover changes what nobody has set",
        "    if defaults.seeded:\n        return BUILT_IN_POLICY",
        "    if False:\n        return BUILT_IN_POLICY",
        (f"{DEFAULTS}::test_the_seed_is_what_the_configuration_says_itself_and_then_no_file_counts",),
    ),
    Mutant(
        "nothing_is_seeded",
        "an upgrade from 0.2.0 loses what operators wrote into files",
        "    for setting in (setting for setting, key in KEYS.items() if key in names):\n",
        "    for setting in ():\n",
        (f"{DEFAULTS}::test_the_seed_is_what_the_configuration_says_itself_and_then_no_file_counts",),
    ),
    Mutant(
        "the_cluster_s_settings_are_in_no_checkpoint",
        "a restart forgets them, and replicas differ",
        "*self.cancelled.capture(), *self.defaults.capture()]",
        "*self.cancelled.capture()]",
        (f"{CLUSTER}::test_they_are_of_the_checkpoint_and_of_the_digest_and_nothing_of_level_one_is",),
    ),
    Mutant(
        "whatever_a_peer_tells_as_its_settings_is_kept",
        "a hostile peer fills the leader's memory, and tells of settings that are not its own",
        "if len(settings) > SETTINGS_BYTES_MAX or digest_of(settings) != digest:",
        "if not settings:",
        (
            f"{HEARTBEATS}::test_settings_that_are_no_match_of_their_digest_or_too_long_are_not_kept_nor_asked_for_often",
        ),
    ),
    Mutant(
        "a_peer_that_tells_nothing_is_asked_with_each_heartbeat",
        "all members send all of their settings with each answer, for ever",
        "if not asks or now - self._asked_at < ASK_S:",
        "if not asks:",
        (
            f"{HEARTBEATS}::test_settings_that_are_no_match_of_their_digest_or_too_long_are_not_kept_nor_asked_for_often",
        ),
    ),
    Mutant(
        "control_characters_of_a_peer_reach_a_terminal",
        "a hostile peer writes what it likes on an operator's screen",
        'char if char.isprintable() else "?" for char in value[:VALUE_CHARS_MAX]',
        "char for char in value[:VALUE_CHARS_MAX]",
        ("tests/node/test_equal_settings.py::test_of_what_a_hostile_peer_tells_little_is_kept",),
    ),
)
