"""Mutants of exports of pending messages, and of imports."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

WHEEL = "tests/wheel/test_pending_records.py"
NODE = "tests/node/services/test_pending_export.py"
RUN = "tests/client/bulk/test_import_run.py"

MUTANTS = (
    Mutant(
        "an_export_has_what_was_released",
        "messages that were delivered are moved to another cluster, and delivered again",
        "                pending &= ~self._state.cut.has_passed(due_ms, index)\n                hour =",
        "                hour =",
        (f"{WHEEL}::test_what_was_cancelled_released_or_overtaken_is_not_read",),
    ),
    Mutant(
        "an_export_reads_far_messages_twice",
        "what has moved out of the far log is delivered twice by the other cluster",
        "                pending &= index >= self._written_of(hour)\n",
        "",
        (f"{WHEEL}::test_far_messages_that_have_moved_to_their_hour_are_not_read_twice",),
    ),
    Mutant(
        "an_export_lets_files_go",
        "an hour is deleted while it is read",
        "        hold.machine.snapshots += 1  # before the checkpoint, so that no later one deletes what it names\n",
        "",
        (f"{NODE}::test_so_many_are_under_way_and_one_that_is_not_taken_ends_and_lets_files_be_deleted",),
    ),
    Mutant(
        "a_batch_has_another_sequence_at_each_start",
        "an import that is killed schedules some rows twice",
        "    first = SEQUENCES * batch.number + 2  # 1 is the probe's\n",
        "    first = SEQUENCES * batch.number + 2 + id(batch.messages) % 31\n",
        (f"{RUN}::test_killed_at_any_point_it_goes_on_and_doubles_nothing",),
    ),
    Mutant(
        "a_forgotten_import_is_sent_again",
        "a cluster that has forgotten it takes the begun rows twice",
        '        known = found in ("", self._told["probe"]) and not self._told["lost"]\n',
        "        known = True\n",
        (
            f"{RUN}::test_a_cluster_that_has_forgotten_the_import_is_sent_nothing_that_is_unsure_unasked[skip]",
        ),
    ),
    Mutant(
        "a_shorter_answer_is_taken",
        "rows are taken for scheduled that are not, or under the ids of others",
        "    if len(answer.hour) != 4 * len(request.places):\n",
        "    if False:\n",
        (f"{RUN}::test_an_answer_for_other_messages_and_a_lost_row_of_the_id_map_are_noticed",),
    ),
)
