"""Mutants of clients' calls about schedules that recur: a retry does again what is done."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

TESTS = "tests/client/recurring/test_lost_answers.py"

MUTANTS = (
    Mutant(
        "a_retried_trigger_fires_again",
        "where its answer is lost, a trigger sends two messages",
        'TriggerRecurringRequest(name=name, if_triggered=_count("if_triggered", so_far))',
        "TriggerRecurringRequest(name=name)",
        (f"{TESTS}::test_a_trigger_whose_answer_is_lost_fires_once",),
    ),
    Mutant(
        "a_put_is_of_any_revision",
        "one caller's change takes back another's",
        "            if_revision=_revision(if_revision),\n            paused=paused,\n",
        "            paused=paused,\n",
        (f"{TESTS}::test_a_put_with_a_revision_whose_answer_is_lost_says_that_nobody_knows",),
    ),
)
