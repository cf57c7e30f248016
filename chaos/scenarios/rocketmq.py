"""RocketMQ's own clients at gateways while leaders, or gateways, die."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from tarry.chaos.checks.deliveries import lateness
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.rocketmq import GATEWAYS, REPEAT_NOTHING, Clients, no_clients

KILLS: Final = 3
BETWEEN_S: Final = (1.0, 2.5)


@scenario(loads=("light",), rough=False, needs=(no_clients,))
async def rocketmq_clients_leader_killed(run: Run) -> None:
    """RocketMQ's own clients of five languages at two gateways: SIGKILL of the leader, thrice."""
    chance = random.Random(f"{run.seed} rocketmq")
    async with _clients(run) as clients:
        for _ in range(KILLS):
            await run.crash(await run.leader(), away_s=1)
            await run.serving()
            await run.during(chance.uniform(*BETWEEN_S))
        await clients.end()
    # none repeats a recall
    repeated = [f"{language} send" for language in clients.languages if language not in REPEAT_NOTHING]
    sends = {name: count for name in repeated if (count := clients.failed[name])}
    run.expect(not sends, f"messages without an answer: {sends}", timed=True)


@scenario(loads=("light",), rough=False, needs=(no_clients,))
async def rocketmq_clients_gateway_killed(run: Run) -> None:
    """RocketMQ's own clients of five languages at two gateways: SIGKILL of each, twice."""
    chance = random.Random(f"{run.seed} gateways")
    async with _clients(run) as clients:
        for number in [*range(GATEWAYS)] * 2:
            run.say(f"SIGKILL of gateway {number + 1}")
            await clients.restart_gateway(number, away_s=1)
            await run.during(chance.uniform(*BETWEEN_S))
        await clients.end()


@asynccontextmanager
async def _clients(run: Run) -> AsyncIterator[Clients]:
    """Have clients of all languages go on meanwhile; what they complain of is the run's complaint."""
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    clients = Clients(run.history.gateway, run.cluster.local.folder)
    run.left_out += clients.left_out
    for language, why in clients.left_out.items():
        run.say(f"without {language}: {why}")
    async with clients.going_on(run.cluster.addresses):
        run.say(f"clients of {', '.join(clients.languages)}")
        await run.during(2)
        yield clients
    run.complaints += clients.complaints
    in_time = any(one.certain for one in run.history.gateway.cancelled)
    run.expect(in_time, "no recall was in time: nothing is shown of them", timed=True)
    _tell(run, clients)


def _tell(run: Run, clients: Clients) -> None:
    seen, failed = run.history.gateway, +clients.failed
    late, recalled = lateness(seen.history()), len({one.token for one in seen.cancelled})
    again = sum(one.attempt > 1 for one in seen.delivered)
    marked = sum(one.maybe_duplicate for one in seen.delivered)
    run.say(
        f"{len(seen.sent)} sent, {recalled} recalled, {clients.late_recalls} recalls too late, "
        f"{len(seen.delivered)} deliveries ({again} of a later attempt, {marked} marked), "
        f"lateness p50/p99 {late.p50_ms}/{late.p99_ms} ms, failed {dict(failed)}"
    )
