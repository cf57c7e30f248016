"""Requests and answers as their fields: they are checked against these, and the OpenAPI page shows them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from tarry.client.integers import INT64_MAX, UINT32_MAX
from tarry.client.queries.forecast import BUCKET_MS
from tarry.client.queries.listing import ListedState
from tarry.client.results import CancelOutcome, ChangeOutcome, MessageState
from tarry.gateway.http.bodies import BodyAs
from tarry.gateway.times import time_ms

TEXTS_MAX = 1_000
"""Tags or keys of a request; nodes have bounds of their own, below."""
COUNT_MAX = 4_096
"""Messages, ids or handles of a request, at most: what `batch_messages_max` may be set to."""


def _check_time(text: str) -> str:
    time_ms(text)
    return text


Text = Annotated[str, Field(max_length=2_000)]
Texts = Annotated[list[Text], Field(max_length=TEXTS_MAX, fail_fast=True)]
Properties = Annotated[dict[Text, Annotated[str, Field(max_length=300_000)]], Field(max_length=TEXTS_MAX)]
TimeText = Annotated[
    str, Field(max_length=60, examples=["2026-12-01T09:00:00Z"]), AfterValidator(_check_time)
]
Ms = Annotated[int, Field(ge=-INT64_MAX, le=INT64_MAX)]
Natural = Annotated[int, Field(ge=0, le=INT64_MAX)]
UInt = Annotated[int, Field(ge=0, le=UINT32_MAX)]
Positive = Annotated[int, Field(ge=1, le=UINT32_MAX)]


class Given(BaseModel):
    """Fields of a request: others are refused by name, and types are not converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Told(BaseModel):
    """Fields of an answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _time_of(due: str | None, due_ms: int | None) -> int | None:
    """Return a time that is given in one of two fields. Raises ValueError where both are."""
    if due is not None and due_ms is not None:
        raise ValueError("give due or due_ms, not both")
    return due_ms if due is None else time_ms(due)


# -- messages to schedule ------------------------------------------------------------------


class Content(Given):
    """Content of a message; of the fields of the body, one."""

    body: str | None = Field(default=None, description="The body, as text.")
    body_json: Any = Field(default=None, description="The body, as any JSON value; stored as compact JSON.")
    body_base64: str | None = Field(default=None, description="The body, as base64 of any bytes.")
    tags: Texts | None = Field(default=None, description="By which consumers may filter.")
    keys: Texts | None = Field(default=None, description="By which it is found.")
    properties: Properties | None = None

    @property
    def body_given(self) -> dict[str, Any]:
        """Of the fields of the body those that are given; ``body_json`` may be null."""
        names = self.model_fields_set & {"body", "body_json", "body_base64"}
        return {
            name: getattr(self, name)
            for name in names
            if name == "body_json" or getattr(self, name) is not None
        }


class NewMessage(Content):
    """A message to schedule; of ``due``, ``due_ms``, ``delay_ms`` and ``delay_level``, one."""

    due: TimeText | None = Field(default=None, description="When it is due, in ISO 8601 with a zone.")
    due_ms: Ms | None = Field(default=None, description="The same, in milliseconds since the epoch.")
    delay_ms: Ms | None = Field(default=None, description="From the cluster's now.")
    delay_level: UInt | None = Field(
        default=None, description="Entry of the cluster's table of delays, from 1."
    )
    jitter_ms: UInt = Field(default=0, description="Due later by a random time of at most this.")
    ordering_key: Text = Field(default="", description="Messages of one key are delivered one after another.")
    idempotency_key: Text = Field(
        default="", description="Of messages with one key only the first is scheduled."
    )

    @model_validator(mode="after")
    def _check(self) -> NewMessage:
        times = self.due, self.due_ms, self.delay_ms, self.delay_level
        if sum(time is not None for time in times) != 1:
            raise ValueError("give exactly one of due, due_ms, delay_ms and delay_level")
        return self

    @property
    def time(self) -> tuple[str, int]:
        """Name and value of the one time that is given: ``due_ms``, ``delay_ms`` or ``delay_level``."""
        due_ms = _time_of(self.due, self.due_ms)
        if due_ms is not None:
            return "due_ms", due_ms
        if self.delay_ms is not None:
            return "delay_ms", self.delay_ms
        assert self.delay_level is not None
        return "delay_level", self.delay_level


class BatchMessage(NewMessage):
    """A message of a batch."""

    topic: Text = Field(default="", description="Its topic; empty: the one that the path names.")


class NewMessages(Given):
    """Messages to schedule, all of them or none."""

    messages: Annotated[list[BatchMessage], Field(min_length=1, max_length=COUNT_MAX, fail_fast=True)]


class ScheduledMessage(Told):
    """A message that is scheduled: on the disks of a majority."""

    id: str
    due_ms: int = Field(description="As the cluster took it.")
    overdue: bool = Field(description="It was due already, and is delivered at once.")
    repeated: bool = Field(description="It had been scheduled by an earlier request, and was not again.")


class ScheduledMessages(Told):
    """Scheduled messages, in the order in which they were given."""

    messages: list[ScheduledMessage]


# -- changes -------------------------------------------------------------------------------


class CancelQuery(Given):
    """Options of a cancel."""

    remaining_groups: bool = Field(
        default=False, description="Where groups have had it, cancel it for the others."
    )


class Cancels(CancelQuery):
    """Messages to cancel."""

    ids: Annotated[list[Text], Field(min_length=1, max_length=COUNT_MAX, fail_fast=True)]


class Cancelled(Told):
    """Outcome of a cancel."""

    id: str
    outcome: CancelOutcome


class CancelledMessages(Told):
    """Outcomes of cancels, in order."""

    messages: list[Cancelled]


class IfDue(Given):
    """Condition of a change, and whose retry it is about."""

    if_due_ms: Natural | None = Field(default=None, description="Change it only where it is due then.")
    group: Text = Field(default="", description="It waits for its retry in this group: change the retry.")
    topic: Text = Field(
        default="", description="With a group, where only the retry is kept: the message's topic."
    )


class NewTime(IfDue):
    """The new due time of a message; of ``due``, ``due_ms`` and ``delay_ms``, one."""

    due: TimeText | None = None
    due_ms: Natural | None = None
    delay_ms: Natural | None = Field(default=None, description="From the cluster's now.")

    @model_validator(mode="after")
    def _check(self) -> NewTime:
        if sum(time is not None for time in (self.due, self.due_ms, self.delay_ms)) != 1:
            raise ValueError("give exactly one of due, due_ms and delay_ms")
        return self

    @property
    def new_due_ms(self) -> int | None:
        """The due time, where it is no delay."""
        return _time_of(self.due, self.due_ms)


class NewContent(Content, IfDue):
    """Replaced parts of a message; others stay."""

    @model_validator(mode="after")
    def _check(self) -> NewContent:
        others = self.tags, self.keys, self.properties
        if not self.body_given and all(each is None for each in others):
            raise ValueError("give a body, tags, keys or properties")
        return self


class Changed(Told):
    """Outcome of a reschedule or an update."""

    id: str
    outcome: ChangeOutcome
    due_ms: int | None = Field(description="When it is due now; null where it is not pending.")


# -- queries -------------------------------------------------------------------------------


class BodyQuery(Given):
    """Form of the bodies in an answer."""

    body_as: BodyAs = Field(default="text", description="text or json where they are that, else base64.")


class StoredFields(Told):
    """Content of a message; the body in one of three fields."""

    tags: list[str]
    keys: list[str]
    ordering_key: str
    idempotency_key: str
    properties: dict[str, str]
    body: str | None = None
    body_json: Any = None
    body_base64: str | None = None


class Stored(StoredFields):
    """A message as it is now."""

    id: str
    topic: str
    due_ms: int
    state: MessageState
    born_ms: int | None = Field(description="As it was sent, by its producer's clock; null: not known.")
    stored_ms: int | None = Field(description="As the cluster took it, by its clock; null: not known.")


class ListQuery(BodyQuery):
    """Messages of a topic that have all that is given."""

    tags: Texts | None = Field(default=None, description="Any of these.")
    key: Text | None = Field(default=None, description="It has this key.")
    key_prefix: Text | None = Field(default=None, description="One of its keys begins so.")
    due_from_ms: Natural | None = None
    due_to_ms: Natural | None = Field(default=None, description="Due before.")
    states: Annotated[list[Annotated[ListedState, Field(strict=False)]], Field(max_length=10)] | None = None
    group: Text = Field(default="", description="Tell what released messages are to it.")
    bodies: bool = False
    size: Annotated[int, Field(ge=1, le=1_000)] = 100
    cursor: Annotated[str, Field(max_length=1_000)] = Field(default="", description="Of the page before.")


class Listed(StoredFields):
    """A message of a page; the body only where it was asked for."""

    id: str
    due_ms: int
    state: ListedState
    group: str = Field(description="Whose retry it is; empty: it is none.")
    attempt: int = Field(description="Of a retry: the number of the delivery that it is for; else 0.")
    reason: str = Field(description="Of a retry: nacked or lease_expired; else empty.")
    offset: int | None
    released_ms: int | None
    damaged: bool
    born_ms: int | None = Field(description="As it was sent, by its producer's clock; null: not known.")
    stored_ms: int | None = Field(description="As the cluster took it, by its clock; null: not known.")
    body_bytes: int


class ListedMessages(Told):
    """A page of messages."""

    messages: list[Listed]
    cursor: str = Field(description="For the next page; empty: this is the last.")


class FindQuery(BodyQuery):
    """Messages of a topic with a key, or with an idempotency key."""

    key: Text = ""
    idempotency_key: Text = ""
    due_from_ms: Natural = 0
    due_to_ms: Natural = Field(default=0, description="Due before; 0: whenever.")
    stored_from_ms: Natural = Field(default=0, description="Taken by the cluster then or later.")
    stored_to_ms: Natural = Field(default=0, description="Taken by the cluster before; 0: whenever.")
    born_from_ms: Natural = Field(default=0, description="Sent then or later, by producers' clocks.")
    born_to_ms: Natural = Field(default=0, description="Sent before; 0: whenever.")
    states: Annotated[list[Annotated[MessageState, Field(strict=False)]], Field(max_length=10)] = []
    bodies: bool = Field(default=False, description="Answer the content, too.")
    size: Annotated[int, Field(ge=1, le=1_000)] = 100
    begin: Annotated[str, Field(max_length=1_000)] = Field(
        default="", description="`next` of the page before."
    )

    @model_validator(mode="after")
    def _check(self) -> FindQuery:
        if bool(self.key) == bool(self.idempotency_key):
            raise ValueError("give either a key or an idempotency key")
        return self


class Found(Told):
    """A message that has the key; content only where it was asked for."""

    id: str
    due_ms: int
    state: MessageState
    born_ms: int | None = Field(description="As it was sent, by its producer's clock; null: not known.")
    stored_ms: int | None = Field(description="As the cluster took it, by its clock; null: not known.")
    content: StoredFields | None = None


class FoundMessages(Told):
    """A page of messages that have the key."""

    messages: list[Found]
    next: str = Field(description="The `begin` of the next page; empty: this is the last.")
    unreadable: int = Field(description="Messages that may have the key, whose records are damaged.")


class ForecastQuery(Given):
    """Buckets to count pending messages in."""

    topic: Text = Field(default="", description="Without one: of all topics, for who may operate.")
    tags: Texts = Field(default=[], description="Any of these; only with a topic.")
    by: Literal["second", "minute", "hour"] = "second"
    from_ms: Natural = Field(default=0, description="In the first bucket; 0: now.")
    buckets: Annotated[int, Field(ge=0, le=87_672)] = Field(default=60, description="Their number.")
    linearizable: bool = Field(default=False, description="As of after the request began.")


class ForecastTold(Told):
    """Pending messages by their due times."""

    first_ms: int
    bucket_ms: int = Field(description=f"One of {', '.join(map(str, BUCKET_MS.values()))}.")
    counts: list[int]
    pending: int
    overdue: int
    oldest_overdue_ms: int
    now_ms: int = Field(description="Cluster time.")
    released_per_s: float
    lateness_ms: list[int] = Field(description="Predicted, of each bucket's last message.")
    upper_bound: bool
    node: str = Field(description="That answered.")


# -- consuming -----------------------------------------------------------------------------


class Filtered(BodyQuery):
    """Filter and lease of what is received."""

    lease_ms: UInt = Field(
        default=0, description="How long a message may stay in hand; 0: as the group has it."
    )
    tags: Texts = Field(default=[], description="Any of these; the same for all of a group's consumers.")
    filter: Text = Field(
        default="", description="SQL92 condition on properties; the same for all of a group's consumers."
    )
    start: Text | None = Field(
        default=None, description="Where a new group begins: earliest, latest, or a time."
    )

    @model_validator(mode="after")
    def _check_start(self) -> Filtered:
        if self.start not in {None, "earliest", "latest"}:
            time_ms(str(self.start))
        return self

    @property
    def begin(self) -> Any:
        """Position at which a new group begins, as the client takes it."""
        return self.start if self.start in {None, "earliest", "latest"} else time_ms(str(self.start))


class ReceiveBody(Filtered):
    """Number of messages to receive, and the time to wait for the first."""

    messages_max: Positive = 1
    wait_ms: UInt = Field(default=0, description="For the first message.")
    consumer: Text = Field(
        default="", description="Name of the consumer; empty: one is made up for the call."
    )


class EventsQuery(Filtered):
    """Bounds of an event stream."""

    credit: Positive = Field(default=10, description="Messages in hand at once.")
    last_ms: Positive | None = Field(
        default=None, description="How long the stream lasts; none: as long as it may."
    )


class Received(StoredFields):
    """A message in hand: settle it by its handle before its lease ends."""

    handle: str = Field(description="Opaque: what ack, nack and extend name.")
    id: str
    topic: str
    due_ms: int = Field(description="Of this delivery; a retry's is later than the message's.")
    released_ms: int
    born_ms: int | None = Field(description="As it was sent, by its producer's clock; null: not known.")
    stored_ms: int | None = Field(description="As the cluster took it, by its clock; null: not known.")
    delivered_ms: int | None = Field(description="As the leader handed it over, by the cluster's clock.")
    attempt: int = Field(description="Number of this delivery, from 1.")
    maybe_duplicate: bool = Field(description="It may have been delivered before a failover.")


class ReceivedMessages(Told):
    """Messages in hand; none: nothing came due."""

    messages: list[Received]


class Handles(Given):
    """Messages to settle."""

    handles: Annotated[
        list[Annotated[str, Field(max_length=2_000)]],
        Field(min_length=1, max_length=COUNT_MAX, fail_fast=True),
    ]


class NackBody(Handles):
    """Messages to have delivered again."""

    delay_ms: UInt | None = Field(default=None, description="Until then; none: by the group's back-off.")
    at_least: bool = Field(default=False, description="The back-off counts where it is longer.")
    dead_letter: bool = Field(default=False, description="Not again: they are dead letters at once.")


class ExtendBody(Handles):
    """Messages to keep in hand."""

    lease_ms: Positive = Field(description="From now on.")


class Settled(Told):
    """Outcome of an ack, nack or extension."""

    handle: str
    outcome: Literal["ok", "stale", "unknown", "failed"] = Field(
        description="stale: in hand no more, it may come again. unknown: it may count. failed: see error."
    )
    error: dict[str, Any] | None = None


class SettledMessages(Told):
    """Outcomes, in the order of the handles."""

    messages: list[Settled]
