"""Each guard taken out makes its scenario fail: the scenarios can fail, and the guards are needed."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable
from typing import Any

import pytest

from tests.simulation import test_changes as changes
from tests.simulation import test_hostile_peers as hostile
from tests.simulation import test_ledger_rows as rows
from tests.simulation import test_levels as levels
from tests.simulation import test_order as order
from tests.simulation import test_rot as rot
from tests.simulation import test_scenarios as scenarios
from tests.simulation import test_shaping as shaping
from tests.simulation import test_slow_nodes_and_links as slow
from tests.simulation import test_small_clusters as small
from tests.simulation import test_state_and_members as members
from tests.simulation import test_votes_and_answers as answers
from tests.simulation import test_whole_nodes as whole
from tests.simulation.ablations import ABLATIONS, AblationBroken, ablated

PAIRS: dict[str, Callable[[], None]] = {
    "append normaliser (and duplicate filter)": (
        scenarios.test_a1_late_duplicates_and_a_crash_of_the_leader_lose_nothing
    ),
    "back-off": scenarios.test_h_hundreds_of_divergent_entries_are_replaced_within_a_second,
    "duplicate filter": answers.test_heartbeats_of_a_dead_leader_that_come_again_do_not_hold_up_the_election,
    "incarnations apart": members.test_what_comes_late_of_a_replaced_disk_leaves_its_successor_heard,
    "voter set (and duplicate filter)": answers.test_i_a_vote_that_arrives_twice_elects_nobody,
    "ack term": answers.test_j_an_answer_to_an_earlier_leadership_does_not_count_for_a_later_one,
    "window": scenarios.test_t_a_follower_that_stands_still_is_sent_no_more_than_a_window,
    "resets of one gap": (answers.test_one_lost_append_is_sent_again_once_though_every_later_one_is_refused),
    "pre-vote": members.test_u_a_removed_member_does_not_disturb_the_others,
    "stickiness": scenarios.test_b_a_follower_that_hears_nothing_but_is_heard_does_not_depose_the_leader,
    "patience": answers.test_nobody_is_elected_while_a_quiet_leaders_lease_lasts,
    "quiet start": (
        answers.test_a_follower_that_has_just_started_elects_nobody_while_its_leader_may_still_serve
    ),
    "higher term": scenarios.test_l16_a_member_that_has_raised_its_term_alone_is_taken_back,
    "lease": scenarios.test_c_a_paused_leader_does_not_serve_when_it_wakes,
    "echoed send time": answers.test_answers_that_were_long_under_way_do_not_prolong_the_lease,
    "own entry before serving": (
        answers.test_a_new_leader_does_not_serve_before_its_own_first_entry_is_committed
    ),
    "lease while it campaigns": scenarios.test_d2_a_leader_that_transfers_does_not_answer_for_its_successor,
    "drain": scenarios.test_d_a_transfer_waits_for_what_is_under_way,
    "transfer number": (
        scenarios.test_an_election_that_a_given_up_transfer_causes_late_cannot_overlap_the_leaders_lease
    ),
    "one change of members": (
        members.test_k_an_isolated_leader_cannot_remove_its_peers_until_it_is_its_own_majority
    ),
    "snapshot checksum": members.test_e3_a_snapshot_that_arrives_damaged_is_refused_and_fetched_again,
    "snapshot ahead of the log": (
        members.test_e2_a_snapshot_that_arrives_after_the_entries_it_stands_for_is_dropped
    ),
    "write before saying": answers.test_an_answer_waits_until_the_disk_has_what_it_speaks_of,
    "urgent stream": slow.test_bulk_over_slow_links_keeps_its_leader,
    "journal lost": members.test_a_voter_with_an_emptied_disk_does_not_vote_and_comes_back_as_a_newcomer,
    "another journal": members.test_an_added_member_with_an_emptied_disk_neither_votes_nor_counts,
    "strangers": hostile.test_nothing_that_a_stranger_says_moves_anybody,
    "apply budget": slow.test_a_backlog_to_apply_does_not_silence_a_new_leader,
    "checkpoint before trimming": (small.test_a_node_by_itself_keeps_every_entry_that_no_checkpoint_contains),
    "own disk before applying": small.test_a_cluster_of_one_acknowledges_nothing_that_its_disk_has_not,
    "lanes": order.test_messages_with_one_key_are_delivered_one_after_another,
    "retries close their lane": order.test_what_follows_a_retry_under_its_key_waits_for_it,
    "misfires": shaping.test_what_comes_due_while_all_sleep_is_dropped_where_its_topic_says_so,
    "moved since its record was read": (
        changes.test_changes_at_the_same_time_are_explained_by_one_order_whoever_leads
    ),
    "rows of retries": rows.test_the_rows_of_retries_name_the_messages_that_the_copies_stand_for,
    "checksums of ready queues": (
        rot.test_a_new_leader_whose_ready_queues_have_rotted_has_them_mended_and_delivers
    ),
    "checksums of indices": rot.test_an_index_that_rots_while_its_node_is_stopped_is_mended,
    "proof of a state": rot.test_a_rotten_index_of_the_leader_is_given_to_nobody_while_none_can_mend_it,
    "reserve": whole.test_what_a_leader_delivers_while_nobody_hears_it_is_marked_when_it_comes_again,
    "every member's level": levels.test_an_upgrade_is_not_finished_while_one_member_runs_the_version_before,
    "levels said anew": (
        levels.test_a_member_that_has_gone_back_to_the_version_before_does_not_count_by_what_it_said_before
    ),
    "level of a newcomer": (
        levels.test_a_node_of_the_version_before_is_not_added_to_a_cluster_of_a_higher_level
    ),
    "fsync": scenarios.test_r_a_power_loss_of_all_right_after_an_acknowledgement_loses_nothing,
}


def test_every_guard_has_a_scenario() -> None:
    assert set(PAIRS) == {guard for guard in ABLATIONS if guard}


@pytest.mark.parametrize("guard", ABLATIONS)
def test_every_part_of_a_guard_is_there(guard: str) -> None:
    with ablated(guard):
        pass


class Guarded:
    def guard(self, number: int) -> int:
        return number


@pytest.mark.parametrize(
    "parts",
    [
        ((Guarded, "guard", lambda self, number: 0), (Guarded, "renamed", lambda self: None)),
        ((Guarded, "guard", lambda self: 0),),
        ((Guarded, "guard", lambda self, number: self.renamed),),
        ((Guarded, "guard", lambda self, number: renamed(number)),),  # noqa: F821 - there is no such name
    ],
)
def test_a_guard_that_is_not_there_or_whose_replacement_fails_by_itself_counts_for_nothing(
    parts: tuple[Any, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(ABLATIONS, "guard", parts)
    with pytest.raises(AblationBroken), ablated("guard"), contextlib.suppress(Exception):
        Guarded().guard(1)
    assert Guarded().guard(1) == 1


@pytest.mark.parametrize("guard", ABLATIONS)
def test_what_replaces_a_guard_takes_the_same_arguments(guard: str) -> None:
    for owner, name, replacement in ABLATIONS[guard]:
        replaced = inspect.getattr_static(owner, name, None)
        if inspect.isfunction(replaced):
            inspect.signature(replacement).bind(*inspect.signature(replaced).parameters)


@pytest.mark.parametrize(("guard", "scenario"), PAIRS.items(), ids=list(PAIRS))
def test_without_its_guard_a_scenario_fails(guard: str, scenario: Callable[[], None]) -> None:
    with ablated(guard), pytest.raises(BaseException):  # noqa: B017 - however it fails
        scenario()
