"""Schedules with idempotency keys: which of them are new is decided by the leader, before it proposes them.

    names ─► wait for requests under way that have some of them ─► the key index: used? ─► new ones: an entry
                                                                        └─► repeated, or a conflict

No replica keeps a table of keys. A leader has applied all entries of earlier terms before it looks, and all
of its own that have a key it looks for have been decided: so its entry, if it is committed at all, comes
behind everything that could have the key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from tarry.node.assembly import Core
from tarry.node.edge.intake_turns import IntakeTurns
from tarry.node.edge.leader_calls import Answer
from tarry.node.keys.used_keys import Name, Used, UsedKeys
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.idempotency import digest
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tarry.replication.errors import NotLeader, Overloaded
from tarry.replication.state_machine.command_costs import cost_us
from tarry.replication.state_machine.keys import idempotency_keys
from tarry.replication.state_machine.outcomes import Scheduled
from tarry.replication.state_machine.refusal import Refusal

COMPARED: Final = 128
"""Records that are compared in one turn of the event loop, at some 20 µs each, or so many bytes of them."""
COMPARED_BYTES: Final = 1 << 20

REQUESTS_MAX: Final = 8_192
"""Requests that wait for each other, are looked up or proposed; also such as their callers have given up."""
BYTES_MAX: Final = 64 << 20
"""Their bytes together; a larger one is taken alone."""
NAME_BYTES: Final = 256
"""Of each of their messages beside: its topic and key, and where it is in the tables by these."""
TURN_REQUESTS: Final = 32
"""That go on in one turn, where the one that they have waited for is decided."""
RETRY_MS: Final = 50
"""After which more may be asked."""
U4: Final = np.dtype("<u4")
I8: Final = np.dtype("<i8")


class IdempotentSchedules:
    """Decides about schedule commands with idempotency keys, those with the same key one after another."""

    def __init__(self, core: Core) -> None:
        self._machine, self._driver, self._shard = core.machine, core.driver, core.config.shard
        self._used = UsedKeys(core.keys, core.machine, core.damage, core.config, core.time)
        self._under_way: dict[Name, asyncio.Future[None]] = {}
        """By key, of the last request that has it."""
        self._turns = IntakeTurns()
        self._deciding: set[asyncio.Task[Answer]] = set()
        self._deciding_bytes = 0

    async def answer(self, command: log_pb.ScheduleCommand, *, flushed: bool = False) -> Answer:
        """Return the answer to a command: a ScheduleBatchResponse, serialized. Raises what a proposal does.

        ``flushed``: only once a majority has flushed all of it, what was scheduled before too.

        A caller that goes away does not end it: its keys are under way until what is proposed is decided.
        """
        size = command.ByteSize() + NAME_BYTES * len(command.request.records)
        too_much = self._deciding and self._deciding_bytes + size > BYTES_MAX
        if too_much or len(self._deciding) >= REQUESTS_MAX:
            raise Overloaded(RETRY_MS)
        deciding = asyncio.ensure_future(self._in_turn(command, flushed=flushed))
        self._deciding.add(deciding)
        self._deciding_bytes += size
        deciding.add_done_callback(partial(self._decided, size))
        return await asyncio.shield(deciding)

    def _decided(self, size: int, deciding: asyncio.Task[Answer]) -> None:
        self._deciding.discard(deciding)
        self._deciding_bytes -= size
        if not deciding.cancelled():
            deciding.exception()  # known, whether its caller still waits for it or not

    async def _in_turn(self, command: log_pb.ScheduleCommand, *, flushed: bool) -> Answer:
        names = names_of(command)
        rows = dict(zip(reversed(names), range(len(names) - 1, -1, -1), strict=True))  # the first of each
        before = {self._under_way[name] for name in rows.keys() & self._under_way.keys()}
        decided: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way.update(dict.fromkeys(rows, decided))  # whoever comes waits for the last: few wake up
        try:
            if before:
                await asyncio.wait(before)
                await self._turns.enter(1 / TURN_REQUESTS)
            return await self._decide(command, names, rows, flushed=flushed)
        finally:
            for name in rows:
                if self._under_way.get(name) is decided:
                    del self._under_way[name]
            decided.set_result(None)

    async def _decide(
        self,
        command: log_pb.ScheduleCommand,
        names: Sequence[Name],
        rows: Mapping[Name, int],
        *,
        flushed: bool,
    ) -> Answer:
        await self._driver.read_barrier()
        term = self._driver.consensus.state.term
        used = await self._used.find(rows.keys())
        if isinstance(used, Refusal):
            return used
        conflict = await self._conflict(command, names, rows, used)
        if conflict is not None:
            return conflict
        new = np.array(sorted(row for name, row in rows.items() if name not in used), np.intp)
        scheduled = log_pb.ScheduledColumns(shard=self._shard)
        if len(new):
            part = command if len(new) == len(names) else of_rows(command, new)
            encoded = self._machine.encode(part)
            if self._driver.consensus.state.term != term:
                raise NotLeader(None)  # another leader's entries may lie between
            outcome: Scheduled | Refusal = await self._driver.propose(encoded, cost_us(part), flushed=flushed)
            if not isinstance(outcome, Scheduled):
                return outcome.of_rows(new)
            if part is command:
                return outcome.response
            scheduled = log_pb.ScheduledColumns.FromString(outcome.response)
        elif flushed:
            # The request whose keys these are may have been answered before it was flushed, or not at all;
            # also where the cluster's durability is sync by now.
            nothing = log_pb.ClusterSettingsCommand()
            await self._driver.propose(self._machine.encode(nothing), cost_us(nothing), flushed=True)
        return _response(scheduled, names, rows, used, new)

    async def _conflict(
        self,
        command: log_pb.ScheduleCommand,
        names: Sequence[Name],
        rows: Mapping[Name, int],
        used: Mapping[Name, Used],
    ) -> Refusal | None:
        """Return the refusal of a message whose key was scheduled with other content."""
        records, compared, size = command.request.records, 0, 0
        for row, name in enumerate(names) if used or len(rows) < len(names) else ():
            before = used.get(name)
            if before is None and rows[name] == row:
                continue
            first = before.digest if before is not None else digest(Record.FromString(records[rows[name]]))
            if digest(Record.FromString(records[row])) != first:
                return self._differs(name, row, before)
            compared, size = compared + 1, size + len(records[row])
            if compared >= COMPARED or size >= COMPARED_BYTES:
                compared = size = 0
                await asyncio.sleep(0)
        return None

    def _differs(self, name: Name, row: int, before: Used | None) -> Refusal:
        topic, key = name[0], name[1].decode()
        facts, which, advice = {"position": str(row)}, "another message of this request", ""
        if before is not None:
            facts["id"] = which = str(MessageId(self._shard, before.hour, before.global_index))
            advice = f", or update {which} while it is pending"
        text = (  # not what it contains now: after an update that may be the same
            f"{which} was scheduled with the idempotency key {key[:80]!r} of topic {topic!r} and other "
            f"content: give this one a key of its own{advice}"
        )
        return Refusal(Reason.IDEMPOTENCY_CONFLICT, text, facts)


def names_of(command: log_pb.ScheduleCommand) -> list[Name]:
    """Return topic and idempotency key of each of a command's messages."""
    request = command.request
    keys = idempotency_keys(request.records)
    if request.topic:
        topics = list(map(request.topics.__getitem__, np.frombuffer(request.topic, U4).tolist()))
    else:
        topics = [request.topics[0]] * len(keys)
    return list(zip(topics, keys, strict=True))


