"""Moved messages are a sorted list and a dictionary from ids to places, across any calls and crashes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, multiple, rule

from tarry.wheel.id_gaps import GAP_MIN
from tarry.wheel.sorted_pairs import Pairs, SortedPairs
from tarry.wheel.state import HOUR_MS, MessageState, WheelSettings, WheelState
from tarry.wheel.wheel import Wheel
from tests.wheel.sorted_list import START_MS, SortedList, append, ids, rows
from tests.wheel.test_order import BY_COST, FAR, ROOMY, SOON_FULL, TIGHT, collect_by, times

Id = tuple[int, int]
SMALL_BLOCKS = {"sorted_pairs.BLOCK_PAIRS": 4}


def move(wheel: Wheel, names: Sequence[Id], due_ms: Sequence[int], kept: bool = True) -> list[Id]:
    """Move messages as `append` makes them; their places."""
    due = np.array(due_ms, np.int64)
    done = wheel.move(
        *ids(names),
        np.full(len(names), kept),
        due,
        (due % 7).astype(np.uint32),
        (due % 11).astype(np.uint64),
        [b"due %d" % at for at in due_ms],
    )
    return list(zip(done.hour.tolist(), done.global_index.tolist(), strict=True))


def places(wheel: Wheel, names: Sequence[Id]) -> list[Id]:
    hour, index = wheel.places_of(*ids(names))
    return list(zip(hour.tolist(), index.tolist(), strict=True))


def ids_of(wheel: Wheel, at: Sequence[Id]) -> list[Id]:
    hour, index = wheel.ids_of(*ids(at))
    return list(zip(hour.tolist(), index.tolist(), strict=True))


class Moves(RuleBasedStateMachine):
    names = Bundle("names")

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.list = SortedList()
        self.gaps: list[int] = []  # sizes of id gaps
        self.first: dict[Id, Id] = {}  # ids by places, as if nothing moved
        self.place: dict[Id, Id] = {}  # by id, of what was moved
        self.lost: set[Id] = set()  # ids that an incarnation before may have given
        self.left: set[Id] = set()  # places that something was moved to, and from
        self.commands: list[Callable[[Wheel], Any]] = []
        self.synced = WheelState()

    @initialize(
        options=st.sampled_from([ROOMY, TIGHT]),
        way=st.sampled_from([BY_COST, FAR, SOON_FULL]),
        blocks=st.sampled_from([{}, SMALL_BLOCKS]),
    )
    def start(self, options: WheelSettings, way: dict[str, int], blocks: dict[str, int]) -> None:
        self.options, self.way = options, collect_by({**way, **blocks})
        self.path = Path(self.folder.name) / "hours"
        self.wheel = Wheel(self.path, options)

    def do(self, command: Callable[[Wheel], Any]) -> Any:
        self.commands.append(command)
        return command(self.wheel)

    def named(self, at: list[Id]) -> list[Id]:
        """Note and return the ids that belong to new places."""
        self.first.update({place: (place[0], place[1] + sum(self.gaps)) for place in at})
        return [self.first[place] for place in at]

    def where(self, name: Id) -> Id:
        if name in self.place:
            return self.place[name]
        return next(place for place, first in self.first.items() if first == name)

    def is_pending(self, name: Id) -> bool:
        return self.list.states.get(self.where(name)) is MessageState.PENDING

    def floored(self, due_ms: list[int]) -> list[int]:
        return [max(due, self.list.floor_hour * HOUR_MS) for due in due_ms]

    @rule(target=names, due_ms=st.lists(times, max_size=8))
    def append(self, due_ms: list[int]) -> Any:
        due_ms = self.floored(due_ms)
        got = self.do(lambda wheel: append(wheel, due_ms))
        assert got == self.list.append(due_ms)
        return multiple(*self.named(got))

    @rule(more=st.integers(0, 9))
    def begin_incarnation(self, more: int) -> None:
        if len(self.gaps) == 3:
            return
        for hour, size in {**self.list.sizes, START_MS // HOUR_MS + 50: 0}.items():
            # which each incarnation would have given next
            self.lost.update((hour, size + sum(self.gaps[:begun])) for begun in range(len(self.gaps) + 1))
        self.do(lambda wheel: wheel.begin_incarnation(GAP_MIN + more))
        self.gaps.append(GAP_MIN + more)

    @rule(chosen=st.lists(names, min_size=1, max_size=6, unique=True), data=st.data())
    def move(self, chosen: list[Id], data: st.DataObject) -> None:
        chosen = [name for name in chosen if self.is_pending(name)]
        due_ms = self.floored(data.draw(st.lists(times, min_size=len(chosen), max_size=len(chosen))))
        if not chosen:
            return
        self.list.cancel([self.where(name) for name in chosen])
        got = self.do(lambda wheel: move(wheel, chosen, due_ms))
        assert got == self.list.append(due_ms)
        self.named(got)
        self.left.update(self.place[name] for name in chosen if name in self.place)
        self.place.update(zip(chosen, got, strict=True))

    @rule(target=names, name=names, due_ms=times)
    def move_under_a_new_id(self, name: Id, due_ms: int) -> Any:
        if not self.is_pending(name) or name in self.place:
            return multiple()
        (due_ms,) = self.floored([due_ms])
        self.list.cancel([self.where(name)])
        got = self.do(lambda wheel: move(wheel, [name], [due_ms], kept=False))
        assert got == self.list.append([due_ms])
        return self.named(got)[0]

    @rule(until_ms=times, count=st.sampled_from([0, 1, 2, 1000]))
    def take(self, until_ms: int, count: int) -> None:
        taken = rows(self.do(lambda wheel: wheel.take(until_ms, count)))
        assert taken == self.list.take(until_ms, count)
        of = {place: name for name, place in self.place.items()}
        at = [(hour, index) for _, hour, index in taken]
        assert ids_of(self.wheel, at) == [of.get(place, self.first[place]) for place in at]

    @rule(chosen=st.lists(names, min_size=1, max_size=6))
    def cancel(self, chosen: list[Id]) -> None:
        expected = [self.list.cancel([self.where(name)])[0] for name in chosen]
        outcomes = self.do(lambda wheel: wheel.cancel(*wheel.places_of(*ids(chosen))).outcomes)
        assert outcomes.tolist() == expected

    @rule(chosen=st.lists(names, min_size=1, max_size=3))
    def overtake(self, chosen: list[Id]) -> None:
        at = [self.where(name) for name in chosen]
        assert rows(self.do(lambda wheel: wheel.overtake(*ids(at)))) == self.list.overtake(at)

    @rule(hour=st.integers(-2, 1))
    def drop_hour(self, hour: int) -> None:
        dropped = START_MS // HOUR_MS + hour
        if (dropped + 1) * HOUR_MS <= self.list.cut.due_ms:
            self.do(lambda wheel: wheel.drop_hour(dropped))
            self.do(lambda wheel: wheel.sweep_moved())
            self.list.drop_hour(dropped)

    @rule()
    def checkpoint(self) -> None:
        state = self.wheel.capture()
        self.wheel.sync(state)
        # as a checkpoint keeps it
        self.synced = replace(state, moved=tuple((bytes(key), bytes(value)) for key, value in state.moved))
        self.commands.clear()

    @rule(closed=st.booleans())
    def crash_and_recover(self, closed: bool) -> None:
        if closed:
            self.wheel.close()
        before = self.wheel.digest()
        self.wheel = Wheel.recover(self.path, self.options, self.synced)
        for command in self.commands:
            command(self.wheel)
        assert self.wheel.digest() == before

    @rule(name=names)
    def look(self, name: Id) -> None:
        at = self.where(name)
        if at in self.list.states:
            (record,), (unit,) = self.wheel.read(*ids([at])), self.wheel.units(*ids([at]))
            assert record == b"due %d" % (at[0] * HOUR_MS + int(unit["due_in_hour_ms"]))

    @invariant()
    def every_id_tells_of_its_message(self) -> None:
        if not hasattr(self, "wheel"):
            return
        assert self.wheel.pending == len(self.list.pending)
        known = {self.first[at] for at in self.list.states.keys() - self.place.values() - self.left}
        known |= self.place.keys()
        names = sorted(known)
        expected = [self.list.states.get(self.where(name), MessageState.NOT_FOUND) for name in names]
        there = [name for name, state in zip(names, expected, strict=True) if state != MessageState.NOT_FOUND]
        states = self.wheel.states(*self.wheel.places_of(*ids(names))).tolist()
        gone = [name for name in names if self.is_forgotten(name)]
        assert [s for n, s in zip(names, states, strict=True) if n not in gone] == [
            s for n, s in zip(names, expected, strict=True) if n not in gone
        ]
        assert places(self.wheel, there) == [self.where(name) for name in there]
        assert ids_of(self.wheel, [self.where(name) for name in there]) == there

    def is_forgotten(self, name: Id) -> bool:
        """Return whether a moved message's hours are both dropped: nothing may answer for it then."""
        dropped = {hour for hour, _ in (name, self.where(name)) if hour not in self.list.sizes}
        return name in self.place and len(dropped) == len({name[0], self.where(name)[0]})

    @invariant()
    def where_a_moved_message_rests_or_did_is_nobodys_id(self) -> None:
        if hasattr(self, "wheel"):
            for place in (*self.place.values(), *self.left):
                if place in self.list.states:
                    hour, index = self.wheel.places_of(*ids([self.first[place]]))
                    assert self.wheel.state(int(hour[0]), int(index[0])) is MessageState.NOT_FOUND

    @invariant()
    def what_an_incarnation_before_may_have_given_is_nobodys_id(self) -> None:
        if hasattr(self, "wheel") and self.lost:
            hour, index = self.wheel.places_of(*ids(sorted(self.lost)))
            assert set(self.wheel.states(hour, index).tolist()) == {MessageState.NOT_FOUND}

    def teardown(self) -> None:
        self.wheel.close()
        self.way.undo()
        self.folder.cleanup()


