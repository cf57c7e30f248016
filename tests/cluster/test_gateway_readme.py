"""The example of gateway/README.md does what it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tarry.client.local.cluster import LocalCluster
from tests.cluster.gateways import gateway_of

pytestmark = pytest.mark.beside

README = (Path(__file__).parents[2] / "gateway" / "README.md").read_text()
(EXAMPLE,) = [
    block for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) if "TARRY_GATEWAY" in block
]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_example_schedules_receives_and_acknowledges_a_message(lone_cluster: LocalCluster) -> None:
    with gateway_of(lone_cluster.addresses) as url:
        ran = subprocess.run(
            ["sh", "-eu", "-c", EXAMPLE],
            env={**os.environ, "TARRY_GATEWAY": url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert ran.returncode == 0, ran.stderr
    scheduled, received, settled, found = map(json.loads, filter(None, ran.stdout.splitlines()))
    (message,) = received["messages"]
    assert (message["id"], message["body_json"]) == (scheduled["id"], {"to": "Ann"})
    assert settled["messages"] == [{"handle": message["handle"], "outcome": "ok"}]
    assert [each["id"] for each in found["messages"]] == [scheduled["id"]]
