"""Mutants of how a member without a journal begins, who is known to have spoken, and of changes of members."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

UNIT = "tests/replication/driver/test_first_start.py"
LOST = f"{UNIT}::test_whose_name_has_spoken_before_has_lost_its_journal_whatever_others_say"
LATE = f"{UNIT}::test_who_comes_late_begins_once_nobody_is_left_who_may_have_heard_it"
NEW = f"{UNIT}::test_a_node_alone_begins_and_so_does_a_majority_that_is_new"
TWO = f"{UNIT}::test_one_of_two_begins_anew_for_the_other_has_all_and_elects_nobody_alone"
PLAYED = "tests/simulation/test_state_and_members.py"
REGISTER = "tests/replication/test_spoken_peers.py"
EMPTIED = f"{PLAYED}::test_a_voter_with_an_emptied_disk_does_not_vote_and_comes_back_as_a_newcomer"
AWAY = f"{PLAYED}::test_a_voter_whom_only_the_one_that_is_away_has_heard_waits_for_its_word"
BEGUN = f"{PLAYED}::test_a_new_cluster_begins_with_a_majority_and_the_others_whenever_they_come"

MUTANTS = (
    Mutant(
        "a_journal_leaves_for_another_of_its_name",
        "a machine that was replaced boots, and removes the one that has replaced it",
        "        self._demand_same(node, incarnation)\n        if node in",
        "        if node in",
        (
            "tests/simulation/test_newcomers.py::"
            "test_a_journal_that_was_replaced_does_not_speak_for_the_member_of_its_name",
        ),
    ),
    Mutant(
        "a_node_leaves_by_its_name_only",
        "likewise",
        "    leaving = _leaving(data) or _incarnation(data, node)\n",
        "    leaving = 0\n",
        ("tests/node/recovery/test_rejoin.py",),
    ),
    Mutant(
        "a_newcomer_keeps_its_own_list_of_members",
        "two of four elect a leader, and acknowledge, where one of them was told of one founder only",
        "        if not newcomer or index",
        "        if True or index",
        (
            "tests/simulation/test_newcomers.py::"
            "test_a_newcomer_counts_majorities_by_the_members_and_not_by_a_list_that_lacks_some",
        ),
    ),
    Mutant(
        "a_newcomer_that_takes_itself_for_a_founder_keeps_its_own_list",
        "likewise, where its list names itself",
        "journal.joined or node not in members.addresses\n",
        "journal.joined\n",
        (
            "tests/simulation/test_newcomers.py::"
            "test_a_newcomer_counts_majorities_by_the_members_and_not_by_a_list_that_lacks_some",
        ),
    ),
    Mutant(
        "what_began_on_an_emptied_disk_leaves_for_itself",
        "a node that has the state, and not the journal that was added, is refused for ever",
        "    other = head.joined and head.members",
        "    other = False and head.members",
        (
            "tests/simulation/test_newcomers.py::test_a_member_whose_disk_was_emptied_leaves_for_the_journal_before",
        ),
    ),
    Mutant(
        "a_join_is_answered_before_it_is_committed",
        "a node that believes to be a member is none after the next failover",
        "            await self.add(node, address, deadline_ms)\n        await self._until_applied(self._last_change(), term)\n",
        "            await self.add(node, address, deadline_ms)\n",
        (
            "tests/simulation/test_newcomers.py::test_a_join_that_is_asked_for_again_is_answered_once_it_is_committed",
        ),
    ),
    Mutant(
        "what_a_newcomer_is_told_of_members_is_not_told_to_the_engine",
        "likewise, until its next start",
        "            self._engine.begin_with(append.members.addresses.keys() - {self._node})\n",
        "            pass\n",
        (
            "tests/simulation/test_newcomers.py::"
            "test_a_newcomer_counts_majorities_by_the_members_and_not_by_a_list_that_lacks_some",
        ),
    ),
    Mutant(
        "a_lost_journal_is_not_told",
        "a node whose journal is lost waits for ever, or votes twice in a term",
        "    if told and any(len(known[peer].members) > 2 for peer in told):\n",
        "    if False:\n",
        (LOST,),
    ),
    Mutant(
        "a_lost_journal_of_three_is_not_told",
        "one of three votes twice in a term",
        "any(len(known[peer].members) > 2 for peer in told)",
        "any(len(known[peer].members) > 3 for peer in told)",
        (UNIT,),
    ),
    Mutant(
        "one_of_two_is_told_of_a_lost_journal",
        "one of two can never begin anew",
        "any(len(known[peer].members) > 2 for peer in told)",
        "any(len(known[peer].members) >= 2 for peer in told)",
        (TWO,),
    ),
    Mutant(
        "who_knows_others_counts_as_new",
        "a node whose journal is lost begins beside those who have counted its word",
        "if is_majority(1 + len(answers) - len(known), len(members)):",
        "if is_majority(1 + len(answers), len(members)):",
        (LATE,),
    ),
    Mutant(
        "a_founder_counts_twice_as_new",
        "half of the members found a second cluster",
        "if is_majority(1 + len(answers) - len(known), len(members)):",
        "if is_majority(2 + len(answers) - len(known), len(members)):",
        (NEW,),
    ),
    Mutant(
        "new_nodes_tell_what_they_know",
        "a cluster that is new can never begin",
        "known = {peer: answer for peer, answer in answers.items() if not answer.fresh}",
        "known = dict(answers)",
        (NEW,),
    ),
    Mutant(
        "who_is_silent_is_passed_over",
        "a node whose journal is lost begins while the one that has heard it is away",
        "return not silent or (is_majority(len(known), len(members)) and not silent & heard_of)",
        "return not silent or is_majority(len(known), len(members))",
        (LATE,),
    ),
    Mutant(
        "few_answers_are_enough_to_begin",
        "a node whose journal is lost begins on a minority's word",
        "return not silent or (is_majority(len(known), len(members)) and not silent & heard_of)",
        "return not silent or not silent & heard_of",
        (LATE,),
    ),
    Mutant(
        "a_late_founder_needs_every_answer",
        "a founder cannot begin while a member that never spoke is away",
        "return not silent or (is_majority(len(known), len(members)) and not silent & heard_of)",
        "return not silent",
        (LATE,),
    ),
    Mutant(
        "a_member_without_a_journal_begins_at_once",
        "a node whose journal is lost votes twice in a term",
        "            if self._journal.empty and self._node in self._membership.current():\n",
        "            if False:\n",
        (AWAY,),
    ),
    Mutant(
        "a_newcomer_waits_to_be_founded",
        "a newcomer never begins",
        "            if self._journal.empty and self._node in self._membership.current():\n",
        "            if self._journal.empty:\n",
        (f"{PLAYED}::test_an_added_member_with_an_emptied_disk_neither_votes_nor_counts",),
    ),
    Mutant(
        "a_member_waits_to_be_founded_at_each_start",
        "a restarted majority never begins",
        "            if self._journal.empty and self._node in self._membership.current():\n",
        "            if self._node in self._membership.current():\n",
        (f"{PLAYED}::test_e3_a_snapshot_that_arrives_damaged_is_refused_and_fetched_again",),
    ),
    Mutant(
        "for_whom_a_founder_waits_is_not_told",
        "an operator cannot see why a node does not begin",
        "        replica.waits_for = tuple(peer for peer, _ in others if peer not in answers)\n",
        "",
        (AWAY,),
    ),
    Mutant(
        "who_has_voted_says_it_is_new",
        "a second cluster begins beside a first that has elected",
        "fresh = replica.node in members and journal.term == 0 and journal.last_index <= 1",
        "fresh = replica.node in members and journal.last_index <= 1",
        (f"{REGISTER}::test_a_node_is_new_as_long_as_it_has_neither_voted_nor_got_an_entry_and_is_a_member",),
    ),
    Mutant(
        "who_has_entries_says_it_is_new",
        "a second cluster begins beside a first that has acknowledged",
        "fresh = replica.node in members and journal.term == 0 and journal.last_index <= 1",
        "fresh = replica.node in members and journal.term == 0",
        (f"{REGISTER}::test_a_node_is_new_as_long_as_it_has_neither_voted_nor_got_an_entry_and_is_a_member",),
    ),
    Mutant(
        "a_newcomer_says_it_is_new",
        "founders begin by the word of who is no member",
        "fresh = replica.node in members and journal.term == 0 and journal.last_index <= 1",
        "fresh = journal.term == 0 and journal.last_index <= 1",
        (f"{REGISTER}::test_a_node_is_new_as_long_as_it_has_neither_voted_nor_got_an_entry_and_is_a_member",),
    ),
    Mutant(
        "who_has_spoken_is_not_noted",
        "a node whose journal is lost is taken for new",
        "        self._replica.journal.note_spoken(node)\n",
        "        self._replica.journal.durable_spoken = self._replica.journal.durable_spoken | {node}\n",
        (f"{REGISTER}::test_who_speaks_is_noted_once_that_is_on_disk",),
    ),
    Mutant(
        "who_speaks_counts_before_it_is_noted_on_disk",
        "after a power loss a node whose journal is lost is taken for new",
        "return node in self._replica.journal.durable_spoken",
        "return node in self._replica.journal.spoken",
        (f"{REGISTER}::test_who_speaks_is_noted_once_that_is_on_disk",),
    ),
    Mutant(
        "who_speaks_counts_before_it_is_noted",
        "after a crash a node whose journal is lost is taken for new",
        "            self._spoken_peers.note(peer)\n            self._early.append((peer, messages, origin))\n            return\n",
        "            self._spoken_peers.note(peer)\n",
        (f"{PLAYED}::test_what_a_node_says_first_is_heeded_once_it_is_on_disk_that_it_has_spoken",),
    ),
    Mutant(
        "a_note_of_who_has_spoken_is_not_written",
        "a node whose journal is lost is taken for new",
        "            self._head.spoken.nodes.append(node)\n            self._staged.head = True\n",
        "            self._head.spoken.nodes.append(node)\n",
        (f"{REGISTER}::test_who_speaks_is_noted_once_that_is_on_disk",),
    ),
    Mutant(
        "a_journal_of_before_has_heard_nobody",
        "a node whose journal is lost is taken for new by nodes that were updated",
        "            spoken.extend(sorted(self._head.members.addresses))\n",
        "            pass\n",
        (f"{REGISTER}::test_by_a_journal_from_before_that_was_noted_all_founders_may_have_spoken",),
    ),
    Mutant(
        "an_addition_names_no_journal",
        "a member whose journal is lost counts",
        "MembershipChange(node=node, address=address, incarnation=self.taught[node])",
        "MembershipChange(node=node, address=address)",
        (f"{PLAYED}::test_an_added_member_with_an_emptied_disk_neither_votes_nor_counts",),
    ),
    Mutant(
        "a_member_that_left_keeps_its_journal",
        "a member that was added again does not count",
        "            known.pop(change.node, None)\n            if change.incarnation:\n",
        "            if change.incarnation:\n",
        (
            "tests/replication/raft/test_membership.py::test_a_member_that_was_removed_has_no_journal_until_it_is_added_with_one",
        ),
    ),
    Mutant(
        "a_candidate_does_not_say_where_it_is",
        "a majority without a leader: who missed that a member was added again answers its old address",
        "            last_term=self._journal.last_term,\n            address=self._membership.added_at(self._node),\n",
        "            last_term=self._journal.last_term,\n",
        (
            "tests/simulation/test_state_and_members.py::test_a_member_added_again_elsewhere_is_elected_by_one_that_was_away_then",
        ),
    ),
    Mutant(
        "a_leader_does_not_say_where_it_is",
        "who missed that the leader was added again answers its old address and never catches up",
        "            patience_ms=patience_ms,\n            address=self._membership.added_at(self._node),\n",
        "            patience_ms=patience_ms,\n",
        (
            "tests/simulation/test_state_and_members.py::test_a_member_added_again_elsewhere_is_followed_by_one_that_was_away_then",
        ),
    ),
    Mutant(
        "the_log_overrules_where_a_node_says_that_it_is",
        "a majority without a leader: who missed that a member was added again answers its old address",
        "if at > end or (at == _NOWHERE and node not in said)",
        "if node not in said",
        (
            "tests/simulation/test_state_and_members.py::test_a_member_added_again_elsewhere_is_elected_by_one_that_was_away_then",
        ),
    ),
    Mutant(
        "an_address_of_an_older_log_is_believed",
        "a member is dialled where a process that was removed runs on",
        "if address and end > max(before, self._end()) and node in self.peers():",
        "if address and node in self.peers():",
        (
            "tests/replication/raft/test_membership.py::test_where_a_node_says_that_it_listens_counts_until_the_log_is_as_good_as_its_own",
        ),
    ),
    Mutant(
        "a_newcomer_names_itself_a_peer",
        "a newcomer that was not added may go on to speak as a node",
        "if address and end > max(before, self._end()) and node in self.peers():",
        "if address and end > max(before, self._end()):",
        (
            "tests/replication/raft/test_consensus.py::test_where_a_candidate_listens_is_heard_of_one_that_may_speak_as_a_node",
        ),
    ),
    Mutant(
        "answers_of_another_journal_count",
        "a member whose journal is lost counts towards a commit",
        'return self._is_expected(peer, origin) or message.WhichOneof("body") not in _ANSWERS',
        "return True",
        (f"{PLAYED}::test_an_added_member_with_an_emptied_disk_neither_votes_nor_counts",),
    ),
    Mutant(
        "heartbeats_of_another_journal_count",
        "a member whose journal is lost prolongs a lease",
        "            at_once = self._is_expected(peer, origin)\n",
        "            at_once = True\n",
        (f"{PLAYED}::test_no_heartbeat_is_answered_by_another_journal_than_the_members",),
    ),
    Mutant(
        "a_member_is_added_again",
        "a member that counts becomes a learner",
        '            raise MembershipRefused(f"{node} is a member")\n',
        "            pass\n",
        (f"{PLAYED}::test_a_change_of_members_that_cannot_be_made_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "a_leader_removes_itself",
        "a cluster has no leader that may serve",
        "        if node == self._replica.node:\n            raise MembershipRefused",
        "        if False:\n            raise MembershipRefused",
        (f"{PLAYED}::test_a_change_of_members_that_cannot_be_made_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "a_change_of_members_meets_a_raise",
        "a removal is refused for something that its operator has not begun",
        "        while self._running == RAISE:\n",
        "        while False:\n",
        (
            "tests/simulation/test_levels.py::test_a_change_of_members_waits_for_a_raise_that_the_leader_has_begun",
        ),
    ),
    Mutant(
        "two_joins_run_together",
        "the second newcomer is never taught to its end",
        '            raise MembershipRefused(f"{self._running} is running: wait for its end")\n',
        "            pass\n",
        (f"{PLAYED}::test_a_change_of_members_that_cannot_be_made_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "two_changes_of_members_at_once",
        "a cut-off leader removes its peers one by one and is its own majority",
        "        if self._SyncObj__raftLastApplied < self.change_index:\n            return False\n",
        "",
        ("tests/replication/raft/test_consensus.py::test_a_second_change_of_members_waits_for_the_first",),
    ),
    Mutant(
        "a_newcomer_counts_before_it_has_learnt",
        "a majority waits for an empty disk",
        "while lag > replica.settings.learner_lag_max or replica.consensus.state.match_index(node) == 0:",
        "while False:",
        (
            "tests/simulation/test_state_and_members.py::test_every_member_is_replaced_one_by_one_and_nothing_is_lost",
        ),
    ),
    Mutant(
        "leaving_is_answered_without_a_barrier",
        "an older removal passes for this one, and the node votes on as a member",
        "        await replica.read_barrier()  # a leader of before may not know that it was added again since\n",
        "",
        ("tests/simulation/test_state_and_members.py::test_only_a_leader_knows_that_a_node_has_left",),
    ),
    Mutant(
        "leaving_is_answered_before_it_is_applied",
        "a node that has lost its data is told it has left, and has not",
        "            await self.remove(node, returns=True)\n        await self._until_applied(self._last_change(), term)\n",
        "            await self.remove(node, returns=True)\n",
        (
            "tests/simulation/test_state_and_members.py::test_nobody_is_told_to_have_left_before_it_is_committed",
        ),
    ),
    Mutant(
        "a_change_counts_when_applied",
        "a restarted node counts majorities of members long gone",
        "        for index, payload in journal.membership_changes:  # effective once in the log, not once applied\n            self._raft.change_cluster(payload)\n",
        "        for index, _payload in journal.membership_changes:\n",
        (
            "tests/replication/raft/test_consensus.py::test_a_change_of_members_counts_from_the_log_also_after_a_restart",
        ),
    ),
)
