"""A backup into a folder, the power lost at each of its writes: the one before, or this one, is whole."""

from __future__ import annotations

from pathlib import Path

from tarry.proto.backup_folder import FolderWriter, backup_in
from tarry.proto.tarry_operator_pb2 import BackupChunk
from tests.power import Power, losses
from tests.proto.test_backup_folder import FIRST, SECOND, back_up, send, state_in

THIRD = SECOND | {"hours/1/delay.log": FIRST["hours/1/delay.log"] + b"more" * 900, "checkpoint.bin": b"3"}
"""A copy is appended to, one is replaced, the others stay."""


class Counted(FolderWriter):
    """One whose power may go before each chunk, too."""

    power: Power

    def take(self, chunk: BackupChunk) -> None:
        self.power.use()
        super().take(chunk)


def test_power_lost_at_any_write_of_a_backup_leaves_the_one_before_or_this_one(tmp_path: Path) -> None:
    def begin(data: Path) -> None:
        back_up(data, FIRST, 1)
        back_up(data, SECOND, 2)

    def play(data: Path, power: Power) -> None:
        writer = Counted(data)
        writer.power = power
        try:
            send(writer, THIRD, 3)
            writer.finish()
        finally:
            writer.close()

    seen = []
    for data, was_lost in losses(tmp_path, begin, play):
        backup = backup_in(data)
        assert backup is not None
        assert state_in(data) == {2: SECOND, 3: THIRD}[backup.index]
        assert was_lost or backup.index == 3
        seen.append(backup.index)
        back_up(data, THIRD, 4)
        assert state_in(data) == THIRD
    assert set(seen) == {2, 3}
    assert len(seen) > 30


def test_power_lost_at_any_write_of_a_first_backup_leaves_none_or_this_one(tmp_path: Path) -> None:
    def play(data: Path, power: Power) -> None:
        writer = Counted(data)
        writer.power = power
        try:
            send(writer, FIRST, 1)
            writer.finish()
        finally:
            writer.close()

    whole = set()
    for data, _ in losses(tmp_path, lambda data: data.mkdir(parents=True), play):
        whole.add(backup_in(data) is not None)
        assert backup_in(data) is None or state_in(data) == FIRST
        back_up(data, SECOND, 2)
        assert state_in(data) == SECOND
    assert whole == {False, True}
