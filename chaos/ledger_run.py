"""Ledgers of a real cluster whose leaders are killed under traffic: the truth for the Spark job.

    python -m tarry.chaos.ledger_run FOLDER --kills 2

Consumers nack some messages and let the leases of some others end, so that every cause of a duplicate is
there; others are rescheduled, updated, cancelled or scheduled twice, which is no fault (`LedgerChanges`). In
the folder are, at the end: each node's data with its ledger, `receipts`, what the clients' library wrote down
itself, and `truth.json`, what chaos/checks/deliveries.py makes of the traffic's own history. The last line is
that truth.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from tarry.chaos.checks import deliveries
from tarry.chaos.cluster.cluster import Cluster, mono_ms
from tarry.chaos.history import History
from tarry.chaos.traffic.ledger_changes import CHANGED, DONE, IDLE, LATE, SLOW, LedgerChanges
from tarry.chaos.traffic.traffic import TOKEN, Traffic, Workload, patiently, plan
from tarry.client.aio import Message
from tarry.client.receipts import finish

GROUP: Final = "workers"
TOPICS: Final = ("orders", "payments")
LEASE_MS: Final = 2_000
GROUPS: Final = (*((topic, GROUP) for topic in (*TOPICS, CHANGED, LATE)), (LATE, SLOW), (IDLE, SLOW))
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
        here = [(one.group, one.token, one.attempt) for one in self.history.delivered]
        wanted = {(group, token) for group, token, _ in here if not kept(token)}
        return len(wanted - {(group, token) for group, token, attempt in here if attempt > 1})


def kept(token: int) -> bool:
    """Return whether a message is acknowledged at its first attempt."""
    return token % OF not in (NACKED, HELD)


def missing(history: History, skipped: set[int]) -> int:
    """Return how many deliveries are missing, but for messages that were cancelled for SLOW alone."""
    lost = deliveries.lost(history, GROUPS)
    return sum(group != SLOW or sent.token not in skipped for group, sent in lost)


async def run(folder: Path, messages: int, spread_ms: int, kills: int) -> dict[str, Any]:
    """Do it all; return the truth."""
    load = Workload(messages, TOPICS, spread_ms, delay_ms_max=4_000, cancel_share=0.02)
    async with Cluster(3, folder) as cluster:
        traffic = Careless(cluster.connect(receipts=folder / "receipts"), lease_ms=LEASE_MS)
        changes = LedgerChanges(traffic, max(10, messages // 50))

        async def left() -> int | None:
            return len(traffic.history.delivered) if missing(traffic.history, changes.skipped) else None

        async with traffic.client, AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
            await changes.prepare(GROUPS)
            await stack.enter_async_context(traffic.consuming((*TOPICS, CHANGED, LATE), GROUP))
            producing = tasks.create_task(traffic.produce(plan(load)))
            changing = tasks.create_task(changes.play(kept))
            for _ in range(kills):
                await asyncio.sleep(spread_ms / 1_000 / (kills + 1))
                leader = await cluster.leader()
                cluster.kill(leader)
                console.print(f"kill -9 {leader}, {len(traffic.history.delivered):,} delivered so far")
                await cluster.leader()
                cluster.start(leader)
            await changing
            await stack.enter_async_context(traffic.consuming((LATE, IDLE), SLOW))
            await producing
            await patiently(left, PATIENCE_S)
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
        "missing": missing(history, changes.skipped),
        "early": len({one.token for one in deliveries.early(history)}),
        "cancelled_delivered": len({one.token for one in deliveries.delivered_after_cancel(history)}),
        "kills": kills,
        "cancelled": len({one.token for one in history.cancelled if one.certain}),
        "cancelled_perhaps": len({one.token for one in history.cancelled}),
        "cancelled_released": changes.cancelled_released,
        "cancelled_for_slow": len(changes.skipped),
        "changes": len(history.operations),
        "changed": sum(one.outcome in DONE for one in history.operations),
        "repeated": len(history.repeated),
        "repeated_otherwise": sum(one.first_id != one.second_id for one in history.repeated),
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
