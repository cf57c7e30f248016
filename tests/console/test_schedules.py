"""Rows and cells about schedules that recur."""

from __future__ import annotations

from tarry.client.recurring.schedule import Fire, NextFires, RecurringSchedule
from tarry.console.views import schedules
from tarry.console.views.table import table_of
from tarry.proto import tarry_recurring_pb2 as pb

NOW_MS = 1_800_000_000_000


def schedule(name: str, **told: object) -> RecurringSchedule:
    spec = pb.RecurringSpec(topic="<b>", cron="0 2 * * *", zone="Europe/Berlin")
    return RecurringSchedule.of(pb.Recurring(name=name, spec=spec, **told))  # type: ignore[arg-type]


def test_schedules_are_rows_that_sort_by_their_next_fire_and_filter_by_what_is_shown() -> None:
    rows = schedules.schedule_rows(
        [
            schedule("late", next_ms=NOW_MS + 9, fired=4),
            schedule("soon", next_ms=NOW_MS, history=[pb.Fire(fire_ms=NOW_MS - 5)]),
            schedule("never", ended=True, missed=2),
            schedule("stopped", paused=True, next_ms=NOW_MS + 1),
        ]
    )

    def names(**query: str) -> list[str]:
        return [row["name"] for row in table_of("s", "S", schedules.COLUMNS, rows, query, "name").rows]

    assert names() == ["late", "never", "soon", "stopped"]
    assert names(sort="next_ms") == ["never", "soon", "stopped", "late"]
    assert names(sort="-missed")[0] == "never"
    assert names(filter="paused") == ["stopped"]
    assert names(filter="berlin", sort="-fired")[0] == "late"


def test_what_callers_have_named_is_escaped() -> None:
    [row] = schedules.schedule_rows([schedule("<i>")])
    cells = "".join(column.cell(row) for column in schedules.COLUMNS)
    assert "&lt;i&gt;" in cells
    assert "&lt;b&gt;" in cells
    assert "<i>" not in cells
    assert "<b>" not in cells


def test_a_fire_leads_to_its_message() -> None:
    made = pb.Fire(outcome=pb.FIRE_OUTCOME_FIRED, fire_ms=NOW_MS, id="0a1", due_ms=NOW_MS + 7)
    text = " ".join(map(str, schedules.fire_cells(Fire.of(made))))
    assert '<a href="/message/0a1">0a1</a>' in text
    assert "badge good" in text
    missed = pb.Fire(outcome=pb.FIRE_OUTCOME_MISSED, fire_ms=NOW_MS, fires=1_234)
    text = " ".join(map(str, schedules.fire_cells(Fire.of(missed))))
    assert "badge bad" in text
    assert "1,234" in text
    assert "href" not in text


def test_each_outcome_has_a_cell() -> None:
    for number in pb.FireOutcome.values():
        assert "badge" in str(schedules.fire_cells(Fire.of(pb.Fire(outcome=number)))[1])


def test_fires_to_come_are_shown_in_both_zones() -> None:
    [(utc, local)] = schedules.next_cells(NextFires((NOW_MS,), ("2027-01-15T09:00:00+01:00",), False))
    assert 'datetime="2027-01-15T08:00:00.000Z"' in str(utc)
    assert local == "2027-01-15T09:00:00+01:00"
