"""Lanes: in the wheel's columns and out again; what is blocked is state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tarry.proto.tags import tag_mask
from tarry.replication.state_machine import lanes
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.replication.commands import NOW_MS, ack, release, retry, schedule, subscribe, trim

column = st.lists(
    st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)), max_size=8
)


@given(column)
def test_a_lane_comes_out_of_the_wheel_as_it_went_in_and_no_tag_is_lost(rows: list[tuple]) -> None:
    queue, mask, lane = (
        np.array([row[n] for row in rows], dtype=kind)
        for n, kind in enumerate((np.uint32, np.uint64, np.uint32))
    )
    again, unfolded, out = lanes.unpack(*lanes.pack(queue, mask, lane))
    assert again.tolist() == queue.tolist()
    assert np.broadcast_to(out, lane.shape).tolist() == lane.tolist()
    assert ((mask & unfolded) == mask).all()
    assert unfolded[lane == 0].tolist() == mask[lane == 0].tolist()


def test_a_key_has_a_lane_and_no_key_has_none() -> None:
    assert lanes.lane_of("") == 0
    assert 0 < lanes.lane_of("k") < 2**32
    assert lanes.lane_of("k") != lanes.lane_of("l")
    assert tag_mask([]) == 0


def test_a_retry_blocks_its_lane_over_a_checkpoint_until_it_is_settled(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [subscribe(), schedule([NOW_MS]), release(NOW_MS)])
    before = machine.digest()
    machine.apply(2, 1, [retry([0], NOW_MS + 5, lane=7)])
    assert list(machine.queues.blocked) == [(1, 7)]
    blocked = machine.digest()
    assert blocked != before
    machine.write(machine.capture())
    machine.close()
    machine = Machine(tmp_path, MachineSettings())
    assert machine.digest() == blocked
    machine.apply(3, 1, [release(NOW_MS + 5), retry([0], NOW_MS + 9, queue=1, lane=7)])
    ((hour, index),) = machine.queues.blocked.values()
    assert machine.due_ms(np.array([hour]), np.array([index])).tolist() == [NOW_MS + 9]
    machine.apply(4, 1, [release(NOW_MS + 9), ack([1], queue=1)])
    assert machine.queues.blocked == {}
    machine.close()


def test_a_retry_that_expires_opens_its_lane(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    machine.level = 2
    machine.apply(1, 1, [subscribe(), schedule([NOW_MS, NOW_MS + 1]), release(NOW_MS + 1)])
    machine.apply(2, 1, [retry([0], NOW_MS + 5, lane=7), retry([1], NOW_MS + 6, lane=8)])
    machine.apply(3, 1, [release(NOW_MS + 6)])
    machine.queues.take_changed()
    machine.apply(4, 1, [trim([1], [1])])
    assert list(machine.queues.blocked) == [(1, 8)]
    assert machine.queues.take_changed() == {1}  # what waits behind it is looked at again
    assert machine.queues.retries_cancelled == 1
    machine.close()


def test_below_its_level_it_keeps_it_closed_as_0_2_0_does(tmp_path: Path) -> None:
    machine = Machine(tmp_path, MachineSettings())
    machine.apply(1, 1, [subscribe(), schedule([NOW_MS]), release(NOW_MS)])
    machine.apply(2, 1, [retry([0], NOW_MS + 5, lane=7), release(NOW_MS + 5), trim([1], [1])])
    assert list(machine.queues.blocked) == [(1, 7)]
    machine.close()
