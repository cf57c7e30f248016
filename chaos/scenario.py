"""A scenario: a cluster, a load, what is done to the cluster meanwhile, and what is then allowed.

The functions in `tarry.chaos.scenarios` register themselves with `scenario`. A name is for ever: it stands in
replay commands and in the table of bugs found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tarry.chaos.traffic.load import LOADS
from tarry.chaos.traffic.rate import Pace
from tarry.client.local.cluster import Setting

Play = Callable[[Any], Awaitable[None]]
"""Takes a ``tarry.chaos.run.Run``, which imports this module."""
Need = Callable[[], str]
"""Returns why this machine cannot do it; empty: it can."""

SHORT_JOURNAL: Mapping[str, Setting] = {"dispatch": {"checkpoint_ms": 300, "journal_retained_bytes": 1 << 16}}
"""Settings by which a follower that was away for a moment takes a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is played, on what."""

    name: str
    play: Play
    what: str
    nodes: int = 3
    settings: Mapping[str, Setting] = field(default_factory=dict)
    pace: Pace = field(default_factory=Pace)
    needs: tuple[Need, ...] = ()
    prepare: Callable[[Any], None] = lambda run: None
    """Before the nodes are started."""
    ahead_ms: Callable[[], int] = lambda: 0
    """How far the clocks of all nodes are set ahead; asked at the start."""
    wired: bool = False
    """Each node in a network namespace of its own, instead of links through proxies."""
    rough: bool = True
    """With the group of those who nack, are slow, pull, come and go."""
    patience_ms: int = 3_000
    """After which what is due and can come is stuck."""
    travel_ms: int = 100
    """What a delivery may take on its way."""
    tolerance_ms: int = 0
    """How exact cluster time is while a leader's own clock is wrong: it then rests on round trips."""
    set_back_ms: int = 0
    """How far all clocks are set back: what is due within that is released as soon as it is taken."""
    unavailable_ms_max: int | None = None
    duplicates_max: int | None = None
    loads: tuple[str, ...] = tuple(LOADS)
    """Which of the loads it is played under; a run's seed draws one."""
    fast: bool = False
    """Part of `make test`."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(
    *,
    needs: tuple[Need, ...] = (),
    **settings: object,
) -> Callable[[Play], Play]:
    """Register a function as the scenario of its name; its docstring says what is done."""

    def register(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        if name in SCENARIOS:
            raise ValueError(f"two scenarios are called {name}")
        what = " ".join((play.__doc__ or "").split())
        SCENARIOS[name] = Scenario(name=name, play=play, what=what, needs=needs, **settings)  # type: ignore[arg-type]
        return play

    return register
