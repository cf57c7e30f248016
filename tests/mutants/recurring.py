"""Mutants of what fires schedules that recur."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MACHINE = "tests/replication/state_machine/test_recurring.py"
PLAN = "tests/node/recurring/test_plan.py"
TIMING = "tests/node/recurring/test_timing.py"
FIRES = "tests/node/recurring/test_fires.py"
SERVICE = "tests/node/services/test_recurring.py"

MUTANTS = (
    Mutant(
        "a_plan_applies_whatever_has_changed",
        "a fire planned before a pause, or twice by two leaders, fires",
        "            if entry is None or entry.changes != plan.changes or plan.number in numbers:\n",
        "            if entry is None or plan.number in numbers:\n",
        (
            f"{MACHINE}::test_a_deleted_schedule_is_gone_and_its_pending_fire_with_it",
            f"{MACHINE}::test_a_plan_made_before_another_applies_to_nothing",
            f"{MACHINE}::test_a_triggered_message_leaves_the_next_fire_and_stays_in_a_pause",
        ),
    ),
    Mutant(
        "two_plans_of_a_command_both_apply",
        "a leader's bug doubles a fire on every replica",
        "entry.changes != plan.changes or plan.number in numbers:",
        "entry.changes != plan.changes:",
        (f"{MACHINE}::test_two_plans_of_one_schedule_in_a_command_count_once",),
    ),
    Mutant(
        "a_history_forgets_what_a_pause_cancels",
        "a schedule that was triggered ten times fires though it is paused",
        "    free = [place for place in old if place not in of_last[-1:]]\n",
        "    free = list(old)\n",
        (f"{MACHINE}::test_a_pause_cancels_the_last_fire_however_often_it_was_triggered_since",),
    ),
    Mutant(
        "a_change_is_applied_to_whatever_has_the_name",
        "who may produce to one topic changes schedules of another, which came to be while the call waited",
        "        if entry is not None and command.topics and entry.topic not in command.topics:\n",
        "        if False:\n",
        (f"{MACHINE}::test_a_change_leaves_a_schedule_of_a_topic_that_its_caller_has_not_asked_about",),
    ),
    Mutant(
        "fires_make_topics_that_nobody_has_counted",
        "schedules make five times as many topics as the cluster may have",
        "        self._queues.of(topic)  # made, so that it counts before it fires\n",
        "",
        (f"{MACHINE}::test_a_put_makes_its_topic_so_that_the_leader_counts_it",),
    ),
    Mutant(
        "what_was_decided_fires_again",
        "a fire is doubled",
        "        if not waited and not after_ms < fire.fire_ms <= plan.decided_ms:\n            return False\n",
        "",
        (f"{MACHINE}::test_a_fire_that_was_decided_is_not_planned_again",),
    ),
    Mutant(
        "a_pause_leaves_the_message_that_is_to_come",
        "a paused schedule fires",
        "        self._undo(state, now_ms, every=True)\n        state.paused = True\n",
        "        state.paused = True\n",
        (f"{MACHINE}::test_a_pause_behind_a_plan_cancels_its_message_and_the_fire_is_still_to_come",),
    ),
    Mutant(
        "a_cancelled_fire_counts_as_decided",
        "a fire is left out where a pause ends before it",
        "        state.decided_ms = min(state.decided_ms, fire_ms - 1)\n",
        "        pass\n",
        (f"{MACHINE}::test_a_pause_behind_a_plan_cancels_its_message_and_the_fire_is_still_to_come",),
    ),
    Mutant(
        "a_pause_cancels_the_last_fire_alone",
        "a paused schedule's earlier fire comes, which by its jitter was not due yet",
        "or (every and _is_jittered(",
        "or (False and _is_jittered(",
        (f"{MACHINE}::test_a_pause_cancels_earlier_fires_that_by_their_jitter_are_not_due_yet",),
    ),
    Mutant(
        "a_change_does_not_wait_for_the_leader_s_plan",
        "behind a failover a pause or a put drops fires that have come",
        "return entry.paused or entry.next_ms == NONE_COMES or entry.next_ms > at_ms",
        "return True",
        (f"{SERVICE}::test_a_change_waits_for_fires_that_have_come_and_are_not_decided",),
    ),
    Mutant(
        "a_change_waits_for_fires_that_come_behind_it",
        "a schedule whose leader is always a little late cannot be paused",
        "if entry is None or _decided(entry, command.now_ms):",
        "if entry is None or _decided(entry, self._time.now_ms()):",
        (f"{SERVICE}::test_a_change_waits_for_no_fire_that_comes_behind_it",),
    ),
    Mutant(
        "a_history_forgets_a_jittered_fire",
        "a paused schedule's earlier fire comes, behind which many came that were due before",
        "    due = [place for place in free if not _is_jittered(state.history[place], fired_ms, now_ms)]\n",
        "    due = free\n",
        (f"{MACHINE}::test_a_jittered_fire_is_cancelled_however_many_fires_came_behind_it",),
    ),
    Mutant(
        "a_change_plans_anew_from_now",
        "a fire that was decided ahead fires again",
        "        state.decided_ms = max(state.decided_ms, now_ms)\n",
        "        state.decided_ms = now_ms\n",
        (
            f"{MACHINE}::test_a_pause_leaves_a_fire_that_was_released",
            f"{MACHINE}::test_a_change_plans_anew_from_what_has_fired",
        ),
    ),
    Mutant(
        "a_change_cancels_what_has_come",
        "a fire whose message is put off by jitter is lost with a change",
        "        elif state.fired_ms > command.now_ms:  # what has come already stays\n",
        "        else:\n",
        (f"{MACHINE}::test_a_change_leaves_a_message_whose_fire_has_come",),
    ),
    Mutant(
        "schedules_are_not_in_the_digest",
        "replicas whose schedules differ are not found out",
        "                recurring=recurring,\n",
        "",
        (f"{MACHINE}::test_replicas_with_and_without_a_restart_have_one_digest",),
    ),
    Mutant(
        "schedules_are_not_in_the_checkpoint",
        "a restart forgets them",
        "            recurring=captured.recurring,\n",
        "",
        (f"{MACHINE}::test_a_restart_finds_all_schedules_and_goes_on",),
    ),
    Mutant(
        "schedules_outlive_their_topic",
        "a deleted topic comes back with the next fire",
        "        recurring = self._recurring.remove_topic(command.topic)\n",
        "        recurring = 0\n",
        (f"{MACHINE}::test_schedules_go_with_their_topic",),
    ),
    Mutant(
        "every_missed_fire_but_the_last_of_a_piece_is_left_out",
        "a long outage fires as often as it has pieces",
        "or (next_ms is not None and next_ms < self._due_ms)",
        "or (next_ms is not None and next_ms < self._due_ms and len(self._plan.fires) == 0)",
        (
            f"{PLAN}::test_what_an_interval_misses_is_left_out_at_once_as_it_would_be_one_by_one",
            f"{PLAN}::test_fires_that_came_while_nobody_led_follow_the_policy",
        ),
    ),
    Mutant(
        "an_interval_misses_its_last_fire_too",
        "after a long outage a schedule does not fire once",
        "        count -= self._spec.missed != pb.MISSED_POLICY_NONE  # the last of them fires\n",
        "",
        (
            f"{PLAN}::test_a_long_absence_is_decided_in_pieces_that_agree_with_the_whole",
            f"{PLAN}::test_what_an_interval_misses_is_left_out_at_once_as_it_would_be_one_by_one",
        ),
    ),
    Mutant(
        "plans_of_a_command_have_any_number_of_bytes",
        "after an outage one entry makes hundreds of MiB of messages on every replica",
        "            if worked > plan.WORKED_MAX or size_bytes > plan.BYTES_MAX:\n                break\n",
        "",
        (f"{FIRES}::test_a_command_makes_messages_of_so_many_bytes",),
    ),
    Mutant(
        "jitter_goes_past_the_next_fire",
        "messages of one schedule change their order",
        "            most_ms = max(0, min(most_ms, next_ms - fire_ms - 1))\n",
        "            pass\n",
        (f"{PLAN}::test_jitter_is_the_same_for_a_fire_and_ends_before_the_next",),
    ),
    Mutant(
        "two_fires_at_once_do_not_overlap",
        "a schedule that skips has two messages at once",
        "        self._settled = False\n\n    def _leave_out",
        "\n    def _leave_out",
        (f"{PLAN}::test_of_two_fires_at_once_the_second_overlaps_the_first",),
    ),
    Mutant(
        "a_local_time_that_comes_twice_fires_twice",
        "a nightly job runs twice as summer time ends",
        "                if fire_s <= after_s:\n                    continue\n",
        "",
        (
            f"{TIMING}::test_a_fixed_time_that_comes_twice_fires_the_first_time",
            f"{TIMING}::test_two_fixed_times_in_the_gap_fire_once",
        ),
    ),
    Mutant(
        "a_gap_swallows_a_fixed_time",
        "a nightly job fires at another time than the end of the gap",
        "        return _bisected(self.zone, before_s, at_s)\n\n    def _change",
        "        return at_s\n\n    def _change",
        (f"{TIMING}::test_a_fixed_time_in_the_gap_fires_at_its_end",),
    ),
    Mutant(
        "the_wall_clock_never_jumps",
        "a job of every quarter of an hour is off by an hour until its next look",
        "                changes_s = self._change(after_s, fire_s)\n",
        "                changes_s = None\n",
        (f"{TIMING}::test_a_change_between_two_fires_by_the_wall_clock_counts",),
    ),
    Mutant(
        "a_new_leader_knows_only_what_changes",
        "schedules of before it leads do not fire",
        "        heapify(self._heap)\n        self._ready = True\n",
        "        self._heap = []\n        self._ready = True\n",
        (f"{FIRES}::test_a_new_leader_fires_what_is_there",),
    ),
    Mutant(
        "a_changed_schedule_is_not_looked_at",
        "a schedule put under a leader fires only under the next one",
        "            elif (when_ms := _looked_at_ms(entry)) is not None:\n                self._push(when_ms, entry)\n",
        "",
        (f"{FIRES}::test_a_schedule_put_while_it_leads_fires",),
    ),
)
