"""The examples of client/README.md do what they say."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.cluster.disposable import Disposable
from tests.cluster.test_upgrade import level

pytestmark = pytest.mark.beside

README = Path(__file__).parents[2] / "client" / "README.md"


FIRST, SEVERAL, DELAYED, TRACED = re.findall(r"```python\n(import .*?)```", README.read_text(), re.DOTALL)
"""Examples that are programs; what has no import is part of one that it names."""


ORDERED = """
import asyncio
import os

from tarry.client.aio import Half, TransactionEnd, connect

placed = set()


async def is_placed(name):
    return name in placed


async def place(order):
    placed.add(f"order-{order}")


async def main():
    async with connect(os.environ["TARRY_SERVER"]) as client:
        await run(client)
        (told,) = [one async for one in client.transactions().list(ended=True)]
        print(told.name, told.state, told.message_due_ms - told.ended_ms)


async def run(client):
"""
"""The application around the example of a transaction, which prints what came of it."""


def printed(example: str, folder: Path, lines_max: int = 20, **environment: str) -> str:
    """Return what an example prints, with a cluster of its own."""
    assert len([line for line in example.splitlines() if line.strip()]) <= lines_max
    with Disposable(1, folder) as cluster:
        cluster.start()
        cluster.wait_until_serving()
        asyncio.run(level(cluster, 2))
        ran = subprocess.run(
            [sys.executable, "-c", example],
            env={**os.environ, "TARRY_SERVER": cluster.addresses, **environment},
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


def test_the_example_of_a_delay_gives_the_reminder_to_one_group_now_and_to_the_other_later(
    tmp_path: Path,
) -> None:
    mail, calls = printed(DELAYED, tmp_path, CALL_CENTRE_DELAY_MS="1500").splitlines()
    assert mail.startswith("mail b'pay order 7' ")
    assert 0 <= int(mail.split()[4]) < 1_500
    assert calls.startswith("call-centre b'pay order 7' ")
    assert int(calls.split()[4]) >= 1_500


def test_the_example_of_a_transaction_commits_its_order_s_message(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(async def check.*?)```", README.read_text(), re.DOTALL)
    program = f"{ORDERED}{textwrap.indent(example, '    ')}\n\nasyncio.run(main())\n"
    assert printed(program, tmp_path, lines_max=40) == "order-17 committed 900000\n"


def test_the_example_of_several_topics_receives_of_each(tmp_path: Path) -> None:
    lines = printed(SEVERAL, tmp_path).splitlines()
    assert sorted(lines) == [f"{topic} b'pay'" for topic in ("bills", "orders.eu", "orders.us")]


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
