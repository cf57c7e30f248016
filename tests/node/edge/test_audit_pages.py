"""Audit logs read backwards: every line once, whatever is written and renamed meanwhile."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tarry.node.edge.audit_file import AuditFile
from tarry.node.edge.audit_pages import CURSOR, LINES_MAX, PIECE_BYTES, SLACK_MS, Piece, Wanted, read_piece

FILES_MAX = 5
START_MS = 1_700_000_000_000


class Log:
    """A log of lines with numbers, a second apart."""

    def __init__(self, folder: Path, file_bytes_max: int = 1 << 20) -> None:
        self.path = folder / "audit.log"
        self._file = AuditFile(self.path, file_bytes_max, FILES_MAX)
        self.count = 0

    def write(self, lines: int, **more: Any) -> None:
        """Write lines of some 300 bytes."""
        for _ in range(lines):
            at = datetime.fromtimestamp((START_MS + 1_000 * self.count) / 1_000, UTC)
            line = {"at": at.isoformat(timespec="milliseconds"), "number": self.count, "text": "x" * 230}
            self.count += 1
            self._file.append(json.dumps(line | more).encode() + b"\n")

    def fill(self, lines: int) -> None:
        """Write many lines at once."""
        rows = []
        for _ in range(lines):
            at = datetime.fromtimestamp((START_MS + 1_000 * self.count) / 1_000, UTC)
            rows.append(json.dumps({"at": at.isoformat(timespec="milliseconds"), "number": self.count}))
            self.count += 1
        self._file.append("\n".join([*rows, ""]).encode())

    def piece(self, wanted: Wanted, cursor: str = "") -> Piece:
        return read_piece(self.path, FILES_MAX, wanted, cursor)

    def all(self, wanted: Wanted) -> tuple[list[int], int]:
        """Return the numbers of the lines, and of the calls that it took."""
        piece, calls = self.piece(wanted), 1
        found = numbers(piece)
        while piece.cursor:
            assert CURSOR.fullmatch(piece.cursor)
            piece, calls = self.piece(wanted, piece.cursor), calls + 1
            found += numbers(piece)
        return found, calls


def numbers(piece: Piece) -> list[int]:
    return [json.loads(line)["number"] for line in piece.lines]


def down(count: int, first: int = 0) -> list[int]:
    return list(range(first, count))[::-1]


@pytest.mark.parametrize("lines_max", [1, 7, LINES_MAX])
def test_every_line_comes_once_the_newest_first_over_all_files(tmp_path: Path, lines_max: int) -> None:
    log = Log(tmp_path, 10_000)
    log.write(100)
    assert len(list(tmp_path.iterdir())) > 3
    assert log.all(Wanted(lines_max=lines_max))[0] == down(100)


def test_what_is_written_and_renamed_between_two_calls_moves_no_line(tmp_path: Path) -> None:
    log = Log(tmp_path, 10_000)
    log.write(60)
    wanted = Wanted(lines_max=5)
    piece, found = log.piece(wanted), list[int]()
    while piece.cursor:
        found += numbers(piece)
        log.write(1)
        piece = log.piece(wanted, piece.cursor)
    found += numbers(piece)
    assert found == down(60)
    assert (tmp_path / "audit.log.2").exists()


def test_lines_of_one_millisecond_come_together_so_that_a_time_goes_on(tmp_path: Path) -> None:
    log = Log(tmp_path)
    for _ in range(4):
        log.write(1)
        log.count -= 1
    log.count = 10
    log.write(2)
    piece = log.piece(Wanted(lines_max=3))
    assert (numbers(piece), piece.cursor) == ([11, 10, 0, 0, 0, 0], "")
    piece = log.piece(Wanted(lines_max=2))
    assert (numbers(piece), piece.looked_to_ms) == ([11, 10], START_MS + 10_000)
    log.fill(20_000)
    piece = log.piece(Wanted())
    whole = log.piece(Wanted(method="none"))
    assert json.loads(piece.lines[-1])["number"] * 1_000 + START_MS == piece.looked_to_ms
    assert whole.looked_to_ms % 1_000 == 1


def test_a_place_in_a_file_that_is_gone_has_nothing_older(tmp_path: Path) -> None:
    log = Log(tmp_path, 1_000)
    log.write(3)
    cursor = log.piece(Wanted(lines_max=1)).cursor
    assert cursor
    log.write(50)
    assert log.piece(Wanted(), cursor) == Piece()


def test_there_is_nothing_where_no_file_is(tmp_path: Path) -> None:
    assert Log(tmp_path).piece(Wanted()) == Piece()


def test_lines_are_chosen_by_token_method_and_time(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(3, token="ops", method="DeleteTopic")
    log.write(3, token="shop", method="DeleteTopic")
    log.write(3, method="CreateTopic")
    assert log.all(Wanted(token="ops"))[0] == down(3)
    assert log.all(Wanted(method="DeleteTopic"))[0] == down(6)
    assert log.all(Wanted(token="shop", method="CreateTopic"))[0] == []
    second = Wanted(from_ms=START_MS + 2_000, to_ms=START_MS + 5_000)
    assert log.all(second)[0] == [4, 3, 2]
    assert log.all(replace(second, to_ms=START_MS + 2_000))[0] == []


def test_a_time_is_found_in_long_files_without_reading_what_is_newer(tmp_path: Path) -> None:
    log = Log(tmp_path, 4 << 20)
    log.fill(60_000)
    log.fill(60_000)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) > 20 * PIECE_BYTES
    for first in (0, 30_000, 59_999, 60_000, 100_000):
        wanted = Wanted(START_MS + first * 1_000, START_MS + (first + 10) * 1_000)
        found, calls = log.all(wanted)
        assert found == down(first + 10, first)
        assert calls <= 4, first


def test_a_clock_that_was_set_back_within_a_minute_hides_no_line(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(10)
    log.count -= SLACK_MS // 1_000 - 1
    log.write(1)
    log.count += SLACK_MS // 1_000 - 2
    log.write(5)
    assert len(log.all(Wanted(from_ms=START_MS + 3_000, to_ms=START_MS + 15_000))[0]) == 12


@pytest.mark.parametrize("lines_max", [1, 7, 60])
def test_a_clock_that_was_set_back_hides_no_line_from_who_goes_on_by_time(
    tmp_path: Path, lines_max: int
) -> None:
    log, found, to_ms = Log(tmp_path), list[int](), 0
    log.write(200)
    log.count -= 50
    log.write(200)
    for _ in range(400):
        piece = log.piece(Wanted(to_ms=to_ms, lines_max=lines_max))
        least_ms = piece.looked_to_ms if piece.cursor else 0
        found += [number for number in numbers(piece) if START_MS + 1_000 * number >= least_ms]
        if not piece.cursor:
            break
        assert not to_ms or least_ms < to_ms
        to_ms = least_ms
    assert sorted(found) == sorted([*range(200), *range(150, 350)])


def test_what_is_no_line_is_counted_and_hides_no_other(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.write(2)
    with log.path.open("ab") as file:
        file.write(b'{"at": "2026-11-2\n[]\n{"at": 1}\nnull\n\n\xff\xfe\n' + b"[" * 100_000 + b"\n")
    log.write(2)
    piece = log.piece(Wanted())
    assert numbers(piece) == down(4)
    assert piece.unreadable == 6


@pytest.mark.parametrize("bytes_each", [40, PIECE_BYTES // 2])
def test_what_is_no_line_hides_no_other_from_a_time_either(tmp_path: Path, bytes_each: int) -> None:
    log = Log(tmp_path, 64 << 20)
    count = 4 * PIECE_BYTES // bytes_each
    log.fill(6_000)
    with log.path.open("ab") as file:
        file.write((b"x" * (bytes_each - 1) + b"\n") * count)
    log.fill(6_000)
    for first in (5_990, 6_000, 11_000):
        wanted = Wanted(START_MS + first * 1_000, START_MS + (first + 10) * 1_000)
        assert log.all(wanted)[0] == down(first + 10, first), first


def test_little_is_read_of_files_that_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, sizes, pread = Log(tmp_path, 2 * PIECE_BYTES), list[int](), os.pread
    for _ in range(FILES_MAX):
        log.fill(8_000)
    cursor = ""
    for _ in range(100):
        cursor, before = log.piece(Wanted(method="none"), cursor).cursor, cursor
        if not cursor:
            break

    def counted(at: int, size: int, offset: int) -> bytes:
        sizes.append(size)
        return pread(at, size, offset)

    monkeypatch.setattr(os, "pread", counted)
    assert log.piece(Wanted(), before).lines
    assert sum(sizes) < 2 * PIECE_BYTES


def test_a_line_that_is_longer_than_a_piece_ends_no_reading(tmp_path: Path) -> None:
    log = Log(tmp_path, 64 << 20)
    log.write(2)
    with log.path.open("ab") as file:
        file.write(b'{"at": "' + b"x" * (3 * PIECE_BYTES) + b'"}\n')
    log.write(2)
    assert log.all(Wanted())[0] == down(4)


@pytest.mark.parametrize("offset", [0, 1, 100, 10**15 - 1])
def test_an_offset_that_a_caller_makes_up_reads_whole_lines_only(tmp_path: Path, offset: int) -> None:
    log = Log(tmp_path)
    log.write(5)
    name = log.piece(Wanted(lines_max=1)).cursor.partition(".")[0]
    found = numbers(log.piece(Wanted(), f"{name}.{offset}"))
    assert found == down(len(found))
