"""``tarry find``: what its options ask for, and what it prints of the times of messages."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from tarry.client.cli.find import find
from tarry.client.cli.main import app
from tarry.client.cli.options import OnCluster
from tarry.client.cli.output import Output
from tarry.client.found import FoundMessage, FoundPage
from tarry.client.results import MessageState

TIMED = FoundMessage("timed", 3_000, MessageState.PENDING, 1_000, 2_000)
OLD = FoundMessage("old", 3_000, MessageState.PENDING)


class Finding:
    """Answers one page, and notes what was asked."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}

    def query(self) -> Finding:
        return self

    async def find(self, topic: str, key: str, **asked: Any) -> FoundPage:
        self.asked = {"topic": topic, "key": key, **asked}
        return FoundPage((TIMED, OLD), "", 0)


async def found(output: Output, **spans: int) -> dict[str, Any]:
    finding: Any = Finding()
    await find(finding, "orders", "k", cluster=OnCluster(output=output), **spans)
    return finding.asked  # type: ignore[no-any-return]


async def test_each_span_is_asked_for_as_it_is_named() -> None:
    names = [f"{time}_{end}_ms" for time in ("due", "stored", "born") for end in ("from", "to")]
    spans = {name: number for number, name in enumerate(names, 1)}
    asked = await found(Output.JSON, **spans)
    assert {name: asked[name] for name in names} == spans
    assert {(await found(Output.JSON))[name] for name in names} == {0}


async def test_programs_are_told_all_times_and_people_when_a_message_was_stored(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await found(Output.JSON)
    rows = json.loads(capsys.readouterr().out)
    assert [(row["born_ms"], row["stored_ms"], row["due_ms"]) for row in rows] == [
        (1_000, 2_000, 3_000),
        (None, None, 3_000),
    ]
    await found(Output.TABLE)
    table = capsys.readouterr().out
    assert table.count("1970-01-01T00:00:02") == 1
    assert table.count("1970-01-01T00:00:03") == 2


@pytest.mark.parametrize("name", ["due", "stored", "born"])
def test_a_span_is_given_as_times(name: str) -> None:
    for end in ("from", "to"):
        arguments = ["find", "orders", "k", f"--{name}-{end}", "soon", "--server", "127.0.0.1:1"]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2
        assert "is no time" in " ".join(done.output.split())
