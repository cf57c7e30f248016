"""The shape of the project, held by tests: who imports whom, how long a file is, what a name may be."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("proto", "wheel", "replication", "node", "client", "console", "gateway", "chaos", "spark", "bench")

PROTO_OF_PROGRAMS = ("extras", "grpc_loop", "grpc_server", "reasons", "version")

# folder -> the other folders of ours that it may import, each "folder" or "folder.module"
MAY_IMPORT = {
    "proto": set[str](),
    "wheel": {"proto.message_id", "proto.files"},  # which import nothing of ours
    "replication": {"wheel", "proto"},
    "client": {"proto"},
    "node": {"replication", "wheel", "proto"},
    "console": {"client", *(f"proto.{name}" for name in PROTO_OF_PROGRAMS)},
    "gateway": {"client", *(f"proto.{name}" for name in PROTO_OF_PROGRAMS)},
    "chaos": {"client", "proto"},
    "bench": {"client", "proto", "wheel", "replication", "chaos.faults"},  # parts by themselves, too
    "spark": {"proto"},
}
COMMAND_LINE = re.compile(r"node/(command|command_line|dev)\.py")
"""They may import client, console and gateway."""

# folder -> its sub-folders, each of which may import those before it; type-only imports count
ROOMS = {
    "proto": ("ledger",),
    "wheel": ("keys",),
    "replication": (
        "raft.guard",
        "journal",
        "raft",
        "state_machine",
        "snapshot",
        "transport",
        "driver",
    ),
    "node": (
        "clock",
        "edge",
        "ledger",
        "metrics",
        "repair",
        "keys",
        "recovery",
        "filters",
        "delivery",
        "recurring",
        "transactions",
        "leader",
        "services",
        "monitoring",
    ),
    "client": (
        "local",
        "cluster",
        "transactions",
        "producers",
        "queries",
        "operators",
        "recurring",
        "consumers",
        "bulk",
        "blocking",
        "cli",
    ),
    "console": ("views", "pages"),
    "gateway": ("push", "http", "rocketmq"),
    "chaos": ("checks", "cluster", "traffic.rocketmq_programs", "traffic", "faults", "report", "scenarios"),
    "spark": ("checks",),
}

# third-party package -> the only files or folders that may import it
FENCES = {
    "pysyncobj": ("replication/raft/guarded_syncobj.py",),
    "lmdb": ("replication/journal/lmdb_takeover.py", "replication/lmdb_environment.py"),
    "grpc": (
        "replication/transport/peer_transport.py",
        "replication/transport/peer_service.py",
        "replication/transport/retired_channels.py",
        "node/",
        "client/",
        "chaos/",
        "bench/",
        "gateway/rocketmq/",
        "proto/",
        "spark/live.py",
    ),
    "pyspark": ("spark/",),
    "prometheus_client": ("node/",),
    "starlette": ("console/", "gateway/http/"),
    "uvicorn": ("console/server.py", "gateway/http/server.py", "gateway/http/connection.py"),
    "httpcore": ("gateway/push/",),
    "lark": ("node/filters/parser.py",),
    "opentelemetry": (
        "client/tracing.py",
        "client/spans.py",
        "client/producers/send_spans.py",
        "client/consumers/process_spans.py",
    ),
    "pyarrow": ("proto/ledger/", "node/ledger/", "client/receipts.py", "client/bulk/", "bench/", "spark/"),
}
NOWHERE = {
    "pickle",
    "cPickle",
    "marshal",
    "shelve",
    "dill",
}  # nothing of ours unpickles, from a socket or a disk

# a folder that must stay pure -> what would make it impure
PURE = {
    "wheel": {"asyncio", "socket", "threading", "multiprocessing", "subprocess", "random", "secrets", "time"}
}

LINES_MAX = 600
BANNED_NAMES = {"utils", "util", "helpers", "helper", "common", "manager", "base", "misc"}
NOUN_CLAUSE = re.compile(r"(What|Who|Whom|Whose|Whether|How|Which|Where|When|Why) ")
NO_IMPERATIVE = re.compile(
    r"[^A-Z]|(A|An|The|All|At|Every|For|From|If|In|It|No|Nobody|Nothing|Of|One|So|They|Until)\b|\w+[^s]s\b|As\b"
)
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")
OF_ONE_MACHINE = re.compile(
    r"/(?:wo"
    + r"rk|ro"
    + r"ot|fa"
    + r"rm)/|/ho"
    + r"me/\w|index"
    + r"-url|find"
    + r"-links|pypi\.o"
    + r"rg|PIP"
    + r"_"
)


@dataclass(frozen=True)
class Import:
    file: str  # from the root, with slashes
    line: int
    module: str  # dotted, absolute

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.module}"


def generated(path: Path) -> bool:
    return "_pb2" in path.name


@cache
def sources(folder: str) -> tuple[Path, ...]:
    return tuple(sorted(path for path in (ROOT / folder).rglob("*.py") if not generated(path)))


def imports_in(path: Path, text: str) -> Iterator[Import]:
    """Yield every import of a file, wherever in it; `from a import b` counts as a.b."""
    name = path.relative_to(ROOT).as_posix()
    package = ["tarry", *name.split("/")[:-1]]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(name, node.lineno, alias.name)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *(node.module.split(".") if node.module else [])])
            for alias in node.names:
                yield Import(name, node.lineno, f"{origin}.{alias.name}")


@cache
def imports(folder: str) -> tuple[Import, ...]:
    return tuple(found for path in sources(folder) for found in imports_in(path, path.read_text()))


def crosses_a_border(found: Import) -> bool:
    """Say whether the import of one of our folders by another is outside MAY_IMPORT."""
    parts = found.module.split(".")
    if parts[0] != "tarry" or len(parts) < 2:
        return False
    folder = found.file.split("/")[0]
    clients = {"client", "console", "gateway"} if COMMAND_LINE.fullmatch(found.file) else set()
    allowed = MAY_IMPORT[folder] | clients
    return parts[1] != folder and parts[1] not in allowed and ".".join(parts[1:3]) not in allowed


def module_of(file: str) -> str:
    return file.removesuffix(".py").replace("/", ".")


@cache
def room_of(module: str) -> str:
    """Return the folder of a module; one beside sub-folders is a room of its own."""
    folder = module.rpartition(".")[0]
    beside = any(
        path.is_dir() and path.name != "__pycache__" for path in (ROOT / folder.replace(".", "/")).iterdir()
    )
    return module if beside else folder


def imported_module(found: Import, modules: Collection[str]) -> str:
    """Return which of these modules is imported; empty: none."""
    name = found.module.removeprefix("tarry.")
    return next((one for one in (name, name.rpartition(".")[0]) if one in modules), "")


def sub_folder(module: str, order: Sequence[str]) -> str:
    """Return the innermost of these sub-folders that a module lies in; empty: in none."""
    return max((one for one in order if f"{module}.".startswith(f"{one}.")), key=len, default="")


def runs_upward(found: Import) -> bool:
    """Say whether a module of a sub-folder imports one of a sub-folder above it."""
    folder = found.file.partition("/")[0]
    order = [f"{folder}.{room}" for room in ROOMS.get(folder, ())]
    here = sub_folder(module_of(found.file), order)
    there = sub_folder(found.module.removeprefix("tarry."), order)
    return here != "" and there != "" and order.index(there) > order.index(here)


def jumps_a_fence(found: Import) -> bool:
    """Say whether the import is of a third-party package kept to a few files, from outside them."""
    package = found.module.split(".")[0]
    return package in NOWHERE or not found.file.startswith(FENCES.get(package, ("",)))


def stains(found: Import) -> bool:
    return found.module.split(".")[0] in PURE.get(found.file.split("/")[0], ())


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_imports_only_the_folders_below_it(folder: str) -> None:
    assert [str(found) for found in imports(folder) if crosses_a_border(found)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_third_party_packages_stay_behind_their_fences(folder: str) -> None:
    assert [str(found) for found in imports(folder) if jumps_a_fence(found)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_imports_form_a_circle_between_modules_or_between_sub_folders(folder: str) -> None:
    modules = {module_of(path.relative_to(ROOT).as_posix()) for path in sources(folder)}
    for node_of in (str, room_of):
        graph: dict[str, set[str]] = {}
        for found in imports(folder):
            here, there = module_of(found.file), imported_module(found, modules)
            if there and node_of(here) != node_of(there):
                graph.setdefault(node_of(here), set()).add(node_of(there))
        TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


@pytest.mark.parametrize("folder", ROOMS)
def test_a_sub_folder_imports_only_those_below_it(folder: str) -> None:
    there = {".".join(path.relative_to(ROOT / folder).parts[:-1]) for path in sources(folder)} - {""}
    assert set(ROOMS[folder]) == there
    assert [str(found) for found in imports(folder) if runs_upward(found)] == []


@pytest.mark.parametrize("folder", PURE)
def test_pure_folders_know_no_network_clock_thread_or_chance(folder: str) -> None:
    assert [str(found) for found in imports(folder) if stains(found)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_our_own_code_is_imported_under_one_name_only(folder: str) -> None:
    bare = [str(found) for found in imports(folder) if found.module.split(".")[0] in FOLDERS]
    assert bare == [], f"import it as tarry.<folder>: {bare}"


@pytest.mark.parametrize(
    ("path", "text", "rule"),
    [
        ("wheel/a.py", "from tarry.node import config", crosses_a_border),
        ("replication/a.py", "def f():\n    import tarry.client.producers.producer", crosses_a_border),
        ("node/app.py", "from tarry.client import producer", crosses_a_border),
        ("chaos/a.py", "from ..node import config", crosses_a_border),
        ("console/a.py", "from tarry.proto import tarry_operator_pb2", crosses_a_border),
        ("node/app.py", "from tarry.console.app import console_app", crosses_a_border),
        ("gateway/http/a.py", "from tarry.console.accesses import Accesses", crosses_a_border),
        ("gateway/push/a.py", "from tarry.gateway.http.app import gateway_app", runs_upward),
        ("gateway/http/a.py", "import httpcore", jumps_a_fence),
        ("gateway/http/a.py", "import grpc", jumps_a_fence),
        ("client/a.py", "import starlette.routing", jumps_a_fence),
        ("wheel/a.py", "from tarry.proto import tarry_log_pb2", crosses_a_border),
        ("replication/driver/driver.py", "import pysyncobj.node", jumps_a_fence),
        ("node/a.py", "import lmdb", jumps_a_fence),
        ("replication/driver/driver.py", "from grpc import aio", jumps_a_fence),
        ("client/a.py", "from pickle import loads", jumps_a_fence),
        ("wheel/a.py", "from time import time", stains),
        ("replication/journal/a.py", "from tarry.replication.driver.driver import Driver", runs_upward),
        ("client/cluster/a.py", "from tarry.client.cli import main", runs_upward),
    ],
)
def test_a_planted_violation_is_found(path: str, text: str, rule: object) -> None:
    assert callable(rule)
    assert any(rule(found) for found in imports_in(ROOT / path, text))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("node/command_line.py", "from tarry.client.cli import main"),
        ("node/dev.py", "import tarry.client.local.cluster"),
        ("node/command_line.py", "from tarry.console.command import console"),
        ("node/command_line.py", "from tarry.gateway.command import gateway_app"),
        ("wheel/a.py", "from tarry.proto.message_id import MessageId"),
        ("replication/raft/guarded_syncobj.py", "import pysyncobj"),
        ("wheel/b.py", "from .a import f"),
    ],
)
def test_what_the_rules_allow_is_allowed(path: str, text: str) -> None:
    found = list(imports_in(ROOT / path, text))
    assert found
    assert not any(crosses_a_border(one) or jumps_a_fence(one) or stains(one) for one in found)


def test_no_file_is_longer_than_one_idea_needs() -> None:
    every = [path for folder in (*FOLDERS, "tests") for path in sources(folder)]
    lengths = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in every}
    assert {name: lines for name, lines in lengths.items() if lines > LINES_MAX} == {}


def test_top_level_folders_are_namespace_packages() -> None:
    """With an __init__.py, `python -m pytest` in the root would import ours for the bare name `wheel`."""
    assert [folder for folder in FOLDERS if (ROOT / folder / "__init__.py").exists()] == []
    assert [folder for folder in FOLDERS if not (ROOT / ".src/tarry" / folder).resolve().is_dir()] == []


def test_modules_are_named_for_what_they_are() -> None:
    every = [path for folder in (*FOLDERS, "tests") for path in sources(folder)]
    assert [
        str(path.relative_to(ROOT)) for path in every if BANNED_NAMES & set(re.split("[_.]", path.stem))
    ] == []


def is_badly_begun(node: ast.AST, text: str) -> bool:
    """Say whether a docstring is a noun clause, of a function no imperative, or of a property one."""
    if NOUN_CLAUSE.match(text):
        return True
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return False
    if any("property" in ast.unparse(decorator) for decorator in node.decorator_list):
        return text.startswith("Return ")
    return NO_IMPERATIVE.match(text) is not None


def docstrings(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Yield every docstring of a file with what it documents."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, documented) and (text := ast.get_docstring(node)):
            yield node, text


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_an_imperative_or_name_the_thing(folder: str) -> None:
    """Those of chaos' scenarios describe them in a table of its README."""
    found = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 1)} {text.splitlines()[0]}"
        for path in sources(folder)
        for node, text in docstrings(path)
        if path.parent.name != "scenarios" and is_badly_begun(node, text)
    ]
    assert found == []


