"""The work that every system is given, one turn at a time."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import numpy as np

from tarry.bench.side_by_side.cpu import Meter
from tarry.bench.side_by_side.messages import Account, Verdict
from tarry.bench.side_by_side.system import System

HOUR_MS = 3_600_000
BODY_BYTES = 100
CANCELLED, CANCEL_S = 5_000, 2.0
PEEK = 200
SETTLE_S = 1.5
"""Time for compaction and trimming in the background."""
SETTLE_LOOKS = 6
"""At the memory meanwhile."""
MADE_AT_ONCE = 500
SLOW_PER_S = 25_000
"""A system that takes fewer a second is slow, and gets less to do."""
SLOW_MASS_S = 1.5
"""A slow system's mass expiry is as many messages as it takes in so long."""
SLOW_SHARE = 3
"""A slow system is filled for one part in so many of the time a fast one may have."""
COUNTS_MAX = 20
LEAD_MS = 1_000
"""Time from the sending of a steady row's messages to their due time."""
STEP_MS = 50
BEHIND_MS_MAX = 1_000
"""Greatest delay of a steady row's answers behind the due times; beyond it, the system does not keep up."""
_numbers = itertools.count(1)
_ids = itertools.count(1, 1 << 32)


@dataclass(frozen=True, slots=True)
class Turn:
    """Result of one turn of one row on one system."""

    figures: dict[str, float]
    verdict: Verdict = field(default_factory=Verdict)


async def _lane(system: System, row: str) -> str:
    lane = f"{row}-{next(_numbers)}"
    await system.open(lane)
    return lane


def _account(size: int) -> Account:
    return Account(next(_ids), size)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def schedule(system: System, seconds: float, *, batch: int, size: int, in_flight: int) -> Turn:
    """Schedule batches, some in flight at once, for some seconds; due within an hour that is an hour away.

    Nothing falls due while the bench runs. What is kept afterwards is counted, and a sample compared.
    """
    lane, account = await _lane(system, f"schedule-{batch}x{size}"), _account(size)
    random = np.random.default_rng(1)
    before = await system.pending()
    meter = Meter(system)
    start = time.perf_counter()

    async def worker() -> None:
        while time.perf_counter() < start + seconds:
            due_ms = _now_ms() + HOUR_MS + random.integers(0, HOUR_MS, batch)
            await system.schedule_batch(lane, account.send(due_ms), due_ms)

    await asyncio.gather(*(worker() for _ in range(min(in_flight, system.in_flight_max))))
    figures = {"per_s": account.sent / (time.perf_counter() - start), **meter.figures(account.sent)}
    return Turn(figures, await _kept(system, lane, account, before))


async def single(system: System, seconds: float, *, tasks: int) -> Turn:
    """Schedule one message after another from each of some tasks; return the rate and the time of one."""
    lane, account = await _lane(system, f"single-{tasks}"), _account(BODY_BYTES)
    random = np.random.default_rng(1)
    before = await system.pending()
    meter = Meter(system)
    start = time.perf_counter()
    taken: list[float] = []
    ready: deque[tuple[bytes, int]] = deque()  # made in bulk, so that the turn is not spent on making bodies

    async def worker() -> None:
        while (begin := time.perf_counter()) < start + seconds:
            if not ready:
                due_ms = _now_ms() + HOUR_MS + random.integers(0, HOUR_MS, MADE_AT_ONCE)
                ready.extend(zip(account.send(due_ms), due_ms.tolist(), strict=True))
            await system.schedule(lane, *ready.popleft())
            taken.append(time.perf_counter() - begin)

    await asyncio.gather(*(worker() for _ in range(tasks)))
    account.take_back(len(ready))
    rate = account.sent / (time.perf_counter() - start)
    p50, p99 = np.percentile(taken, [50, 99]) * 1_000
    figures = {"per_s": rate, "p50_ms": float(p50), "p99_ms": float(p99), **meter.figures(account.sent)}
    return Turn(figures, await _kept(system, lane, account, before))


async def _kept(system: System, lane: str, account: Account, before: int) -> Verdict:
    """Compare the count of what is kept with what was sent, and the bodies of a sample."""
    for _ in range(COUNTS_MAX):  # some systems take a moment to count, or move messages about while they do
        more = await system.pending() - before
        if more == account.sent:
            break
        await asyncio.sleep(0.1)
    account.take(await system.peek(lane, PEEK), float("inf"))
    missing, extra = max(0, account.sent - more), max(0, more - account.sent)
    return account.verdict(all_came=False) + Verdict(lost=missing, duplicates=extra)


