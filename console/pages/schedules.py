"""The pages *Schedules* and of one schedule that recurs, and what can be done with it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tarry.client.cli.recurring import timing_text
from tarry.client.cli.times import time_text
from tarry.client.errors import NotFound, RevisionDiffers, TarryError, Unavailable
from tarry.client.recurring.recurring import PAGE_MAX, Recurring
from tarry.client.recurring.schedule import NextFires, RecurringSchedule, SchedulePage
from tarry.console.forms import read_number
from tarry.console.guard import form_of
from tarry.console.rendering import (
    access_of,
    advice_of,
    client_of,
    done,
    live,
    page,
    render,
    review,
    rights_of,
)
from tarry.console.views import schedules as views
from tarry.console.views.body import body_text, form_of_body
from tarry.console.views.cells import path
from tarry.console.views.table import table_of
from tarry.console.watch import Look
from tarry.proto.reasons import Reason

SHOWN_MAX: Final = PAGE_MAX
"""Schedules that are sorted and filtered here; of more, those whose names begin alike are asked for."""
NAME_CHARACTERS_MAX: Final = 255
NEXT: Final = 10
"""Fires to come that are shown."""


async def values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page of all schedules shows beside a look."""
    values, access = request.query_params, access_of(request)
    prefix = values.get("prefix", "")[:NAME_CHARACTERS_MAX]
    topic = values.get("topic", "")[:NAME_CHARACTERS_MAX]
    listed, failed = SchedulePage((), "", 0), ""
    try:
        _check_leader(look)
        listed = await access.shared.of(
            look, ("schedules", topic, prefix), lambda: _listed(access.client.recurring(), topic, prefix)
        )
    except TarryError as error:
        failed = _told(error)
    return {
        "schedules": table_of(
            "schedules",
            "Schedules",
            views.COLUMNS,
            views.schedule_rows(listed.schedules),
            values,
            "name",
        ),
        "prefix": prefix,
        "topic": topic,
        "total": listed.total,
        "cut": bool(listed.cursor),
        "failed": failed,
    }


async def _listed(recurring: Recurring, topic: str, prefix: str) -> SchedulePage:
    """Return as many schedules as are shown; pages of a node may be shorter than asked for."""
    found: list[RecurringSchedule] = []
    page = await recurring.list_page(topic, prefix=prefix, size=SHOWN_MAX)
    found += page.schedules
    while page.cursor and len(found) < SHOWN_MAX:
        size = SHOWN_MAX - len(found)
        page = await recurring.list_page(topic, prefix=prefix, size=size, cursor=page.cursor)
        found += page.schedules
    return SchedulePage(tuple(found), page.cursor, page.total)


async def schedule_values_of(request: Request, look: Look) -> Mapping[str, Any]:
    """Return what the page of one schedule shows beside a look, as it lives."""
    schedule, fires, failed = None, NextFires((), (), False), ""
    try:
        _check_leader(look)
        schedule, fires = await _read(request, look)
    except NotFound:
        failed = "The schedule is gone."
    except TarryError as error:
        failed = _told(error)
    return _shown(schedule, fires, failed)


def _shown(schedule: RecurringSchedule | None, fires: NextFires, failed: str) -> dict[str, Any]:
    return {
        "schedule": schedule,
        "timing": "" if schedule is None else timing_text(schedule.spec.timing),
        "fires": [] if schedule is None else list(map(views.fire_cells, schedule.history)),
        "fire_columns": views.FIRE_COLUMNS,
        "next_fires": views.next_cells(fires),
        "next_columns": views.NEXT_COLUMNS,
        "none_after": fires.ended,
        "state_badge": views.state_badge,
        "failed": failed,
    }


async def _read(request: Request, look: Look) -> tuple[RecurringSchedule, NextFires]:
    access, name = access_of(request), request.path_params["name"]

    async def both() -> tuple[RecurringSchedule, NextFires]:
        recurring = access.client.recurring()
        return await recurring.get(name), await recurring.next_fires(name, count=NEXT)

    return await access.shared.of(look, ("schedule", name), both)


def _check_leader(look: Look) -> None:
    """Raise Unavailable where a call would wait in vain for a leader, and the page with it."""
    if look.best is None:
        raise Unavailable("UNREACHABLE", "no node answers")
    if not look.best.lease:
        raise Unavailable(Reason.NO_LEADER, "no node leads now")


def _told(error: TarryError) -> str:
    """Return an error in words. Raises it where the visitor has to sign in."""
    if error.reason == Reason.UNAUTHENTICATED:
        raise error
    return f"{error.text} ({error.reason}). {advice_of(error)}"


async def _schedule(request: Request) -> Response:
    look = await access_of(request).watch.look()
    _check_leader(look)
    schedule, fires = await _read(request, look)
    spec, rights = schedule.spec, rights_of(look)
    readable = rights.may_consume(spec.topic)
    return render(
        request,
        "schedule.html",
        look=look,
        name=schedule.name,
        readable=readable,
        body=body_text(spec.body, form_of_body(spec.body, "")) if readable else "",
        body_bytes=len(spec.body),
        may_change=rights.may_produce(spec.topic),
        **_shown(schedule, fires, ""),
    )


