"""The table of operations: routes, checks and the OpenAPI document are made of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel
from starlette.responses import Response

from tarry.gateway.http import asking, consuming, fields, scheduling
from tarry.gateway.http.call import Call

Handler = Callable[[Call], Awaitable[BaseModel | bytes | Response]]
"""Returns the answer, bytes where it is written already, since it may be large."""


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path, and its checks."""

    name: str
    method: str
    path: str
    """Names in braces are parameters."""
    summary: str
    handle: Handler
    query: type[fields.Given] | None = None
    body: type[fields.Given] | None = None
    answer: type[fields.Told] | None = None
    """None: an event stream."""
    status: int = 200
    polls: bool = False
    """It may wait for long."""
    notes: str = ""

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters in the path."""
        return [part[1:-1] for part in self.path.split("/") if part.startswith("{")]


_TOPIC: Final = "/v1/topics/{topic}"
_GROUP: Final = "/v1/topics/{topic}/groups/{group}"
_MESSAGE: Final = "/v1/messages/{id}"

OPERATIONS: Final = (
    Operation(
        "schedule",
        "POST",
        f"{_TOPIC}/messages",
        "Schedule a message; answered once it is on the disks of a majority.",
        scheduling.schedule,
        body=fields.NewMessage,
        answer=fields.ScheduledMessage,
        status=201,
        notes="After 504 it may be scheduled or not: with an idempotency_key send it again, and it is once.",
    ),
    Operation(
        "schedule_batch",
        "POST",
        f"{_TOPIC}/messages/batch",
        "Schedule messages, all of them or none.",
        scheduling.schedule_batch,
        body=fields.NewMessages,
        answer=fields.ScheduledMessages,
        status=201,
        notes="All have the same kind of time, and all or none an idempotency_key.",
    ),
    Operation(
        "list",
        "GET",
        f"{_TOPIC}/messages",
        "Show a page of what waits on a topic: pending by due time, retries, then what is released.",
        asking.list_messages,
        query=fields.ListQuery,
        answer=fields.ListedMessages,
    ),
    Operation(
        "find",
        "GET",
        f"{_TOPIC}/find",
        "Find the messages of a topic that have a key, as of now.",
        asking.find,
        query=fields.FindQuery,
        answer=fields.FoundMessages,
    ),
    Operation(
        "get",
        "GET",
        _MESSAGE,
        "Show a message as it is now.",
        asking.get,
        query=fields.BodyQuery,
        answer=fields.Stored,
    ),
    Operation(
        "cancel",
        "DELETE",
        _MESSAGE,
        "Cancel a message until a consumer is given it.",
        scheduling.cancel,
        query=fields.CancelQuery,
        answer=fields.Cancelled,
        notes="The outcome says what came of it; the status is 200 for each.",
    ),
    Operation(
        "cancel_many",
        "POST",
        "/v1/messages/cancel",
        "Cancel messages by their ids.",
        scheduling.cancel_many,
        body=fields.Cancels,
        answer=fields.CancelledMessages,
    ),
    Operation(
        "reschedule",
        "POST",
        f"{_MESSAGE}/reschedule",
        "Have a pending message due at another time; its id stays valid.",
        scheduling.reschedule,
        body=fields.NewTime,
        answer=fields.Changed,
    ),
    Operation(
        "update",
        "PATCH",
        _MESSAGE,
        "Replace parts of a pending message; what is not given stays.",
        scheduling.update,
        body=fields.NewContent,
        answer=fields.Changed,
    ),
    Operation(
        "forecast",
        "GET",
        "/v1/forecast",
        "Count the pending messages that are due in each second, minute or hour.",
        asking.forecast,
        query=fields.ForecastQuery,
        answer=fields.ForecastTold,
    ),
    Operation(
        "receive",
        "POST",
        f"{_GROUP}/receive",
        "Receive due messages under a lease, and wait for the first of them.",
        consuming.receive,
        body=fields.ReceiveBody,
        answer=fields.ReceivedMessages,
        polls=True,
        notes="Whoever has a handle settles by it, at any gateway.",
    ),
    Operation(
        "events",
        "GET",
        f"{_GROUP}/events",
        "Receive messages as server-sent events: `message`, `error`, and `end` when the stream has lasted.",
        consuming.events,
        query=fields.EventsQuery,
        notes="Settle each by its handle. What is in hand when the stream ends is given to others at once.",
    ),
    Operation(
        "ack",
        "POST",
        "/v1/ack",
        "Acknowledge messages: they are done.",
        consuming.ack,
        body=fields.Handles,
        answer=fields.SettledMessages,
    ),
    Operation(
        "nack",
        "POST",
        "/v1/nack",
        "Have messages delivered again, later.",
        consuming.nack,
        body=fields.NackBody,
        answer=fields.SettledMessages,
    ),
    Operation(
        "extend",
        "POST",
        "/v1/extend",
        "Keep messages in hand for longer.",
        consuming.extend,
        body=fields.ExtendBody,
        answer=fields.SettledMessages,
    ),
)
