"""`make demo`: three real nodes, a load of delayed messages, a leader killed in the middle of it.

    0 s ── schedule 20,000 messages with delays of 0 to 20 s, and consume them ── 20 s ── … ── 40 s
                6 s kill -9 the leader      11 s start it again      15 s transfer leadership

Each topic has a group of two consumers, who share. One message more is refused by its consumer again and
again, and comes to rest as a dead letter. What was lost or early is computed from what the producers and
consumers wrote down themselves; nothing that a node says about itself counts. Exit code 1 if either is not
zero.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from tarry.chaos.checks import deliveries, duplicates
from tarry.chaos.cluster.cluster import Cluster, mono_ms, now_ms
from tarry.chaos.traffic.traffic import Traffic, Workload, plan
from tarry.client.aio import connect
from tarry.client.errors import TarryError


@dataclass(frozen=True, slots=True)
class Times:
    """Moments of the faults, from the start of the load."""

    kill_s: float
    restart_s: float
    transfer_s: float


LOAD = Workload(
    messages=20_000, topics=("orders", "payments", "reminders"), spread_ms=20_000, delay_ms_max=20_000
)
GROUP = "demo"
MEMBERS = ("one", "two")
DOOMED = "doomed"  # the topic of a message that nobody wants
TIMES = Times(kill_s=6, restart_s=11, transfer_s=15)
PATIENCE_S = 15.0
TRANSFERS_MAX = 3  # tries
UNSTEADY_MS = 2_000
QUIET_S = 2.0  # between lines of progress where there is no terminal


@dataclass(frozen=True, slots=True)
class Result:
    """The last line of the demo."""

    scheduled: int
    acknowledged: int
    delivered: int
    lost: int
    early: int
    duplicates: int
    unmarked_duplicates: int
    unexpected: int
    lateness_p50_ms: int
    lateness_p99_ms: int
    lateness_max_ms: int
    steady_p50_ms: int  # of what was not due soon after a fault
    steady_p99_ms: int
    failover_ms: int | None
    transfer_ms: int | None  # asked to answered; none: it was refused each time
    transfer_pause_ms: int | None  # of that, how long no schedules were taken
    elections: int
    shares: dict[str, int]  # deliveries by consumer of the group
    dead_letter_attempts: int  # deliveries before it was given up; 0: it was not
    seconds: float

    @property
    def kept(self) -> bool:
        """True if the promises were kept that have no exceptions."""
        return not (self.lost or self.early)


@dataclass(slots=True)
class Demo:
    """One run on a cluster that serves."""

    cluster: Cluster
    traffic: Traffic
    load: Workload
    times: Times
    console: Console
    killed_mono_ms: int = 0
    faults_ms: list[int] = field(default_factory=list)
    transfer_ms: int | None = None
    transfer_pause_ms: int | None = None

    async def run(self) -> Result:
        started_ms = mono_ms()
        term = await self.cluster.term()
        groups = [(topic, GROUP) for topic in self.load.topics]
        async with (
            self.traffic.client,
            self.traffic.consuming(self.load.topics, GROUP, MEMBERS),
            asyncio.TaskGroup() as tasks,
        ):
            progress = tasks.create_task(self.show())
            faults = tasks.create_task(self.faults())
            letter = tasks.create_task(self.dead_letter())
            await self.traffic.produce(plan(self.load))
            await faults
            await self.traffic.drained(PATIENCE_S)
            attempts = await letter
            progress.cancel()
        history = self.traffic.history
        late = deliveries.lateness(history)
        steady = deliveries.lateness(
            history, outside=[(at_ms, at_ms + UNSTEADY_MS) for at_ms in self.faults_ms]
        )
        return Result(
            scheduled=len(history.sent),
            acknowledged=sum(1 for _ in history.acknowledged()),
            delivered=len(history.first_deliveries()),
            lost=len(deliveries.lost(history, groups)),
            early=len(deliveries.early(history)),
            duplicates=len(history.later_deliveries()),
            unmarked_duplicates=len(duplicates.unmarked(history)),
            unexpected=len(deliveries.unexpected(history)),
            lateness_p50_ms=late.p50_ms,
            lateness_p99_ms=late.p99_ms,
            lateness_max_ms=late.max_ms,
            steady_p50_ms=steady.p50_ms,
            steady_p99_ms=steady.p99_ms,
            failover_ms=deliveries.outage_ms(history, self.killed_mono_ms),
            transfer_ms=self.transfer_ms,
            transfer_pause_ms=self.transfer_pause_ms,
            elections=await self.cluster.term() - term,
            shares=dict(sorted(Counter(one.consumer for one in history.delivered).items())),
            dead_letter_attempts=attempts,
            seconds=round((mono_ms() - started_ms) / 1_000, 1),
        )

    async def faults(self) -> None:
        """Kill the leader, start it again, transfer leadership; each at its moment."""
        start_ms = mono_ms()
        leader = await self.cluster.leader()

        async def moment(at_s: float) -> None:
            await asyncio.sleep(max(0.0, at_s - (mono_ms() - start_ms) / 1_000))
            self.faults_ms.append(now_ms())

        await moment(self.times.kill_s)
        self.killed_mono_ms = self.cluster.kill(leader).at_mono_ms
        self.say(f"[bold red]kill -9[/] {leader}, the leader")
        self.say(f"{await self.cluster.leader()} leads, {mono_ms() - self.killed_mono_ms} ms later")
        await moment(self.times.restart_s)
        self.cluster.start(leader)
        self.say(f"{leader} is started again, on the data it has")
        await moment(self.times.transfer_s)
        await self.cluster.serving()
        for _ in range(TRANSFERS_MAX):
            asked_ms = mono_ms()
            try:
                answer = await self.traffic.client.operator().transfer(leader)
            except TarryError as error:  # it may be behind, or an election under way
                self.say(f"leadership not transferred to {leader}: {error}")
                await asyncio.sleep(1)
                continue
            self.transfer_ms, self.transfer_pause_ms = mono_ms() - asked_ms, answer.pause_ms
            self.say(f"leadership transferred to {answer.leader} as asked, in {self.transfer_ms} ms")
            return

    async def dead_letter(self) -> int:
        """Refuse a message until it is given up; return how often it was delivered, 0 if it never was."""
        client, attempts = self.traffic.client, 0
        await client.producer().schedule(DOOMED, b"nobody wants me", delay_ms=0)

        async def refuse() -> None:
            async with client.consumer(DOOMED, GROUP) as consumer:
                async for message in consumer:
                    await message.nack(delay_ms=0)

        refusing = asyncio.create_task(refuse())
        try:
            async with (
                asyncio.timeout(self.times.transfer_s + PATIENCE_S),
                client.consumer(f"dlq.{GROUP}.{DOOMED}", "undertaker") as dead,
            ):
                letter = await anext(dead)
                await letter.ack()
            attempts = int(letter.properties["tarry.attempts"])
            reason = letter.properties["tarry.reason"]
            self.say(f"a message refused {attempts} times rests in {letter.topic}, reason {reason}")
        except TimeoutError:
            self.say("[bold red]a message that was refused did not become a dead letter[/]")
        finally:
            refusing.cancel()
            await asyncio.gather(refusing, return_exceptions=True)
        return attempts

    def say(self, text: str) -> None:
        self.console.print(f"  [dim]{len(self.traffic.history.sent):6,} answered[/]  {text}", highlight=False)

    async def show(self) -> None:
        """Show how far it is: bars in a terminal, a line now and then elsewhere."""
        history = self.traffic.history
        if not self.console.is_terminal:
            while True:
                await asyncio.sleep(QUIET_S)
                self.say(f"{len(history.delivered):6,} delivered")
        columns = (
            TextColumn("{task.description:>10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as bars:
            scheduled = bars.add_task("scheduled", total=self.load.messages)
            delivered = bars.add_task("delivered", total=self.load.messages)
            while True:
                await asyncio.sleep(0.1)
                bars.update(scheduled, completed=len(history.sent))
                bars.update(delivered, completed=len(history.delivered))


def show_result(result: Result, console: Console) -> None:
    def good(count: int) -> str:
        return "[green]0[/]" if count == 0 else f"[bold red]{count}[/]"

    table = Table("what", "figure", title="what the producers and consumers saw")
    table.add_row("scheduled / acknowledged", f"{result.scheduled:,} / {result.acknowledged:,}")
    table.add_row("delivered", f"{result.delivered:,}")
    table.add_row("lost", good(result.lost))
    table.add_row("early", good(result.early))
    table.add_row("duplicates", f"{result.duplicates} ({result.unmarked_duplicates} of them not marked)")
    table.add_row(
        "lateness p50 / p99 / max",
        _ms(result.lateness_p50_ms, result.lateness_p99_ms, result.lateness_max_ms),
    )
    table.add_row(
        f"the same p50 / p99, but for {UNSTEADY_MS // 1_000} s after each fault",
        _ms(result.steady_p50_ms, result.steady_p99_ms),
    )
    table.add_row("kill -9 to next acknowledged schedule", _ms(result.failover_ms))
    moved = _ms(result.transfer_ms, result.transfer_pause_ms)
    table.add_row("planned transfer, of that without schedules", moved)
    table.add_row("elections", str(result.elections))
    shares = " / ".join(f"{share:,}" for share in result.shares.values())
    table.add_row(f"shares of the group's consumers {' and '.join(result.shares)}", shares)
    table.add_row(f"deliveries of the message in dlq.{GROUP}.{DOOMED}", str(result.dead_letter_attempts))
    console.print(table)


def _ms(*values: int | None) -> str:
    return " / ".join("never" if value is None else f"{value:,} ms" for value in values)


async def run(load: Workload, times: Times, console: Console) -> Result:
    with tempfile.TemporaryDirectory(prefix="tarry-demo-") as folder:
        console.print(f"starting three nodes in {folder}", highlight=False)
        async with Cluster(3, Path(folder)) as cluster:
            console.print(
                f"scheduling {load.messages:,} messages, delays 0 to {load.delay_ms_max // 1_000} s"
            )
            traffic = Traffic(connect(cluster.addresses), load.body_bytes)
            async with pages(cluster.addresses, console):
                return await Demo(cluster, traffic, load, times, console).run()


@asynccontextmanager
async def pages(servers: str, console: Console) -> AsyncIterator[None]:
    """Serve the console beside the cluster, on a free port, and print where it is."""
    command = (sys.executable, "-m", "tarry.node", "console", "-o", "json")
    process = await asyncio.create_subprocess_exec(
        *command, "--listen", "127.0.0.1:0", "--server", servers, stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        if line:
            console.print(f"watch it at {json.loads(line)['url']} while this runs", highlight=False)
        yield
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def main(load: Workload = LOAD, times: Times = TIMES) -> int:
    """Run it, print what came of it, and return the exit code."""
    console = Console()
    result = asyncio.run(run(load, times, console))
    show_result(result, console)
    print(json.dumps(asdict(result)), flush=True)
    return 0 if result.kept else 1


if __name__ == "__main__":
    sys.exit(main())
