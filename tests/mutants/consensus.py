"""Mutants of votes, terms, appends, leases, transfers and frames."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

VOTES = (
    Mutant(
        "vote_before_the_log_is_compared",
        "a candidate whose log lacks committed entries is elected",
        "return (last_term, last_index) >= (own_term, own_index)",
        "return True",
        ("tests/replication/raft/guard/test_votes.py::test_the_log_with_the_later_term_is_the_better_one",),
    ),
    Mutant(
        "up_to_date_by_index_alone",
        "a longer log of an older term wins over a shorter one of a newer term",
        "return (last_term, last_index) >= (own_term, own_index)",
        "return last_index >= own_index",
        ("tests/replication/raft/guard/test_votes.py::test_the_log_with_the_later_term_is_the_better_one",),
    ),
    Mutant(
        "majority_is_half",
        "two leaders of one term in a cluster of an even number",
        "return 2 * count > members",
        "return 2 * count >= members",
        ("tests/replication/raft/guard/test_votes.py::test_half_of_the_members_are_no_majority",),
    ),
    Mutant(
        "a_vote_counts_twice",
        "one repeated vote elects",
        "if peer not in members or peer in self.voters:",
        "if peer not in members:",
        ("tests/replication/raft/guard/test_votes.py::test_a_vote_counts_once_for_each_member",),
    ),
    Mutant(
        "a_stranger_votes",
        "a removed node elects",
        "if peer not in members or peer in self.voters:",
        "if peer in self.voters:",
        ("tests/replication/raft/guard/test_votes.py::test_a_vote_counts_once_for_each_member",),
    ),
    Mutant(
        "votes_of_an_earlier_term_count",
        "votes of two terms add up",
        "            and vote.term == self._engine.term\n            and self._ballot",
        "            and self._ballot",
        (
            "tests/replication/raft/test_consensus.py::test_a_vote_of_an_earlier_term_neither_counts_nor_lets_another_count_twice",
        ),
    ),
    Mutant(
        "pre_vote_of_an_earlier_round_counts",
        "an old grant starts an election",
        "if self.open and round_ == self.round and peer in voters:",
        "if self.open and peer in voters:",
        (
            "tests/replication/raft/guard/test_votes.py::test_pre_votes_count_for_their_own_round_from_members_only",
        ),
    ),
    Mutant(
        "pre_vote_of_a_stranger_counts",
        "a removed node's grant starts an election",
        "if self.open and round_ == self.round and peer in voters:",
        "if self.open and round_ == self.round:",
        ("tests/replication/raft/guard/test_votes.py",),
        argued="grants are counted among the voters alone: who is none is left out a second time",
    ),
    Mutant(
        "pre_vote_while_a_leader_is_heard",
        "a node that was cut off deposes a healthy leader",
        "refused = self._engine.role is Role.LEADER or self.contact.fresh(self._clock.monotonic_s())",
        "refused = False",
        (
            "tests/replication/raft/test_consensus.py::test_a_replica_that_hears_its_leader_neither_elects_another_nor_raises_its_term",
        ),
    ),
    Mutant(
        "vote_while_a_leader_is_heard",
        "another leader is elected within a lease",
        "return self._engine.role is not Role.LEADER and not self.contact.fresh(self._clock.monotonic_s())",
        "return self._engine.role is not Role.LEADER",
        ("tests/replication/raft/test_consensus.py::test_a_replica_that_has_just_started_elects_nobody",),
    ),
    Mutant(
        "a_leader_votes_for_another",
        "a leader elects another one and goes on",
        "return self._engine.role is not Role.LEADER and not self.contact.fresh(self._clock.monotonic_s())",
        "return not self.contact.fresh(self._clock.monotonic_s())",
        ("tests/replication/raft/test_consensus.py::test_a_leader_with_a_lease_elects_nobody",),
        argued="a leader that votes steps down in the same call, and its lease ends with its role",
    ),
    Mutant(
        "a_removed_node_campaigns",
        "a removed node raises the term of the cluster",
        "return added is not None and counts(own, added)",
        "return added is None or counts(own, added)",
        ("tests/replication/raft/test_consensus.py::test_a_removed_member_no_longer_campaigns",),
    ),
    Mutant(
        "an_emptied_member_campaigns",
        "a member whose journal is lost votes for itself",
        "return added is not None and counts(own, added)",
        "return added is not None",
        (
            "tests/replication/raft/test_membership.py::test_who_was_added_counts_with_the_journal_that_it_was_taught_into",
        ),
    ),
    Mutant(
        "an_emptied_member_counts",
        "a member whose journal is lost elects who lacks what it had acknowledged",
        "return peer not in self._voters or counts(origin, self._voters[peer])",
        "return True",
        (
            "tests/simulation/test_state_and_members.py::test_an_added_member_with_an_emptied_disk_neither_votes_nor_counts",
        ),
    ),
    Mutant(
        "a_newcomers_journal_counts_as_a_founders",
        "a founder whose journal is lost votes if it is started as a newcomer",
        "return origin.incarnation == added if added else not origin.joined",
        "return origin.incarnation == added if added else True",
        (
            "tests/simulation/test_state_and_members.py::test_a_founder_with_an_emptied_disk_that_is_started_as_a_newcomer_does_not_count",
        ),
    ),
    Mutant(
        "a_newcomer_is_taught_by_an_earlier_term",
        "a newcomer cannot be added for what another journal said late",
        "if in_time and answer.term == self._replica.consensus.state.term:",
        "if in_time:",
        (
            "tests/simulation/test_state_and_members.py::test_a_newcomer_is_not_taken_for_the_journal_that_answered_before_it_was_added",
        ),
    ),
    Mutant(
        "a_newcomer_is_taught_by_what_was_sent_before",
        "a newcomer is taken to have what its lost journal had",
        "in_time = answer.sequence > self._sent_before[node]",
        "in_time = True",
        (
            "tests/simulation/test_state_and_members.py::test_a_newcomer_is_not_taken_for_the_journal_that_answered_before_it_was_added",
        ),
    ),
    Mutant(
        "a_vote_is_repeated_to_any_journal",
        "a founder that lost its log is elected by a vote for its lost journal",
        "            if up_to_date(request.last_term, request.last_index, last.last_term, last.last_index):\n"
        "                self.vote_for(peer, self._engine.term)",
        "            self.vote_for(peer, self._engine.term)",
        (
            "tests/replication/raft/test_consensus.py::test_a_vote_for_a_journal_that_the_peer_has_lost_is_not_given_to_its_empty_one",
        ),
    ),
    Mutant(
        "rounds_of_pre_votes_begin_at_one",
        "a grant to a lost journal lets its successor campaign",
        "PreVotes(round=self._journal.incarnation & _ROUNDS)",
        "PreVotes()",
        (
            "tests/replication/raft/test_consensus.py::test_a_grant_to_another_journal_of_the_node_is_for_no_round_of_this_one",
        ),
    ),
    Mutant(
        "a_newcomer_is_taught_in_two_journals",
        "a newcomer is added for entries that it has lost",
        "return self._membership_changes.taught.get(peer, origin.incarnation) == origin.incarnation",
        "return True",
        (
            "tests/simulation/test_state_and_members.py::test_a_newcomer_whose_disk_is_emptied_while_it_learns_is_not_added_for_what_it_had",
        ),
    ),
    Mutant(
        "a_start_forgets_what_was_promised",
        "a restarted follower elects while its leader's lease runs",
        "self.contact = Contact(self._settings.election_min_ms / 1000, heard=promised_s)",
        "self.contact = Contact(self._settings.election_min_ms / 1000, heard=0.0)",
        ("tests/replication/raft/test_consensus.py::test_a_replica_that_has_just_started_elects_nobody",),
    ),
    Mutant(
        "patience_is_not_counted_at_the_start",
        "a restarted follower elects while a quiet leader's lease runs",
        "promised_s = self._clock.monotonic_s() + self._settings.patience_ms / 1000",
        "promised_s = self._clock.monotonic_s()",
        ("tests/replication/raft/test_consensus.py::test_a_replica_that_has_just_started_elects_nobody",),
    ),
    Mutant(
        "a_transfer_begins_before_its_target_answers",
        "the leader stops serving for a target that cannot be heard",
        "answered = progress.hello_at >= asked_at",
        "answered = True",
        (
            "tests/simulation/test_slow_nodes_and_links.py::test_a_transfer_waits_for_a_target_whose_answers_do_not_arrive_yet",
            "tests/simulation/test_slow_nodes_and_links.py::test_a_transfer_to_a_target_that_does_not_answer_is_refused",
        ),
    ),
    Mutant(
        "a_transfer_begins_beside_another",
        "a lease that was given up is back while another may be elected",
        "    _demand_no_other(replica)  # it may have begun",
        "    # it may have begun",
        (
            "tests/simulation/test_slow_nodes_and_links.py::test_a_transfer_that_waits_for_its_target_begins_no_second_beside_another",
        ),
    ),
    Mutant(
        "a_transfer_given_up_may_come_true",
        "a late request to campaign elects a second server beside the lease",
        "return self.transfer_number is not None and number >= self.transfer_number",
        "return True",
        (
            "tests/replication/raft/guard/test_votes.py::test_a_transfer_below_the_latest_number_heard_is_void_and_a_new_term_starts_over",
        ),
    ),
    Mutant(
        "a_forgotten_transfer_number_allows_any",
        "a restarted voter elects by a transfer that was given up",
        "return self.transfer_number is not None and number >= self.transfer_number",
        "return number >= (self.transfer_number or 0)",
        (
            "tests/replication/raft/guard/test_votes.py::test_a_transfer_below_the_latest_number_heard_is_void_and_a_new_term_starts_over",
        ),
    ),
    Mutant(
        "giving_up_a_transfer_voids_nothing",
        "an election that a given-up transfer caused succeeds",
        "        self.number += 1\n        self.phase = Phase.IDLE",
        "        self.phase = Phase.IDLE",
        (
            "tests/simulation/test_scenarios.py::test_an_election_that_a_given_up_transfer_causes_late_cannot_overlap_the_leaders_lease",
        ),
    ),
    Mutant(
        "any_leader_may_ask_to_campaign",
        "a deposed leader has a follower elected",
        "            request.term == self._engine.term\n            and self._engine.leader == peer\n",
        "            self._engine.leader == peer\n",
        (
            "tests/replication/raft/test_heartbeats.py::test_a_leader_that_led_before_cannot_ask_for_a_transfer_of_that_time",
        ),
    ),
    Mutant(
        "a_stale_leader_is_answered_not_told",
        "a deposed leader goes on for ever",
        "        if term >= self._engine.term:\n            return False\n        self.notice(peer)",
        "        if term >= self._engine.term:\n            return False",
        ("tests/replication/raft/test_consensus.py::test_whoever_speaks_in_an_older_term_is_told",),
    ),
    Mutant(
        "a_higher_term_is_ignored",
        "a deposed leader never steps down",
        "        self._engine.follow(term)\n        return True",
        "        return True",
        (
            "tests/replication/raft/test_consensus.py::test_a_term_is_believed_up_to_the_step_that_elections_may_take_and_any_by_who_has_none",
        ),
    ),
    Mutant(
        "two_leaders_of_a_term_are_borne",
        "what Raft rules out is passed over in silence",
        "        if self._engine.leads(term):\n            raise ConsensusViolated",
        "        if False:\n            raise ConsensusViolated",
        ("tests/replication/raft/test_consensus.py::test_two_leaders_of_one_term_stop_the_process",),
    ),
    Mutant(
        "answers_to_an_earlier_leadership_count",
        "entries count as replicated that are not",
        "return self._engine.leads(term)",
        "return self._engine.role is Role.LEADER",
        (
            "tests/replication/raft/test_consensus.py::test_an_answer_to_an_earlier_leadership_counts_for_nothing",
        ),
    ),
    Mutant(
        "electors_are_not_asked_what_they_know",
        "a new leader repeats deliveries without their mark",
        "            self.elected_by.append(vote.state)\n",
        "",
        ("tests/replication/raft/test_consensus.py::test_who_elects_tells_what_it_knows",),
    ),
)

APPENDS = (
    Mutant(
        "an_append_is_not_compared_with_the_log",
        "a late append cuts off acknowledged entries",
        "if append.prev_index > max(log.last_index, commit_index) or _differs(append, log, commit_index):",
        "if append.prev_index > max(log.last_index, commit_index):",
        (
            "tests/replication/raft/guard/test_appends.py::test_a_gap_or_a_differing_predecessor_is_answered_with_one_step_back_to_the_commit_index",
        ),
    ),
    Mutant(
        "entries_beyond_the_end_are_taken",
        "the log gets a hole",
        "if append.prev_index > max(log.last_index, commit_index) or _differs(append, log, commit_index):",
        "if _differs(append, log, commit_index):",
        ("tests/replication/raft/guard/test_appends.py",),
        argued="beyond the end of the log no term is known, so the terms differ, which refuses the append as well",
    ),
    Mutant(
        "commit_runs_ahead_of_what_was_verified",
        "entries of an older leader are applied",
        "commit = min(append.commit_index, verified)",
        "commit = append.commit_index",
        (
            "tests/replication/raft/guard/test_appends.py::test_the_commit_index_goes_no_further_than_what_the_append_verified",
        ),
    ),
    Mutant(
        "committed_entries_may_be_replaced",
        "replicas diverge in silence",
        "    if fresh <= log.last_index and fresh <= commit_index:\n",
        "    if False:\n",
        (
            "tests/replication/raft/guard/test_appends.py::test_a_conflict_at_or_below_the_commit_index_stops_the_process",
        ),
    ),
    Mutant(
        "terms_of_held_entries_are_not_looked_at",
        "a conflicting entry stays",
        "if index > log.last_index or (held is not None and held != entry.term):",
        "if index > log.last_index:",
        (
            "tests/replication/raft/guard/test_appends.py::test_a_conflict_of_terms_is_truncated_from_there_on",
        ),
    ),
    Mutant(
        "an_answer_beyond_the_log_counts",
        "a peer's match index lies beyond the log",
        " or answer.next_index > self._journal.last_index + 1",
        "",
        (
            "tests/replication/raft/test_consensus.py::test_an_answer_from_a_stranger_or_beyond_the_log_counts_for_nothing",
        ),
    ),
    Mutant(
        "answers_of_strangers_count",
        "a node that is no member counts towards a commit",
        "peer not in self._engine.peers",
        "False",
        (
            "tests/replication/raft/test_consensus.py::test_an_answer_from_a_stranger_or_beyond_the_log_counts_for_nothing",
        ),
    ),
    Mutant(
        "old_resets_are_heard",
        "everything is sent again for each answer to a lost append",
        "if not self.reset_floor < sequence <= self.sequence:",
        "if not sequence <= self.sequence:",
        (
            "tests/simulation/test_votes_and_answers.py::test_one_lost_append_is_sent_again_once_though_every_later_one_is_refused",
        ),
    ),
    Mutant(
        "the_window_never_closes",
        "memory grows with the lag of a stopped follower",
        "return now >= self.closed_until and self.under_way_bytes < self.window_bytes",
        "return now >= self.closed_until",
        ("tests/replication/raft/guard/test_votes.py::test_a_full_window_closes_until_answers_come",),
    ),
    Mutant(
        "what_is_under_way_is_never_lost",
        "a follower whose answers were lost is sent nothing more",
        "return bool(self.under_way) and now - self.answered_at > patience_s",
        "return False",
        (
            "tests/replication/raft/guard/test_flow_control.py::test_what_could_still_come_on_a_slow_way_is_not_lost",
        ),
    ),
)

LEASES = (
    Mutant(
        "a_lease_without_a_majority",
        "two replicas serve at once",
        "return now < _of_a_majority(self.promised, voters)",
        "return True",
        (
            "tests/replication/raft/guard/test_votes.py::test_an_answer_that_names_a_time_to_come_does_not_count",
        ),
    ),
    Mutant(
        "a_lease_by_one_answer_too_few",
        "a minority grants a lease",
        "needed = (len(voters) + 1) // 2",
        "needed = len(voters) // 2",
        (
            "tests/replication/raft/guard/test_votes.py::test_an_answer_that_names_a_time_to_come_does_not_count",
        ),
    ),
    Mutant(
        "a_lease_from_the_arrival_of_the_answer",
        "answers that were long under way prolong the lease",
        "self.promised[peer] = max(sent + length_s, self.promised.get(peer, -math.inf))",
        "self.promised[peer] = max(now + length_s, self.promised.get(peer, -math.inf))",
        (
            "tests/replication/raft/guard/test_votes.py::test_a_lease_runs_from_when_the_majoritys_heartbeat_was_sent",
        ),
    ),
    Mutant(
        "answers_from_before_a_transfer_count",
        "the old leader serves beside its target",
        "if self.not_before <= sent <= now:",
        "if sent <= now:",
        (
            "tests/replication/raft/guard/test_votes.py::test_answers_to_heartbeats_from_before_the_lease_began_do_not_count",
        ),
    ),
    Mutant(
        "answers_with_a_time_to_come_count",
        "a peer's wrong echo gives a lease without end",
        "if self.not_before <= sent <= now:",
        "if self.not_before <= sent:",
        (
            "tests/replication/raft/guard/test_votes.py::test_an_answer_that_names_a_time_to_come_does_not_count",
        ),
    ),
    Mutant(
        "the_lease_is_kept_in_a_transfer",
        "two replicas hold a valid lease",
        "leads = self._engine.role is Role.LEADER and not campaigning",
        "leads = self._engine.role is Role.LEADER",
        (
            "tests/simulation/test_scenarios.py::test_d2_a_leader_that_transfers_does_not_answer_for_its_successor",
        ),
    ),
    Mutant(
        "proposals_are_taken_in_a_transfer",
        "what is proposed in a transfer is lost or doubled",
        "return self.has_lease(now) and not self.transfer.running",
        "return self.has_lease(now)",
        (
            "tests/replication/raft/test_heartbeats.py::test_a_leader_serves_and_proposes_in_no_phase_of_a_transfer_however_fresh_its_lease",
        ),
    ),
    Mutant(
        "a_new_leader_serves_before_its_own_entry",
        "acknowledged entries of an earlier term are not seen",
        "return self.may_propose(now) and self.applied >= self._engine.no_op_index",
        "return self.may_propose(now)",
        (
            "tests/replication/raft/test_heartbeats.py::test_a_leader_serves_once_a_majority_has_answered_and_its_own_entry_is_applied",
        ),
    ),
    Mutant(
        "a_read_is_confirmed_by_old_answers",
        "a read misses what another leader acknowledged",
        "return leads and self._lease.confirmed(self._engine.voters) >= since",
        "return leads",
        (
            "tests/simulation/test_scenarios.py::test_d2_a_leader_that_transfers_does_not_answer_for_its_successor",
        ),
    ),
    Mutant(
        "a_read_before_the_own_entry_is_committed",
        "a read misses what an earlier leader acknowledged",
        "leads = self._engine.role is Role.LEADER and self._engine.commit_index >= self._engine.no_op_index",
        "leads = self._engine.role is Role.LEADER",
        (
            "tests/replication/raft/test_heartbeats.py::test_a_leader_confirms_no_read_before_its_own_entry_is_committed",
        ),
    ),
    Mutant(
        "a_read_does_not_wait_for_applying",
        "a read misses what is committed and not applied",
        "if led and self.applied >= max(floor, state.no_op_index):",
        "if led:",
        ("tests/replication/driver/test_apply.py::test_a_read_waits_until_all_that_is_committed_is_applied",),
    ),
    Mutant(
        "a_transfer_does_not_drain",
        "a transfer under load loses what is under way",
        "if self.applied >= last and self._engine.match_index(transfer.target) >= last:",
        "if True:",
        ("tests/simulation/test_scenarios.py::test_d_a_transfer_waits_for_what_is_under_way",),
    ),
    Mutant(
        "a_transfer_does_not_tell_its_last_state",
        "the next leader repeats what was delivered",
        "elif transfer.phase is Phase.TELLING and self._lease.has_echoed(transfer.target, transfer.told_at):",
        "elif transfer.phase is Phase.TELLING:",
        (
            "tests/simulation/test_votes_and_answers.py::test_a_transfer_that_was_given_up_is_void_also_for_a_voter_that_has_been_restarted_since",
        ),
    ),
    Mutant(
        "a_silent_target_costs_the_whole_deadline",
        "no proposals are taken for five seconds",
        "return now >= min(self.deadline, self.heard_at + silence_s)",
        "return now >= self.deadline",
        (
            "tests/replication/raft/test_heartbeats.py::test_a_transfer_to_a_node_that_has_died_is_given_up_long_before_its_deadline",
        ),
    ),
    Mutant(
        "a_heartbeat_promises_the_leaders_patience_unasked",
        "a leader that asks for a long patience is waited for without end",
        "patience_ms = min(beat.patience_ms, self._settings.patience_ms)",
        "patience_ms = beat.patience_ms",
        (
            "tests/replication/raft/test_heartbeats.py::test_a_follower_is_as_patient_as_it_is_asked_to_be_but_for_no_longer_than_is_agreed",
        ),
    ),
)

SENDING = (
    Mutant(
        "appends_with_an_uncertain_commit_leave_early",
        "a follower applies what a power loss takes back",
        "return message.append.term == term and message.append.commit_index <= index",
        "return message.append.term == term",
        (
            "tests/replication/driver/test_send_barrier.py::test_what_rests_on_the_journal_waits_until_it_is_written",
        ),
    ),
    Mutant(
        "appends_of_a_term_not_on_disk_leave_early",
        "a leader forgets that it has led the term",
        "return message.append.term == term and message.append.commit_index <= index",
        "return message.append.commit_index <= index",
        (
            "tests/replication/driver/test_send_barrier.py::test_what_rests_on_the_journal_waits_until_it_is_written",
        ),
    ),
    Mutant(
        "a_vote_leaves_before_the_disk_has_it",
        "a voter that crashes votes twice in a term",
        'return kind == "heartbeat_reply" and message.heartbeat_reply.term == term',
        'return kind == "vote" or (kind == "heartbeat_reply" and message.heartbeat_reply.term == term)',
        (
            "tests/replication/driver/test_send_barrier.py::test_what_rests_on_the_journal_waits_until_it_is_written",
        ),
    ),
    Mutant(
        "an_append_is_answered_before_the_disk_has_it",
        "an acknowledged entry goes with a power loss",
        'return kind == "heartbeat_reply" and message.heartbeat_reply.term == term',
        'return kind == "appended" or (kind == "heartbeat_reply" and message.heartbeat_reply.term == term)',
        (
            "tests/replication/driver/test_send_barrier.py::test_what_rests_on_the_journal_waits_until_it_is_written",
        ),
    ),
    Mutant(
        "applied_before_the_own_disk_has_it",
        "a cluster of one node answers what a power loss takes back",
        "return min(self._replica.consensus.state.commit_index, self._replica.journal.durable_index)",
        "return self._replica.consensus.state.commit_index",
        (
            "tests/simulation/test_small_clusters.py::test_a_cluster_of_one_acknowledges_nothing_that_its_disk_has_not",
        ),
    ),
    Mutant(
        "answers_go_to_another_terms_proposals",
        "a lost proposal is answered as committed",
        "if proposed_term != term:  # another leader's entry took the place: ours can never be committed",
        "if False:",
        (
            "tests/replication/driver/test_proposals.py::test_a_command_whose_place_was_taken_by_another_leader_never_will_be_applied",
        ),
    ),
    Mutant(
        "proposals_wait_for_ever_at_a_deposed_leader",
        "callers get no answer",
        "        for *_, answers in under_way.values():\n",
        "        for *_, answers in ():\n",
        (
            "tests/replication/driver/test_proposals.py::test_losing_leadership_tells_apart_what_was_proposed_from_what_was_not",
        ),
    ),
    Mutant(
        "waiting_proposals_have_no_bound",
        "memory grows with what waits",
        "if full or len(self._waiting) >= settings.waiting_commands_max:",
        "if len(self._waiting) >= settings.waiting_commands_max:",
        ("tests/replication/driver/test_proposals.py::test_too_much_is_refused_before_memory_grows",),
    ),
    Mutant(
        "a_timer_of_before_the_machine_slept_is_early_enough",
        "a leader's heartbeats wait for the end of what was once an election timeout",
        "if self._timer is None or self._timer.when() - _loop_s() > deadline - now + _TIMER_LATE_S:",
        "if self._timer is None:",
        (
            "tests/replication/driver/test_timer.py"
            "::test_a_timer_that_was_set_before_the_machine_slept_holds_no_nearer_deadline_up",
        ),
    ),
)

MUTANTS = (
    *VOTES,
    *APPENDS,
    *LEASES,
    *SENDING,
)
