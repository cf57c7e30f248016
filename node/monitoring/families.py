"""Metric families of a node, as Prometheus takes them. METRICS.md says what each means.

A family's samples are made one by one as they are asked for, so that no turn of the event loop makes all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, TypeAlias, TypeVar

from prometheus_client import ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from tarry.node.assembly import Core
from tarry.node.edge.grpc_status import REFUSALS
from tarry.node.metrics.lateness import BOUNDS_MS, Lateness
from tarry.node.metrics.traffic import GroupName, GroupTraffic, TopicTraffic
from tarry.node.monitoring.readings import GroupReading, Readings
from tarry.proto.files import free_bytes
from tarry.proto.version import VERSION
from tarry.replication.durations import BOUNDS_S, Durations
from tarry.replication.status import PeerStatus, ReplicationStatus, Role
from tarry.wheel.state import HOUR_MS

K = TypeVar("K")
V = TypeVar("V")
N = TypeVar("N")
Labels: TypeAlias = dict[str, str]

SOON_MS: Final = 10_000
MEASURED_MS_MAX: Final = 10_000
"""A peer that was not heard for longer may have another clock by now."""
DAY_MS: Final = 24 * HOUR_MS

LATENESS_LABELS: Final = (*(repr(bound / 1000) for bound in BOUNDS_MS), "+Inf")
DURATION_LABELS: Final = (*(repr(bound) for bound in BOUNDS_S), "+Inf")
"""Values of the label `le`."""

_process = ProcessCollector(registry=None)


def families(core: Core, readings: Readings, schedule_streams: int) -> Iterator[Metric]:
    """Yield all families."""
    yield from _about(core)
    yield from _traffic(core)
    yield from _wheel(core)
    yield from _recurring(core)
    yield from _transactions(core)
    yield from _readings(readings)
    status = core.driver.status()
    yield from _raft(core, status)
    yield from _peers(status)
    yield from _durations(core)
    yield from _node(core, schedule_streams)
    yield from _process.collect()


def _recurring(core: Core) -> Iterator[Metric]:
    counts = core.leadership.fire_counts
    yield _gauge("tarry_recurring_schedules", "Schedules that recur.", len(core.machine.recurring))
    for outcome in ("fired", "skipped", "missed"):
        text = f"Fires of schedules that recur, decided by this node: {outcome}."
        yield _family(f"tarry_recurring_{outcome}", "counter", text, [({}, getattr(counts, outcome))])
    text = "Looks at schedules that recur in a time zone which this node does not know."
    yield _family("tarry_recurring_unplannable", "counter", text, [({}, counts.unplannable)])


def _transactions(core: Core) -> Iterator[Metric]:
    transactions, counts = core.machine.transactions, core.leadership.check_counts
    yield _gauge("tarry_transactions", "Open transactions: half messages.", len(transactions))
    text = "Transactions that have ended and are remembered."
    yield _gauge("tarry_transactions_remembered", text, transactions.ended)
    text = "Producers that answer checks at this node."
    yield _gauge("tarry_check_streams", text, len(core.leadership.check_streams))
    for outcome, text in (
        ("asked", "Checks that this node has sent to a producer."),
        ("unheard", "Checks for which no producer of the group was connected here, or had room."),
        ("unresolved", "Transactions that this node has rolled back after their last check."),
    ):
        yield _family(
            f"tarry_transaction_checks_{outcome}", "counter", text, [({}, getattr(counts, outcome))]
        )


def _about(core: Core) -> Iterator[Metric]:
    labels = {"version": VERSION, "node": core.config.node, "cluster": core.config.cluster}
    yield _family("tarry_build_info", "gauge", "Version of the node; always 1.", [(labels, 1)])
    yield _gauge("tarry_level", "Apply level of the cluster.", core.machine.level)


# -- messages


def _traffic(core: Core) -> Iterator[Metric]:
    topics, groups = core.traffic.topics, core.traffic.groups
    for name, text, of_topic in TOPIC_COUNTERS:
        yield _family(name, "counter", text, _values(topics, _topic, of_topic))
    for name, text, of_group in GROUP_COUNTERS:
        yield _family(name, "counter", text, _values(groups, _group, of_group))
    for name, text, lateness in LATENESS:
        yield _histograms(name, text, _values(topics, _topic, lateness))
    refusals = [({"reason": reason.value}, count) for reason, count in sorted(REFUSALS.items())]
    yield _family("tarry_refusals", "counter", "Refusals told to callers.", refusals)


TOPIC_COUNTERS: Final[tuple[tuple[str, str, Callable[[TopicTraffic], int]], ...]] = (
    ("tarry_scheduled", "Messages scheduled.", lambda of: of.scheduled),
    ("tarry_released", "Messages released.", lambda of: of.released),
    ("tarry_cancelled", "Messages cancelled.", lambda of: of.cancelled),
    ("tarry_expired", "Messages that misfired, or whose retention or topic ended.", lambda of: of.expired),
)
GROUP_COUNTERS: Final[tuple[tuple[str, str, Callable[[GroupTraffic], int]], ...]] = (
    ("tarry_delivered", "Messages sent to consumers, repeated ones too.", lambda of: of.delivered),
    ("tarry_redelivered", "Of them, those sent for another attempt.", lambda of: of.redelivered),
    ("tarry_maybe_repeated", "Of them, those marked as maybe repeated.", lambda of: of.maybe_repeated),
    ("tarry_acknowledged", "Messages acknowledged.", lambda of: of.acknowledged),
    ("tarry_nacked", "Messages given back by consumers.", lambda of: of.nacked),
    ("tarry_retried", "Messages that wait for another attempt, or have.", lambda of: of.retried),
    ("tarry_dead", "Messages whose attempts were used up.", lambda of: of.dead),
)
LATENESS: Final[tuple[tuple[str, str, Callable[[TopicTraffic], Lateness]], ...]] = (
    ("tarry_release_lateness_seconds", "From the due time to the release.", lambda of: of.release),
    ("tarry_delivery_lateness_seconds", "From the due time to a consumer.", lambda of: of.delivery),
    (
        "tarry_acknowledgement_lateness_seconds",
        "From the due time to the acknowledgement of a first delivery.",
        lambda of: of.acknowledgement,
    ),
)


def _wheel(core: Core) -> Iterator[Metric]:
    wheel, now_ms = core.machine.wheel, core.time.now_ms()
    hour = now_ms // HOUR_MS
    ends_ms = (now_ms + SOON_MS, (hour + 2) * HOUR_MS, (hour + 25) * HOUR_MS)
    before = [wheel.pending_before(end_ms) for end_ms in ends_ms]
    bands = zip(("10s", "1h", "1d", "more"), (*before, wheel.pending), (0, *before), strict=True)
    samples = [({"band": band}, before_end - before_begin) for band, before_end, before_begin in bands]
    yield _family("tarry_pending_messages", "gauge", "Messages in the wheel, by when they are due.", samples)
    overdue, age_ms = wheel.overdue(now_ms)
    yield _gauge("tarry_overdue_messages", "Messages that are due and not released.", overdue)
    yield _gauge("tarry_overdue_age_seconds", "For how long the oldest of them has been due.", age_ms / 1000)
    yield _gauge("tarry_near_messages", "Messages of the next seconds, in memory.", wheel.near_messages)
    yield _gauge("tarry_open_hours", "Hour partitions whose files are open.", wheel.open_hours)
    yield _gauge("tarry_hours", "Hour partitions on disk.", len(wheel.partitions()))


def _readings(readings: Readings) -> Iterator[Metric]:
    pending = ((_topic(topic), count) for topic, count in readings.pending.items())
    yield _family("tarry_topic_pending_messages", "gauge", "Messages in the wheel, by topic.", pending)
    for name, text, value in (*GROUP_GAUGES, *(LEADER_GROUP_GAUGES if readings.delivers else ())):
        yield _family(name, "gauge", text, _values(readings.groups.items(), _group, value))


GroupGauges: TypeAlias = tuple[tuple[str, str, Callable[[GroupReading], int]], ...]

GROUP_GAUGES: Final[GroupGauges] = (
    (
        "tarry_ready_messages",
        "Messages released, not acknowledged by the group, and not delayed.",
        lambda of: of.ready,
    ),
    ("tarry_delayed_messages", "Messages that wait for the group's delay.", lambda of: of.delayed),
    ("tarry_back_off_messages", "Messages that wait for a retry.", lambda of: of.back_off),
)
LEADER_GROUP_GAUGES: Final[GroupGauges] = (
    ("tarry_in_flight_messages", "Messages that consumers have.", lambda of: of.in_flight),
    (
        "tarry_held_bytes",
        "Bytes on disk from the first message on that the group has not acknowledged.",
        lambda of: of.held_bytes,
    ),
    ("tarry_consumers", "Consumers with a stream or a waiting call.", lambda of: of.consumers),
    ("tarry_credit_messages", "Messages that consumers would take now.", lambda of: of.credit),
)


# -- consensus


def _raft(core: Core, status: ReplicationStatus) -> Iterator[Metric]:
    leads = core.leadership.delivery is not None and status.may_serve
    yield _gauge("tarry_raft_leads", "1 if the node leads and its lease holds.", int(leads))
    roles = [({"role": role.value}, int(role is status.role)) for role in Role]
    yield _family("tarry_raft_role", "gauge", "1 for the role that the node has.", roles)
    has_leader = leads or core.leadership.hears_leader()
    yield _gauge("tarry_raft_has_leader", "1 if the node leads or hears who does.", int(has_leader))
    yield _gauge("tarry_raft_term", "Term of the node.", status.term)
    text = "Leaders that the node has come to know."
    yield _family("tarry_raft_leader_changes", "counter", text, [({}, core.leader_changes)])
    yield _gauge("tarry_raft_commit_index", "Index up to which entries are committed.", status.commit_index)
    yield _gauge("tarry_raft_applied_index", "Index up to which entries are applied.", status.applied_index)
    yield _gauge("tarry_raft_last_index", "Index of the last entry of the log.", status.last_index)
    text = "For how long the oldest write has waited for its flush."
    yield _gauge("tarry_journal_unflushed_seconds", text, core.driver.unflushed_s)


def _peers(status: ReplicationStatus) -> Iterator[Metric]:
    for name, text, value in PEER_GAUGES:
        samples = [
            ({"peer": peer}, found)
            for peer, of in sorted(status.peers.items())
            if (found := value(of)) is not None
        ]
        yield _family(name, "gauge", text, samples)
    if status.role is not Role.LEADER:
        return
    text, peers = "Entries that the peer has not answered for.", sorted(status.peers.items())
    # 0: it has not answered this leader yet
    lags = [({"peer": peer}, status.last_index - of.match_index) for peer, of in peers if of.match_index]
    yield _family("tarry_raft_peer_lag_entries", "gauge", text, lags)
    trips = [({"peer": peer}, of.rtt_ms / 1000) for peer, of in peers if of.rtt_ms is not None]
    yield _family("tarry_raft_peer_round_trip_seconds", "gauge", "Measured round trip.", trips)


def _s(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _clock_offset_s(of: PeerStatus) -> float | None:
    """Return the offset if it is of now: followers hear the leader alone."""
    heard = of.heard_ms_ago is not None and of.heard_ms_ago < MEASURED_MS_MAX
    return _s(of.clock_offset_ms) if heard else None


PEER_GAUGES: Final[tuple[tuple[str, str, Callable[[PeerStatus], float | None]], ...]] = (
    ("tarry_raft_peer_connected", "1 if the peer is connected.", lambda of: int(of.connected)),
    ("tarry_raft_peer_silent_seconds", "Since the peer was heard last.", lambda of: _s(of.heard_ms_ago)),
    (
        "tarry_raft_peer_clock_offset_seconds",
        "The peer's clock minus the node's.",
        _clock_offset_s,
    ),
)


# -- the node


def _durations(core: Core) -> Iterator[Metric]:
    timings = core.timings
    for name, text, durations in (
        ("tarry_raft_commit_seconds", "From an entry's proposal until it is applied.", timings.commit),
        ("tarry_journal_write_seconds", "Write and sync of the journal.", timings.journal_write),
        ("tarry_journal_flush_seconds", "Sync of what was written without one.", timings.flush),
        ("tarry_apply_seconds", "Application of an entry.", timings.apply),
        ("tarry_checkpoint_seconds", "A checkpoint.", timings.checkpoint),
        ("tarry_snapshot_seconds", "A state taken from a peer and installed.", timings.snapshot),
        ("tarry_loop_held_seconds", "Turns of the event loop of 1 ms or more.", timings.turn),
    ):
        yield _histogram(name, text, durations)


def _node(core: Core, schedule_streams: int) -> Iterator[Metric]:
    yield _gauge("tarry_schedule_streams", "Open schedule streams.", schedule_streams)
    free = free_bytes(core.machine.folder)
    yield _gauge("tarry_disk_free_bytes", "Free bytes of the data folder's disk.", free)
    text, dropped = "Rows that the ledger could not write.", core.ledger.status().dropped
    yield _family("tarry_ledger_dropped_rows", "counter", text, [({}, dropped)])
    damage = core.damage
    states = {"found": damage.found, "repaired": damage.repaired, "left": damage.left}
    samples = [({"state": state}, count) for state, count in states.items()]
    yield _family("tarry_damaged_records", "gauge", "Damaged records, since the node's start.", samples)


# -- families of samples


def _family(name: str, kind: str, text: str, samples: Iterable[tuple[Labels, float]]) -> Metric:
    """Return a family; of a counter, the samples' name ends with `_total`."""
    family, sample = Metric(name, text, kind), f"{name}_total" if kind == "counter" else name
    return _with(family, (Sample(sample, labels, value) for labels, value in samples))


