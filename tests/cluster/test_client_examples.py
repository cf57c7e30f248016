"""The worked examples of client/EXAMPLES.md print what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tarry.chaos.cluster.cluster import now_ms
from tarry.chaos.faults.clocks import give_clock, lacking
from tarry.client import sync
from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside

PAGE = (Path(__file__).parents[2] / "client" / "EXAMPLES.md").read_text()
EXAMPLES = {
    title: (program, printed)
    for title, program, printed in re.findall(
        r"^## ([^\n]+)\n.*?^```python\n(.*?)^```\n.*?^```\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE
    )
}

DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")
YEAR_MS = 365 * 86_400_000


def test_every_example_is_found() -> None:
    assert list(EXAMPLES) == re.findall(r"^## (.+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_prints_what_it_says(title: str, tmp_path: Path) -> None:
    assert printed_by(title, tmp_path, 0) == EXAMPLES[title][1]


@pytest.mark.skipif(bool(lacking()), reason=lacking())
@pytest.mark.parametrize("title", [title for title, (program, _) in EXAMPLES.items() if DAY.search(program)])
def test_an_example_with_days_in_it_prints_the_same_once_they_are_past(title: str, tmp_path: Path) -> None:
    program, printed = EXAMPLES[title]
    last = datetime.fromisoformat(max(DAY.findall(program))).replace(tzinfo=UTC)
    behind_ms = int(last.timestamp() * 1_000) + YEAR_MS
    assert printed_by(title, tmp_path, behind_ms - now_ms()) == printed


def printed_by(title: str, folder: Path, ahead_ms: int) -> str:
    """Run an example at a cluster, both with a clock that is ahead."""
    with Disposable(1, folder) as cluster:
        (node,) = cluster.nodes.values()
        if ahead_ms:
            give_clock(node, ahead_ms)
        cluster.start()
        cluster.wait_until_serving()
        with sync.connect(cluster.addresses) as client:
            client.operator().finish_upgrade()
        ran = subprocess.run(
            [sys.executable, "-c", EXAMPLES[title][0]],
            env={**os.environ, **node.environment, "TARRY_SERVER": cluster.addresses},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout
