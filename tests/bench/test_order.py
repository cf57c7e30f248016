"""The order of a run: which systems are started, and when they have their turns."""

from __future__ import annotations

from pathlib import Path

from tarry.bench.side_by_side.__main__ import measure
from tarry.bench.side_by_side.peers.tarry import Tarry
from tarry.bench.side_by_side.rows import Row
from tarry.bench.side_by_side.system import System
from tarry.bench.side_by_side.workloads import Turn


class Nothing(Tarry):
    """A system without processes that notes what is done with it."""

    done: list[str]

    async def start(self, folder: Path) -> None:
        self.done.append(f"{self.name} starts")

    async def stop(self) -> None:
        self.done.append(f"{self.name} stops")


class Busy(Nothing):
    name = "busy"
    starts_last = True


async def test_a_system_that_is_never_idle_starts_after_the_turns_of_the_others() -> None:
    done: list[str] = []
    Nothing.done = done

    async def work(system: System, share: float) -> Turn:
        done.append(f"{system.name} works")
        return Turn({"per_s": 1.0})

    row = Row("row", "row", "per_s", "/s", work)
    found = await measure(
        [row], [Busy(), Nothing()], turns=2, minutes=1.0, share=1.0, everywhere=True, skipped={}
    )
    assert done == [
        "tarry starts", "tarry works", "tarry works",
        "busy starts", "busy works", "busy works", "busy stops", "tarry stops",
    ]  # fmt: skip
    assert [found["rows"]["row"][name]["turns"] for name in ("tarry", "busy")] == [2, 2]
    assert list(found["systems"]) == ["tarry", "busy"]
