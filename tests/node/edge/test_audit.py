"""What the audit log has of a call, and what becomes of the call where it cannot be written."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NoReturn

import grpc
import pytest

from tarry.node.config import AuditSettings, Token
from tarry.node.edge.audit import DENIED_PER_MINUTE_MAX, ITEMS_MAX, Audit, AuditStatus
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.forwarded_caller import CALLER_KEY, FORWARDED_KEY
from tarry.node.edge.grpc_status import abort
from tarry.node.edge.leader_calls import Answer
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.blocking import in_thread
from tarry.replication.errors import NotLeader
from tarry.replication.state_machine.levels import LevelTooLow
from tarry.replication.state_machine.refusal import Refusal

TOKENS = {"root": Token(name="ops", operate=True), "shop": Token(produce=["*"])}
REQUEST = pb.DeleteTopicRequest(topic="orders").SerializeToString()


class Aborted(Exception):
    """As gRPC's: what a service sees of an abort."""


class Call:
    """What handlers use of a gRPC call."""

    def __init__(
        self, token: str = "root", *more: tuple[str, str | bytes], names: tuple[str, ...] = ()
    ) -> None:
        self._metadata = (("authorization", f"Bearer {token}"), *more)
        self._names = names
        self.told: list[Any] = []

    def invocation_metadata(self) -> Any:
        return self._metadata

    def auth_context(self) -> dict[str, list[bytes]]:
        return {"x509_common_name": [name.encode() for name in self._names]}

    def peer(self) -> str:
        return "ipv4:10.0.0.1:5000"

    async def abort(self, code: grpc.StatusCode, text: str, metadata: Any = ()) -> NoReturn:
        self.told.append(text)
        raise Aborted


class Play:
    def __init__(self, folder: Path, *, nodes: bool = True, **settings: Any) -> None:
        self.file = folder / "audit.log"
        self.status = AuditStatus()
        self.now_ms = 1_700_000_000_123
        self.done: list[str] = []
        given = AuditSettings(file=self.file, **settings)
        self.audit = Audit(
            given, "n1", Authorizer(TOKENS), lambda _: nodes, self.status, in_thread, lambda: self.now_ms
        )

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()]

    async def delete(self, call: Call, answer: Answer | Exception = b"done") -> Answer:
        async def local(_: bytes, context: object) -> Answer:
            self.done.append("deleted")
            if isinstance(answer, Exception):
                raise answer
            return answer

        context: Any = call
        return await self.audit.unary("DeleteTopic", local)(REQUEST, context)


async def test_a_call_is_recorded_before_it_is_done_and_again_with_its_result(tmp_path: Path) -> None:
    play = Play(tmp_path)
    assert await play.delete(Call(names=("shop.example",))) == b"done"
    asked, answered = play.lines
    who = {"token": "ops", "address": "ipv4:10.0.0.1:5000", "certificate": ["shop.example"]}
    what = {"node": "n1", "method": "DeleteTopic", "arguments": {"topic": "orders"}}
    at = {"at": "2023-11-14T22:13:20.123+00:00", "call": asked["call"]}
    assert asked == {**at, **what, **who, "stage": "asked"}
    assert answered == {**at, **what, **who, "stage": "answered", "result": "OK"}
    await play.delete(Call())
    assert len({line["call"] for line in play.lines}) == 2
    assert (play.status.lines, play.status.lost, play.status.failure) == (4, 0, "")


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        (Refusal(Reason.TOPIC_UNKNOWN, "there is no topic"), ("TOPIC_UNKNOWN", "there is no topic")),
        (NotLeader("n2"), ("NOT_LEADER", None)),
        (LevelTooLow(Refusal(Reason.LEVEL_TOO_LOW, "upgrade")), ("LEVEL_TOO_LOW", "upgrade")),
        (RuntimeError("broken"), ("RuntimeError", "broken")),
    ],
)
async def test_why_a_call_was_not_done_is_recorded(
    answer: Refusal | Exception, result: tuple[str, str | None], tmp_path: Path
) -> None:
    play = Play(tmp_path)
    if isinstance(answer, Exception):
        with pytest.raises(type(answer)):
            await play.delete(Call(), answer)
    else:
        assert await play.delete(Call(), answer) is answer
    assert (play.lines[-1]["result"], play.lines[-1].get("text")) == result


async def test_a_call_that_its_caller_gives_up_is_recorded(tmp_path: Path) -> None:
    play = Play(tmp_path)

    async def endless(_: bytes, context: object) -> Answer:
        play.done.append("began")
        await asyncio.Event().wait()
        return b""

    call: Any = Call()
    task = asyncio.ensure_future(play.audit.unary("DeleteTopic", endless)(REQUEST, call))
    while not play.done:  # noqa: ASYNC110
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [line.get("result") for line in play.lines] == [None, "CANCELLED"]