class Change(NamedTuple):
    """A change of a schedule: what the review says, and what is done."""

    title: str
    button: str
    sentences: Callable[[RecurringSchedule], Sequence[str]]
    agreed: Callable[[RecurringSchedule], int]
    """Number that the review is about: the change is made only while the schedule has it."""
    make: Callable[[Recurring, str, int], Awaitable[Sequence[str]]]
    danger: bool = False


def _pause_sentences(schedule: RecurringSchedule) -> Sequence[str]:
    if schedule.paused:
        return [f"Schedule {schedule.name} is paused already; nothing changes."]
    following = f" The next would be {time_text(schedule.next_ms)}." if schedule.next_ms else ""
    return [
        f"Schedule {schedule.name} fires no more until it is resumed.{following}",
        "A message of it that is not due yet is cancelled.",
    ]


def _resume_sentences(schedule: RecurringSchedule) -> Sequence[str]:
    if not schedule.paused:
        return [f"Schedule {schedule.name} is not paused; nothing changes."]
    return [
        f"Schedule {schedule.name} goes on with the first fire after now.",
        "Fires that lay in the pause do not come.",
    ]


def _trigger_sentences(schedule: RecurringSchedule) -> Sequence[str]:
    return [
        f"A message goes to topic {schedule.spec.topic} now, whatever became of the last one.",
        "The schedule's other fires stay where they are.",
    ]


def _delete_sentences(schedule: RecurringSchedule) -> Sequence[str]:
    return [
        f"Schedule {schedule.name} is deleted, with its history: {schedule.fired:,} fires made messages.",
        "A message of it that is not due yet is cancelled; others stay.",
        "Nothing brings it back.",
    ]


async def _pause(recurring: Recurring, name: str, revision: int) -> Sequence[str]:
    await recurring.pause(name, if_revision=revision)
    return [f"{name} fires no more until it is resumed."]


async def _resume(recurring: Recurring, name: str, revision: int) -> Sequence[str]:
    schedule = await recurring.resume(name, if_revision=revision)
    following = f" Its next fire is {time_text(schedule.next_ms)}." if schedule.next_ms else ""
    return [f"{name} goes on.{following}"]


async def _trigger(recurring: Recurring, name: str, triggered: int) -> Sequence[str]:
    made = await recurring.trigger(name, if_triggered=triggered)
    return [f"Message {made.id} is due {time_text(made.due_ms)}."]


async def _delete(recurring: Recurring, name: str, revision: int) -> Sequence[str]:
    await recurring.delete(name, if_revision=revision)
    return [f"{name} is gone."]


def _revision(schedule: RecurringSchedule) -> int:
    return schedule.revision


CHANGES: Final = {
    "pause": Change("Pause", "Pause it", _pause_sentences, _revision, _pause),
    "resume": Change("Resume", "Resume it", _resume_sentences, _revision, _resume),
    "trigger": Change("Trigger", "Trigger it", _trigger_sentences, lambda one: one.triggered, _trigger),
    "delete": Change("Delete", "Delete it", _delete_sentences, _revision, _delete, danger=True),
}
AGREED: Final = "agreed"
"""Field of a review: the number that it is about."""


async def _change(request: Request, what: str) -> Response:
    """Review a change, or make it; what somebody else has overtaken meanwhile is reviewed anew."""
    form, name, change = await form_of(request), request.path_params["name"], CHANGES[what]
    recurring, title = client_of(request).recurring(), f"{change.title} {name}"
    back = path("schedules", name)
    overtaken: list[str] = []
    if form.get("confirmed"):
        try:
            sentences = await change.make(recurring, name, read_number(form.get(AGREED, "")))
        except ValueError as error:
            return done(request, "Not done", [str(error)], back, status=400)
        except RevisionDiffers:
            overtaken = ["It was changed or triggered meanwhile; nothing is done yet."]
        else:
            to = "/schedules" if what == "delete" else back
            return done(request, f"{change.title}: done", sentences, to)
    schedule = await recurring.get(name)
    return review(
        request,
        title,
        [*overtaken, *change.sentences(schedule)],
        {AGREED: str(change.agreed(schedule))},
        button=change.button,
        back=back,
        danger=change.danger,
    )


ROUTES: Final = (
    Route("/schedules", page("schedules.html", values_of)),
    Route("/live/schedules", live("schedules_live.html", values_of)),
    Route("/schedules/{name}", _schedule),
    Route("/live/schedules/{name}", live("schedule_live.html", schedule_values_of)),
    *(
        Route(f"/schedules/{{name}}/{what}", partial(_change, what=what), methods=["POST"])
        for what in CHANGES
    ),
)
