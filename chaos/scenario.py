"""A scenario: a cluster, a load, what is done to the cluster meanwhile, and what is then allowed.

The functions in `tarry.chaos.scenarios` register themselves with `scenario`. A name is for ever: it stands in
replay commands and in the table of bugs found.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tarry.chaos.traffic.load import LOADS
from tarry.chaos.traffic.rate import Rates
from tarry.client.local.cluster import Setting

Play = Callable[[Any], Awaitable[None]]
"""Takes a ``tarry.chaos.run.Run``, which imports this module."""
Need = Callable[[], str]
"""Returns why this machine cannot do it; empty: it can."""

SHORT_JOURNAL: Mapping[str, Setting] = {"dispatch": {"checkpoint_ms": 300, "journal_retained_bytes": 1 << 16}}
"""Settings by which a follower that was away for a moment takes a snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A scenario: its function, its cluster, and the limits for its checks."""

    name: str
    play: Play
    what: str
    nodes: int = 3
    settings: Mapping[str, Setting] = field(default_factory=dict)
    rates: Rates = field(default_factory=Rates)
    needs: tuple[Need, ...] = ()
    prepare: Callable[[Any], None] = lambda run: None
    """Before the nodes are started."""
    ahead_ms: Callable[[], int] = lambda: 0
    """Milliseconds by which the clocks of all nodes are ahead; called at the start."""
    namespaces: bool = False
    """Each node in a network namespace of its own, instead of links through proxies."""
    rough: bool = True
    """With the group of those who nack, are slow, pull, come and go."""
    patience_ms: int = 3_000
    """Time after which a due message that can be delivered counts as stuck."""
    travel_ms: int = 100
    """Greatest time of a delivery on its way."""
    tolerance_ms: int = 0
    """Error of cluster time while a leader's own clock is wrong: it then rests on round trips."""
    set_back_ms: int = 0
    """Time by which all clocks are set back: messages due within it are released at once."""
    unavailable_ms_max: int | None = None
    duplicates_max: int | None = None
    loads: tuple[str, ...] = tuple(LOADS)
    """Names of the loads; a run's seed draws one."""
    fast: bool = False
    """Part of `make test`."""


SCENARIOS: dict[str, Scenario] = {}


def scenario(**settings: Any) -> Callable[[Play], Play]:
    """Register a function as the scenario of its name; its docstring says what is done."""

    def register(play: Play) -> Play:
        name = play.__name__.replace("_", "-")
        if name in SCENARIOS:
            raise ValueError(f"two scenarios are called {name}")
        what = " ".join((play.__doc__ or "").split())
        SCENARIOS[name] = Scenario(name=name, play=play, what=what, **settings)
        return play

    return register
