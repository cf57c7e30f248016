"""Every kind of request at its limit, on three real nodes: none holds an event loop for longer than a turn.

The bound is on CPU time of the loop's thread, as the nodes themselves measure it: wall time grows with
whatever else the machine does. It is a multiple of the turns' bound (``tests/turns.py``). A node tells of
its busiest turn since it started, so of one try: a row that is over is played again on a cluster of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from tests import turns
from tests.cluster.limit_play import Play
from tests.cluster.limit_rows import CALLS, ROWS, Row
from tests.cluster.limit_rows_peers import peers_that_meet
from tests.cluster.limit_rows_recurring import the_largest_schedules_and_pages
from tests.cluster.limit_rows_transactions import the_largest_transactions_and_pages
from tests.cluster.over_limits import OVER, Over
from tests.cluster.wire import refusal

pytestmark = pytest.mark.beside

__all__ = [  # rows that are added by their imports
    "peers_that_meet",
    "the_largest_schedules_and_pages",
    "the_largest_transactions_and_pages",
]

REAL = 2
"""Of a real cluster, whose processes share the machine: a node's busiest turn is one of thousands, no best of
several tries. A leader is lost by some 250 ms."""
PLAYED = 3


class Plays:
    """One cluster for all rows, and another where one was over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._play: Play | None = None

    def now(self) -> Play:
        if self._play is None:
            self._count += 1
            self._play = Play(self._folder / str(self._count)).__enter__()
        return self._play

    def end(self) -> None:
        if self._play is not None:
            self._play.__exit__()
            self._play = None


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plays]:
    plays = Plays(tmp_path_factory.mktemp("limits"))
    yield plays
    plays.end()


def too_long(play: Play) -> list[str]:
    """Return what held the nodes' loops for too long, once they are equal, and under the leader they had."""
    found = play.settled()
    assert {(status.leader, status.term) for status in found} == {(play.leader, play.term)}
    assert all(node.running for node in play.cluster.nodes.values())
    allowed_us = REAL * turns.bound_s() * 1e6
    return [
        f"{status.node}: {hold.cause}, {hold.cpu_us} us of CPU, at most {allowed_us:.0f}"
        for status in found
        for hold in [status.turns.busiest]
        if hold.cpu_us > allowed_us
    ]


def test_every_call_has_a_row_and_a_request_beyond_its_limit() -> None:
    assert {call for row in ROWS for call in row.calls} == set(CALLS)
    assert {over.path for over in OVER} == set(CALLS)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_no_request_holds_an_event_loop(plays: Plays, row: Row) -> None:
    long: list[str] = []
    for _ in range(PLAYED):
        row.play(plays.now())
        long = too_long(plays.now())
        if not long:
            break
        plays.end()
    assert not long


@pytest.mark.parametrize("over", [pytest.param(over, id=over.name) for over in OVER])
def test_what_is_beyond_a_limit_is_refused_with_what_to_do(plays: Plays, over: Over) -> None:
    play = plays.now()
    with pytest.raises(grpc.RpcError) as raised:
        play.call(over.path, over.request)
    said = refusal(raised.value)
    assert (said.reason, over.says in said.text) == (over.reason, True), said
