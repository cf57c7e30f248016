"""Nodes of two incarnations of one cluster, over real connections: none hears the other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tarry.replication.cluster_name import full_name, parts_of
from tarry.replication.transport.envelope import Identity
from tests.replication.transport.test_peer_transport import PATIENCE_S, End, Named

LATER = "tarry#00000000000000ab"


class Member(Named):
    """Of a node that belongs to an incarnation for good."""

    def adopts(self, cluster: str) -> bool:
        return False


class Later(Member):
    """Of a node of a later one."""

    cluster = LATER


class Newcomer(Named):
    """Of a node that has learnt nothing yet."""

    def adopts(self, cluster: str) -> bool:
        self.cluster = cluster
        return True


@pytest.fixture
async def ends() -> AsyncIterator[tuple[End, End]]:
    before, later = End("n1"), End("n2")
    await before.listen()
    await later.listen()
    before.transport.introduce(Member("n1"))
    later.transport.introduce(Later("n2"))
    later.transport.restart(Identity(LATER, "n2", 1, 1))
    yield before, later
    await before.stop()
    await later.stop()


async def test_a_node_of_another_incarnation_is_refused_and_told_to_rejoin(ends: tuple[End, End]) -> None:
    before, later = ends
    before.transport.set_peers({"n2": later.address})
    later.transport.set_peers({"n1": before.address})
    async with asyncio.timeout(PATIENCE_S):
        while not (before.transport.former and later.transport.former):  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert "start it once with --rejoin" in before.transport.former["n2"]
    assert not before.links
    assert not later.links


async def test_a_newcomer_takes_over_the_name_of_who_meets_it(ends: tuple[End, End]) -> None:
    newcomer, later = ends
    newcomer.transport.introduce(Newcomer("n1"))
    later.transport.set_peers({"n1": newcomer.address})
    await later.until(lambda: bool(later.links))
    assert later.links == [("n1", True)]
    assert not later.transport.former


def test_a_full_name_is_taken_apart_as_it_was_made() -> None:
    for incarnation in (0, 1, 2**64 - 1):
        assert parts_of(full_name("tarry", incarnation)) == ("tarry", incarnation)
    assert parts_of("tarry#ab") == ("tarry#ab", 0)
