"""``tarry recurring``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from tarry.client.aio import Client
from tarry.client.cli.options import OnCluster, cluster_command
from tarry.client.cli.output import (
    Output,
    body_fields,
    fields_of,
    print_fields,
    print_json,
    print_rows,
    words,
)
from tarry.client.cli.schedule import content_of, property_of
from tarry.client.cli.times import duration_option, duration_text, parse_duration_ms, time_option, time_text
from tarry.client.recurring.recurring import FIRES_MAX
from tarry.client.recurring.schedule import Fire, RecurringSchedule
from tarry.client.recurring.specification import (
    UTC,
    Cron,
    Interval,
    Missed,
    Overlap,
    ScheduleOptions,
    Specification,
    Timing,
)

recurring_app = typer.Typer(
    no_args_is_help=True, help="Keep schedules that recur: put, show, pause, trigger and delete them."
)
Name = Annotated[str, typer.Argument(help="The schedule's name.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
IfRevision = Annotated[
    int | None, typer.Option("--if-revision", min=0, help="Only where the schedule has this revision.")
]

COUNTS = ("fired", "triggered", "skipped", "missed")
LISTED = ("name", "topic", "timing", "state", "next", *COUNTS)
FIRE_COLUMNS = ("fire", "outcome", "id", "due", "fires")


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """The options that say when a schedule fires."""

    every_ms: Annotated[
        int | None, duration_option("--every", help="Fire in this interval: 10s, 5m, 1d.")
    ] = None
    cron: Annotated[
        str | None,
        typer.Option(metavar="EXPRESSION", help="Or as this says: five fields, or six, the first seconds."),
    ] = None
    zone: Annotated[
        str | None, typer.Option(metavar="ZONE", help="Zone in which the expression is read: Europe/Berlin.")
    ] = None
    start_ms: Annotated[int | None, time_option("--start", help="No fire before.")] = None
    end_ms: Annotated[int | None, time_option("--end", help="No fire then or later.")] = None

    def timing(self) -> Timing | None:
        """Return the timing; None: none was given. Raises typer.BadParameter."""
        if self.every_ms is not None and self.cron is not None:
            raise typer.BadParameter("give one of --every and --cron")
        if self.zone is not None and self.cron is None:
            raise typer.BadParameter("goes with --cron: an interval has no zone", param_hint="--zone")
        if self.cron is not None:
            return Cron(self.cron, self.zone or UTC)
        return None if self.every_ms is None else Interval(self.every_ms)

    def bounds(self) -> dict[str, int]:
        """Return the first and the last time, 0 for one that was not given."""
        return {"start_ms": self.start_ms or 0, "end_ms": self.end_ms or 0}


@dataclass(frozen=True, slots=True)
class MessageFlags:
    """The options that say what each fire's message has."""

    tag: Annotated[list[str] | None, typer.Option(help="To filter by; may be repeated.")] = None
    key_: Annotated[list[str] | None, typer.Option("--key", help="To find it by; may be repeated.")] = None
    property_: Annotated[
        list[str] | None, typer.Option("--property", "-p", metavar="NAME=VALUE", help="May be repeated.")
    ] = None
    ordering_key: Annotated[
        str, typer.Option(help="Messages of one such key are delivered one after another.")
    ] = ""
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="Read the body from a file.")
    ] = None


@dataclass(frozen=True, slots=True)
class PolicyFlagsOfSchedule:
    """The options that say what becomes of fires that overlap, or were missed."""

    jitter_ms: Annotated[
        int,
        duration_option(
            "--jitter", help="Each message is due up to so much later, by chance.", show_default="0s"
        ),
    ] = 0
    overlap: Annotated[
        Overlap, typer.Option(help="What becomes of a fire while the last one's message is not settled.")
    ] = Overlap.ALLOW
    missed: Annotated[
        Missed, typer.Option(help="Which of the fires that came while the cluster was down fire then.")
    ] = Missed.LAST
    missed_after_ms: Annotated[
        int, duration_option("--missed-after", help="From how late on a fire is missed.", show_default="1m")
    ] = 0


