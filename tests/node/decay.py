"""What a bad disk does to a machine's files."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tarry.replication.state_machine.machine import Machine
from tarry.wheel.delay_log import UNIT
from tarry.wheel.hour_partition import folder_name


def decay(machine: Machine, *messages: tuple[int, int]) -> None:
    """Turn a bit in the record of each message, (hour, global index)."""
    for hour, index in messages:
        folder = machine.folder / "hours" / folder_name(hour)
        unit = np.frombuffer((folder / "delay.index").read_bytes(), UNIT)[index]
        turn_bit(folder / "delay.log", int(unit["offset"]))


def lose_index(machine: Machine, hour: int) -> None:
    """Turn a bit in the index of an hour."""
    turn_bit(machine.folder / "hours" / folder_name(hour) / "delay.index", 30)


def turn_bit(path: Path, place: int) -> None:
    """Turn the lowest bit of one byte of a file."""
    with path.open("r+b") as file:
        file.seek(place)
        (byte,) = file.read(1)
        file.seek(place)
        file.write(bytes([byte ^ 1]))
