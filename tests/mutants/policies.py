"""Mutants of policies: which one counts for a group, and what may be kept as one."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

POLICY = "tests/node/delivery/test_policy.py"
CHANGED = "tests/node/delivery/test_changed_policy.py"
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
        "    if text := _policy_fault(command):\n",
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
)
