"""What the log says of peers' ports that cannot be reached."""

from __future__ import annotations

from structlog.testing import capture_logs

from tarry.node.edge.blocked_ports import LOG_PERIOD_S, BlockedPortLog
from tarry.replication.transport.blocked_port import BlockedPort

PORT = BlockedPort("10.0.0.2:7002", "no answer in 2 s")


def test_a_blocked_port_is_told_at_once_and_again_after_a_period_and_so_is_its_end() -> None:
    ports = BlockedPortLog()
    with capture_logs() as logs:
        for now_s in (5.0, 15.0, 5.0 + LOG_PERIOD_S - 0.1):
            ports.look({"n2": PORT}, now_s)
    assert [(line["event"], line["peer"], line["address"]) for line in logs] == [
        ("peer port blocked", "n2", "10.0.0.2:7002")
    ]
    assert "open TCP 10.0.0.2:7002" in logs[0]["to_do"]
    with capture_logs() as logs:
        ports.look({"n2": PORT}, 5.0 + LOG_PERIOD_S)
        ports.look({}, 5.0 + LOG_PERIOD_S + 1)
        ports.look({}, 5.0 + LOG_PERIOD_S + 2)
    assert [line["event"] for line in logs] == ["peer port blocked", "peer port open again"]


def test_another_address_is_told_at_once() -> None:
    ports = BlockedPortLog()
    with capture_logs() as logs:
        ports.look({"n2": PORT}, 0.0)
        ports.look({"n2": BlockedPort("10.0.0.2:7003", "x")}, 1.0)
    assert [line["address"] for line in logs] == ["10.0.0.2:7002", "10.0.0.2:7003"]