TestIdsStayValidAcrossAnyMoves = Moves.TestCase
TestIdsStayValidAcrossAnyMoves.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

HOUR = START_MS // HOUR_MS


def test_a_moved_message_is_released_at_its_new_time_alone(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path / "hours", WheelSettings())
    later, earlier, past = append(wheel, [START_MS + 1_000, START_MS + 5 * HOUR_MS, START_MS + 2_000])
    wheel.take(START_MS + 10, 10)
    move(wheel, [later], [START_MS + 3 * HOUR_MS])
    move(wheel, [earlier], [START_MS + 1_500])
    (at,) = move(wheel, [past], [START_MS + 5])  # overdue: the caller releases it at once
    assert wheel.state(*at) is MessageState.RELEASED
    assert wheel.pending == 2
    taken = wheel.take(START_MS + HOUR_MS, 10)
    assert (taken.due_ms.tolist(), ids_of(wheel, [(HOUR, 2)])) == ([START_MS + 1_500], [earlier])
    assert wheel.take(START_MS + 3 * HOUR_MS, 10).due_ms.tolist() == [START_MS + 3 * HOUR_MS]
    wheel.close()


def test_an_id_answers_though_its_hour_is_dropped_and_not_as_if_cancelled_where_its_place_is(
    tmp_path: Path,
) -> None:
    wheel = Wheel(tmp_path / "hours", WheelSettings())
    later, earlier = append(wheel, [START_MS + 1_000, START_MS + 5 * HOUR_MS])
    (far,) = move(wheel, [later], [START_MS + 9 * HOUR_MS])
    move(wheel, [earlier], [START_MS + 1_500])
    wheel.take(START_MS + HOUR_MS, 10)
    wheel.drop_hour(HOUR)
    wheel.sweep_moved()
    assert (places(wheel, [later]), ids_of(wheel, [far])) == ([far], [later])
    hour, index = wheel.places_of(*ids([earlier]))
    assert wheel.states(hour, index).tolist() == [MessageState.NOT_FOUND]
    wheel.take(START_MS + 10 * HOUR_MS, 10)
    assert wheel.moved == 2
    for at in (HOUR + 5, HOUR + 9):
        wheel.drop_hour(at)
    wheel.sweep_moved()
    assert wheel.moved == 0
    wheel.close()


def test_a_place_that_was_left_takes_memory_until_its_hour_is_dropped(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path / "hours", WheelSettings())
    names = append(wheel, [START_MS + 9 * HOUR_MS])
    for hours in (0, 1, 8):
        move(wheel, names, [START_MS + hours * HOUR_MS + 1_000])
    wheel.take(START_MS + 2 * HOUR_MS, 10)
    for dropped, moved in ((HOUR, 2), (HOUR + 1, 1)):
        assert wheel.moved == moved + 1
        wheel.drop_hour(dropped)
        wheel.sweep_moved()
        assert wheel.moved == moved
    assert wheel.places_of(*ids(names))[0].tolist() == [HOUR + 8]
    wheel.close()


def test_a_message_outlives_the_thinning_of_the_hour_that_it_left(tmp_path: Path) -> None:
    wheel = Wheel(tmp_path / "hours", WheelSettings())
    (name, *_) = append(wheel, [START_MS + 1_000] * 2_000)
    (at,) = move(wheel, [name], [START_MS + 9 * HOUR_MS])
    wheel.take(START_MS + HOUR_MS, 5_000)
    left = wheel.upkeep.hour_state(HOUR)
    assert left is not None
    assert wheel.upkeep.thin(wheel.upkeep.write_thin(left, np.empty(0, np.uint32)))
    state = wheel.capture()
    wheel.sync(state)
    wheel.committed(state)
    wheel.close()
    wheel = Wheel.recover(tmp_path / "hours", WheelSettings(), state)
    assert (places(wheel, [name]), ids_of(wheel, [at])) == ([at], [name])
    assert wheel.read(*ids([at])) == [b"due %d" % (START_MS + 9 * HOUR_MS)]
    move(wheel, [name], [START_MS + 2 * HOUR_MS])
    assert wheel.take(START_MS + 3 * HOUR_MS, 10).due_ms.tolist() == [START_MS + 2 * HOUR_MS]
    wheel.close()


