"""What programs of RocketMQ's clients tell becomes the history that is judged."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tarry.chaos.history import Answer, GatewayClients
from tarry.chaos.traffic import rocketmq
from tarry.chaos.traffic.rocketmq import Clients, no_clients

LINES: list[list[object]] = [
    ["begun"],
    ["sent", 10, "", 2_000, 1_000, 1_010, "M1", ""],
    ["sent", 13, "go-1", 1_000, 1_000, 1_020, "", "no answer"],
    ["recalled", 10, 1_030, ""],
    ["recalled", 12, 1_040, "CODE: 40401, MESSAGE: a consumer has had it"],
    ["recalled", 15, 1_050, "deadline exceeded"],
    ["got", "push", 10, "M1", 2, True, 2_001],
    ["done", "simple", 10, 2, 2_010],
    ["failed", "receive", "deadline exceeded"],
]
ODD = "[INFO] what a client logs\n"


async def told(folder: Path, lines: list[list[object]], code: int = 0) -> Clients:
    """Return what came of a program that prints these lines."""
    text = ODD + "".join(json.dumps(line) + "\n" for line in lines)
    program = f"import sys; sys.stdout.write({text!r}); sys.exit({code})"
    clients = Clients(GatewayClients(), folder)
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE
    )
    errors = folder / "go.log"
    errors.write_text("why it ended")
    running = rocketmq.Program("go", process, errors)
    await clients.read(running)
    clients.complaints.append(await running.reaches("begun"))
    clients.complaints.append(await running.reaches("stopped"))
    return clients


async def test_lines_of_a_program_become_a_history(tmp_path: Path) -> None:
    clients = await told(tmp_path, LINES)
    seen = clients.seen
    first, second = seen.sent
    assert (first.token, first.answer, first.id, first.due_ms) == (10, Answer.ACKNOWLEDGED, "M1", 2_000)
    assert first.answered_mono_ms - first.sent_mono_ms == 10
    assert (second.answer, second.key, second.reason) == (Answer.UNKNOWN, "go-1", "no answer")
    assert [(one.token, one.certain) for one in seen.cancelled] == [(10, True), (15, False)]
    (came,) = seen.delivered
    assert (came.group, came.token, came.attempt, came.maybe_duplicate) == ("push", 10, 2, True)
    assert came.received_mono_ms - first.sent_mono_ms == 1_001
    assert came.consumer == "go"
    assert seen.done == [("simple", 10, 2, 2_010)]
    assert clients.late_recalls == 1
    assert +clients.failed == {"go send": 1, "go recall": 1, "go receive": 1}


async def test_a_client_that_ends_before_it_should_is_complained_of(tmp_path: Path) -> None:
    clients = await told(tmp_path, LINES, code=1)
    began, stopped = clients.complaints
    assert began == ""
    assert stopped == "the client for go has not stopped: it has ended\nwhy it ended"


async def test_a_line_of_another_kind_is_complained_of(tmp_path: Path) -> None:
    clients = await told(tmp_path, [["begun"], ["sent", 1]])
    assert clients.complaints[0] == "the client for go told ['sent', 1]"


def missing() -> str:
    return "not there"


@pytest.mark.parametrize(
    ("there", "goes"), [([], False), (["rust"], False), (["go"], True), ([*rocketmq.CLIENTS], True)]
)
def test_clients_that_are_not_there_are_left_out_and_none_that_does_all_is_told(
    there: list[str], goes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reasons: dict[str, Callable[[], str]] = {
        name: str if name in there else missing for name in rocketmq.CLIENTS
    }
    monkeypatch.setattr(rocketmq, "CLIENTS", reasons)
    monkeypatch.setattr(rocketmq, "LANGUAGES", {name: reasons[name] for name in rocketmq.LANGUAGES})
    clients = Clients(GatewayClients(), tmp_path)
    assert clients.languages == tuple(there)
    assert len(clients.left_out) == 5 - len(there)
    assert (no_clients() == "") == goes
    assert goes or "not there" in no_clients()
