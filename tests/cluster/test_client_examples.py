"""The worked examples of client/EXAMPLES.md print what they say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_every_example_is_found() -> None:
    assert list(EXAMPLES) == re.findall(r"^## (.+)$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("title", EXAMPLES)
def test_an_example_prints_what_it_says(title: str, tmp_path: Path) -> None:
    program, printed = EXAMPLES[title]
    with Disposable(1, tmp_path) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        with sync.connect(cluster.addresses) as client:
            client.operator().finish_upgrade()
        ran = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "TARRY_SERVER": cluster.addresses},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == printed
