"""Each guard taken out makes its scenario fail: the scenarios can fail, and the guards are needed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import test_scenarios as scenarios
from tests.simulation import test_state_and_members as state_and_members
from tests.simulation.ablations import ablated

PAIRS = {
    "append normaliser and duplicate filter": (
        scenarios.test_a1_late_duplicates_and_a_crash_of_the_leader_lose_nothing
    ),
    "pre-vote": state_and_members.test_u_a_removed_member_does_not_disturb_the_others,
    "stickiness": scenarios.test_b_a_follower_that_hears_nothing_but_is_heard_does_not_depose_the_leader,
    "back-off": scenarios.test_h_hundreds_of_divergent_entries_are_replaced_within_a_second,
    "higher term": scenarios.test_l16_a_member_that_has_raised_its_term_alone_is_taken_back,
    "lease": scenarios.test_c_a_paused_leader_does_not_serve_when_it_wakes,
    "transfer number": (
        scenarios.test_an_election_that_a_given_up_transfer_causes_late_cannot_overlap_the_leaders_lease
    ),
    "fsync": scenarios.test_r_a_power_loss_of_all_right_after_an_acknowledgement_loses_nothing,
}


@pytest.mark.parametrize(("guard", "scenario"), PAIRS.items(), ids=list(PAIRS))
def test_without_its_guard_a_scenario_fails(guard: str, scenario: Callable[[], None]) -> None:
    with ablated(guard), pytest.raises(BaseException):  # noqa: B017 - however it fails
        scenario()
