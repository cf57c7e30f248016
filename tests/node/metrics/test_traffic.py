"""What is counted of the log is what its commands have done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tarry.node.config import MetricsSettings
from tarry.node.metrics.traffic import GroupTraffic, TopicTraffic, Traffic
from tarry.proto import tarry_log_pb2 as log_pb
from tarry.proto.tarry_message_pb2 import RetryReason
from tarry.proto.tarry_operator_pb2 import TopicSettings
from tarry.replication.state_machine.machine import Machine, MachineSettings
from tarry.replication.state_machine.outcomes import Scheduled
from tests.replication.commands import NOW_MS, ack, admin, cancel, release, retry, schedule, subscribe

ON = MetricsSettings(listen="127.0.0.1:0")


class Counted:
    """A machine, whose events are counted."""

    def __init__(self, folder: Path, settings: MetricsSettings = ON) -> None:
        self.leads, self.now_ms = True, NOW_MS
        self.machine = Machine(folder, MachineSettings())
        self.traffic = Traffic(settings, 100, lambda: self.leads)
        self.machine.events.wanted = True

    def apply(self, *commands: bytes) -> Any:
        index = self.machine.applied_index + 1
        outcomes = self.machine.apply(index, 1, commands)
        self.traffic.applied(self.machine.take_events(), self.machine.queues, self.now_ms)
        return outcomes[-1]

    def topic(self, name: str = "t") -> TopicTraffic:
        return dict(self.traffic.topics)[name]

    def group(self, topic: str = "t", group: str = "g") -> GroupTraffic:
        return dict(self.traffic.groups)[topic, group]


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    one = Counted(tmp_path)
    yield one
    one.machine.close()


def test_a_batch_over_topics_is_counted_by_topic(counted: Counted) -> None:
    counted.apply(schedule([NOW_MS + 60_000] * 5, topic="a"), schedule([NOW_MS + 60_000] * 3, topic="b"))
    columns = log_pb.ScheduleColumns(
        topics=["a", "b", "c"],
        topic=np.array([0, 1, 2, 1, 0, 0], dtype="<u4").tobytes(),
        due_ms=np.full(6, NOW_MS + 60_000, dtype="<i8").tobytes(),
        records=[b""] * 6,
    )
    counted.apply(admin(log_pb.ScheduleCommand(now_ms=NOW_MS, request=columns)))
    assert {name: of.scheduled for name, of in counted.traffic.topics} == {"a": 8, "b": 5, "c": 1}


def test_a_release_counts_with_its_lateness_and_one_before_its_time_is_not_late(counted: Counted) -> None:
    counted.apply(schedule([NOW_MS + 1, NOW_MS + 400, NOW_MS + 2_000]))
    counted.now_ms = NOW_MS + 410
    counted.apply(release(NOW_MS + 450))
    topic = counted.topic()
    assert (topic.released, sum(topic.release.counts)) == (2, 2)
    assert topic.release.sum_ms == 409 + 10
    counted.now_ms = NOW_MS + 1_990
    counted.apply(release(NOW_MS + 2_000))
    assert (topic.released, topic.release.sum_ms) == (3, 419)


def test_an_acknowledgement_counts_for_its_group_once(counted: Counted) -> None:
    counted.apply(subscribe(), schedule([NOW_MS + n for n in range(10)]), release(NOW_MS + 20))
    counted.apply(ack([0, 1, 2]))
    counted.apply(ack([2, 3]))  # one of them again
    assert counted.group().acknowledged == 4
    assert sum(counted.topic().acknowledgement.counts) == 4


def test_a_retry_counts_for_its_group_and_its_copy_for_no_topic(counted: Counted) -> None:
    counted.apply(subscribe(), schedule([NOW_MS + n for n in range(4)]), release(NOW_MS + 20))
    counted.apply(retry([0, 1], NOW_MS + 100, reason=RetryReason.RETRY_REASON_NACKED))
    counted.apply(release(NOW_MS + 200, now_ms=NOW_MS + 200))
    copies = counted.machine.queues.find("t", "g")
    assert copies is not None
    counted.apply(ack([0], queue=copies.queue))
    counted.apply(retry([1], NOW_MS + 300, queue=copies.queue, dead=True))
    group, topic = counted.group(), counted.topic()
    assert (group.retried, group.acknowledged, group.dead) == (2, 1, 1)
    assert (topic.scheduled, topic.released, sum(topic.acknowledgement.counts)) == (4, 4, 0)
    assert counted.topic("dlq.g.t").scheduled == 1


def test_cancelled_and_expired_messages_count_for_their_topic(counted: Counted) -> None:
    settings = TopicSettings(misfire="MISFIRE_POLICY_DROP", misfire_after_ms=1_000)
    counted.apply(admin(log_pb.TopicCommand(topic="t", settings=settings)))
    scheduled = counted.apply(schedule([NOW_MS + 10, NOW_MS + 20, NOW_MS + 30]))
    assert isinstance(scheduled, Scheduled)
    counted.apply(cancel([(NOW_MS // 3_600_000, 1)]))
    counted.apply(release(NOW_MS + 30, now_ms=NOW_MS + 60_000))
    topic = counted.topic()
    assert (topic.scheduled, topic.cancelled, topic.expired, topic.released) == (3, 1, 2, 0)


def test_what_is_applied_while_the_node_does_not_lead_is_not_counted(counted: Counted) -> None:
    counted.leads = False
    counted.apply(schedule([NOW_MS + 10]))
    assert list(counted.traffic.topics) == []
    counted.leads = True
    counted.apply(schedule([NOW_MS + 10]))
    assert counted.topic().scheduled == 1


def batch(attempts: list[int], due_ms: list[int], maybe: int = 0, *, retries: bool = False) -> Any:
    units = np.zeros(len(due_ms), dtype=[("due_ms", "<i8"), ("maybe_duplicate", "u1")])
    units["due_ms"] = due_ms
    units["maybe_duplicate"][:maybe] = 1
    keys = None if retries else np.zeros(len(due_ms), np.uint32)
    return SimpleNamespace(units=units, attempt=np.array(attempts, np.uint32), order_key=keys)


def test_deliveries_count_with_lateness_for_the_topic_s_queue_alone() -> None:
    traffic = Traffic(ON, 100, lambda: True)
    traffic.delivered(batch([1, 1], [NOW_MS - 5, NOW_MS - 7], maybe=1), "t", "g", NOW_MS)
    redriven_and_retries = batch([1, 2, 3, 1], [NOW_MS - 900] * 4, retries=True)
    traffic.delivered(redriven_and_retries, "t", "g", NOW_MS)
    traffic.nacked("t", "g", 2)
    group, topic = dict(traffic.groups)["t", "g"], dict(traffic.topics)["t"]
    assert (group.delivered, group.redelivered, group.maybe_repeated, group.nacked) == (6, 2, 1, 2)
    assert (sum(topic.delivery.counts), topic.delivery.sum_ms) == (2, 12)


def test_without_a_port_nothing_is_counted() -> None:
    traffic = Traffic(MetricsSettings(), 100, lambda: True)
    traffic.delivered(batch([1], [NOW_MS]), "t", "g", NOW_MS)
    traffic.nacked("t", "g", 1)
    assert not traffic.wanted
    assert list(traffic.topics) == list(traffic.groups) == []
