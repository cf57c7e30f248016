"""Nodes measure their event loops' turns, and say what held them longest."""

from __future__ import annotations

import time

from tarry.client.local.cluster import LocalCluster
from tarry.proto.tarry_message_pb2 import Record
from tarry.proto.tarry_operator_pb2 import ClusterStatusRequest
from tarry.proto.tarry_producer_pb2 import ScheduleRequest
from tests.cluster.wire import TIMEOUT_S, wire

CLOCKS_APART_US = 1_000
"""The clock of time and that of CPU time are two, and are read one after the other."""


def test_a_node_says_what_held_its_event_loop_and_when(unused_cluster: LocalCluster) -> None:
    began_ms = time.time_ns() // 1_000_000 - 3_600_000
    with wire(next(iter(unused_cluster.nodes.values())).address) as node:
        record = Record(body=b"hello")
        node.producer.Schedule(
            ScheduleRequest(topic="turns", delay_ms=60_000, record=record), timeout=TIMEOUT_S
        )
        node.operator.ClusterStatus(ClusterStatusRequest(), timeout=TIMEOUT_S)
        turns = node.operator.ClusterStatus(ClusterStatusRequest(), timeout=TIMEOUT_S).turns
    causes = {hold.cause: hold for hold in turns.causes}
    assert {"apply schedule", "Schedule", "ClusterStatus", "heartbeat", "consensus"} <= set(causes)
    assert all(hold.held_us > 0 for hold in causes.values())
    assert turns.longest.cause
    assert turns.longest.held_us + CLOCKS_APART_US >= turns.busiest.cpu_us > 0
    assert turns.longest.at_ms > began_ms
