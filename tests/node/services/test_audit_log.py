"""ReadAudit: who is answered, and what is refused."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tarry.node.config import AuditSettings, Token
from tarry.node.edge.audit import Audit, AuditStatus
from tarry.node.edge.audit_pages import LINES_MAX
from tarry.node.edge.auth import Authorizer
from tarry.node.services.audit_log import READS_MAX, TIME_MS_MAX, AuditCalls
from tarry.proto import tarry_operator_pb2 as pb
from tarry.replication.blocking import in_thread
from tests.node.edge.test_audit import Aborted, Call

TOKENS = {"root": Token(name="ops", operate=True), "shop": Token(name="shop", produce=["*"])}
AT_MS = 1_700_000_000_123
UNKNOWN_FIELD = b"\xc0\xb8\x02\x01"


class Play:
    def __init__(self, file: Path | None) -> None:
        settings, authorizer = AuditSettings(file=file), Authorizer(TOKENS)
        audit = Audit(settings, "n1", authorizer, lambda _: False, AuditStatus(), in_thread, lambda: AT_MS)
        calls = AuditCalls(settings, "n1", authorizer, audit)
        self._read: Any = calls.methods()["ReadAudit"].unary_unary

    async def read(self, token: str = "root", raw: bytes = b"", **asked: Any) -> pb.ReadAuditResponse:
        request = pb.ReadAuditRequest(**asked).SerializeToString() + raw
        return pb.ReadAuditResponse.FromString(await self._read(request, Call(token)))

    async def refused(self, token: str = "root", raw: bytes = b"", **asked: Any) -> str:
        call, request = Call(token), pb.ReadAuditRequest(**asked).SerializeToString() + raw
        with pytest.raises(Aborted):
            await self._read(request, call)
        [text] = call.told
        return str(text)


@pytest.mark.parametrize("has_file", [True, False])
async def test_only_who_may_operate_is_answered(tmp_path: Path, has_file: bool) -> None:
    play = Play(tmp_path / "audit.log" if has_file else None)
    assert "operate" in await play.refused("shop")
    await play.refused("none such")
    assert (await play.read()).has_audit is has_file


async def test_an_answer_has_the_line_of_its_own_question(tmp_path: Path) -> None:
    play = Play(tmp_path / "audit.log")
    await play.read()
    told = await play.read(lines_max=2**32 - 1)
    assert [json.loads(line)["stage"] for line in told.lines] == ["asked", "answered", "asked"]
    assert (told.node, told.cursor, told.unreadable, len(told.lines) <= LINES_MAX) == ("n1", "", 0, True)


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({"cursor": "../../etc/passwd"}, "cursor"),
        ({"cursor": "0123456789abcdef.9\n"}, "cursor"),
        ({"cursor": "0123456789abcdef." + "9" * 16}, "cursor"),
        ({"from_ms": -1}, "times"),
        ({"to_ms": TIME_MS_MAX + 1}, "times"),
        ({"raw": UNKNOWN_FIELD}, "does not know"),
        ({"raw": b"\xff"}, "is not a"),
    ],
)
async def test_what_makes_no_sense_is_refused(tmp_path: Path, asked: dict[str, Any], says: str) -> None:
    assert says in await Play(tmp_path / "audit.log").refused(**asked)
    assert (await Play(None).read(to_ms=TIME_MS_MAX, from_ms=0)).has_audit is False


async def test_a_log_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    assert "cannot be read" in await Play(tmp_path).refused()  # a folder, no file


async def test_few_are_read_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play, go, full = Play(tmp_path / "audit.log"), asyncio.Event(), asyncio.Semaphore(0)

    async def slow(work: Any) -> Any:
        full.release()
        await go.wait()
        return work()

    monkeypatch.setattr("tarry.node.services.audit_log.in_thread", slow)
    under_way = [asyncio.create_task(play.read()) for _ in range(READS_MAX)]
    for _ in under_way:
        await full.acquire()
    assert "under way" in await play.refused()
    go.set()
    await asyncio.gather(*under_way)
    assert (await play.read()).has_audit
