"""The examples of client/README.md do what they say."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.disposable import Disposable

pytestmark = pytest.mark.beside

README = Path(__file__).parents[2] / "client" / "README.md"


FIRST, TRACED = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


def printed(example: str, folder: Path) -> str:
    """Return what an example prints, with a cluster of its own."""
    assert len([line for line in example.splitlines() if line.strip()]) <= 20
    with Disposable(1, folder) as cluster:
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
    return ran.stdout


def test_the_example_schedules_and_receives_four_messages(tmp_path: Path) -> None:
    first, *messages = printed(FIRST, tmp_path).splitlines()
    assert first.startswith("scheduled ")
    assert [line.split("'")[1] for line in messages] == ["a", "b", "c", "pay order 7"]


def test_the_example_of_tracing_links_the_processing_to_the_schedule(tmp_path: Path) -> None:
    text, spans = printed(TRACED, tmp_path), []
    while text.strip():
        span, end = json.JSONDecoder().raw_decode(text.lstrip())
        text = text.lstrip()[end:]
        spans.append(span)
    sent, processed = spans
    assert (sent["name"], processed["name"]) == ("send payments", "process payments")
    assert [link["context"]["span_id"] for link in processed["links"]] == [sent["context"]["span_id"]]
    assert processed["attributes"]["messaging.tarry.verdict"] == "ack"
