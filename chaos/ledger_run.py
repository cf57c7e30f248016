"""Ledgers of a real cluster whose leaders are killed under traffic: the truth for the Spark job.

    python -m tarry.chaos.ledger_run FOLDER --kills 2

Consumers nack some messages and let the leases of some others end, so that every cause of a duplicate is
there. In the folder are, at the end: each node's data with its ledger, `receipts`, what the clients' library
wrote down itself, and `truth.json`, what chaos/checks/deliveries.py makes of the traffic's own history. The
last line is that truth.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from tarry.chaos.checks import deliveries
from tarry.chaos.cluster.cluster import Cluster, mono_ms
from tarry.chaos.traffic.traffic import TOKEN, Traffic, Workload, plan
from tarry.client.aio import Message
from tarry.client.receipts import finish

GROUP: Final = "workers"
TOPICS: Final = ("orders", "payments")
LEASE_MS: Final = 2_000
NACKED, HELD, OF = 0, 1, 100
"""Tokens of this rest by OF are nacked, or held until the lease is over, at their first attempt."""
PATIENCE_S: Final = 30.0

console = Console(stderr=True, highlight=False)


class Careless(Traffic):
    """Traffic whose consumers do not acknowledge everything the first time."""

    async def consume(self, topic: str, group: str, name: str = "") -> None:
        """Receive as a consumer with a name of its own, as its receipts are a ledger by that name."""
        await super().consume(topic, group, name or f"{group}-{topic}")

    async def settle(self, message: Message) -> None:
        """Acknowledge a delivery, nack it, or leave it until its lease is over."""
        rest = TOKEN.unpack_from(message.body)[0] % OF if message.attempt == 1 else None
        if rest == NACKED:
            await message.nack(delay_ms=100)
        elif rest != HELD:
            message.ack_soon()

    def again(self) -> int:
        """Return how many messages are still to come a second time, for they were nacked or held."""
        wanted = {one.token for one in self.history.delivered if one.token % OF in (NACKED, HELD)}
        return len(wanted - {one.token for one in self.history.delivered if one.attempt > 1})


async def run(folder: Path, messages: int, spread_ms: int, kills: int) -> dict[str, Any]:
    """Do it all; return the truth."""
    load = Workload(messages, TOPICS, spread_ms, delay_ms_max=4_000, cancel_share=0.02)
    async with Cluster(3, folder) as cluster:
        traffic = Careless(cluster.connect(receipts=folder / "receipts"), lease_ms=LEASE_MS)
        async with traffic.client, traffic.consuming(load.topics, GROUP), asyncio.TaskGroup() as tasks:
            producing = tasks.create_task(traffic.produce(plan(load)))
            for _ in range(kills):
                await asyncio.sleep(spread_ms / 1_000 / (kills + 1))
                leader = await cluster.leader()
                cluster.kill(leader)
                console.print(f"kill -9 {leader}, {len(traffic.history.delivered):,} delivered so far")
                await cluster.leader()
                cluster.start(leader)
            await producing
            await traffic.drained(PATIENCE_S)
            until_ms = mono_ms() + PATIENCE_S * 1_000
            while traffic.again() and mono_ms() < until_ms:  # noqa: ASYNC110  others' processes
                await asyncio.sleep(0.2)
        await cluster.serving()
        for name in cluster.names:
            await cluster.stop(name)
    history = traffic.history
    finish(folder / "receipts")
    again = history.later_deliveries()
    truth = {
        "acknowledged": sum(1 for _ in history.acknowledged()),
        "delivered_once": len(history.first_deliveries()) - len({(one.group, one.token) for one in again}),
        "duplicates": len(again),
        "missing": len(deliveries.lost(history, [(topic, GROUP) for topic in TOPICS])),
        "early": len({one.token for one in deliveries.early(history)}),
        "cancelled_delivered": len({one.token for one in deliveries.delivered_after_cancel(history)}),
        "kills": kills,
        "duplicate_ids": sorted(one.id for one in again),
    }
    (folder / "truth.json").write_text(json.dumps(truth))
    return truth


def main(
    folder: Annotated[Path, typer.Argument(help="A new folder, for the nodes' data and the receipts.")],
    messages: Annotated[int, typer.Option(min=100, help="How many to schedule.")] = 6_000,
    seconds: Annotated[int, typer.Option(min=2, help="Over how long.")] = 15,
    kills: Annotated[int, typer.Option(min=0, help="SIGKILLs of the leader.")] = 2,
) -> None:
    """Run a cluster of three under load, kill its leaders, and keep the ledgers."""
    truth = asyncio.run(run(folder, messages, seconds * 1_000, kills))
    print(json.dumps({name: value for name, value in truth.items() if name != "duplicate_ids"}), flush=True)


if __name__ == "__main__":
    typer.run(main)