@cluster_command(recurring_app, "put")
async def put(
    client: Client,
    name: Name,
    topic: Annotated[str, typer.Argument(help="Where its messages go; made when first used.")],
    body: Annotated[str, typer.Argument(help="Of each message; - reads it from stdin.")] = "",
    paused: Annotated[bool, typer.Option("--paused", help="Create it paused.")] = False,
    if_revision: Annotated[
        int | None,
        typer.Option("--if-revision", min=0, help="Only where it has this revision; 0: where there is none."),
    ] = None,
    *,
    when: TimingOptions,
    message: MessageFlags,
    policies: PolicyFlagsOfSchedule,
    cluster: OnCluster,
) -> None:
    """Create a schedule that recurs: give --every, or --cron and --zone.

    One of this name gets all of this instead of what it had, and goes on; fires that have not come yet follow
    what is new. Run again, the same command changes nothing.
    """
    timing = when.timing()
    if timing is None:
        raise typer.BadParameter("give --every or --cron")
    options = {
        **asdict(policies),
        **when.bounds(),
        "tags": message.tag or (),
        "keys": message.key_ or (),
        "properties": dict(property_of(text) for text in message.property_ or []),
        "ordering_key": message.ordering_key,
    }
    schedule = await client.recurring().put(
        name,
        topic,
        content_of(body, message.file),
        timing=timing,
        paused=paused,
        if_revision=if_revision,
        **cast(ScheduleOptions, options),
    )
    show(schedule, cluster.output)


@cluster_command(recurring_app, "show")
async def show_schedule(client: Client, name: Name, *, cluster: OnCluster) -> None:
    """Show a schedule: when it fires, its next fire, and what became of the last ten."""
    show(await client.recurring().get(name), cluster.output)


@cluster_command(recurring_app, "list")
async def list_schedules(
    client: Client,
    topic: Annotated[str, typer.Option("--topic", "-t", help="Only those of this topic.")] = "",
    prefix: Annotated[str, typer.Option(help="Only names that begin with this.")] = "",
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 1_000,
    *,
    cluster: OnCluster,
) -> None:
    """List schedules by name; as JSON one a line, as they come."""
    shown: list[RecurringSchedule] = []
    with words().status("looking for schedules") as looking:
        async for schedule in client.recurring().list(topic, prefix=prefix, limit=limit):
            shown.append(schedule)
            if cluster.output is Output.JSON:
                print_json(_without_body(schedule))
            if len(shown) % 1_000 == 0:
                looking.update(f"{len(shown):,} schedules found")
    if cluster.output is Output.TABLE:
        if shown:
            print_rows([_listed(schedule) for schedule in shown], LISTED)
        words().print(f"{len(shown):,} schedules")
    if len(shown) == limit:
        words().print(f"there may be more: give a greater --limit than {limit}", style="dim")


@cluster_command(recurring_app, "pause")
async def pause(client: Client, name: Name, if_revision: IfRevision = None, *, cluster: OnCluster) -> None:
    """Stop a schedule's fires; a message of it that is not due yet is cancelled."""
    show(await client.recurring().pause(name, if_revision=if_revision), cluster.output)


@cluster_command(recurring_app, "resume")
async def resume(client: Client, name: Name, if_revision: IfRevision = None, *, cluster: OnCluster) -> None:
    """Go on with the first fire after now; what lay in the pause does not fire."""
    show(await client.recurring().resume(name, if_revision=if_revision), cluster.output)


@cluster_command(recurring_app, "trigger")
async def trigger(client: Client, name: Name, *, cluster: OnCluster) -> None:
    """Fire once, now, also a paused or ended schedule; its other fires stay where they are."""
    triggered = await client.recurring().trigger(name)
    if cluster.output is Output.JSON:
        print_json(asdict(triggered))
    else:
        fields = {"id": triggered.id, "due": time_text(triggered.due_ms), "triggered": triggered.triggered}
        print_fields(fields, cluster.output)


@cluster_command(recurring_app, "delete")
def delete(name: Name, yes: Yes = False, if_revision: IfRevision = None, *, cluster: OnCluster) -> None:
    """Delete a schedule; a message of it that is not due yet is cancelled, others stay."""
    if not yes:
        typer.confirm(f"Delete schedule {name}?", abort=True, err=True)

    async def work(client: Client) -> None:
        await client.recurring().delete(name, if_revision=if_revision)
        print_fields({"name": name, "deleted": True}, cluster.output)

    cluster.run(work)


