"""Audit log: who has asked for which operator's call, and what came of it.

    asked ─► line, synced ─► the call ─► line with the result, synced ─► answer

It is written by the node that does the call, once, whoever passed it on; a node that finds that it leads no
more says so, and the next leader writes lines of its own. A thread writes and syncs, several lines at once
where several wait; no answer leaves before its line is durable or known not to be. Where the first line
cannot be written, `audit.required` decides: the call is refused, or done. Where the second cannot, it is told
in log and status, for the call is done. Callers whose token may not operate cannot fill the log: a bounded
number of their refusals is written in a minute.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final, NoReturn

import structlog
from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from tarry.node.config import AuditSettings
from tarry.node.edge.audit_file import AuditFile
from tarry.node.edge.auth import Authorizer, Right
from tarry.node.edge.forwarded_caller import IsNode, caller_of
from tarry.node.edge.grpc_status import DETAILS_KEY, abort, refusal_in
from tarry.node.edge.grpc_types import CallContext, metadata_value
from tarry.node.edge.leader_calls import Answer, Local, refusal_of
from tarry.proto import tarry_operator_pb2 as pb
from tarry.proto.reasons import Reason
from tarry.replication.blocking import RunBlocking, in_thread
from tarry.replication.errors import NotLeader, Overloaded, Unknown
from tarry.replication.state_machine.levels import LevelTooLow
from tarry.replication.state_machine.refusal import Refusal

log = structlog.get_logger()

LINES_AT_ONCE_MAX: Final = 16
TEXT_CHARS_MAX: Final = 256
ITEMS_MAX: Final = 16
DENIED_PER_MINUTE_MAX: Final = 60
OK: Final = "OK"
CANCELLED: Final = "CANCELLED"
"""The caller went away, or the stream was ended, before there was an answer."""

_METHODS: Final = pb.DESCRIPTOR.services_by_name["OperatorService"].methods_by_name
REQUESTS: Final[Mapping[str, type[Message]]] = {
    name: GetMessageClass(method.input_type) for name, method in _METHODS.items()
}


@dataclass(slots=True)
class AuditStatus:
    """State of the log since the node's start."""

    enabled: bool = False
    lines: int = 0
    lost: int = 0
    """Lines that could not be written."""
    failure: str = ""
    """Why the last could not be; empty: it was."""


class Audit:
    """Records calls of OperatorService."""

    def __init__(
        self,
        settings: AuditSettings,
        node: str,
        authorizer: Authorizer,
        is_node: IsNode,
        status: AuditStatus,
        run_blocking: RunBlocking,
        wall_ms: Callable[[], float],
    ) -> None:
        """Take `status`, which is kept up to date."""
        self._settings, self._node = settings, node
        self._authorizer, self._is_node = authorizer, is_node
        self._run_blocking, self._wall_ms = run_blocking, wall_ms
        self.status = status
        status.enabled = settings.file is not None
        self._file = (
            AuditFile(settings.file, settings.file_bytes_max, settings.files_max) if settings.file else None
        )
        self._calls = itertools.count(1)
        self._start = os.urandom(4).hex()
        self._waiting: deque[tuple[bytes, asyncio.Future[str]]] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._denied = _PerMinute(DENIED_PER_MINUTE_MAX)

    @classmethod
    def none(cls, authorizer: Authorizer) -> Audit:
        """Return one that records nothing."""
        return cls(AuditSettings(), "", authorizer, lambda _: False, AuditStatus(), in_thread, int)

    async def begin(self, version: str) -> None:
        """Record that the node starts, which shows at once whether the log can be written."""
        if self._file is not None:
            await self._write({"stage": "started", "version": version})

    def unary(self, name: str, local: Local) -> Local:
        """Return the same call of that name, recorded."""
        if self._file is None:
            return local

        async def recorded(raw: bytes, context: CallContext) -> Answer:
            call = self._call(name, raw, context)
            result, text = CANCELLED, ""
            try:
                answer = await self._refused(call, context) or await local(raw, context)
                result, text = _result(answer)
                return answer
            except NotLeader:
                result = Reason.NOT_LEADER.value
                raise
            except (Overloaded, Unknown, LevelTooLow) as error:
                result, text = _result(refusal_of(error))
                raise
            except Exception as error:
                result, text = type(error).__name__, str(error)
                raise
            finally:
                await self._answered(call, result, text)

        return recorded

    def stream(
        self, name: str, behaviour: Callable[[bytes, CallContext], AsyncIterator[bytes]]
    ) -> Callable[[bytes, CallContext], AsyncIterator[bytes]]:
        """Return the same call of that name, whose responses are a stream, recorded."""
        if self._file is None:
            return behaviour

        async def recorded(raw: bytes, context: CallContext) -> AsyncIterator[bytes]:
            call = self._call(name, raw, context)
            told: Any = _ToldAborts(context, partial(self._answered, call))
            result, text = CANCELLED, ""
            try:
                if refusal := await self._refused(call, context):
                    await abort(told, refusal)
                responses: Any = behaviour(raw, told)
                async with aclosing(responses):
                    async for response in responses:
                        yield response
                result = OK
            except Exception as error:
                result, text = type(error).__name__, str(error)
                raise
            finally:
                if not told.aborted:
                    await self._answered(call, result, text)

        return recorded

    def answers(
        self, name: str, behaviour: Callable[[bytes, CallContext], Awaitable[bytes]]
    ) -> Callable[[bytes, CallContext], Awaitable[bytes]]:
        """Return the same call of that name, which aborts where it refuses, recorded."""
        if self._file is None:
            return behaviour

        async def one(raw: bytes, context: CallContext) -> AsyncIterator[bytes]:
            yield await behaviour(raw, context)

        stream = self.stream(name, one)

        async def recorded(raw: bytes, context: CallContext) -> bytes:
            [answer] = [answer async for answer in stream(raw, context)]
            return answer

        return recorded

    def _call(self, name: str, raw: bytes, context: CallContext) -> dict[str, Any]:
        caller = asdict(caller_of(context, self._is_node))
        who = {"token": self._authorizer.name(context), **caller}
        return {
            "call": f"{self._node}-{self._start}-{next(self._calls)}",
            "method": name,
            "arguments": _arguments(name, raw),
            **{key: value for key, value in who.items() if value},
        }

    async def _refused(self, call: dict[str, Any], context: CallContext) -> Refusal | None:
        """Record that a call is asked for; return why it is refused because of that."""
        if denied := self._authorizer.refusal(context, Right.OPERATE):
            return denied
        why = await self._write({"stage": "asked", **call})
        if not why or not self._settings.required:
            return None
        text = f"not done, for the audit log cannot be written ({why}): mend that, or audit.required = false"
        return Refusal(Reason.NOT_AUDITED, text)

    async def _answered(self, call: dict[str, Any], result: str, text: str) -> None:
        denied = result == Reason.PERMISSION_DENIED
        if denied and not self._denied.take(self._wall_ms()):
            return
        said: dict[str, Any] = {"result": result}
        if text:
            said["text"] = text[:TEXT_CHARS_MAX]
        if denied and (others := self._denied.left_out()):
            said["left_out"] = others
        await self._write({"stage": "answered", **call, **said})

    async def _write(self, line: dict[str, Any]) -> str:
        """Return why the line could not be made durable; empty: it is."""
        at = datetime.fromtimestamp(self._wall_ms() / 1_000, UTC).isoformat(timespec="milliseconds")
        text = json.dumps({"at": at, "node": self._node, **line}, ensure_ascii=False)
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((text.encode(errors="replace") + b"\n", done))
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_waiting(), name="audit")
        return await done

    async def _write_waiting(self) -> None:
        assert self._file is not None
        while self._waiting:
            some = [self._waiting.popleft() for _ in range(min(LINES_AT_ONCE_MAX, len(self._waiting)))]
            lines = b"".join(line for line, _ in some)
            try:
                await self._run_blocking(partial(self._file.append, lines))
                self._tell("", len(some))
            except OSError as error:
                self._tell(str(error), len(some))
            for _, done in some:
                if not done.done():  # its call was cancelled
                    done.set_result(self.status.failure)
        self._writing = None

    def _tell(self, failure: str, lines: int) -> None:
        status = self.status
        if failure:
            status.lost += lines
        else:
            status.lines += lines
        if failure and failure != status.failure:
            calls = "refused" if self._settings.required else "done all the same"
            log.error("audit log not written", why=failure, operators_calls=calls)
        elif status.failure and not failure:
            log.info("audit log written again", lines_lost=status.lost)
        status.failure = failure