async def steady(system: System, share: float, *, rate: int) -> Turn:
    """Send some a second, LEAD_MS ahead, and receive them at the same time; return the lateness."""
    seconds = 2 * share
    lane, account = await _lane(system, f"steady-{rate}"), _account(BODY_BYTES)
    receiving = asyncio.ensure_future(system.receive(lane, account.take))
    meter = Meter(system)
    begin_ms = _now_ms() + 200
    per_step = rate * STEP_MS // 1_000
    within = np.arange(per_step) * STEP_MS // per_step
    behind_ms = 0.0
    for step in range(int(seconds * 1_000 / STEP_MS)):
        at_ms = begin_ms + step * STEP_MS
        await asyncio.sleep(max(0.0, (at_ms - time.time_ns() / 1e6) / 1_000))
        due_ms = at_ms + LEAD_MS + within
        for start in range(0, per_step, system.batch_max):
            part = due_ms[start : start + system.batch_max]
            await system.schedule_batch(lane, account.send(part), part)
        behind_ms = max(behind_ms, time.time_ns() / 1e6 - at_ms - LEAD_MS)
        if behind_ms > BEHIND_MS_MAX:
            receiving.cancel()
            await asyncio.wait([receiving])
            took_s = (time.time_ns() / 1e6 - begin_ms) / 1_000
            raise RuntimeError(f"takes {account.sent / took_s:,.0f} a second of {rate:,}")
    account.complete = True
    await _until(receiving, seconds + 30)
    spent = meter.figures(account.sent)
    late = account.lateness_ms()
    if not len(late):
        raise RuntimeError(f"delivered none of {account.sent:,} within {seconds + 30:.0f} s")
    p50, p99 = np.percentile(late, [50, 99])
    figures = {"p50_ms": float(p50), "p99_ms": float(p99), "max_ms": float(late.max(initial=0)), **spent}
    if behind_ms > 0:  # answered after it was due: the lateness is that of the sending, too
        figures["sent_late_ms"] = behind_ms
    return Turn(figures, account.verdict())


