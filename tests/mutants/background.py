"""Mutants of what a node does in the background: it costs nobody time, and nothing is lost with it."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

CLOSER = "tests/node/ledger/test_closer.py"
MUTANTS = (
    Mutant(
        "a_damaged_manifest_takes_its_segment_along",
        "a start deletes rows that only their manifest does not vouch for",
        "        self._remove_unfinished({path for path, _ in own} | set(damaged))\n",
        "        self._remove_unfinished({path for path, _ in own})\n",
        (
            "tests/node/ledger/test_damaged_manifests.py::"
            "test_a_node_leaves_a_segment_alone_whose_manifest_is_damaged",
        ),
    ),
    Mutant(
        "the_process_that_closes_segments_has_the_usual_priority",
        "deliveries wait for it",
        "    os.setpriority(os.PRIO_PROCESS, pid, NICE)\n",
        "",
        (f"{CLOSER}::test_it_has_a_low_priority_among_sessions_too",),
    ),
    Mutant(
        "a_session_of_low_priority_counts_as_any_other",
        "deliveries of other nodes wait for it",
        "write_text(str(GROUP_NICE))",
        "write_text(str(0))",
        (f"{CLOSER}::test_it_has_a_low_priority_among_sessions_too",),
    ),
    Mutant(
        "a_process_that_was_killed_is_not_replaced",
        "its segment waits for the next one",
        "for _ in range(STARTS_MAX):",
        "for _ in range(1):",
        (f"{CLOSER}::test_when_it_is_killed_in_the_middle_of_a_segment_another_closes_that",),
    ),
)
