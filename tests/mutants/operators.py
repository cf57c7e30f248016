"""Mutants of what only operators may see: the audit log, and folders that the console was given."""

from __future__ import annotations

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        "others_than_operators_read_the_audit_log",
        "who may only produce reads what operators have done, and their addresses",
        "self._authorizer.refusal(context, Right.OPERATE) or self._nonsense(request)",
        "self._nonsense(request)",
        ("tests/node/services/test_audit_log.py::test_only_who_may_operate_is_answered",),
    ),
    Mutant(
        "a_place_in_an_audit_log_is_one_in_any_file",
        "lines of the audit log are left out or come twice where files were renamed",
        "return min(int(matched[2]), file.size) if matched[1] == file.name else None",
        "return min(int(matched[2]), file.size)",
        ("tests/node/edge/test_audit_pages.py::test_every_line_comes_once_the_newest_first_over_all_files",),
    ),
    Mutant(
        "a_link_leads_out_of_a_folder_of_the_console",
        "the console shows files of its machine that it was not given",
        "entry.is_dir(follow_symlinks=False)",
        "entry.is_dir()",
        ("tests/console/test_folders.py::test_folders_are_listed_the_newest_first_and_nothing_else",),
    ),
    Mutant(
        "whoever_signs_in_takes_backups",
        "a token that may only produce downloads all that there is",
        "    if not rights_of(look).operate:\n        raise NotPermitted",
        "    if False:\n        raise NotPermitted",
        (
            "tests/cluster/test_console_backups.py::test_a_backup_goes_nowhere_else_and_is_for_operators_alone",
        ),
    ),
    Mutant(
        "a_backup_follows_links_in_its_folder",
        "the console writes to, and removes, files of its machine that are no backup's",
        "return stat.S_ISDIR(mode) or stat.S_ISREG(mode)",
        "return True",
        ("tests/console/test_folders.py::test_a_folder_with_a_link_or_a_pipe_in_it_is_none_to_write_to",),
    ),
    Mutant(
        "jobs_outlive_the_visit",
        "a cancel goes on with the rights of a token whose visitors have signed out",
        "        access.jobs.stop()\n",
        "",
        ("tests/console/test_jobs.py::test_who_signs_out_stops_its_jobs_at_once_and_no_other_starts",),
    ),
)