@cluster_command(recurring_app, "next")
async def next_fires(
    client: Client,
    name: Annotated[str, typer.Argument(help="Of a schedule; or give --every or --cron.")] = "",
    count: Annotated[int, typer.Option(min=1, max=FIRES_MAX, help="So many fires at most.")] = 10,
    after_ms: Annotated[
        int | None, time_option("--after", help="Only later ones; else those after now.")
    ] = None,
    *,
    when: TimingOptions,
    cluster: OnCluster,
) -> None:
    """Show the next fires of a schedule, or of a timing to try: nothing is stored."""
    timing = when.timing()
    if (timing is None) == (not name):
        raise typer.BadParameter("give either NAME, or one of --every and --cron")
    if timing is None and any(when.bounds().values()):
        raise typer.BadParameter("--start and --end go with --every and --cron")
    recurring, after_ms = client.recurring(), after_ms or 0
    found = await recurring.next_fires(name, timing=timing, count=count, after_ms=after_ms, **when.bounds())
    if cluster.output is Output.JSON:
        print_json(asdict(found))
        return
    rows = [
        {"fire": time_text(at_ms), "local": local}
        for at_ms, local in zip(found.times_ms, found.local, strict=True)
    ]
    print_rows(rows, ("fire", "local"))
    if found.ended:
        words().print("none comes after these")


def show(schedule: RecurringSchedule, output: Output) -> None:
    """Print a schedule, and below it its last fires."""
    if output is Output.JSON:
        print_json(for_programs(schedule))
        return
    spec = schedule.spec
    fields: dict[str, object] = {
        **fields_of(schedule, "name", "state", "revision"),
        "topic": spec.topic,
        "timing": timing_text(spec.timing),
        "start": _time(spec.start_ms),
        "end": _time(spec.end_ms),
        "jitter": duration_text(spec.jitter_ms) if spec.jitter_ms else "",
        "overlap": spec.overlap,
        "missed_fires": spec.missed,
        "missed_after": duration_text(spec.missed_after_ms) if spec.missed_after_ms else "",
        "next": _time(schedule.next_ms),
        "waiting": _time(schedule.waiting_ms),
        **fields_of(schedule, *COUNTS),
        "created": time_text(schedule.created_ms),
        "changed": time_text(schedule.changed_ms),
        **fields_of(spec, "tags", "keys", "ordering_key"),
        "properties": spec.properties or {},
        **body_fields(spec.body),
    }
    print_fields({name: value for name, value in fields.items() if value or value == 0}, output)
    if schedule.history:
        print_rows(list(map(_fire, schedule.history)), FIRE_COLUMNS, title="last fires")


def for_programs(schedule: RecurringSchedule) -> dict[str, Any]:
    """Return a schedule as JSON shows it."""
    told = asdict(schedule)
    return {**told, "spec": spec_for_programs(schedule.spec), "state": schedule.state}


def _without_body(schedule: RecurringSchedule) -> dict[str, Any]:
    """Return a schedule of a listing, in which there are no bodies."""
    told = for_programs(schedule)
    return {**told, "spec": {name: value for name, value in told["spec"].items() if name != "body"}}


def spec_for_programs(spec: Specification) -> Mapping[str, Any]:
    """Return a specification as JSON shows it: with ``interval_ms``, or ``cron`` and ``zone``."""
    told = asdict(spec)
    del told["timing"], told["body"]
    match spec.timing:
        case Interval(ms):
            timing: dict[str, object] = {"interval_ms": ms}
        case Cron(expression, zone):
            timing = {"cron": expression, "zone": zone}
    return {**timing, **told, "properties": spec.properties or {}, **body_fields(spec.body)}


def timing_text(timing: Timing) -> str:
    """Return when a schedule fires, as people read it."""
    match timing:
        case Interval(ms):
            text = duration_text(ms)  # in two units: of an interval nothing may be left out
            return f"every {text if parse_duration_ms(text) == ms else f'{ms} ms'}"
        case Cron(expression, zone):
            return f"{expression} ({zone})"


def _listed(schedule: RecurringSchedule) -> dict[str, object]:
    return {
        **fields_of(schedule, "name", "state", *COUNTS),
        "topic": schedule.spec.topic,
        "timing": timing_text(schedule.spec.timing),
        "next": _time(schedule.next_ms),
    }


def _fire(fire: Fire) -> dict[str, object]:
    return {
        "fire": time_text(fire.fire_ms),
        **fields_of(fire, "outcome", "id", "fires"),
        "due": "" if fire.due_ms is None else time_text(fire.due_ms),
    }


def _time(at_ms: int | None) -> str:
    return time_text(at_ms) if at_ms else ""
