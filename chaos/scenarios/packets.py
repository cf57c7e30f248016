"""Packets that vanish while connections stay open, which no proxy can do. Takes root."""

from __future__ import annotations

from tarry.chaos.cluster.network_namespaces import no_namespaces
from tarry.chaos.cluster.proxies import CLIENT, Link
from tarry.chaos.faults.network import deaf, isolated, mute
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario


async def _lose(run: Run, name: str, links: list[Link], seconds: float) -> None:
    async with run.disturbed(name, loose=True):
        run.cluster.namespaces.cut(links)
        await run.during(seconds)
        run.cluster.namespaces.mend(links)
    await run.serving()


@scenario(needs=(no_namespaces,), namespaces=True, patience_ms=6_000, travel_ms=6_000)
async def packets_of_the_leader_lost(run: Run) -> None:
    """Every packet between the leader and its followers is lost for 3 s; then its clients' too."""
    for clients in (False, True):
        leader = await run.leader()
        links = isolated(leader, run.names)
        if clients:
            links += [(CLIENT, leader), (leader, CLIENT)]
        await _lose(run, f"packets of {leader} lost", links, 3)


@scenario(needs=(no_namespaces,), namespaces=True, patience_ms=6_000, travel_ms=6_000)
async def packets_lost_one_way(run: Run) -> None:
    """Packets from the leader are lost, then those to it; then those between a follower and its clients."""
    for links in (mute, deaf):
        leader = await run.leader()
        await _lose(run, f"{links.__name__} {leader}", links(leader, run.names), 2)
    follower = (await run.followers())[0]
    await _lose(run, f"{follower} and clients", [(CLIENT, follower), (follower, CLIENT)], 2)


@scenario(needs=(no_namespaces,), namespaces=True, patience_ms=6_000, travel_ms=6_000)
async def packets_lost_in_bursts(run: Run) -> None:
    """All packets of everybody lost for 100 to 400 ms, eight times: shorter than any patience, or as long."""
    for number in range(8):
        links = run.cluster.namespaces.links()
        async with run.disturbed("burst", loose=True):
            run.cluster.namespaces.cut(links)
            await run.during(0.1 + 0.04 * number)
            run.cluster.namespaces.mend(links)
        await run.during(0.5)
    await run.serving()
