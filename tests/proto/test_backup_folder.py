"""A backup at rest: what is new is added, what breaks off changes nothing, what decays is found by name."""

from __future__ import annotations

import io
from pathlib import Path

import google_crc32c
import pytest

from tarry.proto import backup_folder
from tarry.proto.backup_folder import (
    FILES,
    MANIFEST,
    BackupDamaged,
    BackupRefused,
    FolderWriter,
    StreamWriter,
    backup_in,
    parts_of,
    stream_of,
)
from tarry.proto.tarry_operator_pb2 import BackupChunk, BackupFile, BackupManifest

State = dict[str, bytes]

FIRST: State = {"checkpoint.bin": b"one", "hours/1/delay.log": b"abc" * 1000, "hours/2/delay.log": b""}
SECOND: State = {
    "checkpoint.bin": b"other",
    "hours/1/delay.log": FIRST["hours/1/delay.log"],
    "hours/2/delay.log": b"new",
    "ready/7/00": b"q",
}


def manifest(state: State, index: int, cluster: str = "tarry") -> BackupManifest:
    files = [
        BackupFile(name=name, size_bytes=len(data), crc32c=google_crc32c.value(data))
        for name, data in state.items()
    ]
    return BackupManifest(cluster=cluster, node="n2", index=index, term=1, digest=b"d" * 16, files=files)


def send(writer: FolderWriter | StreamWriter, state: State, index: int, most: int = 2**20) -> None:
    """Send what the writer does not have, as a node would, in small chunks; stop after `most` of them."""
    kept = {file.name: file for file in writer.kept()}
    writer.begin(manifest(state, index))
    for place, (name, data) in enumerate(state.items()):
        begun = kept[name].size_bytes if name in kept else 0
        same = name in kept and google_crc32c.value(data[:begun]) == kept[name].crc32c
        for offset in range(begun if same else 0, len(data), 1000):
            part = data[offset : offset + 1000]
            if (most := most - 1) < 0:
                return
            crc = google_crc32c.value(part)
            writer.take(BackupChunk(file=place, offset=offset, data=part, crc32c=crc))


def back_up(folder: Path, state: State, index: int) -> int:
    writer = FolderWriter(folder)
    try:
        send(writer, state, index)
        writer.finish()
        return writer.bytes_written
    finally:
        writer.close()


def state_in(folder: Path) -> State:
    parts = list(parts_of(folder))
    names = [file.name for file in parts[0].manifest.files]
    found = dict.fromkeys(names, b"")
    for part in parts[1:]:
        found[names[part.chunk.file]] += part.chunk.data
    return found


def test_the_next_backup_takes_only_what_is_new_and_drops_what_is_gone(tmp_path: Path) -> None:
    assert back_up(tmp_path, FIRST, 5) == 3_003
    assert back_up(tmp_path, SECOND, 9) == len("other" + "new" + "q")
    assert state_in(tmp_path) == SECOND
    assert back_up(tmp_path, {"checkpoint.bin": b"x"}, 9) == 1
    assert state_in(tmp_path) == {"checkpoint.bin": b"x"}
    assert len([path for path in (tmp_path / FILES).rglob("*") if path.is_file()]) == 1


def test_a_file_that_grew_is_continued(tmp_path: Path) -> None:
    back_up(tmp_path, FIRST, 5)
    grown = {**FIRST, "hours/1/delay.log": FIRST["hours/1/delay.log"] + b"more"}
    assert back_up(tmp_path, grown, 6) == 3 + 4 - 3
    assert state_in(tmp_path) == grown


@pytest.mark.parametrize("most", range(6))
def test_one_that_breaks_off_leaves_the_one_before_whole_and_the_next_goes_on(
    tmp_path: Path, most: int
) -> None:
    back_up(tmp_path, FIRST, 5)
    other = {
        **SECOND,
        "hours/1/delay.log": FIRST["hours/1/delay.log"] + b"x" * 2500,
        "hours/2/delay.log": b"y",
    }
    writer = FolderWriter(tmp_path)
    send(writer, other, 8, most)
    writer.close()
    assert state_in(tmp_path) == FIRST
    back_up(tmp_path, SECOND, 9)  # without what the broken one appended
    assert state_in(tmp_path) == SECOND


@pytest.mark.parametrize("most", range(6))
def test_a_folder_whose_first_backup_broke_off_takes_another(tmp_path: Path, most: int) -> None:
    writer = FolderWriter(tmp_path)
    send(writer, SECOND, 5, most)
    writer.close()
    back_up(tmp_path, FIRST, 6)
    assert state_in(tmp_path) == FIRST
    assert {path.name for path in tmp_path.iterdir()} == {MANIFEST, FILES}


def test_what_no_backup_has_written_is_not_removed(tmp_path: Path) -> None:
    """A folder of somebody's that has but the name of a backup's."""
    own = tmp_path / FILES / "photo"
    own.parent.mkdir()
    own.touch()
    with pytest.raises(BackupRefused, match="has files and no backup: name an empty folder"):
        back_up(tmp_path, FIRST, 5)
    assert [*tmp_path.rglob("*")] == [own.parent, own]


