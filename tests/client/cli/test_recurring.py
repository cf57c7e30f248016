"""What ``tarry recurring`` prints, and what it takes for wrong usage."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from tarry.client.cli.main import app
from tarry.client.cli.output import Output
from tarry.client.cli.recurring import show, timing_text
from tarry.client.recurring.schedule import RecurringSchedule
from tarry.client.recurring.specification import Cron, Interval
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.tarry_message_pb2 import Record

DAY_MS = 86_400_000
NEW_YEAR_MS = 1_767_225_600_000  # 2026-01-01T00:00Z
TOLD = pb.Recurring(
    name="nightly",
    spec=pb.RecurringSpec(
        topic="reports",
        record=Record(body=b"make it", properties={"kind": "[nightly]"}),
        cron="0 2 * * *",
        zone="Europe/Berlin",
        jitter_ms=90_000,
        overlap=pb.OVERLAP_POLICY_SKIP,
    ),
    number=7,
    revision=3,
    created_ms=NEW_YEAR_MS,
    changed_ms=NEW_YEAR_MS + 1,
    next_ms=NEW_YEAR_MS + 3_600_000,
    fired=41,
    skipped=2,
    history=[
        pb.Fire(outcome=pb.FIRE_OUTCOME_SKIPPED, fire_ms=NEW_YEAR_MS - DAY_MS, fires=2),
        pb.Fire(
            outcome=pb.FIRE_OUTCOME_FIRED, fire_ms=NEW_YEAR_MS - 3 * DAY_MS, id="0c1", due_ms=NEW_YEAR_MS - 7
        ),
    ],
)


def test_a_schedule_is_shown_with_its_last_fires(capsys: pytest.CaptureFixture[str]) -> None:
    show(RecurringSchedule.of(TOLD), Output.TABLE)
    lines = capsys.readouterr().out.splitlines()
    above = lines[: lines.index(next(filter(_titled, lines)))]
    fields = dict(line.strip().split(maxsplit=1) for line in above)
    assert fields["timing"] == "0 2 * * * (Europe/Berlin)"
    assert fields["jitter"] == "1m30s"
    assert fields["next"] == "2026-01-01T01:00:00.000Z"
    assert fields["state"] == "active"
    assert (fields["fired"], fields["skipped"], fields["missed"]) == ("41", "2", "0")
    assert fields["properties"] == "kind=[nightly]"
    assert fields["body"] == "make it"
    assert "waiting" not in fields  # nothing waits
    skipped, fired = (next(line for line in lines if f" {one} " in line) for one in ("skipped", "fired"))
    assert "2025-12-31T00:00:00.000Z" in skipped
    assert "0c1" in fired
    assert "2025-12-31T23:59:59.993Z" in fired


def _titled(line: str) -> bool:
    return line.startswith("last fires")


def test_programs_are_told_all_of_a_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    show(RecurringSchedule.of(TOLD), Output.JSON)
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["state"], told["number"], told["revision"]) == ("nightly", "active", 7, 3)
    assert told["next_ms"] == NEW_YEAR_MS + 3_600_000
    spec = told["spec"]
    assert (spec["cron"], spec["zone"], spec["topic"]) == ("0 2 * * *", "Europe/Berlin", "reports")
    assert (spec["overlap"], spec["missed"], spec["body"]) == ("skip", "last", "make it")
    assert "interval_ms" not in spec
    skipped, fired = told["history"]
    assert (skipped["outcome"], skipped["id"], skipped["due_ms"], skipped["fires"]) == (
        "skipped",
        "",
        None,
        2,
    )
    assert (fired["outcome"], fired["id"], fired["due_ms"]) == ("fired", "0c1", NEW_YEAR_MS - 7)


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (pb.Recurring(paused=True, ended=True), "paused"),
        (pb.Recurring(ended=True), "ended"),
        (pb.Recurring(waiting_ms=1), "waiting"),
        (pb.Recurring(), "active"),
    ],
)
def test_a_schedule_has_one_state(told: pb.Recurring, state: str) -> None:
    assert RecurringSchedule.of(told).state == state


def test_a_timing_is_a_text() -> None:
    assert timing_text(Interval(300_000)) == "every 5m"
    assert timing_text(Interval(1_500)) == "every 1.500s"
    assert timing_text(Interval(86_461_000)) == "every 86461000 ms"  # not "1d"
    assert timing_text(Cron("0 2 * * *")) == "0 2 * * * (UTC)"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["put", "n", "t"], "give --every or --cron"),
        (["put", "n", "t", "--every", "5m", "--cron", "* * * * *"], "give one of --every and --cron"),
        (["put", "n", "t", "--every", "5m", "--zone", "Europe/Berlin"], "an interval has no zone"),
        (["put", "n", "t", "--every", "soon"], "is no duration"),
        (["put", "n", "t", "--every", "5m", "--overlap", "perhaps"], "is not one of"),
        (["put", "n", "t", "--every", "5m", "--property", "nothing"], "is not NAME=VALUE"),
        (["next"], "give either NAME"),
        (["next", "n", "--every", "5m"], "give either NAME"),
        (["next", "n", "--start", "2026-01-01"], "go with --every and --cron"),
        (["next", "n", "--count", "1001"], "less than or equal to 1000"),
    ],
)
def test_wrong_usage_is_told_before_a_cluster_is_asked(arguments: list[str], complaint: str) -> None:
    ran = CliRunner().invoke(app, ["recurring", *arguments], env={"COLUMNS": "200"})
    assert ran.exit_code == 2
    assert complaint in " ".join(ran.output.split())


def test_each_command_has_help() -> None:
    for command in ("put", "show", "list", "pause", "resume", "trigger", "delete", "next"):
        ran = CliRunner().invoke(app, ["recurring", command, "--help"], env={"COLUMNS": "200"})
        assert ran.exit_code == 0
        assert "--output" in ran.output
        assert "Exit codes" in ran.output