async def redriven(_: bytes, context: Any) -> AsyncIterator[bytes]:
    yield b"1"
    if context.told == ["refuse"]:
        await abort(context, Refusal(Reason.NO_LEADER, "none leads"))
    yield b"2"


async def test_a_stream_is_recorded_with_its_result_before_that_is_sent(tmp_path: Path) -> None:
    play, call = Play(tmp_path), Call()
    context: Any = call
    stream = play.audit.stream("Redrive", redriven)
    assert [each async for each in stream(b"", context)] == [b"1", b"2"]
    assert [line.get("result") for line in play.lines] == [None, "OK"]
    call.told.append("refuse")
    with pytest.raises(Aborted):
        [each async for each in stream(b"", context)]
    assert [line.get("result") for line in play.lines[2:]] == [None, "NO_LEADER"]
    assert call.told == ["refuse", "none leads"]
    given_up = stream(b"", Call())  # type: ignore[arg-type]
    await anext(given_up)
    await given_up.aclose()  # type: ignore[attr-defined]
    assert [line.get("result") for line in play.lines[4:]] == [None, "CANCELLED"]


@pytest.mark.parametrize("required", [True, False])
async def test_where_nothing_can_be_written_a_call_is_refused_or_done_as_it_is_set(
    required: bool, tmp_path: Path
) -> None:
    play = Play(tmp_path / "none", required=required)
    answer = await play.delete(Call())
    if required:
        assert isinstance(answer, Refusal)
        assert answer.reason is Reason.NOT_AUDITED
        assert "audit.required = false" in answer.text
        assert play.done == []
    else:
        assert answer == b"done"
    assert "No such file" in play.status.failure
    assert (play.status.lines, play.status.lost) == (0, 2)
    (tmp_path / "none").mkdir()
    assert await play.delete(Call()) == b"done"
    assert (play.status.lines, play.status.lost, play.status.failure) == (2, 2, "")


async def test_a_caller_without_the_right_fills_no_log(tmp_path: Path) -> None:
    play = Play(tmp_path)
    for _ in range(DENIED_PER_MINUTE_MAX + 7):
        answer = await play.delete(Call("shop"))
        assert isinstance(answer, Refusal)
        assert answer.reason is Reason.PERMISSION_DENIED
    assert play.done == []
    assert len(play.lines) == DENIED_PER_MINUTE_MAX
    assert {(line["result"], line["token"]) for line in play.lines} == {("PERMISSION_DENIED", "unnamed")}
    play.now_ms += 60_000
    await play.delete(Call("shop"))
    assert play.lines[-1]["left_out"] == 7


@pytest.mark.parametrize("nodes", [True, False])
async def test_a_call_that_a_node_passes_on_is_its_callers_and_others_speak_for_nobody(
    nodes: bool, tmp_path: Path
) -> None:
    play = Play(tmp_path, nodes=nodes)
    said = json.dumps({"address": "ipv4:10.9.9.9:1", "certificate": ["alice"]}).encode()
    await play.delete(Call("root", (FORWARDED_KEY, "1"), (CALLER_KEY, said), names=("n2",)))
    line = play.lines[0]
    here = ["ipv4:10.0.0.1:5000", "n2"]
    if nodes:
        assert (line["address"], line["certificate"], line["via"]) == ("ipv4:10.9.9.9:1", ["alice"], here)
    else:
        assert [line["address"], *line["certificate"]] == here
        assert "via" not in line


@pytest.mark.parametrize("said", [b"", b"x", b"[]", b'{"address": 1}', b'{"address": "a", "certificate": 5}'])
async def test_what_a_node_says_of_a_caller_may_be_anything(said: bytes, tmp_path: Path) -> None:
    play = Play(tmp_path)
    assert await play.delete(Call("root", (FORWARDED_KEY, "1"), (CALLER_KEY, said))) == b"done"
    assert play.lines[0]["address"] == "not said"


async def test_long_arguments_are_cut_and_what_is_no_request_is_none(tmp_path: Path) -> None:
    play, context = Play(tmp_path), Call()
    any_context: Any = context
    request = pb.RedriveRequest(topic="t" * 100_000, tags=["x" * 1_000] * 5_000)
    stream = play.audit.stream("Redrive", redriven)
    assert [each async for each in stream(request.SerializeToString(), any_context)]
    arguments = play.lines[0]["arguments"]
    assert len(arguments["tags"]) == ITEMS_MAX + 1
    assert max(map(len, (arguments["topic"], *arguments["tags"]))) < 300
    assert "100000 characters" in arguments["topic"]
    [_ async for _ in stream(b"\xff", any_context)]
    assert play.lines[-1]["arguments"] == "not a request"


async def test_lines_of_calls_that_come_together_are_whole(tmp_path: Path) -> None:
    play = Play(tmp_path)
    await asyncio.gather(*(play.delete(Call()) for _ in range(100)))
    assert len(play.lines) == 200
    assert len({line["call"] for line in play.lines}) == 100
