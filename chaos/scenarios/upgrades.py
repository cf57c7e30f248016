"""Nodes of the last release and of this code in one cluster: upgraded in turn, killed, taken back."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from pathlib import Path

from tarry.chaos.cluster import releases
from tarry.chaos.run import Run
from tarry.chaos.scenario import scenario
from tarry.chaos.traffic.rate import Rates
from tarry.client.local.cluster import LocalNode
from tarry.client.operators.upgrade_status import UpgradeStatus, upgrade_status
from tarry.proto.version import VERSION

OLD = "0.2.0"
NEEDS = (partial(releases.lacking, OLD),)
BY_HAND = {"upgrade": {"finish": "manual"}}
NO_KEYS = Rates(by_key_share=0)
"""A leader of the old version takes each message whatever its idempotency key."""
SOON_MS = 6_000
WAITING = 500
RAISED_S = 15.0
REFUSES_S = 15.0
READERS = "lock.mdb"
"""LMDB's table of who reads now, in no durable format; whoever opens a file of LMDB writes it."""


def _all_old(run: Run) -> None:
    for node in run.cluster.local.nodes.values():
        releases.release(OLD).put_on(node)


@scenario(needs=NEEDS, prepare=_all_old, rates=NO_KEYS, duplicates_max=0, unavailable_ms_max=500)
async def upgrade(run: Run) -> None:
    """Three nodes of 0.2.0, each in turn stopped and started with this code, the leader after a transfer."""
    await _messages_of_old(run)
    await _upgrade_all(run)
    await _expect_raised(run)
    await run.during(1)
    await _expect_all_waiting(run)


@scenario(needs=NEEDS, prepare=_all_old, rates=NO_KEYS, settings=BY_HAND)
async def upgrade_and_crashes(run: Run) -> None:
    """The same, one node taken back to 0.2.0 in between, and SIGKILL of the leader after each restart."""
    await _messages_of_old(run)
    first, second = await run.followers()
    last = await run.leader()
    for name, old in ((first, False), (first, True), (first, False), (second, False), (last, False)):
        await _restart(run, name, old=old)
        await run.crash(await run.leader())
        await run.serving()
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    await _expect_raised(run)
    await run.crash(await run.leader())
    await run.serving()
    await _expect_all_waiting(run)


@scenario(needs=NEEDS, prepare=_all_old, rates=NO_KEYS, settings=BY_HAND)
async def downgrade_refused(run: Run) -> None:
    """After an upgrade the level is raised; 0.2.0 refuses the data of a killed and of a stopped node."""
    await _messages_of_old(run)
    await _upgrade_all(run)
    killed, stopped = await run.followers()
    run.say(f"level {await run.client.operator().finish_upgrade()}")
    async with run.disturbed("crash", killed):  # most often before a checkpoint of the level
        run.cluster.kill(killed)
        await _expect_refused(run, killed, "the other nodes run")
        await _start_new(run, killed)
    await _expect_raised(run)
    await run.cluster.stop(stopped)
    kept = _contents(run.cluster.local.nodes[stopped])
    await _expect_refused(run, stopped, "where the other nodes run this one, use --rejoin")
    changed = dict(_contents(run.cluster.local.nodes[stopped]).items() ^ kept.items())
    run.expect(not changed, f"{OLD} changed {', '.join(map(str, changed))}")
    await _start_new(run, stopped)
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


async def _upgrade_all(run: Run) -> None:
    for name in [*await run.followers(), await run.leader()]:
        await _restart(run, name, old=False)
        await run.during(1)


async def _restart(run: Run, name: str, *, old: bool) -> None:
    """Have a node run the old release or this code, as an operator would: transfer, SIGTERM, start."""
    if name == await run.leader():
        await run.transfer()
    run.say(f"restart {name} with {OLD if old else 'this code'}")
    await run.cluster.stop(name)
    if old:
        releases.release(OLD).put_on(run.cluster.local.nodes[name])
        run.cluster.start(name)
        await run.serving()
    else:
        await _start_new(run, name)


async def _start_new(run: Run, name: str) -> None:
    releases.take_off(run.cluster.local.nodes[name])
    run.cluster.start(name)
    await run.serving()


async def _expect_raised(run: Run) -> None:
    """Expect that every node soon has the highest level that all can apply, which is above the release's."""
    until = time.monotonic() + RAISED_S
    found: UpgradeStatus | None = None
    while time.monotonic() < until:
        found = upgrade_status(await run.client.operator().status_of_all())
        if found is not None and found.level > 1 and found.level == found.next_level and not found.missing:
            versions = {member.version for member in found.members}
            run.expect(versions == {VERSION}, f"the nodes say that they are {versions}, not {VERSION}")
            return
        await run.during(0.2)
    run.expect(False, f"{RAISED_S:.0f} s after the last node was upgraded the level is not raised: {found}")


async def _expect_refused(run: Run, name: str, text: str) -> None:
    """Expect that the old release ends with exit code 3 on the data of an ended node, and says what to do."""
    node = run.cluster.local.nodes[name]
    releases.release(OLD).put_on(node)
    run.say(f"start {name} with {OLD}")
    run.cluster.start(name)
    ended = await run.ended(name, REFUSES_S)
    code = node.process.returncode if node.process is not None else None
    run.expect(ended and code == 3, f"{OLD} was not refused the data of {name}: exit code {code}")
    if not ended:
        run.cluster.kill(name)
    run.expect(text in node.log_tail(), f"{OLD} does not say what to do: {node.log_tail(3)}")


def _contents(node: LocalNode) -> dict[Path, str]:
    """Return a hash of each file of a node's data."""
    return {
        path: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in node.folder.rglob("*")
        if path.is_file() and path.name != READERS
    }
