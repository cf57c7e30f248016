"""Which changes of the protocol `buf breaking` refuses, held against those of releases (`make lint`)."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RELEASED = sorted((ROOT / "proto" / "released").glob("*.binpb"))


def breaks(folder: Path, file: str = "", old: str = "", new: str = "") -> str:
    """Return what buf has against the protocol with this change, compared with every release's."""
    protos = folder / "tarry" / "proto"
    protos.mkdir(parents=True)
    for path in (ROOT / "proto").glob("*.proto"):
        (protos / path.name).write_text(path.read_text())
    if file:
        text = (protos / file).read_text()
        assert text.count(old) == 1
        (protos / file).write_text(text.replace(old, new))
    made = folder / "protocol.binpb"
    sources = [f"tarry/proto/{path.name}" for path in sorted(protos.iterdir())]
    paths = [f"-I{folder}", f"-I{sysconfig.get_path('purelib')}"]
    protoc = [sys.executable, "-m", "grpc_tools.protoc", *paths, f"--descriptor_set_out={made}"]
    subprocess.run([*protoc, "--include_imports", *sources], check=True)
    buf = [Path(sys.executable).with_name("buf"), "breaking", made, "--config", ROOT / "buf.yaml"]
    return "".join(
        subprocess.run([*buf, "--against", kept], check=False, stdout=subprocess.PIPE, text=True).stdout
        for kept in RELEASED
    )


def test_the_protocol_is_understood_by_every_release(tmp_path: Path) -> None:
    assert [path.stem for path in RELEASED] == ["0.2.0"]
    assert breaks(tmp_path) == ""


def test_a_new_field_breaks_nothing(tmp_path: Path) -> None:
    field = "  uint64 pending_max = 4;"
    assert breaks(tmp_path, "tarry_operator.proto", field, f"  uint64 news = 99;\n{field}") == ""


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("tarry_operator.proto", "uint64 pending_max = 4", "uint64 pending_max = 99", "pending_max"),
        ("tarry_operator.proto", "uint64 pending_max = 4", "string pending_max = 4", "pending_max"),
        ("tarry_producer.proto", "rpc Cancel(", "rpc CallOff(", "Cancel"),
        ("tarry_log.proto", "message SeekCommand", "message JumpCommand", "SeekCommand"),
    ],
    ids=["another number", "another type", "a call removed", "a command removed"],
)
def test_a_change_that_a_release_would_misread_is_refused(
    tmp_path: Path, file: str, old: str, new: str, told: str
) -> None:
    assert told in breaks(tmp_path, file, old, new)
