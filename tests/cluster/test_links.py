"""Nodes and clients that reach each other through real proxies only, by their `dial` tables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tarry.chaos.cluster.cluster import mono_ms
from tarry.chaos.cluster.proxies import CLIENT, Proxies, between
from tarry.chaos.cluster.toxiproxy import NoToxiproxy
from tarry.client.aio import connect
from tarry.client.errors import OutcomeUnknown, Unavailable
from tarry.client.local.cluster import LocalCluster, toml
from tests.cluster.disposable import Disposable


@pytest.fixture
def linked(tmp_path: Path) -> Iterator[tuple[LocalCluster, Proxies]]:
    with Disposable(3, tmp_path) as cluster:
        try:
            proxies = Proxies(cluster.nodes.values(), tmp_path / "toxiproxy.log")
        except NoToxiproxy as error:
            pytest.skip(str(error))
        with proxies:
            for node in cluster.nodes.values():
                with node.config.open("a") as config:
                    config.writelines(f"{line}\n" for line in toml({"dial": proxies.dial(node.name)}))
            cluster.start()
            cluster.wait_until_serving()
            yield cluster, proxies


async def test_a_leader_that_is_cut_off_is_replaced_and_a_client_finds_the_new_one_by_its_links(
    linked: tuple[LocalCluster, Proxies],
) -> None:
    cluster, proxies = linked
    old = await asyncio.to_thread(cluster.wait_until_serving)
    others = set(cluster.nodes) - {old}
    async with connect(cluster.addresses, dial=proxies.dial(CLIENT)) as client:
        await client.producer().schedule("links", b"before", delay_ms=60_000)
        proxies.cut(between({old}, others))
        cut_ms = mono_ms()
        await client.producer().schedule("links", b"after", delay_ms=60_000)
        status = await client.operator().status()
        assert status.node in others
        assert mono_ms() - cut_ms < 15_000
        proxies.heal()
        async with asyncio.timeout(15):
            while not all(member.connected for member in status.members):
                await asyncio.sleep(0.1)
                status = await client.operator().status()
        assert (await client.operator().transfer(old)).leader == old
        assert (await client.operator().status()).pending == 2


async def test_a_client_whose_links_are_cut_reaches_nobody_though_it_knows_the_addresses(
    linked: tuple[LocalCluster, Proxies],
) -> None:
    cluster, proxies = linked
    async with connect(cluster.addresses, dial=proxies.dial(CLIENT), deadline_ms=5_000) as client:
        await client.producer().schedule("links", b"once", delay_ms=60_000)
        proxies.cut([(CLIENT, name) for name in cluster.nodes])
        with pytest.raises((Unavailable, OutcomeUnknown)):  # unknown where the call was under way already
            await client.producer().schedule("links", b"never", delay_ms=60_000)


async def test_a_request_to_a_follower_is_forwarded_by_its_link_and_by_nothing_else(
    linked: tuple[LocalCluster, Proxies],
) -> None:
    cluster, proxies = linked
    leader = await asyncio.to_thread(cluster.wait_until_serving)
    follower = next(name for name in cluster.nodes if name != leader)
    address = cluster.nodes[follower].address
    settings = {"dial": proxies.dial(CLIENT), "discover": False, "deadline_ms": 2_000}
    async with connect(address, **settings) as client:
        await client.producer().schedule("links", b"by way of a follower", delay_ms=60_000)
        proxies.cut([(follower, leader)])
        with pytest.raises(Exception, match=r"leader|OUTCOME_UNKNOWN|NO_LEADER"):
            await client.producer().schedule("links", b"no way", delay_ms=60_000)
