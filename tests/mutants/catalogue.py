"""All mutants."""

from __future__ import annotations

from tests.mutants import (
    background,
    cancels,
    clocks,
    consensus,
    damage,
    delivery,
    durability,
    far_hours,
    founding,
    incarnations,
    levels,
    listing,
    moves,
    policies,
    producers,
    strangers,
    streams,
    thinning,
    turns,
    write_ahead_log,
)

MUTANTS = [
    *consensus.MUTANTS,
    *durability.MUTANTS,
    *write_ahead_log.MUTANTS,
    *delivery.MUTANTS,
    *strangers.MUTANTS,
    *streams.MUTANTS,
    *damage.MUTANTS,
    *far_hours.MUTANTS,
    *founding.MUTANTS,
    *incarnations.MUTANTS,
    *levels.MUTANTS,
    *listing.MUTANTS,
    *policies.MUTANTS,
    *clocks.MUTANTS,
    *producers.MUTANTS,
    *turns.MUTANTS,
    *background.MUTANTS,
    *cancels.MUTANTS,
    *thinning.MUTANTS,
    *moves.MUTANTS,
]