def of_rows(command: log_pb.ScheduleCommand, rows: NDArray[np.intp]) -> log_pb.ScheduleCommand:
    """Return a command for some of its messages, ascending."""
    part, request = log_pb.ScheduleCommand(), command.request
    part.CopyFrom(command)
    part.request.ClearField("records")
    part.request.records.extend(request.records[row] for row in rows.tolist())
    for holder, names in ((part.request, ("topic", "due_ms", "tag_mask")), (part, ("due_ms", "lane"))):
        for name in names:
            if column := getattr(holder, name):
                width = len(column) // len(request.records)
                setattr(holder, name, np.frombuffer(column, f"V{width}")[rows].tobytes())
    if command.key_message:
        message = np.frombuffer(command.key_message, U4)
        kept = np.isin(message, rows)
        part.key_message = np.searchsorted(rows, message[kept]).astype(U4).tobytes()
        part.key_hash = np.frombuffer(command.key_hash, "<u8")[kept].tobytes()
    return part


def _response(
    scheduled: log_pb.ScheduledColumns,
    names: Sequence[Name],
    rows: Mapping[Name, int],
    used: Mapping[Name, Used],
    new: NDArray[np.intp],
) -> bytes:
    """Return the answer about all messages: the new ones have been scheduled, the others were before."""
    n = len(names)
    hour, index, due_ms = np.zeros(n, U4), np.zeros(n, U4), np.zeros(n, I8)
    hour[new] = np.frombuffer(scheduled.hour, U4)
    index[new] = np.frombuffer(scheduled.global_index, U4)
    due_ms[new] = np.frombuffer(scheduled.due_ms, I8)
    first = np.array(list(map(rows.__getitem__, names)), np.intp)
    for name, message in used.items():
        at = rows[name]
        hour[at], index[at], due_ms[at] = message.hour, message.global_index, message.due_ms
    repeated = np.ones(n, np.bool_)
    repeated[new] = False
    scheduled.overdue = new[np.frombuffer(scheduled.overdue, U4).astype(np.intp)].astype(U4).tobytes()
    scheduled.hour, scheduled.global_index = hour[first].tobytes(), index[first].tobytes()
    scheduled.due_ms = due_ms[first].tobytes()
    scheduled.repeats = np.flatnonzero(repeated).astype(U4).tobytes()
    return scheduled.SerializeToString()
