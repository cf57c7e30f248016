"""Commands wait, are coalesced, and are each answered with their own outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tarry.proto.tarry_log_pb2 import LogEntry
from tarry.replication.driver.proposals import Proposals
from tarry.replication.errors import CommandTooLarge, NotLeader, Overloaded, Unknown
from tarry.replication.settings import ReplicationSettings
from tests.replication.lone_consensus import serving


def future() -> asyncio.Future[object]:
    return asyncio.get_running_loop().create_future()


async def test_what_waits_becomes_one_entry_up_to_its_limits() -> None:
    proposals = Proposals(ReplicationSettings(entry_bytes_max=100, entry_commands_max=5))
    for _ in range(7):
        proposals.put(b"x" * 10, future())
    proposals.put(b"y" * 100, future())
    sizes = []
    while proposals.waiting:
        entry, answers = proposals.take()
        sizes.append(len(LogEntry.FromString(entry).commands))
        assert len(answers) == sizes[-1]
    assert sizes == [5, 2, 1]


async def test_an_entry_costs_no_more_than_a_turn_may_but_for_one_command() -> None:
    proposals = Proposals(ReplicationSettings(entry_cost_us_max=1_000))
    for cost_us in (400, 600, 1, 999, 5_000, 300, 300, 300, 300):
        proposals.put(b"x", future(), cost_us)
    sizes = []
    while proposals.waiting:
        sizes.append(len(proposals.take()[1]))
    assert sizes == [2, 2, 1, 3, 1]


async def test_a_turn_proposes_no_more_bytes_than_it_may_but_for_one_command() -> None:
    lone = serving(turn_bytes_max=1_000, entry_bytes_max=400, entry_bytes_worth=1)
    proposals = Proposals(lone.settings)
    for size_bytes in (400, 400, 400, 2_000, 300):
        proposals.put(bytes(size_bytes), future())
    proposed = []
    more = True
    while more:
        before = lone.journal.last_index
        more = proposals.propose(lone.consensus, lone.clock.now)
        proposed.append(lone.journal.last_index - before)
    assert proposed == [2, 1, 1, 1]
    assert not proposals.waiting


async def test_nothing_is_proposed_while_as_many_bytes_are_under_way_as_may_be() -> None:
    lone = serving(entries_in_flight_bytes=1_000, entry_bytes_max=400, entry_bytes_worth=1)
    proposals = Proposals(lone.settings)
    for _ in range(5):
        proposals.put(bytes(400), future())
    first = lone.journal.last_index + 1
    for index in (first, first + 1, first + 2):
        assert not proposals.propose(lone.consensus, lone.clock.now)
        assert lone.journal.last_index == min(index + 2, first + 4)
        proposals.applied(index, lone.consensus.state.term, [None])
    assert not proposals.waiting
    proposals.lose_leadership(None)
    proposals.put(bytes(400), future())
    proposals.propose(lone.consensus, lone.clock.now)
    assert not proposals.waiting


async def test_each_command_gets_its_own_outcome() -> None:
    proposals = Proposals(ReplicationSettings())
    answers = [future() for _ in range(3)]
    for answer in answers:
        proposals.put(b"x", answer)
    _, taken = proposals.take()
    proposals.proposed(7, 2, taken, 0, 0.0)
    proposals.applied(7, 2, ["a", "b", "c"])
    assert [answer.result() for answer in answers] == ["a", "b", "c"]
    proposals.applied(7, 2, ["d", "e", "f"])  # nobody waits any more


async def test_a_command_whose_place_was_taken_by_another_leader_never_will_be_applied() -> None:
    proposals = Proposals(ReplicationSettings())
    answer = future()
    proposals.put(b"x", answer)
    proposals.proposed(7, 2, proposals.take()[1], 0, 0.0)
    proposals.applied(7, 3, [])
    assert isinstance(answer.exception(), NotLeader)


async def test_losing_leadership_tells_apart_what_was_proposed_from_what_was_not() -> None:
    proposals = Proposals(ReplicationSettings())
    proposed, waiting = future(), future()
    proposals.put(b"x", proposed)
    proposals.proposed(7, 2, proposals.take()[1], 0, 0.0)
    proposals.put(b"x", waiting)
    proposals.lose_leadership("n2")
    assert isinstance(proposed.exception(), Unknown)
    refused = waiting.exception()
    assert isinstance(refused, NotLeader)
    assert refused.leader == "n2"


async def test_a_command_that_was_given_up_before_it_was_proposed_is_left_out() -> None:
    proposals = Proposals(ReplicationSettings())
    given_up, kept = future(), future()
    proposals.put(b"given up", given_up)
    proposals.put(b"kept", kept)
    given_up.cancel()
    entry, answers = proposals.take()
    assert list(LogEntry.FromString(entry).commands) == [b"kept"]
    assert answers == [kept]


async def test_too_much_is_refused_before_memory_grows() -> None:
    proposals = Proposals(ReplicationSettings(waiting_commands_max=2, waiting_bytes_max=100))
    with pytest.raises(CommandTooLarge):
        proposals.put(bytes((1 << 20) + 1), future())
    proposals.put(bytes(60), future())
    with pytest.raises(Overloaded) as refused:
        proposals.put(bytes(60), future())
    assert refused.value.retry_ms == 50
    proposals.put(b"", future())
    with pytest.raises(Overloaded):
        proposals.put(b"", future())


@pytest.mark.parametrize(
    "numbers",
    [
        {"heartbeat_ms": 100},
        {"quiet_heartbeat_ms": 49},
        {"election_max_ms": 300},
        {"fallback_ms": 300},
        {"clock_rate_error": 0.5},
        {"append_bytes_max": 1 << 20},
        {"message_bytes_max": 1 << 20},
    ],
)
def test_settings_that_contradict_each_other_are_refused(numbers: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must"):
        ReplicationSettings(**numbers)  # type: ignore[arg-type]


class _Log:
    """What Proposals use of consensus."""

    term = 2

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.state = self.heartbeats = self

    def may_propose(self, _: float) -> bool:
        return True

    def append(self, payload: bytes) -> int:
        self.sizes.append(len(LogEntry.FromString(payload[1:]).commands))
        return len(self.sizes)


async def test_small_entries_wait_for_company_while_some_are_under_way_and_large_ones_do_not() -> None:
    settings = ReplicationSettings(
        entry_bytes_worth=100, small_entries_in_flight_max=2, entries_in_flight_max=3
    )
    proposals, log = Proposals(settings), _Log()
    consensus: Any = log

    def put(size_bytes: int) -> None:
        proposals.put(b"x" * size_bytes, future())
        proposals.propose(consensus, 0.0)

    for _ in range(5):
        put(10)
    assert log.sizes == [1, 1]
    put(69)
    assert log.sizes == [1, 1]
    put(1)
    assert log.sizes == [1, 1, 5]
    put(200)
    assert log.sizes == [1, 1, 5]
    proposals.applied(1, 2, [None])
    proposals.propose(consensus, 0.0)
    assert log.sizes == [1, 1, 5, 1]
