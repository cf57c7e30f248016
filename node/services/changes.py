"""Reschedule and Update: changes of pending messages, and of retries that wait.

ids ─► places ─► records are read ─► proposed with where they were read ─► outcomes
         ▲                                            │
         └──── what has moved meanwhile is read again ┘
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tarry.node.assembly import Core
from tarry.node.delivery.offset_search import keys_of
from tarry.node.edge.grpc_types import CallContext
from tarry.node.edge.intake_turns import IntakeTurns
from tarry.node.edge.leader_calls import Answer
from tarry.node.services.schedule_request import Intake, body_too_large
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto import tarry_producer_pb2 as pb
from tarry.proto.idempotency import scheduled_digest
from tarry.proto.reasons import Reason
from tarry.proto.tags import tag_mask
from tarry.proto.tarry_message_pb2 import Record, Retried
from tarry.replication.state_machine import levels
from tarry.replication.state_machine.command_costs import MOVE_NS, cost_us
from tarry.replication.state_machine.lanes import queue_of, unpack
from tarry.replication.state_machine.outcomes import Rescheduled
from tarry.replication.state_machine.refusal import Refusal
from tarry.replication.state_machine.reschedules import MOVED_MEANWHILE, OUTCOME_OF_STATE, WHENEVER
from tarry.wheel.columns import portions
from tarry.wheel.delay_log import is_there
from tarry.wheel.state import HOUR_MS, Numbers, UnknownMessage

NS_MAX: Final = 6_000_000
"""Estimated cost of one command's messages; a request whose messages take more becomes several."""
BYTES_MAX: Final = 1 << 20
"""Of the records of one command; a larger one goes alone."""
ATTEMPTS_MAX: Final = 8
"""How often a message is read again that another call moves at the same time."""
TURN_IDS: Final = 8_192
"""Read in one turn: some 5 ms."""
TURN_BYTES: Final = 1 << 20
"""Of updates looked at in one turn, as of schedule requests."""
CHANGED: Final = pb.CHANGE_OUTCOME_CHANGED
CANCELLED: Final = pb.CHANGE_OUTCOME_ALREADY_CANCELLED
NOT_FOUND: Final = pb.CHANGE_OUTCOME_NOT_FOUND

_BUSY: Final = Refusal(
    Reason.OVERLOADED, "others change the same messages all the time: try again later", retry_ms=100
)


class Ids(NamedTuple):
    """Ids of messages, columns of shape (n,)."""

    hour: Numbers
    global_index: Numbers

    def of(self, rows: NDArray[np.intp]) -> Ids:
        """Return some of them."""
        return Ids(self.hour[rows], self.global_index[rows])


class Edges(NamedTuple):
    """Parts of the producer's service that all its calls share."""

    ids: Callable[[list[str]], tuple[Numbers, Numbers] | Refusal]
    may_know: Callable[[CallContext, Numbers, Numbers], NDArray[np.bool_]]
    may_produce: Callable[[CallContext, str], bool]
    disk_allows: Callable[[], Refusal | None]
    intake: Callable[[], Intake]
    turns: IntakeTurns


@dataclass(slots=True)
class _Asked:
    """Aim of a call, and its outcomes so far; columns of shape (n,)."""

    ids: Ids
    due_ms: NDArray[np.int64] | None
    """None: they stay due when they are."""
    if_due_ms: NDArray[np.int64]
    topic: str
    group: str
    update: pb.UpdateRequest | None = None

    outcomes: NDArray[np.uint32] = field(init=False)
    due_now_ms: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.outcomes = np.full(len(self.ids.hour), NOT_FOUND, np.uint32)
        self.due_now_ms = np.zeros(len(self.ids.hour), np.int64)