async def mass(system: System, _: float, *, count: int) -> Turn:
    """Have some due at one instant; return the seconds from then to the last acknowledgement.

    A slow system gets fewer (`messages`), and its seconds are `scaled` up, as if it went on at the same rate.
    """
    lane, account = await _lane(system, "mass"), _account(BODY_BYTES)
    probe = await schedule(system, 0.3, batch=system.batch_max, size=BODY_BYTES, in_flight=4)
    rate = probe.figures["per_s"]  # roughly what the system takes
    wanted = count
    if system.fewer_when_slow and rate < SLOW_PER_S:
        batches = min(count, int(rate * SLOW_MASS_S)) // system.batch_max
        count = max(1, batches) * system.batch_max
    due = _now_ms() + int(count / rate * 1_500) + 1_500
    due_ms = np.full(system.batch_max, due, np.int64)
    receiving = asyncio.ensure_future(system.receive(lane, account.take))
    parts = iter(range(-(-count // system.batch_max)))

    async def worker() -> None:
        for _ in parts:
            part = due_ms[: count - account.sent]
            await system.schedule_batch(lane, account.send(part), part)

    await asyncio.gather(*(worker() for _ in range(4)))
    account.complete = True
    meter = Meter(system)
    if (over := _now_ms() - due) > 0:
        receiving.cancel()
        await asyncio.wait([receiving])
        raise RuntimeError(f"scheduling {count} took {over} ms longer than foreseen")
    await _until(receiving, 45)
    scaled = wanted / count
    figures = {"s": (time.time() - due / 1_000) * scaled, "messages": float(count), "scaled": scaled}
    figures |= meter.figures(count)
    return Turn(figures, account.verdict())


async def cancel(system: System, _: float) -> Turn:
    """Schedule CANCELLED, or as many as CANCEL_S allow, then cancel all by id in batches; gives its rate."""
    lane, account = await _lane(system, "cancel"), _account(BODY_BYTES)
    before = await system.pending()
    random = np.random.default_rng(1)
    start_s = time.perf_counter()
    while account.sent < CANCELLED and time.perf_counter() < start_s + CANCEL_S:
        count = min(system.batch_max, CANCELLED - account.sent)
        due_ms = _now_ms() + HOUR_MS + random.integers(0, HOUR_MS, count)
        await system.schedule_batch(lane, account.send(due_ms), due_ms)
    start_s = time.perf_counter()
    cancelled = await system.cancel(lane, account.sent)
    taken_s = time.perf_counter() - start_s
    left = await system.pending() - before
    return Turn({"per_s": cancelled / taken_s}, Verdict(duplicates=max(0, left), lost=max(0, -left)))


async def failover(system: System, _: float) -> Turn:
    """Kill the leader; gives the seconds until the next message is answered for."""
    lane, account = await _lane(system, "failover"), _account(BODY_BYTES)
    due_ms = np.array([_now_ms() + HOUR_MS])
    await system.schedule_batch(lane, account.send(due_ms), due_ms)
    start = time.perf_counter()
    await system.kill_leader()
    await _patiently(lambda: system.schedule(lane, account.send(due_ms)[0], int(due_ms[0])), start + 60)
    taken_s = time.perf_counter() - start
    await system.mend()
    return Turn({"s": taken_s})


async def _patiently(attempt: Callable[[], Awaitable[None]], deadline: float) -> None:
    """Try until it is answered; whatever fails while there is no leader is tried again."""
    while True:
        trying = asyncio.ensure_future(attempt())
        await asyncio.wait([trying], timeout=1.0)
        if trying.done() and (error := trying.exception()) is None:
            return
        trying.cancel()
        if time.perf_counter() > deadline:
            raise RuntimeError("no answer in 60 s") from (error if trying.done() else None)
        await asyncio.sleep(0.01)


async def pending(system: System, share: float, *, count: int = 1_000_000, seconds: float = 8.0) -> Turn:
    """Schedule so many, or as many as `seconds` allow; gives memory and disk per message, and the restart.

    Not below a share where buffers fill and the memory of a message can be told from noise.

    Memory is that of the second half: buffers and caches that have a bound are full by then. A slow system is
    filled for a shorter time. `messages`: that are pending when it is restarted, those of earlier turns too.
    """
    share = max(share, 0.4)
    count, seconds = int(count * share), seconds * share
    await system.clear()
    lane, account = await _lane(system, "pending"), _account(BODY_BYTES)
    before = await system.pending()
    disk = await system.disk_bytes()
    memory, sent = [], []
    for messages in (count // 2, count):
        await _fill(system, lane, account, messages, seconds / 2)
        memory.append(await _settled_bytes(system))
        sent.append(account.sent)
    figures = {
        "ram_bytes": max(0.0, (memory[1] - memory[0]) / max(1, sent[1] - sent[0])),
        "disk_bytes": (await system.disk_bytes() - disk) / account.sent,
        "messages": float(before + account.sent),
    }
    await system.halt()
    start = time.perf_counter()
    await system.resume()
    figures["restart_s"] = time.perf_counter() - start
    return Turn(figures, await _kept(system, lane, account, before))


async def _settled_bytes(system: System) -> int:
    """Return the least memory of some looks: a child that compresses a file is there for a moment only."""
    looks = []
    for _ in range(SETTLE_LOOKS):
        await asyncio.sleep(SETTLE_S / SETTLE_LOOKS)
        looks.append(system.memory_bytes())
    return min(looks)


async def _fill(system: System, lane: str, account: Account, messages: int, seconds: float) -> None:
    """Schedule until so many are sent, or for `seconds`; a slow system for a part of them."""
    random = np.random.default_rng(account.sent)
    start, first = time.perf_counter(), account.sent

    async def worker() -> None:
        while account.sent < messages:
            due_ms = _now_ms() + HOUR_MS + random.integers(0, HOUR_MS, system.batch_max)
            await system.schedule_batch(lane, account.send(due_ms), due_ms)
            taken_s = time.perf_counter() - start
            slow = system.fewer_when_slow and account.sent - first < SLOW_PER_S * taken_s
            if taken_s > (seconds / SLOW_SHARE if slow else seconds):
                return

    await asyncio.gather(*(worker() for _ in range(min(32, system.in_flight_max))))


async def _until(task: asyncio.Future[None], timeout_s: float) -> None:
    """Return when the task has ended or its time is up; what has not come by then counts as lost."""
    await asyncio.wait([task], timeout=timeout_s)
    if not task.done():
        task.cancel()
        await asyncio.wait([task])
    elif (error := task.exception()) is not None:
        raise error
