"""Mutants of what async durability rests on: the mark, and what is never deferred."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

JOURNAL = "tests/replication/journal/test_power_loss.py::"

MUTANTS = (
    Mutant(
        "a_loss_of_power_is_not_noticed",
        "a node votes and acknowledges that may have forgotten what it said",
        "        if self._lost_power and not cut:",
        "        if False:",
        (f"{JOURNAL}test_under_another_boot_id_a_journal_with_the_mark_is_not_opened",),
    ),
    Mutant(
        "a_long_boot_id_is_cut",
        "two starts of a machine look like one, and a loss of power between them is not noticed",
        "        return text.strip() if len(text) <= BOOT_ID_CHARACTERS_MAX else UNKNOWN_BOOT\n",
        "        return text.strip()\n",
        (f"{JOURNAL}test_a_boot_id_that_is_too_long_tells_nothing_for_its_end_may_be_what_differs",),
    ),
    Mutant(
        "a_repeated_key_is_answered_before_its_flush",
        "who asks for a flush is told of a message that a loss of power takes back",
        "        elif flushed:\n",
        "        elif False:\n",
        (
            "tests/node/services/test_idempotency.py::"
            "test_who_asks_for_a_flush_has_it_of_what_was_scheduled_before_though_the_cluster_is_sync_by_now",
        ),
    ),
    Mutant(
        "the_mark_follows_the_write",
        "a loss of power between a write and its mark is not noticed",
        "            self._mark.set()  # first: a frame without it would be lost unnoticed",
        "            pass",
        (f"{JOURNAL}test_the_mark_is_durable_before_the_first_write_without_a_sync",),
    ),
    Mutant(
        "a_term_is_deferred",
        "a vote is answered that a loss of power takes back",
        "return bool(self.puts) and not self.head and self.delete_from is None and self.delete_below is None",
        "return bool(self.puts)",
        (f"{JOURNAL}test_a_term_a_vote_and_a_deletion_are_never_deferred",),
    ),
    Mutant(
        "the_mark_goes_too_early",
        "what waits for its flush when power is lost is lost unnoticed",
        "            if self._deferred <= self._synced and not self._failed and not self._flush_failed:",
        "            if not self._failed and not self._flush_failed:",
        (f"{JOURNAL}test_no_mark_goes_while_something_waits_for_its_flush",),
    ),
    Mutant(
        "a_follower_defers_what_is_to_be_flushed",
        "an answer that says flushed rests on the page caches of a majority",
        "            self._journal.demand_flush()  # the answer leaves after the write",
        "            pass",
        (
            "tests/simulation/test_flushing.py::test_a_request_may_ask_for_a_flush_and_waits_for_a_majority_of_them",
        ),
    ),
    Mutant(
        "a_failed_sync_is_forgotten",
        "a node goes on without what it had acknowledged, which the kernel has let go",
        "                    self._mark.condemn()",
        "                    pass",
        (f"{JOURNAL}test_a_log_whose_sync_failed_is_not_opened_under_the_same_boot_id_either",),
    ),
    Mutant(
        "a_flush_counts_for_what_came_later",
        "entries count as flushed that took the place of others during the flush",
        "            self._flushing_to = min(self._flushing_to, before)\n",
        "",
        (f"{JOURNAL}test_a_flush_tells_nothing_of_entries_that_took_the_place_of_others_meanwhile",),
    ),
    Mutant(
        "a_state_is_ahead_of_its_log",
        "a loss of power leaves a state with entries that its log lacks",
        "        await self.driver.flush()  # a state is never ahead of what a loss of power leaves of its log\n",
        "",
        ("tests/simulation/test_whole_flushing.py::test_no_checkpoint_is_ahead_of_what_is_flushed",),
    ),
    Mutant(
        "a_slow_flush_lets_writes_wait_on",
        "a majority's loss of power takes back what was acknowledged longer ago than flush_ms",
        "        return self.waits_s > max(self._replica.flush_ms(), LATE_MS_MIN) / 1000\n",
        "        return False\n",
        (
            "tests/simulation/test_flushing.py"
            "::test_what_waits_for_longer_than_flush_ms_lets_no_write_be_deferred",
        ),
    ),
    Mutant(
        "the_best_disk_counts_as_a_majority_of_flushes",
        "an answer that says flushed rests on one disk",
        "        return sorted(flushed, reverse=True)[len(flushed) // 2]",
        "        return max(flushed)",
        (
            "tests/simulation/test_flushing.py"
            "::test_what_was_sent_while_async_is_answered_in_sync_once_a_majority_has_flushed_it",
        ),
    ),
    Mutant(
        "a_node_without_power_sets_its_data_aside_at_once",
        "where a majority lost its power, the best log is gone before anybody can look at it",
        "        telling = asyncio.ensure_future(self._tell_of_power())\n",
        "        set_aside(self._config.data)\n"
        "        telling = asyncio.ensure_future(self._tell_of_power())\n",
        (
            "tests/node/recovery/test_recover_alone.py"
            "::test_data_is_set_aside_only_once_the_others_have_let_it_go",
        ),
    ),
    Mutant(
        "what_was_deferred_is_answered_in_sync",
        "after the answer that the durability is sync, a majority's loss of power takes back what is answered",
        "            if deferred and (synced or answer in self._to_flush):",
        "            if deferred and answer in self._to_flush:",
        (
            "tests/simulation/test_flushing.py"
            "::test_what_was_sent_while_async_is_answered_in_sync_once_a_majority_has_flushed_it",
        ),
    ),
)