class _PerMinute:
    """So many in a minute, and a count of the others."""

    def __init__(self, most: int) -> None:
        self._most, self._minute, self._taken, self._others = most, 0, 0, 0

    def take(self, now_ms: float) -> bool:
        minute = int(now_ms // 60_000)
        if minute != self._minute:
            self._minute, self._taken = minute, 0
        self._taken += 1
        self._others += self._taken > self._most
        return self._taken <= self._most

    def left_out(self) -> int:
        """Return how many were not taken since the last call."""
        others, self._others = self._others, 0
        return others


class _ToldAborts:
    """A call's context that says with which refusal the call is aborted before that is sent."""

    def __init__(self, context: CallContext, tell: Callable[[str, str], Awaitable[None]]) -> None:
        self._context, self._tell = context, tell
        self.aborted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def abort(self, code: Any, details: str = "", trailing_metadata: Any = ()) -> NoReturn:
        status = metadata_value(trailing_metadata, DETAILS_KEY)
        refusal = refusal_in(status) if isinstance(status, bytes) else None
        self.aborted = True
        await self._tell(refusal.reason.value if refusal else code.name, details)
        await self._context.abort(code, details, trailing_metadata)
        raise AssertionError("abort returned")


def _result(answer: Answer) -> tuple[str, str]:
    return (answer.reason.value, answer.text) if isinstance(answer, Refusal) else (OK, "")


def _arguments(name: str, raw: bytes) -> Any:
    """Return a request's fields as values of JSON; of long lists and texts the beginning."""
    try:
        request = REQUESTS[name].FromString(raw)
    except DecodeError:
        return "not a request"
    cut = {}
    fields: Any = request.ListFields()
    for field, value in fields:
        if field.is_repeated and len(value) > ITEMS_MAX:
            cut[field.name] = len(value)
            del value[ITEMS_MAX:]
    found = _short(MessageToDict(request, preserving_proto_field_name=True))
    for field_name, items in cut.items():
        found[field_name].append(f"… ({items} items)")
    return found


def _short(value: Any) -> Any:
    if isinstance(value, str) and len(value) > TEXT_CHARS_MAX:
        return f"{value[:TEXT_CHARS_MAX]}… ({len(value)} characters)"
    if isinstance(value, list):
        return [_short(one) for one in value]
    return {key: _short(one) for key, one in value.items()} if isinstance(value, dict) else value
