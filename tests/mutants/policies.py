"""Mutants of policies: which one counts for a group, and what may be kept as one."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

POLICY = "tests/node/delivery/test_policy.py"
CHANGED = "tests/node/delivery/test_changed_policy.py"
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
)
