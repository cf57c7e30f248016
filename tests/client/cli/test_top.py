"""What ``tarry top`` draws of a look."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tarry.client.cli.top import Look, view
from tarry.client.errors import Unavailable
from tarry.client.operators.cluster_status import ClusterStatus
from tarry.proto.tarry_operator_pb2 import ClusterStatusResponse, GroupStatus, Lateness, TopicStatus

NOW_MS = 1_800_000_000_000


def status(now_ms: int = NOW_MS, **more: Any) -> ClusterStatus:
    response = ClusterStatusResponse(
        node="n1", leader="n1", lease=True, level_max=2, now_ms=now_ms, version="9.9.9", **more
    )
    return ClusterStatus.of(response)


def drawn(look: Look, topics: int = 20) -> list[str]:
    console = Console(width=160, highlight=False, color_system=None, record=True, file=io.StringIO())
    console.print(view(look, topics))
    return [line.rstrip() for line in console.export_text().splitlines()]


def row(lines: list[str], name: str) -> list[str]:
    [line] = [line for line in lines if f" {name} " in line]
    return [cell.strip() for cell in line.strip("│").split("│")]


def test_nodes_the_next_minute_and_topics_are_drawn() -> None:
    topic = TopicStatus(
        topic="orders", pending=70, overdue=5, released=1_000, lateness=Lateness(released=9, p99_ms=36)
    )
    topic.groups.append(GroupStatus(group="g", consumers=2, in_hand=3, retrying=1, backing_off=4))
    topic.groups.append(GroupStatus(group="h", consumers=1, in_hand=7))
    before = status(NOW_MS - 2_000, topics=[TopicStatus(topic="orders", released=600)])
    now = status(topics=[topic], pending=70, overdue=5, oldest_overdue_ms=900, pending_ahead=[0] * 59 + [8])
    lines = drawn(Look({"a:1": now, "b:2": Unavailable("NO_ANSWER", "silent")}, before))
    assert row(lines, "a:1")[:3] == ["n1", "a:1", "leader"]
    assert "no answer: NO_ANSWER" in row(lines, "b:2")
    assert "level 1; 70 pending, 0 ready; overdue 5, oldest 900ms" in lines
    assert "due in the next minute: 8; in one second 8 at most" in lines
    bars = [at for at, line in enumerate(lines) if line == " " * 59 + "█"]
    assert len(bars) == 5
    assert lines[bars[-1] + 1].split() == ["now", "+30", "s", "+60", "s"]
    assert len(lines[bars[-1] + 1]) == 60
    assert row(lines, "orders") == ["orders", "70", "5", "36ms", "200", "2", "3", "10", "1", "4"]


def test_the_most_overdue_topics_come_first_then_the_fullest_and_the_rest_is_counted() -> None:
    topics = [TopicStatus(topic=f"t{n}", pending=n) for n in range(5)]
    topics.append(TopicStatus(topic="late", overdue=1, pending=1))
    lines = drawn(Look({"a:1": status(topics=topics)}, None), topics=3)
    assert "topics, 3 more" in lines
    shown = [cell for line in lines for cell in line.strip("│").split("│")[:1] if line.startswith("│ ")]
    assert [cell.strip() for cell in shown] == ["n1", "late", "t4", "t3"]
    unknown = "what is due in the next minute is not known"
    assert drawn(Look({"a:1": status(topics=topics)}, None), topics=0)[-1] == unknown


def test_where_nobody_answers_only_that_is_drawn() -> None:
    lines = drawn(Look({"a:1": Unavailable("NO_ANSWER", "[red]silent")}, status()))
    assert any("no answer: NO_ANSWER" in line for line in lines)
    assert not any("pending," in line or "due in" in line for line in lines)


def test_a_rate_is_not_told_of_a_topic_that_was_made_anew_or_by_a_clock_that_stands() -> None:
    topic = TopicStatus(topic="orders", released=10)
    for before in (
        None,
        status(NOW_MS - 2_000),
        status(NOW_MS - 2_000, topics=[TopicStatus(topic="orders", released=600)]),
        status(NOW_MS, topics=[TopicStatus(topic="orders", released=6)]),
    ):
        assert row(drawn(Look({"a:1": status(topics=[topic])}, before)), "orders")[4] == ""
