"""Many topics and groups: a command costs what it touches, not what there is."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_consumer_pb2 import GroupStart
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.queues import Queues
from tests.node.test_cost import counted
from tests.replication.commands import NOW_MS, admin, cancel, release, retry, schedule, subscribe, trim


def life_of(folder: Path, topics: int) -> Counter[str]:
    """Lines run by what touches one of so many topics, each with a message and a group."""
    lines: Counter[str] = Counter()
    machine = Machine(folder, MachineSettings())
    names = [f"t{number}" for number in range(topics)]
    machine.apply(1, 1, [subscribe(name) for name in names])
    machine.apply(2, 1, [schedule([NOW_MS], topic=name) for name in names] + [release(NOW_MS)])
    queues = [machine.queues.of(name).queue for name in names]
    machine.queues.take_moved()
    with counted(lines, "trim"):
        machine.apply(3, 1, [trim(queues[:10], [1] * 10)])
    assert machine.queues.take_trimmed() == [(name, "g") for name in names[:10]]
    with counted(lines, "groups"):
        assert machine.queues.groups_of(queues[-1]) == ["g"]
    with counted(lines, "delete"):
        machine.apply(4, 1, [admin(log_pb.DeleteTopicCommand(topic=name)) for name in names[:10]])
    assert [machine.queues.groups_of(queue) for queue in queues[9:11]] == [[], ["g"]]
    machine.close()
    return lines


def test_trimming_and_deleting_cost_the_topics_they_touch_however_many_there_are(tmp_path: Path) -> None:
    life_of(tmp_path / "first", 300)  # what is imported or cached by the first use
    # more than there are files kept open (OPEN_MAX)
    few, many = life_of(tmp_path / "few", 300), life_of(tmp_path / "many", 600)
    assert {step: many[step] - few[step] for step in few if many[step] > few[step] + 20} == {}
    assert min(few.values()) > 0


def settled_among(folder: Path, keys: int) -> Counter[str]:
    """Lines run by a cancel and by deletions while the retries of so many keys are waited for."""
    lines: Counter[str] = Counter()
    machine = Machine(folder, MachineSettings())
    machine.apply(1, 1, [subscribe(), subscribe("other"), schedule([NOW_MS] * keys), release(NOW_MS)])
    machine.apply(2, 1, [retry([key], NOW_MS + 5, lane=key + 1) for key in range(keys)])
    (gone, kept) = (machine.queues.blocked[1, lane] for lane in (7, 8))
    with counted(lines, "cancel"):
        machine.apply(3, 1, [cancel([gone])])
    with counted(lines, "delete"):
        machine.apply(4, 1, [admin(log_pb.DeleteGroupCommand(topic="other", group="g"))])
    blocked = machine.queues.blocked
    assert (len(blocked), blocked.get((1, 7)), blocked[1, 8]) == (keys - 1, None, kept)
    machine.apply(5, 1, [admin(log_pb.DeleteTopicCommand(topic="t"))])
    assert machine.queues.blocked == {}
    machine.close()
    return lines


def test_a_cancel_costs_what_it_names_however_many_keys_wait_for_their_retries(tmp_path: Path) -> None:
    settled_among(tmp_path / "first", 10)  # what is imported or cached by the first use
    few, many = settled_among(tmp_path / "few", 20), settled_among(tmp_path / "many", 200)
    assert {step: many[step] - few[step] for step in few if many[step] > few[step] + 20} == {}
    assert min(few.values()) > 0


@pytest.mark.parametrize("restarted", [False, True])
def test_groups_moved_up_by_a_trim_are_told_in_one_order_also_by_a_replica_that_was_restarted(
    tmp_path: Path, restarted: bool
) -> None:
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [subscribe(group=group) for group in "cab"])
    machine.apply(2, 1, [schedule([NOW_MS]), release(NOW_MS)])
    if restarted:
        machine.write(machine.capture())
        machine.close()
        machine = Machine(tmp_path, MachineSettings())
    machine.apply(3, 1, [trim([0], [1])])
    assert machine.queues.take_trimmed() == [("t", group) for group in "abc"]
    machine.close()


def test_what_an_entry_of_many_schedules_costs_grows_with_their_number_alone(tmp_path: Path) -> None:
    lines: Counter[str] = Counter()
    machine = Machine(tmp_path, MachineSettings())
    for index, count in enumerate([10, 100, 800]):
        commands = [schedule([NOW_MS + 5_000])] * count
        with counted(lines, str(count)):
            machine.apply(index + 1, 1, commands)
    assert lines["800"] < 9 * lines["100"]
    machine.close()


def left_by_groups(folder: Path, groups: int) -> int:
    """Return the bytes that so many groups, one after another, leave in memory once they are deleted."""
    queues = Queues(folder)
    queues.of("t")
    names = [f"g~{number:016x}" for number in range(groups)]
    tracemalloc.start()
    try:
        for name in names:
            queues.subscribe("t", name, GroupStart())
            queues.delete_group("t", name)
        for taken in (queues.capture, queues.take_files, queues.take_moved):
            taken()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        queues.close()


def test_a_group_that_is_deleted_leaves_little_but_its_number(tmp_path: Path) -> None:
    left_by_groups(tmp_path / "first", 10)  # what is imported or cached by the first use
    few, many = left_by_groups(tmp_path / "few", 100), left_by_groups(tmp_path / "many", 600)
    assert (many - few) / 500 < 900