class Changes:
    """Answers Reschedule and Update at the leader."""

    def __init__(self, core: Core, edges: Edges) -> None:
        self._limits = core.config.limits
        self._machine, self._driver, self._time = core.machine, core.driver, core.time
        self._damage, self._leadership = core.damage, core.leadership
        self._edges = edges

    async def reschedule(self, request: pb.RescheduleRequest, context: CallContext) -> Answer:
        """Answer a Reschedule."""
        n, most = len(request.ids), self._limits.reschedule_ids_max
        if not 0 < n <= most:
            reason = Reason.BATCH_TOO_LARGE if n else Reason.REQUEST_EMPTY
            return Refusal(reason, f"{n} ids: give 1 to {most}")
        due_ms, if_due_ms = self._due(request), _column(request.if_due_ms, n, "if_due_ms")
        if isinstance(due_ms, Refusal):
            return due_ms
        if isinstance(if_due_ms, Refusal):
            return if_due_ms
        ids = self._edges.ids(list(request.ids))
        if isinstance(ids, Refusal):
            return ids
        if len(set(request.ids)) < n:
            return Refusal(Reason.ID_MALFORMED, "an id is given twice: name each message once")
        asked = _Asked(Ids(*ids), due_ms, if_due_ms, request.topic, request.group)
        refusal = await self._change(asked, context)
        if refusal is not None:
            return refusal
        return pb.RescheduleResponse(
            outcomes=asked.outcomes.tolist(), due_ms=asked.due_now_ms.tolist()
        ).SerializeToString()

    async def update(self, request: pb.UpdateRequest, context: CallContext) -> Answer:
        """Answer an Update."""
        if not any(map(request.HasField, ("body", "tags", "keys", "properties"))):
            return Refusal(Reason.REQUEST_EMPTY, "give a body, tags, keys or properties")
        ids = self._edges.ids([request.id])
        if isinstance(ids, Refusal):
            return ids
        if request.HasField("if_due_ms") and request.if_due_ms < 0:
            return Refusal(Reason.DUE_INVALID, "if_due_ms is negative: it counts from the epoch, UTC")
        expected = np.array([request.if_due_ms if request.HasField("if_due_ms") else WHENEVER], np.int64)
        asked = _Asked(Ids(*ids), None, expected, request.topic, request.group, request)
        refusal = await self._change(asked, context)
        if refusal is not None:
            return refusal
        outcome, due_ms = int(asked.outcomes[0]), int(asked.due_now_ms[0])
        return pb.UpdateResponse(outcome=outcome, due_ms=due_ms).SerializeToString()  # type: ignore[arg-type]

    def _due(self, request: pb.RescheduleRequest) -> NDArray[np.int64] | Refusal:
        """Return the due times asked for, shape (n,)."""
        if bool(request.due_ms) == bool(request.delay_ms):
            reason = Reason.DUE_AMBIGUOUS if request.due_ms else Reason.DUE_MISSING
            return Refusal(reason, "give one of due_ms and delay_ms")
        now_ms, horizon_ms = self._time.latest_ms(), self._limits.due_horizon_ms
        name = "due_ms" if request.due_ms else "delay_ms"
        values = _column(getattr(request, name), len(request.ids), name)
        if isinstance(values, Refusal):
            return values
        if int(values.max()) > horizon_ms + (now_ms if request.due_ms else 0):
            text = f"a {name} of {values.max()} is more than {horizon_ms} ms ahead: is it in ms?"
            return Refusal(Reason.DUE_TOO_FAR, text)
        return values if request.due_ms else now_ms + values

    async def _change(self, asked: _Asked, context: CallContext) -> Refusal | None:
        """Change the messages, and set what has come of it."""
        size = asked.update.ByteSize() if asked.update is not None else 0
        await self._edges.turns.enter(len(asked.ids.hour) / TURN_IDS + size / TURN_BYTES)
        await self._driver.read_barrier()
        if not self._machine.may_propose(levels.RESCHEDULES):
            return levels.too_low(levels.RESCHEDULES, self._machine.level)
        refusal = self._edges.disk_allows()
        if refusal is not None:
            return refusal
        left = np.arange(len(asked.ids.hour))
        for _ in range(ATTEMPTS_MAX):
            places = await self._places(asked, left, context)
            if isinstance(places, Refusal):
                return places
            for rows in self._portions(places.of(left)):
                refusal = await self._piece(asked, left[rows], places.of(left[rows]), context)
                if refusal is not None:
                    return refusal
            again = asked.outcomes[left] == MOVED_MEANWHILE
            if asked.group:  # a copy that was found is elsewhere, or was cancelled: the next search tells
                found = self._are_copies(asked, left, places.of(left))
                again |= found & (asked.outcomes[left] == CANCELLED)
            left = left[again]
            if not len(left):
                return None
        return _BUSY if bool((asked.outcomes == MOVED_MEANWHILE).any()) else None

    def _portions(self, places: Ids) -> list[NDArray[np.intp]]:
        """Return the rows of each command."""
        order = np.argsort(places.hour, kind="stable")
        costs_ns = np.uint32(MOVE_NS) + self._machine.wheel.costs_ns(
            places.hour[order], places.global_index[order]
        )
        return [order[rows] for rows in portions(costs_ns, NS_MAX)]

    async def _places(self, asked: _Asked, left: NDArray[np.intp], context: CallContext) -> Ids | Refusal:
        """Return where the messages rest, or the copies that wait for a retry."""
        if not asked.group:
            return Ids(*self._machine.wheel.places_of(*asked.ids))
        delivery = self._leadership.delivery
        if delivery is None:
            return self._leadership.not_leader()
        topic = asked.topic or self._topic_of(asked.ids.of(left), context)
        if not topic:
            text = "the messages are not kept any more, only their retries: give the topic as well"
            return Refusal(Reason.TOPIC_UNKNOWN, text)
        keys = keys_of(*asked.ids)
        found = {}
        if self._edges.may_produce(context, topic):  # else the messages are told of as unknown
            found = await delivery.waiting_copies(topic, asked.group, keys[left])
        places = Ids(*map(np.array, self._machine.wheel.places_of(*asked.ids)))
        outcomes = OUTCOME_OF_STATE[self._machine.wheel.states(*places.of(left))]
        asked.outcomes[left] = np.where(outcomes == CHANGED, NOT_FOUND, outcomes)  # where no copy is found
        hour, index = places
        for row in left.tolist():
            hour[row], index[row] = found.get(int(keys[row]), (hour[row], index[row]))
        return Ids(hour, index)

    def _are_copies(self, asked: _Asked, rows: NDArray[np.intp], places: Ids) -> NDArray[np.bool_]:
        """Flag the rows of which a copy was found: else they have the places of their messages."""
        own = self._machine.wheel.places_of(*asked.ids.of(rows))
        copies: NDArray[np.bool_] = keys_of(*places) != keys_of(*own)
        return copies

    def _topic_of(self, ids: Ids, context: CallContext) -> str:
        """Return the topic of the first of the messages that is kept, and that the caller may know of."""
        wheel = self._machine.wheel
        hour, index = wheel.places_of(*ids)
        for row in np.flatnonzero(wheel.known(hour, index) & self._edges.may_know(context, hour, index))[
            :1
        ].tolist():
            units = wheel.units(hour[row : row + 1], index[row : row + 1], thinned=True)
            if bool(is_there(units)[0]):
                return self._machine.queues[int(queue_of(units["topic"])[0])].topic
        return ""

    async def _piece(
        self, asked: _Asked, rows: NDArray[np.intp], places: Ids, context: CallContext
    ) -> Refusal | None:
        """Change some of the messages; those without room in one command go with the next."""
        while len(rows):
            if (
                not asked.group
            ):  # a message may have moved since: its old place would tell that it is cancelled
                places = Ids(*self._machine.wheel.places_of(*asked.ids.of(rows)))
            found = self._look(asked, rows, places, context)
            if found is None:
                await asyncio.sleep(0)
                return None
            chosen, units, beyond = found
            refusal = await self._propose(asked, rows[chosen], places.of(chosen), units)
            if refusal is not None:
                return refusal
            rows, places = rows[beyond], places.of(beyond)
        return None

    def _look(
        self, asked: _Asked, rows: NDArray[np.intp], places: Ids, context: CallContext
    ) -> tuple[NDArray[np.intp], NDArray[np.void], NDArray[np.intp]] | None:
        """Return which rows of those to go on with now, their units, and which later; set other outcomes."""
        wheel, copies = self._machine.wheel, bool(asked.group)
        asked.due_now_ms[rows] = 0  # an attempt before this may have found it pending
        may_know = self._edges.may_know(context, *places)
        asked.outcomes[rows[~may_know]] = NOT_FOUND
        known = np.flatnonzero(may_know)
        if copies:
            known = known[self._are_copies(asked, rows[known], places.of(known))]
        outcomes = OUTCOME_OF_STATE[wheel.states(*places.of(known))]
        asked.outcomes[rows[known]] = outcomes
        pending = known[outcomes == CHANGED]
        units = wheel.units(*places.of(pending))
        of = [self._machine.queues[number] for number in queue_of(units["topic"]).tolist()]
        mine = [bool(queue.group) == copies and not queue.deleted for queue in of]
        asked.outcomes[rows[pending[~np.array(mine, np.bool_)]]] = NOT_FOUND
        pending, units = pending[np.array(mine, np.bool_)], units[np.array(mine, np.bool_)]
        if not len(pending):
            return None
        fit = next(portions(units["size"], BYTES_MAX)).stop
        return pending[:fit], units[:fit], pending[fit:]

    async def _propose(
        self, asked: _Asked, rows: NDArray[np.intp], places: Ids, units: NDArray[np.void]
    ) -> Refusal | None:
        try:
            records = await self._damage.read(*places)
        except UnknownMessage:  # released meanwhile, and its hour deleted
            asked.outcomes[rows] = MOVED_MEANWHILE
            return None
        whole = [record for record in records if record is not None]
        if len(whole) < len(records):
            return Refusal(Reason.MESSAGE_DAMAGED, "no node in reach has a message's record whole")
        due_ms = places.hour.astype(np.int64) * HOUR_MS + units["due_in_hour_ms"]
        command = log_pb.RescheduleCommand(
            hour=(places if asked.group else asked.ids.of(rows)).hour.astype("<u4").tobytes(),
            global_index=(places if asked.group else asked.ids.of(rows)).global_index.astype("<u4").tobytes(),
            place_hour=places.hour.astype("<u4").tobytes(),
            place_index=places.global_index.astype("<u4").tobytes(),
            due_ms=(due_ms if asked.due_ms is None else asked.due_ms[rows]).astype("<i8").tobytes(),
            if_due_ms=asked.if_due_ms[rows].astype("<i8").tobytes(),
            records=whole,
            copies=bool(asked.group),
            second_messages_max=self._limits.second_messages_max,
            now_ms=self._time.now_ms(),
        )
        if asked.update is not None:
            refusal = self._updated(command, asked.update, units)
            if refusal is not None:
                return refusal
        more_us = int(self._machine.wheel.costs_ns(*places).sum(dtype=np.int64)) // 1_000
        outcome: Rescheduled | Refusal = await self._driver.propose(
            self._machine.encode(command), cost_us(command) + more_us
        )
        if isinstance(outcome, Refusal):
            return outcome.of_rows(rows)
        asked.outcomes[rows], asked.due_now_ms[rows] = outcome.outcomes, outcome.due_ms
        return None

    def _updated(
        self, command: log_pb.RescheduleCommand, request: pb.UpdateRequest, units: NDArray[np.void]
    ) -> Refusal | None:
        """Replace the parts of the record of a command for one message, unless it has them already."""
        queue = self._machine.queues[int(queue_of(units["topic"])[0])]
        copy = Retried.FromString(command.records[0]) if queue.group else None
        before = Record.FromString(command.records[0] if copy is None else copy.record)
        record = changed(before, request)
        mask = unpack(units["topic"], units["tag_mask"])[1]
        if record.tags != before.tags:
            mask = np.array([tag_mask(record.tags, record.ordering_key)], np.uint64)
        command.tag_mask = mask.astype("<u8").tobytes()
        if record == before:
            return None
        checked = self._edges.intake().record(record)
        if checked is not None:
            return checked
        if copy is None and record.idempotency_key:  # by which what comes again under the key is compared
            record.scheduled_digest = scheduled_digest(before)
        stored = record.SerializeToString(deterministic=True)
        bytes_max = queue.settings.body_bytes_max
        columns = log_pb.ScheduleColumns(topics=[queue.topic], records=[stored])
        if bytes_max and (refusal := body_too_large(columns, [bytes_max])):
            return refusal
        if copy is not None:
            copy.record = stored
            stored = copy.SerializeToString()
        command.records[0] = stored
        return None


