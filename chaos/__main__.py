"""`python -m tarry.chaos`: plays scenarios against real clusters and says what was kept and what was broken.

Lines while it goes on, an HTML report at the end, and as the last line one JSON object. Exit code 1 where a
promise was broken; what this machine cannot do is skipped, with the reason.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tarry.proto.extras import require

require("chaos")

from tarry.chaos.cluster.toxiproxy import NoToxiproxy
from tarry.chaos.report.page import Report
from tarry.chaos.report.summary import summary, table, too_slow
from tarry.chaos.run import Run
from tarry.chaos.scenario import SCENARIOS, Scenario
from tarry.chaos.scenarios.explore import explored
from tarry.chaos.traffic.load import LOADS
from tarry.chaos.verdict import BUSY, Verdict, judge
from tarry.client.local.cluster import LocalClusterError
from tarry.proto.grpc_loop import GrpcEventLoop

console = Console(stderr=True, highlight=False, soft_wrap=True)
for name in (
    "processes",
    "networks",
    "disks",
    "members",
    "clocks",
    "packets",
    "moments",
    "abuse",
    "upgrades",
    "recovery",
    "power",
    "cancels",
    "changes",
    "idempotency",
    "recurring",
    "transactions",
    "rocketmq",
    "forgotten",
    "delays",
):
    import_module(f"tarry.chaos.scenarios.{name}")


def play(
    scenario: Scenario,
    seed: int,
    folder: Path,
    report: Report,
    runner: asyncio.Runner | None = None,
    load: str = "",
    *,
    kept: bool = False,
) -> Verdict:
    """Play one scenario in `folder`, add it to the report if it was not skipped, and return the verdict.

    `load`: the name of a load that replaces the one drawn from the seed. `kept`: somebody reads the nodes'
    folders afterwards: at the end these are told to end, and not killed, so that their ledgers are closed.

    The history of a broken run stays in the folder, as `history.json`. gRPC needs one event loop for the
    whole process: pass the same `runner` for every scenario.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lacking = [reason for need in scenario.needs if (reason := need())]
    if lacking:
        return Verdict(scenario.name, seed, skipped="; ".join(lacking))
    started = time.monotonic()

    def say(text: str) -> None:
        console.print(f"  [dim]{time.monotonic() - started:6.1f} s[/]  {text}")

    try:
        run = Run(scenario, folder, seed, say, load, kept=kept)
    except NoToxiproxy as error:
        return Verdict(scenario.name, seed, skipped=str(error))
    say(f"load: {run.traffic.what}")
    try:
        (runner.run if runner else asyncio.run)(run.play())
    except LocalClusterError as error:
        run.complaints.append(f"the cluster did not come back: {error}")
    verdict = judge(run, time.monotonic() - started)
    report.add(scenario, verdict, run)
    if verdict.broken:
        (folder / "history.json").write_text(json.dumps(asdict(run.history)))
    return verdict


def print_verdict(verdict: Verdict) -> None:
    """Print one line for a run, and what was broken below it."""
    if verdict.skipped:
        console.print(f"[yellow]skip[/]  {verdict.scenario}: {verdict.skipped}")
        return
    mark = "[green]kept[/]" if verdict.passed else "[bold red]BROKEN[/]"
    more = f", failover {verdict.failovers_ms} ms" if verdict.failovers_ms else ""
    if verdict.failovers_from_majority_ms:
        more += f", failover {verdict.failovers_from_majority_ms} ms from when there was a majority"
    if verdict.unprovoked:
        more += f", {verdict.unprovoked} leaders lost without a fault of ours (a busy machine)"
    if verdict.left_out:
        more += f", without {', '.join(verdict.left_out)}"
    if verdict.not_judged:
        more += f", {verdict.not_judged} not judged"
    console.print(
        f"{mark}  {verdict.scenario} ({verdict.traffic}): {verdict.acknowledged} acknowledged, "
        f"{verdict.delivered} delivered, {verdict.duplicates} duplicates, "
        f"unavailable {verdict.unavailable_ms} ms, lateness p50/p99 "
        f"{verdict.lateness_p50_ms}/{verdict.lateness_p99_ms} ms{more}, {verdict.seconds} s"
    )
    for each in verdict.broken:
        console.print(f"        {each}", markup=False)
    for each in verdict.unjudged:
        console.print(f"        not judged, at {verdict.load} processes a core: {each}", markup=False)


