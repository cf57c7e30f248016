"""All mutants."""

from __future__ import annotations

from tests.mutants import consensus, damage, delivery, durability, strangers

MUTANTS = [*consensus.MUTANTS, *durability.MUTANTS, *delivery.MUTANTS, *strangers.MUTANTS, *damage.MUTANTS]
