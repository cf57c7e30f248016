"""Requests at their limits, of schedules that recur."""

from __future__ import annotations

from google.protobuf.message import Message

from tarry.node.services.recurring import FIRES_MAX, PAGE_MAX
from tarry.proto import tarry_recurring_pb2 as pb
from tests.cluster.limit_play import LIMITS, Play
from tests.cluster.limit_rows import LARGEST, row

SCHEDULES = 1_500
"""More than a page has."""


@row(
    *(f"RecurringService/{name}Recurring" for name in ("Put", "Get", "Delete", "Pause", "Resume", "Trigger")),
    "RecurringService/ListRecurring",
    "RecurringService/NextFires",
)
def the_largest_schedules_and_pages(play: Play) -> None:
    def call(name: str, request: Message) -> bytes:
        (answer,) = play.call(f"RecurringService/{name}", request.SerializeToString())
        return answer

    topic, name = play.name(), "n" * LIMITS.topic_chars_max
    largest = pb.RecurringSpec(topic=topic, record=LARGEST, cron="0 0 29 2 */7", zone="Europe/Berlin")
    call("PutRecurring", pb.PutRecurringRequest(name=name, spec=largest, paused=True))
    never = pb.NextFiresRequest(spec=pb.RecurringSpec(cron="0 0 */31 * 1#2"), fires_max=FIRES_MAX)
    assert pb.NextFiresResponse.FromString(call("NextFires", never)).ended
    call("NextFires", pb.NextFiresRequest(name=name, fires_max=FIRES_MAX))
    call("TriggerRecurring", pb.TriggerRecurringRequest(name=name))
    call("ResumeRecurring", pb.ResumeRecurringRequest(name=name))
    call("PauseRecurring", pb.PauseRecurringRequest(name=name))
    call("GetRecurring", pb.GetRecurringRequest(name=name))
    small = pb.RecurringSpec(topic=topic, interval_ms=3_600_000)
    puts = (pb.PutRecurringRequest(name=f"s{number}", spec=small, paused=True) for number in range(SCHEDULES))
    play.calls("RecurringService/PutRecurring", puts)
    page = call("ListRecurring", pb.ListRecurringRequest(topic=topic, page_size=PAGE_MAX))
    assert len(pb.ListRecurringResponse.FromString(page).recurring) == PAGE_MAX
    call("ListRecurring", pb.ListRecurringRequest(topic="other", page_size=PAGE_MAX))
    call("DeleteRecurring", pb.DeleteRecurringRequest(name=name))