def _with(family: Metric, samples: Iterator[Sample]) -> Metric:
    """Return the family with samples that are made when they are asked for."""
    family.samples = samples  # type: ignore[assignment]  # `render` goes through them once
    return family


def _gauge(name: str, text: str, value: float) -> Metric:
    return _family(name, "gauge", text, [({}, value)])


def _histogram(name: str, text: str, durations: Durations) -> Metric:
    samples = _samples(name, {}, DURATION_LABELS, list(durations.counts), durations.sum_s)
    return _with(Metric(name, text, "histogram"), samples)


def _histograms(name: str, text: str, series: Iterable[tuple[Labels, Lateness]]) -> Metric:
    """Return a family without the series that have counted nothing: each has 15 samples."""
    samples = chain.from_iterable(
        _samples(name, labels, LATENESS_LABELS, list(of.counts), of.sum_ms / 1000)
        for labels, of in series
        if any(of.counts)
    )
    return _with(Metric(name, text, "histogram"), samples)


def _samples(
    name: str, labels: Labels, bounds: Iterable[str], counts: list[int], sum_s: float
) -> Iterator[Sample]:
    """Yield the samples of one histogram, whose counts are by bucket."""
    total = 0
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        yield Sample(f"{name}_bucket", {**labels, "le": bound}, total)
    yield Sample(f"{name}_count", labels, total)
    yield Sample(f"{name}_sum", labels, sum_s)


def _values(
    named: Iterable[tuple[K, V]], labels: Callable[[K], Labels], value: Callable[[V], N]
) -> Iterator[tuple[Labels, N]]:
    """Yield the value of each, with the labels of its name."""
    return ((labels(name), value(of)) for name, of in named)


def _topic(topic: str) -> Labels:
    return {"topic": topic}


def _group(name: GroupName) -> Labels:
    return {"topic": name[0], "group": name[1]}
