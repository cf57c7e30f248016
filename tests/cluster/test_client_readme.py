"""The example of client/README.md does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tarry.client.local.cluster import LocalCluster

README = Path(__file__).parents[2] / "client" / "README.md"


def test_the_example_schedules_and_receives_four_messages(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
    with LocalCluster(1, tmp_path) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        ran = subprocess.run(
            [sys.executable, "-c", example],
            env={**os.environ, "TARRY_SERVER": cluster.addresses},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    first, *messages = ran.stdout.splitlines()
    assert first.startswith("scheduled ")
    assert [line.split("'")[1] for line in messages] == ["a", "b", "c", "pay order 7"]