def test_wheels_that_know_other_ids_of_the_same_messages_have_different_digests(tmp_path: Path) -> None:
    digests = set()
    for kept in (True, False):
        wheel = Wheel(tmp_path / f"{kept}", WheelSettings())
        names = append(wheel, [START_MS + 1_000])
        move(wheel, names, [START_MS + 2_000], kept=kept)
        digests.add(wheel.digest())
        wheel.close()
    assert len(digests) == 2


@pytest.mark.parametrize("blocks", [4, 4_096])
@given(
    calls=st.lists(
        st.tuples(
            st.sampled_from(("put", "put", "remove", "cut")),
            st.lists(st.integers(0, 60), unique=True, min_size=1),
        ),
        max_size=30,
    )
)
@settings(deadline=None)
def test_sorted_pairs_are_a_dictionary(blocks: int, calls: list[tuple[str, list[int]]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tarry.wheel.sorted_pairs.BLOCK_PAIRS", blocks)
        pairs, model = SortedPairs(), dict[int, int]()
        for number, (call, numbers) in enumerate(calls):
            keys = np.array(numbers, np.uint64)
            held = pairs.blocks
            kept = [block.key.tolist() + block.value.tolist() for block in held]
            if call == "put":
                pairs.put(keys, keys + np.uint64(number))
                model.update((key, key + number) for key in numbers)
            elif call == "remove":
                pairs.remove(keys)
                model = {key: value for key, value in model.items() if key not in numbers}
            else:
                begin, end = min(numbers), max(numbers)
                gone = [
                    pair
                    for block in pairs.cut(begin, end + 1)
                    for pair in zip(*map(np.ndarray.tolist, block), strict=True)
                ]
                assert gone == sorted((key, value) for key, value in model.items() if begin <= key <= end)
                model = {key: value for key, value in model.items() if not begin <= key <= end}
            assert kept == [block.key.tolist() + block.value.tolist() for block in held]
            told = [
                pair for block in pairs.blocks for pair in zip(*map(np.ndarray.tolist, block), strict=True)
            ]
            assert told == sorted(model.items())
            assert all(len(block.key) <= blocks for block in pairs.blocks)
            assert len(pairs) == len(model)
            columns = [column for block in pairs.blocks for column in block]
            assert all(column.base is None for column in columns), "a block holds the memory of others"
            wanted = np.arange(70, dtype=np.uint64)
            values, found = pairs.find(wanted)
            assert {int(k): int(v) for k, v, f in zip(wanted, values, found, strict=True) if f} == model
    again = SortedPairs(Pairs(*(np.array(column, np.uint64) for column in (sorted(model), _by_key(model)))))
    assert len(again) == len(model)


def _by_key(model: dict[int, int]) -> list[int]:
    return [value for _, value in sorted(model.items())]