def changed(record: Record, request: pb.UpdateRequest) -> Record:
    """Return a record with the parts that a request sets, and the others as they are."""
    new = Record.FromString(record.SerializeToString())
    if request.HasField("body"):
        new.body = request.body
    for name in ("tags", "keys"):
        if request.HasField(name):
            new.ClearField(name)
            getattr(new, name).extend(getattr(request, name).texts)
    if request.HasField("properties"):
        new.properties.clear()
        new.properties.update(request.properties.properties)
    return new


def _column(values: Sequence[int], n: int, name: str) -> NDArray[np.int64] | Refusal:
    """Return one value a message, of one for all or one for each; of none WHENEVER."""
    if len(values) not in (0, 1, n):
        text = f"{len(values)} values of {name} for {n} ids: give one for all, or one for each"
        return Refusal(Reason.COLUMNS_DIFFER, text)
    column = np.array(values, np.int64)
    if bool((column < 0).any()):
        reason = Reason.DELAY_NEGATIVE if name == "delay_ms" else Reason.DUE_INVALID
        text = f"{name} {column.min()} is negative" + (
            "" if name == "delay_ms" else ": it counts from the epoch"
        )
        return Refusal(reason, text)
    return np.broadcast_to(column, n).copy() if len(column) else np.full(n, WHENEVER, np.int64)
