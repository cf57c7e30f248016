"""Mutants of levels: of what may be proposed, who is asked before a raise, and what is refused."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MACHINE = "tests/replication/state_machine/test_levels.py"
SIMULATION = "tests/simulation/test_levels.py"

MUTANTS = (
    Mutant(
        "commands_are_proposed_before_the_raise",
        "nodes of an earlier version end, or apply something else",
        "    if least <= level or isinstance(command, log_pb.RaiseLevelCommand):\n",
        "    if True:\n",
        (
            f"{MACHINE}::test_a_field_of_a_higher_level_is_proposed_only_after_the_raise",
            f"{MACHINE}::test_what_a_leaders_bug_logs_before_the_raise_changes_nothing_anywhere",
        ),
    ),
    Mutant(
        "a_redrive_reaches_groups_that_are_gone",
        "a dead letter lies in a queue that nobody consumes, and nobody can make consume",
        "        if not group or self.queues.find(topic, group) is not None:\n            return None\n",
        "        if True:\n            return None\n",
        (
            "tests/replication/state_machine/test_retries.py::"
            "test_a_redrive_behind_the_deletion_of_its_group_leaves_the_letter_where_it_is",
            "tests/node/delivery/test_redrive.py::"
            "test_a_letter_that_is_refused_for_a_deletion_on_its_way_is_not_counted",
        ),
    ),
    Mutant(
        "fields_have_the_level_of_their_command",
        "an earlier version applies the command without the field",
        "*(level for name, level in fields.items() if _has(command, name))",
        "",
        (f"{MACHINE}::test_a_field_of_a_higher_level_is_proposed_only_after_the_raise",),
    ),
    Mutant(
        "a_hello_of_an_earlier_start_counts",
        "the level is raised beyond a member that has gone back",
        "    since, term = replica.now(), replica.consensus.state.term\n    replica.consensus.heartbeats.beat()",
        "    since, term = 0.0, replica.consensus.state.term\n    replica.consensus.heartbeats.beat()",
        (
            f"{SIMULATION}::test_a_member_that_has_gone_back_to_the_version_before_does_not_count_by_what_it_said_before",
        ),
    ),
    Mutant(
        "the_level_is_raised_without_one_member",
        "the member that was not asked ends",
        "return sorted(self._replica.membership.current().keys() - {self._replica.node})",
        "return sorted(self._replica.membership.current().keys() - {self._replica.node})[1:]",
        (f"{SIMULATION}::test_an_upgrade_is_not_finished_while_one_member_runs_the_version_before",),
    ),
    Mutant(
        "members_that_say_nothing_are_taken_for_able",
        "the level is raised beyond a member that is away",
        "    silent = {node: NO_ANSWER for node in nodes if progress[node].hello_at < since}\n",
        "    silent: dict[str, str] = {}\n",
        (f"{SIMULATION}::test_an_upgrade_is_not_finished_while_one_member_does_not_answer",),
    ),
    Mutant(
        "a_raise_waits_for_the_dead",
        "a member that died in an upgrade cannot be removed, nor rejoin, while raise after raise asks it",
        "hellos.unable(replica, others, level) | hellos.silent(replica, others)",
        "hellos.unable(replica, others, level)",
        ("tests/node/leader/test_upgrade.py::test_a_member_that_died_in_an_upgrade_can_be_removed",),
    ),
    Mutant(
        "any_level_will_do",
        "the level is raised beyond an earlier version, or such a node is added",
        "        if hello is None or hello.level < level\n",
        "        if hello is None\n",
        (
            f"{SIMULATION}::test_an_upgrade_is_not_finished_while_one_member_runs_the_version_before",
            f"{SIMULATION}::test_a_node_of_the_version_before_is_not_added_to_a_cluster_of_a_higher_level",
        ),
    ),
    Mutant(
        "commands_of_a_higher_level_are_met_one_by_one",
        "an entry is applied by half",
        "        if _LEVELS.get(kind, applies + 1) > applies:\n",
        "        if False:\n",
        (f"{MACHINE}::test_a_version_before_a_command_stops_at_its_entry_and_has_applied_nothing_of_it",),
    ),
    Mutant(
        "a_raise_beyond_the_version_is_applied",
        "a node applies what it does not know",
        '        levels.demand("the log from here on", highest, applies)\n',
        "",
        (f"{MACHINE}::test_a_raise_beyond_what_a_version_can_apply_stops_it_likewise",),
    ),
    Mutant(
        "the_level_is_not_in_the_digest",
        "replicas of different levels seem equal",
        "raised = self.level if self.level > levels.FIRST else 0",
        "raised = 0",
        (f"{MACHINE}::test_a_raise_is_of_the_state_of_its_checkpoint_and_of_its_digest",),
    ),
    Mutant(
        "a_state_is_sent_to_who_cannot_read_it",
        "it arrives for nothing, again and again",
        "    if replica.cluster_level() > level:\n",
        "    if False:\n",
        ("tests/replication/test_cluster.py::test_a_state_is_not_sent_to_who_cannot_apply_its_level",),
    ),
    Mutant(
        "a_state_that_cannot_be_read_is_installed",
        "the node's own state is replaced with one that it cannot open",
        '            levels.demand("the state that came", levels.of_checkpoint(version), self._applies)\n',
        "",
        (
            "tests/replication/snapshot/test_state_files.py"
            "::test_a_state_of_a_higher_level_than_the_taker_applies_is_not_installed",
        ),
    ),
    Mutant(
        "a_journal_of_a_higher_level_is_begun_with",
        "a node that went back writes to its folder before it meets the raise",
        '        levels.demand(f"the journal in {config.data}", journal.level, applies)\n        self.config',
        "        self.config",
        (
            "tests/node/recovery/test_levels.py::test_a_journal_of_a_higher_level_is_refused_before_anything_changes",
        ),
    ),
    Mutant(
        "the_level_is_not_noted_in_the_journal",
        "a node that went back replays its log up to the raise before it is refused",
        "            self._core.journal.note_level(machine.level)\n",
        "            pass\n",
        (
            "tests/node/recovery/test_levels.py::test_a_journal_of_a_higher_level_is_refused_before_anything_changes",
        ),
    ),
    Mutant(
        "a_leaders_level_is_not_heeded",
        "a member that went back asks for a state for ever",
        "        if heartbeats.told_level > self._replica.hello.level:\n",
        "        if False:\n",
        (f"{SIMULATION}::test_a_member_that_lacks_the_raise_and_has_gone_back_is_told_by_its_leader",),
    ),
)