def test_one_of_which_something_is_missing_does_not_count(tmp_path: Path) -> None:
    writer = FolderWriter(tmp_path)
    send(writer, SECOND, 9, 3)
    with pytest.raises(BackupDamaged, match=r"delay\.log came incomplete"):
        writer.finish()
    writer.close()
    assert backup_in(tmp_path) is None
    with pytest.raises(BackupRefused, match="no backup"):
        state_in(tmp_path)


def test_what_has_decayed_is_found_by_name(tmp_path: Path) -> None:
    back_up(tmp_path, FIRST, 5)
    copy = tmp_path / FILES / "hours/1/delay.log"
    whole = copy.read_bytes()
    copy.write_bytes(whole[:-1] + b"!")
    with pytest.raises(BackupDamaged, match=r"hours/1/delay\.log: checksum"):
        state_in(tmp_path)
    copy.write_bytes(whole[:-1])
    with pytest.raises(BackupDamaged, match=r"hours/1/delay\.log has 2999 bytes, not 3000"):
        state_in(tmp_path)
    copy.unlink()
    with pytest.raises(BackupDamaged, match=r"hours/1/delay\.log: No such file"):
        state_in(tmp_path)
    assert back_up(tmp_path, FIRST, 6) == 3_000  # it is sent anew
    assert state_in(tmp_path) == FIRST
    told = (tmp_path / MANIFEST).read_text()
    (tmp_path / MANIFEST).write_text(told.replace('"term": 1', '"term": 2'))
    with pytest.raises(BackupDamaged, match=r"backup\.json: checksum"):
        state_in(tmp_path)


def test_a_newer_backup_another_cluster_s_and_strange_files_are_not_overwritten(tmp_path: Path) -> None:
    back_up(tmp_path / "a", FIRST, 5)
    for told in (manifest(FIRST, 4), manifest(FIRST, 6, "other")):
        writer = FolderWriter(tmp_path / "a")
        with pytest.raises(BackupRefused, match="use another folder"):
            writer.begin(told)
        writer.close()
    with pytest.raises(BackupRefused, match="name an empty folder"):
        FolderWriter(tmp_path)
    first = FolderWriter(tmp_path / "a")
    with pytest.raises(BackupRefused, match="under way"):
        FolderWriter(tmp_path / "a")
    first.close()


@pytest.mark.parametrize("name", ["../out", "/etc/out", "a/../../out", "", "a\0b"])
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    writer = FolderWriter(tmp_path / "a")
    with pytest.raises(BackupDamaged, match="no file of a backup"):
        writer.begin(manifest({name: b"x"}, 1))
    writer.close()


def test_a_node_cannot_send_more_than_it_has_told_of(tmp_path: Path) -> None:
    writer = FolderWriter(tmp_path)
    writer.begin(manifest({"a": b"x"}, 1))
    for place, data in ((0, b"xy"), (1, b"x")):
        with pytest.raises(BackupDamaged, match="more than the node told of"):
            writer.take(BackupChunk(file=place, data=data, crc32c=google_crc32c.value(data)))
    with pytest.raises(BackupDamaged, match="twice"):
        writer.begin(manifest({"a": b"x"}, 1))
    writer.close()
    assert list((tmp_path / FILES).iterdir()) == []
    twice = manifest({"a": b"x"}, 1)
    twice.files.add(name="./a", size_bytes=1)
    writer = FolderWriter(tmp_path)
    with pytest.raises(BackupDamaged, match="twice"):
        writer.begin(twice)
    writer.close()


def test_a_backup_goes_on_from_one_that_ended_while_it_was_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    back_up(tmp_path, FIRST, 5)
    locked = backup_folder._lock

    def after_another(folder: Path) -> int:
        monkeypatch.setattr(backup_folder, "_lock", locked)
        back_up(folder, SECOND, 6)
        return locked(folder)

    monkeypatch.setattr(backup_folder, "_lock", after_another)
    writer = FolderWriter(tmp_path)
    writer.close()
    assert writer.before is not None
    assert writer.before.index == 6


def stream(state: State) -> bytes:
    target = io.BytesIO()
    writer = StreamWriter(target)
    send(writer, state, 5)
    writer.finish()
    return target.getvalue()


def test_a_stream_has_all_and_is_refused_wherever_it_ends_or_is_changed() -> None:
    whole = stream(FIRST)
    parts = list(stream_of(io.BytesIO(whole)))
    assert parts[0].manifest == manifest(FIRST, 5)
    assert b"".join(part.chunk.data for part in parts[1:]) == b"".join(FIRST.values())
    for at in range(0, len(whole), 7):
        with pytest.raises(BackupDamaged):
            list(stream_of(io.BytesIO(whole[:at])))
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        with pytest.raises(BackupDamaged):
            list(stream_of(io.BytesIO(changed)))
