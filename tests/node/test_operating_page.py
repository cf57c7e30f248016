"""node/OPERATING.md against the code: everything that an operator meets has its entry, and commands exist."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from tarry.client.cli import output, status
from tarry.node import config
from tarry.node.edge.grpc_status import CODES
from tarry.proto.reasons import Reason
from tests.cluster.command_line import parsed_command

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "node" / "OPERATING.md").read_text()
LEVELS = {"warning", "error", "critical", "exception"}
EVENT_ARGUMENTS = {"Refusing": 0}
"""What writes an event to the log that it is given, and as which argument."""


def entries(heading: str) -> set[str]:
    """Return what the first columns below a heading name, down to the next heading of that depth."""
    depth = heading.partition(" ")[0]
    _, found, rest = PAGE.partition(f"\n{heading}\n")
    assert found
    rows = re.findall(r"^\| (.+?) \| .+ \| .+ \|$", re.split(rf"\n{depth} ", rest)[0], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def events_in(source: str) -> Iterator[str | None]:
    """Yield the name of each warning or error that a module logs; None for one that is not a literal."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        if isinstance(node.func, ast.Attribute) and node.func.attr in LEVELS:
            if isinstance(node.func.value, ast.Name) and node.func.value.id == "log":
                yield from literal(node.args[0])
        elif isinstance(node.func, ast.Name) and node.func.id in EVENT_ARGUMENTS:
            yield from literal(node.args[EVENT_ARGUMENTS[node.func.id]])


def literal(node: ast.expr) -> Iterator[str | None]:
    yield node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def logged() -> dict[str, list[str | None]]:
    """Return the events of every module that logs any."""
    paths = [
        path for folder in ("node", "replication", "wheel", "proto") for path in (ROOT / folder).rglob("*.py")
    ]
    return {
        path.relative_to(ROOT).as_posix(): found
        for path in paths
        if (found := list(events_in(path.read_text())))
    }


def test_every_warning_and_error_of_a_node_has_an_entry_and_every_entry_is_logged() -> None:
    found = {event for events in logged().values() for event in events if event is not None}
    assert entries("## What a node logs") == found


def test_an_event_that_is_not_a_literal_is_only_where_its_literals_are_found() -> None:
    assert {path for path, events in logged().items() if None in events} == {"node/edge/peer_auth.py"}


def test_events_are_found_wherever_they_are_logged() -> None:
    source = (
        "def f():\n  if x:\n    log.error('bad', n=1)\nlog.info('good')\nRefusing('no', g)\nlog.warning(name)"
    )
    assert set(events_in(source)) == {"bad", "no", None}


def test_no_module_logs_by_another_name() -> None:
    folders = ("node", "replication", "wheel", "proto")
    sources = [path.read_text() for folder in folders for path in (ROOT / folder).rglob("*.py")]
    made = re.findall(r"^.*\bget_?[lL]ogger\(.*$", "\n".join(sources), re.MULTILINE)
    assert set(made) == {"log = structlog.get_logger()"}


def test_every_reason_is_named_once_and_those_that_are_no_fault_of_a_request_have_an_entry() -> None:
    tabled = entries("## What is refused")
    rest = set(re.findall(r"`([A-Z_]+)`", PAGE.partition("\nAll other reasons")[2]))
    assert tabled | rest == {reason.value for reason in Reason}
    assert not tabled & rest
    excused = {
        Reason.MESSAGE_NOT_FOUND,
        Reason.QUEUE_UNKNOWN,
        Reason.SUBSCRIBE_FIRST,
        Reason.SUBSCRIBED_TWICE,
    }
    assert {reason.value for reason in CODES.keys() - excused} <= tabled


def test_every_exit_code_of_a_node_has_an_entry() -> None:
    source = ast.parse((ROOT / "node" / "__main__.py").read_text())
    codes = {
        node.args[0].value
        for node in ast.walk(source)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "typer.Exit"
        if isinstance(node.args[0], ast.Constant)
    }
    _, _, table = PAGE.partition("| exit code of `tarry node` |")
    shown = {int(code) for code in re.findall(r"^\| (\d+)", table.partition("\n\n")[0], re.MULTILINE)}
    assert {0, 1, *codes} <= shown
    assert (output.REFUSED, output.UNAVAILABLE) == (1, 3)
    assert (
        "Of the other commands, 1 is a refusal (the table of reasons below), 2 wrong usage, 3 no answer"
        in PAGE
    )


def test_what_a_node_says_when_it_does_not_start_is_what_the_page_quotes() -> None:
    sources = "".join((ROOT / "node" / f"{name}.py").read_text() for name in ("command", "app", "process"))
    quoted = re.findall(r"^\| 2, `([^`]+)`", PAGE, re.MULTILINE)
    assert quoted
    assert [text for text in quoted if text not in sources] == []


def test_every_column_of_the_status_has_an_entry() -> None:
    columns = {*status.NODE_COLUMNS, *status.OPTIONAL, *status.GROUP_COLUMNS}
    told = {"node", "address", "topic", "group", "released", "consumers"}  # which say what they are
    assert columns - told <= entries("## What `tarry status` shows")


@pytest.mark.parametrize("role", ["no answer: ", "no leader known", "leader, not serving yet"])
def test_every_role_that_is_no_good_sign_has_an_entry(role: str) -> None:
    assert role in Path(status.__file__).read_text()
    assert f"`{role}" in PAGE


def commands() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    inline = re.findall(
        r"`(tarry [^`]+)`", re.sub(r"^```sh\n.*?^```$", "", PAGE, flags=re.MULTILINE | re.DOTALL)
    )
    runs = {"tarry node", "tarry dev", "tarry status"}  # as names of what runs
    return [line for line in (*lines, *inline) if line.startswith("tarry ") and line not in runs]


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_every_command_is_one_that_there_is(line: str) -> None:
    _, *arguments = shlex.split(line, comments=True)
    assert parsed_command(arguments) == arguments[0]


def test_every_key_of_the_configuration_is_one_that_there_is() -> None:
    sections = {
        name: field.annotation.model_fields.keys()
        for name, field in config.NodeConfig.model_fields.items()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
    }
    named = re.findall(r"`(\w+)\.(\w+)`", PAGE)
    assert {"limits", "ledger"} <= {section for section, _ in named}
    known = {**sections, "tls": config.Tls.model_fields.keys()}
    assert [f"{section}.{key}" for section, key in named if key not in known.get(section, ())] == []
