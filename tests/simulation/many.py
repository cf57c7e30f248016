"""Many seeds of both worlds, on all cores, in fresh processes; and their sum."""

from __future__ import annotations

import logging
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Final

from tests.simulation.ablations import ablated
from tests.simulation.outcome import COUNTED, Outcome
from tests.simulation.seeds import simulate
from tests.simulation.whole_seeds import simulate_whole


def world_of(seed: int, world: str) -> str:
    """Return the world that a seed is of, where both are asked for."""
    return ("node", "consensus")[seed % 2] if world == "both" else world


def run(seed: int, world: str, seconds: float, ablation: str) -> Outcome:
    """Whole nodes cost more: they run half as long."""
    with ablated(ablation):
        if world_of(seed, world) == "consensus":
            return simulate(seed, seconds)
        return simulate_whole(seed, seconds / 2)


def outcomes(seeds: Iterable[int], world: str, seconds: float, ablation: str = "") -> Iterator[Outcome]:
    """In whatever order they end."""
    # Fresh processes: a fork would copy the threads' locks of whatever runs in this one.
    quiet = logging.disable  # in them: the engine says what it notices
    with multiprocessing.get_context("spawn").Pool(initializer=quiet) as pool:
        work = partial(run, world=world, seconds=seconds, ablation=ablation)
        yield from pool.imap_unordered(work, seeds)


CLASSES: Final = {
    "changes of members": "membership_changes",
    "full disks, journal": "disks full",
    "full disks, state": "state disks full",
    "rot, journal": "rotten journals",
    "rot, state": "rotten",
    "lost disks": "emptied",
    "losses of power, async": "power lost",
    "clocks that drift": "clocks drifting",
    "clocks that drift away": "drifted away",
    "versions exchanged": "version exchanged",
    "levels raised": "levels raised",
    "hours thinned": "hours thinned",
    "records on disk only": "cold records",
}
"""Of faults that no seed is without for which its world has nodes enough, as they are counted."""
OF_WHOLE_NODES: Final = frozenset(
    (
        *("full disks, state", "rot, state", "clocks that drift away"),
        *("versions exchanged", "levels raised", "hours thinned", "records on disk only"),
    )
)
"""Of them, those that the other world does not have: a toy state has no files, no times and no levels."""
SEEDS_ENOUGH: Final = 200
"""That have every class among them."""


def classes(seen: Iterable[Outcome]) -> Iterator[str]:
    """Yield a line for each class of faults and each world: how often, and in how many seeds."""
    seen = list(seen)
    for world in ("consensus", "node"):
        here = [outcome for outcome in seen if outcome.world == world]
        for told, name in CLASSES.items():
            hit = [outcome for outcome in here if outcome.counts.get(name)]
            if hit:
                least = min(outcome.counts["nodes"] for outcome in hit)
                able = sum(outcome.counts["nodes"] >= least for outcome in here)
                times = sum(outcome.counts[name] for outcome in hit)
                yield f"{world}: {told} {times}, in {len(hit)} of {able} seeds of {least} or more nodes"


def missing(seen: Iterable[Outcome]) -> list[str]:
    """Return the classes of faults that no seed of a world has had, of the worlds that have them at all."""
    seen = list(seen)
    return [
        f"{world}: {told}"
        for told, name in CLASSES.items()
        for world in ("consensus", "node")
        if not (world == "consensus" and told in OF_WHOLE_NODES)
        and any(outcome.world == world for outcome in seen)
        and not any(outcome.counts.get(name) for outcome in seen if outcome.world == world)
    ]


def summary(seen: Iterable[Outcome], wall_s: float) -> dict[str, float]:
    """All numbers are sums over what was run."""
    seen = list(seen)
    total: Counter[str] = Counter()
    for outcome in seen:
        total.update(outcome.counts)
    return {
        "seeds": len(seen),
        "violations": sum(outcome.failure is not None for outcome in seen),
        "acknowledged": sum(outcome.acknowledged for outcome in seen),
        "lost": sum(outcome.lost for outcome in seen),
        **{name: total[name] for name in COUNTED},
        "virtual_hours": round(sum(outcome.virtual_s for outcome in seen) / 3600, 2),
        "wall_s": round(wall_s, 1),
    }
