"""How many files a replica has open, whatever it holds."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.segment_files import OPEN_MAX
from tests.replication.commands import NOW_MS, release, schedule


def open_below(folder: Path) -> int:
    """How many descriptors of this process are of files below a folder."""
    links = []
    for fd in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # the listing's own
            links.append(fd.readlink())
    return sum(link.is_relative_to(folder) for link in links)


def test_any_number_of_active_topics_keeps_a_bounded_number_of_files_open(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    topics = OPEN_MAX + 50
    for index in range(topics):
        machine.apply(2 * index + 1, 1, [schedule([NOW_MS + index], topic=f"t{index}")])
        machine.apply(2 * index + 2, 1, [release(NOW_MS + index + 1)])
        machine.queues[index].flush()
    assert open_below(tmp_path / "ready") == OPEN_MAX
    assert all(len(queue.read(0, 2)) == 1 for queue in machine.queues)  # the first ones are opened again
    machine.apply(2 * topics + 1, 1, [schedule([NOW_MS + 9_000], topic="t0"), release(NOW_MS + 9_001)])
    machine.queues[0].flush()
    assert machine.queues[0].read(0, 2)["due_ms"].tolist() == [NOW_MS, NOW_MS + 9_000]
    assert open_below(tmp_path / "ready") == OPEN_MAX
    machine.close()
    assert open_below(tmp_path) == 0
