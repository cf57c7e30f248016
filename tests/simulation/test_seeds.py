"""Half a dozen seeds of both worlds, each short; many more with `make simulate`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.many import CLASSES, missing, outcomes, run, summary
from tests.simulation.outcome import Outcome

COUNTED = ("acknowledged", "faults", "elections", "transfers")
"""What has to have come about. What a seed draws differs between versions of Python."""


def test_nothing_is_lost_doubled_or_early_in_half_a_dozen_seeds() -> None:
    seen: list[Outcome] = []
    for first in range(144, 204, 6):  # six more where none has drawn a transfer
        seen += outcomes(range(first, first + 6), "both", 2.0)
        failed = [(outcome.world, outcome.seed, outcome.failure) for outcome in seen if outcome.failure]
        assert not failed
        numbers = summary(seen, 0.0)
        if all(numbers[name] for name in COUNTED):
            break
    assert min(numbers[name] for name in COUNTED) > 0


@pytest.mark.parametrize("seed", [2, 11])
def test_a_seed_gives_the_same_history_every_time_in_every_process(seed: int) -> None:
    work = f"from tests.simulation.many import run; print(run({seed}, 'both', 2.0, '').history_hash)"
    root = Path(__file__).parents[2]
    other = subprocess.run(
        [sys.executable, "-c", work],
        cwd=root,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": f"{root / '.src'}:{root}"},
        check=True,
        capture_output=True,
        text=True,
    )
    assert run(seed, "both", 2.0, "").history_hash == other.stdout.strip()


def test_a_class_of_faults_that_no_seed_of_a_world_had_is_named() -> None:
    def outcome(world: str, without: str = "") -> Outcome:
        counts = {name: 1 for told, name in CLASSES.items() if told != without}
        return Outcome(world, 1, None, 0, 0, 0.0, "", counts)

    assert missing([outcome("consensus"), outcome("node")]) == []
    assert missing([outcome("node", "lost disks")]) == ["node: lost disks"]
    assert missing([outcome("node", "lost disks"), outcome("node")]) == []
    without = [outcome(world, "rot, state") for world in ("consensus", "node")]
    assert missing(without) == ["node: rot, state"]
