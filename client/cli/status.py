"""Output of ``tarry status``."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from rich.table import Table

from tarry.client.cli.output import Output, fields_of, out, print_json, print_rows, table_of, words
from tarry.client.cli.times import duration_text, time_text
from tarry.client.errors import TarryError
from tarry.client.operators.cluster_status import (
    Answers,
    AuditStatus,
    ClusterStatus,
    Lateness,
    LedgerStatus,
    TopicStatus,
    TurnStatus,
    best_of,
)


def json_of(answers: Answers) -> dict[str, object]:
    """Return the answers as programs get them."""
    return {
        address: asdict(answer)
        if isinstance(answer, ClusterStatus)
        else {"error": answer.reason, "text": answer.text}
        for address, answer in answers.items()
    }


def node_table(answers: Answers) -> Table:
    """Return a row for each node, with columns of faults where there are any."""
    rows = [_node(address, answer) for address, answer in answers.items()]
    optional = [name for name in OPTIONAL if any(row.get(name) for row in rows)]
    return table_of(rows, [*NODE_COLUMNS, *optional], title="nodes")


def print_status(answers: Answers, output: Output) -> None:
    """Print every node's answer, or why it gave none; then what the leader says of topics."""
    if output is Output.JSON:
        print_json(json_of(answers))
        return
    out().print(node_table(answers))
    best = best_of(answers)
    if best is None:
        return
    print_topics(best.topics)
    for line in differences(best):
        words().print(line, markup=False)
    words().print(summary(best))


def differences(best: ClusterStatus) -> list[str]:
    """Return a line for each setting that differs between nodes."""
    return [
        f"settings differ: {one.key} is {one.value} at {one.node} and {one.other_value} at {one.other}"
        for one in best.differing
    ]


def summary(best: ClusterStatus) -> str:
    """Return what there is and how late it is, in a line."""
    figures = f"level {max(1, best.level)}; {best.pending:,} pending, {best.ready:,} ready"
    lags = [f"overdue {overdue_text(best)}"] if best.level_max else []  # 0: of 0.2.0, which does not say
    lags += [f"lateness {lateness_text(best.lateness)}"] if best.lateness.released else []
    return "; ".join((figures, *lags, *durability_text(best)))


def durability_text(of: ClusterStatus) -> list[str]:
    """Return what async durability may cost; empty where it is sync."""
    if not of.flush_ms:
        return []
    flush = duration_text(of.flush_ms)
    return [f"durability async: a majority without power loses what it acknowledged within {flush}"]


def overdue_text(of: ClusterStatus | TopicStatus) -> str:
    """Return how many messages are overdue, and for how long."""
    return f"{of.overdue:,}" + (f", oldest {duration_text(of.oldest_overdue_ms)}" if of.overdue else "")


def lateness_text(late: Lateness) -> str:
    """Return how late releases were."""
    p50, p99, longest = map(duration_text, (late.p50_ms, late.p99_ms, late.max_ms))
    return f"p50 {p50}, p99 {p99}, max {longest} of {late.released:,} in a minute"


def print_topics(topics: Iterable[TopicStatus]) -> None:
    """Print a row for each group of each topic, and for a topic without any."""
    rows: list[dict[str, object]] = []
    for topic in sorted(topics, key=lambda topic: topic.topic):
        of_topic = fields_of(topic, "topic", "pending", "overdue", "released", "held_back")
        rows += [
            {
                **of_topic,
                **fields_of(group, *GROUP_FIELDS),
                "acked": group.floor + group.acked_above_floor,
            }
            for group in sorted(topic.groups, key=lambda group: group.group)
        ] or [of_topic]
    if rows:
        print_rows(rows, GROUP_COLUMNS, title="topics")


NODE_COLUMNS = ("node", "address", "role", "term", "applied", "pending", "clock_ms", "version")
OPTIONAL = ("digest", "damaged", "blocked", "not_reloaded", "audit", "ledger", "longest_turn", "unflushed")
"""Columns that are there only where they have something to say."""
GROUP_FIELDS = (
    "group", "delayed", "backing_off", "retrying", "consumers", "in_hand", "held_bytes", "expired", "dropped",
)  # fmt: skip
GROUP_COLUMNS = (
    "topic", "pending", "overdue", "released", "held_back", "group", "acked", "delayed", "backing_off",
    "retrying", "consumers", "in_hand", "held_bytes", "expired", "dropped",
)  # fmt: skip


def _node(address: str, answer: ClusterStatus | TarryError) -> dict[str, object]:
    if isinstance(answer, TarryError):
        return {"address": address, "role": f"no answer: {answer.reason}"}
    role = "leader" if answer.lease else "follower" if answer.leader else "no leader known"
    if not answer.lease and answer.leader == answer.node:
        role = "leader, not serving yet"
    offsets = [abs(member.clock_offset_ms) for member in answer.members]
    return {
        **fields_of(answer, "node", "term", "pending", "version"),
        "address": address,
        "role": role,
        "applied": answer.applied_index,
        "clock_ms": max(offsets, default=0),
        "digest": answer.state_digest,
        "damaged": _damage(answer),
        "blocked": "; ".join(f"{to.node} at {to.blocked}" for to in answer.members if to.blocked),
        "not_reloaded": answer.reload.failure,
        "audit": _audit(answer.audit),
        "ledger": _ledger(answer.ledger),
        "longest_turn": _turns(answer.turns),
        "unflushed": _unflushed(answer),
    }


def _damage(answer: ClusterStatus) -> str:
    if not answer.damaged_found and not answer.damaged_left:
        return ""
    return (
        f"{answer.damaged_left:,} left ({answer.damaged_found:,} found, {answer.damaged_repaired:,} repaired)"
    )


def _unflushed(answer: ClusterStatus) -> str:
    if not answer.flush_ms:
        return ""
    return "flushes each write: no boot id" if answer.no_boot_id else f"{answer.unflushed:,} entries"


def _audit(audit: AuditStatus) -> str:
    lost = f"{audit.lost:,} lines lost" if audit.lost else ""
    return "; ".join(filter(None, (lost, audit.failure)))


def _ledger(ledger: LedgerStatus) -> str:
    dropped = f"{ledger.dropped:,} rows dropped" if ledger.dropped else ""
    return "; ".join(filter(None, (dropped, ledger.failure)))


def _turns(turns: TurnStatus) -> str:
    if not turns.over_20_ms:
        return ""
    longest = turns.longest
    return (
        f"{longest.held_ms:.0f} ms by {longest.cause} at {time_text(longest.at_ms)}"
        f" ({turns.over_20_ms:,} over 20 ms, {turns.over_100_ms:,} over 100)"
    )