def main(
    scenario: Annotated[str, typer.Option(help="Names, with commas between them; empty: all.")] = "",
    minutes: Annotated[float, typer.Option(min=0, help="Explore for so long instead.")] = 0,
    runs: Annotated[int, typer.Option(min=0, help="Explore so many runs instead.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the traffic, and of the first run of an exploration.")] = 1,
    load: Annotated[str, typer.Option(help="light, singles or bulk; empty: what the seed draws.")] = "",
    keep: Annotated[Path | None, typer.Option(help="Keep the nodes' folders and logs here.")] = None,
    report: Annotated[Path, typer.Option(help="Where the HTML report goes.")] = Path("out/chaos.html"),
    list_: Annotated[bool, typer.Option("--list", help="Name the scenarios and what they do.")] = False,
) -> None:
    """Play scenarios, or explore. Exit code 1 where a promise was broken."""
    if list_:
        for each in SCENARIOS.values():
            print(f"{each.name:32} {each.what}")
        return
    unknown = {name for name in scenario.split(",") if name} - SCENARIOS.keys()
    if unknown:
        console.print(f"no such scenario: {', '.join(sorted(unknown))}; --list names them")
        raise typer.Exit(2)
    if load and load not in LOADS:
        console.print(f"no such load: {load}; there are {', '.join(LOADS)}")
        raise typer.Exit(2)
    page = Report("tarry under chaos")
    verdicts: list[Verdict] = []
    what: dict[str, str] = {}
    with asyncio.Runner(loop_factory=GrpcEventLoop) as runner:
        for number, one in enumerate(_chosen(scenario, minutes, runs, seed)):
            console.print(f"[bold]{number + 1}[/]  {one.name}: {one.what}")
            with _folder(one.name, keep) as folder:
                verdict = play(one, _seed_of(one, seed), folder, page, runner, load, kept=keep is not None)
            if verdict.skipped:
                page.skipped(verdict)
            print_verdict(verdict)
            verdicts.append(verdict)
            what[one.name] = one.what
    page.write(report)
    report.with_suffix(".md").write_text(table(verdicts, what), encoding="utf-8")
    console.print(f"report: {report}, and its table: {report.with_suffix('.md')}")
    for verdict in verdicts:
        if not verdict.passed and not verdict.skipped:
            console.print(f"again: {_command(verdict, load)}")
    figures = summary(verdicts)
    slow, busy = too_slow(figures), max((verdict.load for verdict in verdicts), default=0.0) > BUSY
    for beyond in slow:
        console.print(f"{'not judged, on a busy machine: ' if busy else 'BROKEN  '}{beyond}", markup=False)
    if busy:
        figures["not_judged"] = (figures["not_judged"] or 0) + len(slow)
    print(json.dumps(figures))
    raise typer.Exit(1 if any(verdict.broken for verdict in verdicts) or (slow and not busy) else 0)


@contextmanager
def _folder(name: str, keep: Path | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="tarry-chaos-") as folder:
            yield Path(folder)
    else:
        keep.mkdir(parents=True, exist_ok=True)
        kept = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=keep))
        yield kept
        if not any(kept.iterdir()):  # of a scenario that was skipped
            kept.rmdir()


def _seed_of(scenario: Scenario, seed: int) -> int:
    """Return the seed of the traffic: an explored scenario has its own, so that it can be replayed."""
    kind, _, number = scenario.name.partition("-")
    return int(number) if kind == "explore" else seed


def _chosen(names: str, minutes: float, runs: int, seed: int) -> Iterator[Scenario]:
    if not minutes and not runs:
        yield from (SCENARIOS[name] for name in (names.split(",") if names else SCENARIOS))
        return
    until, number = time.monotonic() + minutes * 60, 0
    while number < runs or time.monotonic() < until:
        yield explored(seed + number)
        number += 1


def _command(verdict: Verdict, load: str) -> str:
    explored = verdict.scenario not in SCENARIOS
    what = "chaos-explore RUNS=1" if explored else f"chaos SCENARIO={verdict.scenario}"
    more = f' ARGS="--load {load}"' if load else ""
    return f"make {what} SEED={verdict.seed}{more}"


if __name__ == "__main__":
    typer.run(main)
