"""Nodes of the last release and of this code in one cluster: upgraded in turn, killed, taken back."""

from __future__ import annotations

from functools import partial

from tarry.chaos.cluster import releases
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario

OLD = "0.2.0"
NEEDS = (partial(releases.lacking, OLD),)
SOON_MS = 6_000
WAITING = 500


def _all_old(run: Run) -> None:
    for node in run.cluster.local.nodes.values():
        releases.release(OLD).put_on(node)


@scenario(needs=NEEDS, prepare=_all_old, duplicates_max=0, unavailable_ms_max=500)
async def upgrade(run: Run) -> None:
    """Three nodes of 0.2.0, each in turn stopped and started with this code, the leader after a transfer."""
    await _messages_of_old(run)
    for name in [*await run.followers(), await run.leader()]:
        await _restart(run, name, old=False)
        await run.during(1)
    await _expect_all_waiting(run)


@scenario(needs=NEEDS, prepare=_all_old)
async def upgrade_and_crashes(run: Run) -> None:
    """The same, one node taken back to 0.2.0 in between, and SIGKILL of the leader after each restart."""
    await _messages_of_old(run)
    first, second = await run.followers()
    last = await run.leader()
    for name, old in ((first, False), (first, True), (first, False), (second, False), (last, False)):
        await _restart(run, name, old=old)
        await run.crash(await run.leader())
        await run.serving()
    await _expect_all_waiting(run)


async def _messages_of_old(run: Run) -> None:
    """Schedule messages through nodes of the old release: some due during the upgrade, some left pending."""
    versions = {status.version for status in run.cluster.local.statuses()}
    run.expect(versions == {OLD}, f"the nodes say that they are {versions}, not {OLD}")
    await run.fill(WAITING, delay_ms=SOON_MS, delivered=True)
    await run.fill(WAITING)


async def _expect_all_waiting(run: Run) -> None:
    topics = (await run.client.operator().status()).topics
    pending = sum(topic.pending for topic in topics if topic.topic == "bulk")
    run.expect(pending == WAITING, f"of {WAITING} messages scheduled at {OLD}, {pending} are pending")


async def _restart(run: Run, name: str, *, old: bool) -> None:
    """Have a node run the old release or this code, as an operator would: transfer, SIGTERM, start."""
    if name == await run.leader():
        await run.transfer()
    run.say(f"restart {name} with {OLD if old else 'this code'}")
    await run.cluster.stop(name)
    node = run.cluster.local.nodes[name]
    if old:
        releases.release(OLD).put_on(node)
    else:
        releases.take_off(node)
    run.cluster.start(name)
    await run.serving()
