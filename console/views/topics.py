"""Rows about topics and groups."""

from __future__ import annotations

from collections.abc import Iterable

from tarry.client.operators.cluster_status import ClusterStatus, GroupStatus, TopicStatus
from tarry.console.views import cells
from tarry.console.views.table import Column, Row
from tarry.console.watch import Look

TOPIC_COLUMNS = (
    Column("topic", "Topic", show=lambda row: cells.link(row["topic"], "topics", row["topic"])),
    Column("pending", "Pending", number=True),
    Column("overdue", "Overdue", number=True),
    Column("late_p99_ms", "Late p99", number=True, show=lambda row: _duration(row["late_p99_ms"])),
    Column("rate", "Released/s", number=True, show=lambda row: _rate(row["rate"])),
    Column("held_back", "Held back", number=True),
    Column("groups", "Groups", number=True),
    Column("consumers", "Consumers", number=True),
    Column("in_hand", "In hand", number=True),
    Column("retrying", "Retrying", number=True),
    Column("backing_off", "In back-off", number=True),
)
GROUP_COLUMNS = (
    Column("group", "Group", show=lambda row: cells.link(row["group"], "topics", row["topic"], row["group"])),
    Column("topic", "Topic", show=lambda row: cells.link(row["topic"], "topics", row["topic"])),
    Column("lag", "Lag", number=True),
    Column("in_hand", "In hand", number=True),
    Column("delayed", "Delayed", number=True),
    Column("retrying", "Retrying", number=True),
    Column("backing_off", "In back-off", number=True),
    Column("consumers", "Consumers", number=True),
    Column("credit", "Credit", number=True),
    Column("held_bytes", "Holds on disk", number=True, show=lambda row: cells.size(row["held_bytes"])),
    Column("expired", "Expired", number=True),
    Column("dropped", "Dropped", number=True),
    Column("used_ms", "Last used", number=True, show=lambda row: cells.time(row["used_ms"])),
)
CONSUMER_COLUMNS = (
    Column("consumer", "Consumer"),
    Column("address", "Address"),
    Column("by", "By"),
    Column("connected", "Connected"),
    Column("since_ms", "Since", number=True, show=lambda row: cells.time(row["since_ms"])),
    Column("credit", "Credit", number=True),
    Column("in_hand", "In hand", number=True),
    Column("lease_end_ms", "First lease ends", number=True, show=lambda row: cells.time(row["lease_end_ms"])),
    Column("tags", "Tags"),
    Column("filter", "Filter"),
    Column("topics", "Topics"),
)


def topic_rows(look: Look) -> list[Row]:
    """Return a row for each topic."""
    return [_topic(topic, look.rates.get(topic.topic)) for topic in topics_of(look.best)]


def group_rows(topics: Iterable[TopicStatus]) -> list[Row]:
    """Return a row for each group of these topics."""
    return [_group(topic, group) for topic in topics for group in topic.groups]


def topics_of(best: ClusterStatus | None) -> tuple[TopicStatus, ...]:
    """Return the topics that the visitor may see."""
    return best.topics if best is not None else ()


def lag_of(topic: TopicStatus, group: GroupStatus) -> int:
    """Return how many released messages of the topic a group has not acknowledged."""
    return max(0, topic.released - group.floor - group.acked_above_floor)


def _topic(topic: TopicStatus, rate: float | None) -> Row:
    late = topic.lateness
    return {
        "topic": topic.topic,
        "pending": topic.pending,
        "overdue": topic.overdue,
        "late_p99_ms": late.p99_ms if late.released else None,
        "rate": rate,
        "held_back": topic.held_back,
        "groups": len(topic.groups),
        **{
            name: sum(getattr(group, name) for group in topic.groups)
            for name in ("consumers", "in_hand", "retrying", "backing_off")
        },
    }


def _group(topic: TopicStatus, group: GroupStatus) -> Row:
    names = (
        "group", "in_hand", "delayed", "retrying", "backing_off", "consumers", "credit", "held_bytes",
        "expired", "dropped", "used_ms",
    )  # fmt: skip
    return {
        "topic": topic.topic,
        "lag": max(0, lag_of(topic, group) - group.delayed),
        **{name: getattr(group, name) for name in names},
    }


def _duration(ms: int | None) -> str:
    return "" if ms is None else cells.duration(ms)


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.0f}"
