"""Blocked lanes: their parts of a checkpoint depend on what is blocked, not on how it came to be."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.replication.state_machine.blocked_lanes import RANGE_LANES_MAX, BlockedLanes, Lane

lane = st.tuples(st.integers(0, 3), st.integers(1, 40))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), lane),
        st.tuples(st.just("end"), lane),
        st.tuples(st.just("delete"), st.integers(0, 3)),
        st.tuples(st.just("build"), st.integers(0, 3)),
    ),
    max_size=300,
)


def retry_of(lane: Lane) -> tuple[int, int]:
    return lane[0] + 100, lane[1]


def serialized(lanes: set[Lane]) -> bytes:
    """A checkpoint of the lanes, written at once."""
    checkpoint = log_pb.Checkpoint()
    for queue, number in sorted(lanes):
        checkpoint.blocked.add(queue=queue, lane=number, hour=queue + 100, global_index=number)
    return checkpoint.SerializeToString()


@given(steps)
def test_the_parts_are_one_checkpoint_of_all_lanes_in_order_whatever_came_and_went(taken: list) -> None:
    blocked, lanes, deleted = BlockedLanes(), set[Lane](), set[int]()
    for step, of in taken:
        if step == "add":
            if of[0] in deleted:  # its number is given to no other queue
                continue
            blocked.add(*of, retry_of(of))
            lanes.add(of)
        elif step == "end":
            assert blocked.end([retry_of(of)]) == [of] * (of in lanes)
            lanes.discard(of)
        elif step == "delete":
            blocked.delete(of)
            deleted.add(of)
            lanes = {known for known in lanes if known[0] != of}
        else:
            blocked.build(of)
        assert bool(blocked) == bool(lanes)
    assert set(blocked) == lanes
    assert b"".join(blocked.capture()) == serialized(lanes)
    while blocked.build(1):
        pass
    assert b"".join(blocked.capture()) == serialized(lanes)
    assert len(blocked._lanes) == len(blocked) == len(lanes)


def test_a_change_builds_the_part_of_a_few_lanes_anew_and_parts_without_lanes_go() -> None:
    blocked, count = BlockedLanes(), 40 * RANGE_LANES_MAX
    for number in range(1, count + 1):
        blocked.add(number % 2, number, (7, number))
    before = blocked.capture()
    assert len(before) >= count // RANGE_LANES_MAX
    blocked.end([(7, count // 2)])
    after = blocked.capture()
    assert len(after) == len(before)
    assert sum(new is not old for new, old in zip(after, before, strict=True)) == 1
    blocked.delete(0)
    blocked.end([(7, number) for number in range(count + 1)])
    assert blocked.capture() == []


def test_what_a_deleted_queue_leaves_is_freed_some_at_a_time_whatever_has_ended_meanwhile() -> None:
    blocked, count = BlockedLanes(), 10 * RANGE_LANES_MAX
    for number in range(1, count + 1):
        blocked.add(1, number, (7, number))
    blocked.add(2, 5, (8, 5))
    parts = blocked.capture()

    def held() -> int:
        return sum(sys.getrefcount(parts[place]) > 2 for place in range(len(parts)))  # 2: here alone

    ranges = held() - 1
    blocked.delete(1)
    assert (list(blocked), blocked.any_of(1)) == ([(2, 5)], False)
    assert blocked.end([(7, number) for number in range(1, 50)]) == []
    assert held() == ranges + 1
    freed = []
    while built := blocked.build(4):
        freed.append(built)
        assert held() == ranges + 1 - sum(freed)
    assert (sum(freed), max(freed), held()) == (ranges, 4, 1)
    assert blocked.end([(7, number) for number in range(count + 1)]) == []
    assert blocked.end([(8, 5)]) == [(2, 5)]
    assert not blocked
    assert blocked.capture() == []