def text_files() -> Iterator[tuple[Path, str]]:
    skipped = {".git", ".venv", "out", "data", "build", "dist"}
    for path in sorted(ROOT.rglob("*")):
        inside = path.relative_to(ROOT).parts
        cached = any(
            part in skipped or part.endswith((".egg-info", "_cache", "__pycache__")) for part in inside
        )
        if path.is_file() and not cached and inside[0] not in {".src", ".hypothesis"} and not generated(path):
            try:
                yield path.relative_to(ROOT), path.read_text()
            except UnicodeDecodeError:
                continue


def marked(pattern: re.Pattern[str]) -> list[str]:
    """List the lines of the tree that match, as path:line: text."""
    return [
        f"{path}:{number}: {line.strip()}"
        for path, text in text_files()
        for number, line in enumerate(text.splitlines(), 1)
        if pattern.search(line)
    ]


def test_nothing_names_one_machine_or_one_registry() -> None:
    assert marked(OF_ONE_MACHINE) == []


def test_nothing_is_marked_unfinished() -> None:
    assert marked(UNFINISHED) == []


def test_no_test_sleeps_on_the_wall_clock() -> None:
    """Tests advance a clock; only those of real processes may wait for one."""
    asleep = re.compile(r"\btime\.sle" + r"ep\(")
    waits = [hit for hit in marked(asleep) if hit.startswith("tests/")]
    assert [hit for hit in waits if not hit.startswith(("tests/cluster/", "tests/chaos/"))] == []
