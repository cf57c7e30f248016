"""Links that are cut, slow, narrow, chopped, reset or silent."""

from __future__ import annotations

import asyncio
import time

from tarry.chaos.cluster.proxies import CLIENT, Link, between
from tarry.chaos.faults.network import bridge, deaf, isolated, mute, ring
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario

CATCH_UP_S = 60
LEASE_MS = 700
"""Time in which a leader that is cut off may still deliver: its lease, and the way of a delivery."""


async def _cut(run: Run, name: str, links: list[Link], seconds: float = 2) -> None:
    async with run.disturbed(name, loose_ms=LEASE_MS):
        run.cluster.links.cut(links)
        await run.during(seconds)
        run.cluster.links.mend(links)


async def _spoil(
    run: Run, name: str, links: list[Link], kind: str, node: str = "", **attributes: int
) -> None:
    async with run.disturbed(name, node, loose=True):
        run.cluster.links.spoil(links, kind, **attributes)
        await run.during(3)
    run.cluster.links.heal()


@scenario(fast=True)
async def leader_isolated(run: Run) -> None:
    """The leader cut off from both followers, not from clients; then from its clients as well."""
    for clients in (False, True):
        leader = await run.leader()
        await _cut(run, f"isolate {leader}", isolated(leader, run.names, clients=clients))
        await run.serving()


@scenario()
async def follower_isolated(run: Run) -> None:
    """A follower cut off and back, three times: it must not depose a healthy leader."""
    leader = await run.leader()
    follower = (await run.followers())[0]
    for _ in range(3):
        await _cut(run, f"isolate {follower}", isolated(follower, run.names), 1.5)
        await run.during(0.5)
    same = await run.leader() == leader
    run.expect(same, "a follower that was cut off deposed the leader", timed=True)


@scenario()
async def one_way_partitions(run: Run) -> None:
    """The leader is not heard, then hears nobody; a follower likewise."""
    for links in (mute, deaf):
        leader = await run.leader()
        await _cut(run, f"{links.__name__} leader", links(leader, run.names))
        await run.serving()
        follower = (await run.followers())[0]
        await _cut(run, f"{links.__name__} follower", links(follower, run.names), 1.5)
        await run.serving()


@scenario()
async def bridge_of_three(run: Run) -> None:
    """Two of three reach each other by the third only; the leader is at an end, then in the middle."""
    for middle_leads in (False, True):
        leader, followers = await run.leader(), await run.followers()
        nodes = [leader, *followers] if middle_leads else [*followers, leader]
        await _cut(run, "bridge", bridge(nodes))
        await run.serving()


@scenario(nodes=5)
async def ring_of_five(run: Run) -> None:
    """Five nodes, each of which reaches its two neighbours only; then two and two with a bridge."""
    await _cut(run, "ring", ring(run.names))
    await run.serving()
    await _cut(run, "bridge", bridge([await run.leader(), *await run.followers()]))
    await run.serving()


@scenario(nodes=5)
async def majority_and_minority(run: Run) -> None:
    """Five nodes: the leader and one follower on the one side, three on the other."""
    leader, *others = [await run.leader(), *await run.followers()]
    await _cut(run, "split", between({leader, others[0]}, others[1:]))
    await run.serving()


@scenario()
async def no_majority_anywhere(run: Run) -> None:
    """All links between nodes cut for 2 s: nobody may serve; then all are back."""
    await _cut(run, "all apart", between(run.names, run.names))
    await run.serving()


@scenario()
async def links_that_flap(run: Run) -> None:
    """The links of the leader cut for 150 ms, again and again."""
    for _ in range(8):
        await _cut(run, "flap", isolated(await run.leader(), run.names), 0.15)
        await run.during(0.3)


@scenario(travel_ms=800, patience_ms=4_000)
async def slow_links(run: Run) -> None:
    """20 ± 15 ms on every link between nodes, then 100 ± 80 ms on clients' links."""
    between_nodes = run.cluster.links.links(clients=False)
    of_clients = [link for link in run.cluster.links.links() if link[0] == CLIENT]
    await _spoil(run, "latency between nodes", between_nodes, "latency", latency=10, jitter=7)
    await _spoil(run, "latency of clients", of_clients, "latency", latency=50, jitter=40)


@scenario(travel_ms=1_500, patience_ms=4_000)
async def narrow_links(run: Run) -> None:
    """64 KB a second from the leader to its followers, then for everybody's packets 40 bytes at a time."""
    leader, links = await run.leader(), run.cluster.links.links()
    await _spoil(run, "bandwidth", mute(leader, run.names), "bandwidth", leader, rate=64)
    await _spoil(run, "slices", links, "slicer", average_size=40, size_variation=20, delay=20)


@scenario(loads=("light",), settings={"dispatch": {"journal_retained_bytes": 1 << 28}})
async def slow_link_catch_up(run: Run) -> None:
    """A follower 16 MB behind, on a link of 1 MB/s: it has all of the log within 60 s."""
    name = (await run.followers())[0]
    async with run.disturbed("behind a slow link", name):
        run.cluster.kill(name)
        await run.fill(16_000, body_bytes=1_024)
        index = max(seen.applied_index for seen in await run.ask())
        run.cluster.links.spoil(isolated(name, run.names), "bandwidth", rate=1_000)
        run.cluster.start(name)
        begun_s, applied = time.monotonic(), 0
        while applied < index and time.monotonic() - begun_s < CATCH_UP_S:
            await run.during(0.5)
            applied = max((seen.applied_index for seen in await run.ask() if seen.node == name), default=0)
        run.say(f"{name} has applied {applied} of {index} after {time.monotonic() - begun_s:.1f} s")
        run.expect(applied >= index, f"{name} has {applied} of {index} entries after {CATCH_UP_S} s")
    run.cluster.links.heal()
    await run.serving()


@scenario(loads=("light",), travel_ms=1_000, patience_ms=6_000)
async def slow_link_bulk(run: Run) -> None:
    """Links of 6 MB/s between the nodes while 30 MB are scheduled, four batches at once: one term."""
    links, term = run.cluster.links, await run.cluster.term()
    async with run.disturbed("slow links", loose=True):
        links.spoil(links.links(clients=False), "bandwidth", rate=6_000)
        await asyncio.gather(*(_fill_in_turn(run, 15) for _ in range(4)))
        await run.during(1)
    after = await run.cluster.term()
    run.expect(after == term, f"slow links took the cluster from term {term} to {after}", timed=True)
    links.heal()


async def _fill_in_turn(run: Run, batches: int) -> None:
    for _ in range(batches):
        await run.fill(500, body_bytes=1_024)


@scenario()
async def connections_reset(run: Run) -> None:
    """Every connection of the leader reset (RST) after 300 ms, also its clients', for 3 s."""
    leader = await run.leader()
    await _spoil(run, "resets", isolated(leader, run.names, clients=True), "reset_peer", leader, timeout=300)
    await run.serving()


@scenario(patience_ms=6_000, travel_ms=4_000)
async def half_open_links(run: Run) -> None:
    """The leader's links swallow everything and stay open: between nodes, then those of its clients."""
    for clients in (False, True):
        leader = await run.leader()
        silent = [(CLIENT, leader)] if clients else isolated(leader, run.names)
        await _spoil(run, "half open", silent, "timeout", leader, timeout=0)
        await run.serving()
