"""Schedule commands of an entry, whose columns are joined, do what they do when each is read by itself."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_operator_pb2 import TopicSettings
from tarry.replication.state_machine import commands
from tarry.replication.state_machine.events import Event
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tests.replication.commands import NOW_MS, admin, record, release
from tests.replication.state_machine.schedule_model import OneByOne

HOUR_MS = 3_600_000
TOPICS = ("t", "u", "v", "limited")


@st.composite
def schedules(draw: st.DrawFn) -> bytes:
    """Return a schedule command; now and then one that must be refused."""
    n = draw(st.sampled_from((0, 1, 1, 1, 2, 2, 3, 3, 4, 7, 7, 40)))
    few = draw(st.integers(0, 9)) == 0
    topics = draw(st.lists(st.sampled_from(TOPICS), min_size=0 if few else 1, max_size=4))
    now_ms = NOW_MS + draw(st.integers(0, 3)) * 700
    spread_ms = draw(st.sampled_from((1, 5_000, 2 * HOUR_MS, 30 * HOUR_MS, 10**15)))
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))

    def column(dtype: str, most: int, rows: Sequence[int] = (0, n)) -> bytes:
        """Return a column of 0 to `most`; now and then one that is too long."""
        count = n + 1 if draw(st.integers(0, 29)) == 29 else draw(st.sampled_from(rows))
        return random.integers(0, most, count, np.dtype(dtype), endpoint=True).tobytes()

    past_ms = draw(st.sampled_from((0, 0, 3_000)))
    due_ms = np.frombuffer(column("<i8", spread_ms, [n]), "<i8") + now_ms - past_ms
    in_command = draw(st.booleans())
    return commands.encode(
        log_pb.ScheduleCommand(
            now_ms=now_ms,
            request=log_pb.ScheduleColumns(
                producer=draw(st.sampled_from(("", "", "p", "q", "r", "s"))),
                sequence=draw(st.integers(1, 5) | st.just(100)),
                topics=topics,
                topic=column("<u4", max(0, len(topics) - (draw(st.integers(0, 9)) < 9))),
                due_ms=b"" if in_command else due_ms.astype("<i8").tobytes(),
                tag_mask=column("<u8", 2**64 - 1),
                records=[record(b"%d" % number) for number in range(n)],
            ),
            due_ms=due_ms.astype("<i8").tobytes() if in_command else b"",
            lane=column("<u4", 3),
            second_messages_max=draw(st.sampled_from((0, 0, 3, 60))),
            producers_max=draw(st.sampled_from((0, 0, 2, 3))),
            producer_silent_ms=draw(st.sampled_from((0, 500))),
        )
    )


def releases() -> st.SearchStrategy[bytes]:
    return st.builds(release, st.integers(0, 4).map(lambda s: NOW_MS + 1_000 * s), st.integers(1, 60))


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(schedules() | schedules() | schedules() | releases(), max_size=9), max_size=5))
def test_joined_columns_make_the_state_and_the_answers_of_single_ones(entries: list[list[bytes]]) -> None:
    limit = log_pb.TopicCommand(topic="limited", settings=TopicSettings(pending_max=20))
    with tempfile.TemporaryDirectory() as folder:
        joined, single = (opened(Path(folder) / name) for name in ("joined", "single"))
        single._scheduler = OneByOne(
            0, single.wheel, single.queues, single.producers, single.events, single.keyed
        )
        for index, entry in enumerate([[admin(limit)], *entries], start=1):
            assert joined.apply(index, 1, entry) == single.apply(index, 1, entry)
            assert plain(joined.take_events()) == plain(single.take_events())
        assert joined.digest() == single.digest()
        captured, expected = joined.capture(), single.capture()
        assert (captured.tables, captured.producers) == (expected.tables, expected.producers)
        assert captured.wheel == expected.wheel
        joined.close()
        single.close()
        assert files(Path(folder) / "joined") == files(Path(folder) / "single")


def opened(folder: Path) -> Machine:
    folder.mkdir()
    machine = Machine(folder, MachineSettings())
    machine.events.wanted = True
    return machine


def plain(events: Sequence[Event]) -> list[list[Any]]:
    return [[c.tolist() if isinstance(c, np.ndarray) else c for c in event] for event in events]


def files(folder: Path) -> dict[str, bytes]:
    """Return what the wheel and the ready queues have on disk."""
    paths = [path for part in ("hours", "ready") for path in (folder / part).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}
