"""Lines that are durable, in files that are bounded."""

from __future__ import annotations

import resource
import signal
from pathlib import Path

import pytest

from tarry.node.edge.audit_file import AuditFile

LINE = b"0123456789abcde\n"


def names(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_a_full_file_is_followed_by_another_and_the_oldest_goes(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.log", 2 * len(LINE), 3)
    for number in range(7):
        file.append(LINE.replace(b"0", b"%d" % number))
    assert {name: [line[:1] for line in lines.splitlines()] for name, lines in names(tmp_path).items()} == {
        "audit.log": [b"6"],
        "audit.log.1": [b"4", b"5"],
        "audit.log.2": [b"2", b"3"],
    }


def test_lines_that_are_larger_than_a_file_are_kept_whole(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.log", len(LINE), 2)
    file.append(3 * LINE)
    file.append(LINE)
    assert names(tmp_path) == {"audit.log": LINE, "audit.log.1": 3 * LINE}


def test_the_file_is_for_its_owner_alone_and_made_anew_where_it_was_moved(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.log", 1_000, 2)
    file.append(LINE)
    assert (tmp_path / "audit.log").stat().st_mode & 0o777 == 0o600
    (tmp_path / "audit.log").rename(tmp_path / "kept")
    file.append(LINE)
    assert names(tmp_path) == {"audit.log": LINE, "kept": LINE}


def test_after_a_line_that_a_crash_has_cut_the_next_begins_anew(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_bytes(LINE + LINE[:5])
    AuditFile(tmp_path / "audit.log", 1_000, 2).append(LINE)
    assert (tmp_path / "audit.log").read_bytes().splitlines() == [LINE[:-1], LINE[:5], LINE[:-1]]


def test_of_lines_for_which_there_is_no_room_none_is_there(tmp_path: Path) -> None:
    file = AuditFile(tmp_path / "audit.log", 1_000, 2)
    file.append(LINE)
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(LINE) + 5, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            file.append(2 * LINE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert (tmp_path / "audit.log").read_bytes() == LINE
    file.append(LINE)
    assert (tmp_path / "audit.log").read_bytes() == 2 * LINE


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="none"):
        AuditFile(tmp_path / "none" / "audit.log", 1_000, 2).append(LINE)
