"""Folders that the console was given: nothing in them leads out of them, or holds the console."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tarry.console import folders
from tarry.console.folders import Missing, Unreadable, is_name, is_plain, newest, read
from tarry.console.views.backups import backup_row
from tarry.console.views.json_values import TEXT_CHARACTERS_MAX


def made(folder: Path, name: str, at_s: int = 1) -> Path:
    inside = folder / name
    inside.mkdir()
    (inside / "file").write_bytes(b"x" * 10)
    os.utime(inside, (at_s, at_s))
    return inside


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", "/etc", "-o", ".hidden", "a\n", "ä", "x" * 65, "a\0"])
def test_what_is_no_plain_name_is_none(name: str) -> None:
    assert not is_name(name)


def test_folders_are_listed_the_newest_first_and_nothing_else(tmp_path: Path) -> None:
    for at_s, name in enumerate(("one", "two.2026-11-26", "three_3"), 1):
        made(tmp_path, name, at_s)
    made(tmp_path, ".hidden")
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "one")
    assert newest(tmp_path, 9) == (["three_3", "two.2026-11-26", "one"], 3)
    assert newest(tmp_path, 1) == (["three_3"], 3)


def test_no_more_entries_are_looked_at_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "LOOKED_MAX", 2)
    for name in "abc":
        made(tmp_path, name)
    assert newest(tmp_path, 9)[1] == 2


def test_a_file_is_read_up_to_its_bound(tmp_path: Path) -> None:
    made(tmp_path, "one")
    assert read(tmp_path, "one", "file", 10) == b"x" * 10
    with pytest.raises(Unreadable, match="more than 9 bytes"):
        read(tmp_path, "one", "file", 9)


def test_nothing_leads_out_of_a_folder_or_holds_its_reader(tmp_path: Path) -> None:
    outside = made(tmp_path, "outside")
    folder = tmp_path / "given"
    folder.mkdir()
    inside = made(folder, "one")
    (folder / "linked").symlink_to(outside)
    (inside / "linked").symlink_to(outside / "file")
    (inside / "deep").mkdir()
    os.mkfifo(inside / "pipe")
    for name, file in (
        ("linked", "file"),
        ("one", "linked"),
        ("one", "deep"),
        ("one", "pipe"),
        ("one", "none"),
    ):
        with pytest.raises(Unreadable):
            read(folder, name, file, 100)
    for name in ("..", "../outside", "one/../one"):
        with pytest.raises(Unreadable, match="no name"):
            read(folder, name, "file", 100)


def test_what_is_not_there_is_told_from_what_cannot_be_read(tmp_path: Path) -> None:
    made(tmp_path, "one")
    for name, file in (("one", "none"), ("two", "file")):
        with pytest.raises(Missing, match=f"there is no {name}/{file}"):
            read(tmp_path, name, file, 100)
    with pytest.raises(Unreadable) as large:
        read(tmp_path, "one", "file", 9)
    assert not isinstance(large.value, Missing)


def test_a_link_and_a_file_are_no_folder_to_write_to(tmp_path: Path) -> None:
    made(tmp_path, "one")
    (tmp_path / "link").symlink_to(tmp_path / "one")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    assert [is_plain(tmp_path, name) for name in ("one", "new", "link", "gone", "file")] == [
        True, True, False, False, False,
    ]  # fmt: skip


def test_a_folder_with_a_link_or_a_pipe_in_it_is_none_to_write_to(tmp_path: Path) -> None:
    outside = made(tmp_path, "outside")
    for name, link in (("folder", "files"), ("file", "files/one"), ("gone", "files/two")):
        inside = made(tmp_path, name)
        (inside / link).parent.mkdir(exist_ok=True)
        (inside / link).symlink_to({"folder": outside, "file": outside / "file"}.get(name, tmp_path / "gone"))
    os.mkfifo(made(tmp_path, "pipe") / "pipe")
    (made(tmp_path, "plain") / "files" / "deep").mkdir(parents=True)
    names = ("folder", "file", "gone", "pipe", "plain", "outside")
    assert [is_plain(tmp_path, name) for name in names] == [False] * 4 + [True] * 2


@pytest.mark.parametrize(
    "manifest",
    [
        None,
        b"",
        b"[]",
        b"{}",
        b"\xff",
        b"[" * 100_000,
        b'{"cluster_time_ms": 1e999, "index": 1, "bytes": 1, "files": []}',
        b'{"cluster_time_ms": 9%b, "index": 1, "bytes": 1, "files": []}' % (b"9" * 40),
        b'{"cluster_time_ms": 1, "index": 1, "bytes": true, "files": []}',
        b'{"cluster_time_ms": 1, "index": 1, "bytes": 1, "files": "three"}',
    ],
)
def test_what_is_no_manifest_is_no_whole_backup(manifest: bytes | None) -> None:
    row = backup_row("one", manifest)
    assert (row["name"], row["state"], row["index"]) == ("one", "no whole backup", None)


def test_a_manifest_is_a_row() -> None:
    told = {
        "cluster": "<b>",
        "node": "n1",
        "index": 7,
        "cluster_time_ms": 9,
        "bytes": 2_048,
        "files": [{}, {}],
    }
    row = backup_row("one", json.dumps(told).encode())
    assert (row["state"], row["cluster"], row["files"], row["at_ms"]) == ("whole", "<b>", 2, 9)


def test_texts_of_a_manifest_are_cut_and_can_be_sent() -> None:
    told = {"index": 7, "cluster_time_ms": 9, "bytes": 1, "files": [], "cluster": "x" * 9_999}
    row = backup_row("one", json.dumps(told | {"node": "\ud800"}).encode())
    assert (row["state"], len(str(row["cluster"])), row["node"]) == ("whole", TEXT_CHARACTERS_MAX, "?")
