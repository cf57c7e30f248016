"""What a node does on disk when its data was lost, whenever the power goes."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from tarry.node import process
from tarry.node.config import NodeConfig
from tarry.node.edge.forwarder import Forwarder
from tarry.node.edge.grpc_status import abort
from tarry.node.recovery import rejoin
from tarry.node.recovery.rejoin import MARK, SERVICE, Phase, Rejoining, joined, left, phase, set_aside
from tarry.proto.reasons import Reason
from tarry.proto.tarry_peer_pb2 import LeaveRequest
from tarry.replication.journal.journal import Journal
from tarry.replication.journal.write_ahead_log import WriteAheadLog
from tarry.replication.state_machine.refusal import Refusal
from tests.replication.journals import fill as fill_journal
from tests.replication.journals import sync


def fill(data: Path) -> None:
    for name in ("journal", "state-3"):
        (data / name).mkdir(parents=True)
        (data / name / "data.mdb").write_bytes(name.encode())
    (data / "current").write_text("state-3")


def test_a_node_whose_data_is_whole_is_in_no_phase(tmp_path: Path) -> None:
    fill(tmp_path)
    assert phase(tmp_path) is None


def test_what_is_set_aside_is_whole_and_out_of_the_way(tmp_path: Path) -> None:
    fill(tmp_path)
    aside = set_aside(tmp_path, "n2")
    assert phase(tmp_path) is Phase.LEAVING
    assert sorted(path.name for path in tmp_path.iterdir()) == ["damaged-1", MARK]
    assert (aside / "journal" / "data.mdb").read_bytes() == b"journal"
    assert (aside / "state-3" / "data.mdb").read_bytes() == b"state-3"
    assert (aside / "current").read_text() == "state-3"


def test_the_incarnation_of_a_journal_is_told_by_the_mark_however_often_it_is_written(tmp_path: Path) -> None:
    write_journal(tmp_path, (1 << 64) - 1)
    for _ in range(2):  # the second time as after an interruption: nothing is left of it
        set_aside(tmp_path, "n2")
        assert phase(tmp_path) is Phase.LEAVING
        assert (tmp_path / MARK).read_bytes() == b"leaving %d" % ((1 << 64) - 1)
    left(tmp_path)
    assert (tmp_path / MARK).read_bytes() == b"joining"


@pytest.mark.parametrize("mark", [b"leaving ", b"leaving x", b"leaving -1", b"leaving 18446744073709551616"])
async def test_a_mark_without_an_incarnation_that_there_can_be_leaves_by_name(
    tmp_path: Path, mark: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / MARK).write_bytes(mark)
    assert (await said_as_it_leaves(tmp_path, monkeypatch)).incarnation == 0


async def test_a_node_whose_data_was_set_aside_leaves_with_the_incarnation_of_its_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_journal(tmp_path, 77)
    set_aside(tmp_path, "n2")
    assert (await said_as_it_leaves(tmp_path, monkeypatch)).incarnation == 77


def test_a_journal_that_has_nothing_of_the_log_leaves_for_the_one_that_is_lost(tmp_path: Path) -> None:
    write_journal(tmp_path, 77, entries=1)
    set_aside(tmp_path, "n2")
    assert (tmp_path / MARK).read_bytes() == b"leaving"


def write_journal(data: Path, incarnation: int, entries: int = 2) -> None:
    journal = Journal(WriteAheadLog(data / "journal"), incarnation=incarnation)
    fill_journal(journal, entries)
    sync(journal)
    journal.close()


async def said_as_it_leaves(data: Path, monkeypatch: pytest.MonkeyPatch) -> LeaveRequest:
    said: list[LeaveRequest] = []

    async def ask(_: Rejoining, method: str, address: str, raw: bytes, timeout_s: float) -> tuple[None, None]:
        said.append(LeaveRequest.FromString(raw))
        return None, None

    monkeypatch.setattr(Rejoining, "_ask", ask)
    config = NodeConfig(node="n1", data=data, listen="a:1", members={"n1": "a:1", "n2": "b:1"})
    forwarder = Forwarder(None, [], {})
    await Rejoining(config, forwarder).leave()
    await forwarder.close()
    return said[0]


def test_data_set_aside_twice_is_kept_twice(tmp_path: Path) -> None:
    fill(tmp_path)
    first = set_aside(tmp_path, "n2")
    fill(tmp_path)
    second = set_aside(tmp_path, "n2")
    assert first != second
    assert (first / "current").exists()
    assert (second / "current").exists()


def test_data_is_set_aside_though_what_was_before_has_been_removed_or_renamed(tmp_path: Path) -> None:
    for _ in range(3):
        fill(tmp_path)
        aside = set_aside(tmp_path, "n2")
    for removed in ("damaged-1", "damaged-2"):
        shutil.rmtree(tmp_path / removed)
    (tmp_path / "damaged-old").mkdir()
    fill(tmp_path)
    assert set_aside(tmp_path, "n2").name == "damaged-4"
    assert (aside / "current").exists()


def test_a_node_goes_from_leaving_to_joining_to_being_one_as_any_other(tmp_path: Path) -> None:
    set_aside(tmp_path, "n2")
    left(tmp_path)
    assert phase(tmp_path) is Phase.JOINING
    joined(tmp_path)
    assert phase(tmp_path) is None


@pytest.mark.parametrize("mark", [b"", b"joinin", b"\xff\xfe"])
def test_a_mark_that_nobody_can_read_counts_as_leaving(tmp_path: Path, mark: bytes) -> None:
    (tmp_path / MARK).write_bytes(mark)
    assert phase(tmp_path) is Phase.LEAVING


@pytest.mark.parametrize("moves", range(3))
def test_what_a_crash_in_the_middle_left_is_set_aside_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    fill(tmp_path)
    with monkeypatch.context() as power:
        power.setattr(rejoin.Path, "rename", _that_fails_after(moves))
        with pytest.raises(InterruptedError):
            set_aside(tmp_path, "n2")
    asked: list[Path] = []

    def leaves(config: NodeConfig, stopping: object, do: object) -> object:
        asked.extend(sorted(config.data.iterdir()))
        return _not_left()

    monkeypatch.setattr(process, "_until_stopped", leaves)
    config = NodeConfig(
        node="n1", data=tmp_path, listen="127.0.0.1:1", members={"n1": "127.0.0.1:1", "n2": "127.0.0.1:3"}
    )
    process.serve(config)
    assert [path.name for path in asked] == ["damaged-1", "damaged-2", MARK]
    kept = {path.name for aside in asked[:2] for path in aside.iterdir()}
    assert kept == {"journal", "state-3", "current"}


async def _not_left() -> bool:
    return False


def _that_fails_after(moves: int) -> Callable[[Path, Path], Path]:
    done, rename = iter(range(moves)), Path.rename

    def until_the_power_goes(path: Path, target: Path) -> Path:
        if next(done, None) is None:
            raise InterruptedError
        return rename(path, target)

    return until_the_power_goes


@pytest.mark.parametrize("moves", range(3))
def test_a_crash_in_the_middle_never_leaves_a_node_without_data_and_without_the_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moves: int
) -> None:
    fill(tmp_path)
    with monkeypatch.context() as power:
        power.setattr(rejoin.Path, "rename", _that_fails_after(moves))
        with pytest.raises(InterruptedError):
            set_aside(tmp_path, "n2")
    assert phase(tmp_path) is Phase.LEAVING


async def _answering(stack: AsyncExitStack, leader: Callable[[], str]) -> str:
    """Serve `Join`, refused with the leader's address if there is any; return where."""

    async def join(raw: bytes, context: Any) -> bytes:
        if leader():
            await abort(context, Refusal(Reason.NOT_LEADER, "not here", {"leader": leader()}))
        return b""

    server = grpc.aio.server()
    handlers = {"Join": grpc.unary_unary_rpc_method_handler(join)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stack.push_async_callback(server.stop, None)
    return f"127.0.0.1:{port}"


async def test_a_node_that_leads_by_now_is_told_by_itself_that_it_is_a_member(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rejoin, "RETRY_S", 0.0)
    async with AsyncExitStack() as stack:
        itself = await _answering(stack, str)
        follower = await _answering(stack, lambda: itself)
        away = "127.0.0.1:1"
        config = NodeConfig(
            node="n1", data=tmp_path, listen=itself, members={"n1": itself, "n2": away, "n3": follower}
        )
        forwarder = Forwarder(None, [], {})
        stack.push_async_callback(forwarder.close)
        left(tmp_path)
        async with asyncio.timeout(10):
            await Rejoining(config, forwarder).join(7)
    assert phase(tmp_path) is None
