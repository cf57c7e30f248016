from __future__ import annotations

from dataclasses import replace

from tarry.chaos.traffic.traffic import Workload, plan

LOAD = Workload(messages=2_000, topics=("a", "b"), spread_ms=10_000, delay_ms_max=20_000, seed=7)


def test_a_plan_follows_from_its_seed() -> None:
    assert plan(LOAD) == plan(LOAD)
    assert plan(LOAD) != plan(replace(LOAD, seed=8))


def test_a_plan_stays_within_its_load() -> None:
    planned = plan(LOAD)
    assert [message.token for message in planned] == list(range(1, 2_001))
    assert [message.at_ms for message in planned] == sorted(message.at_ms for message in planned)
    assert all(0 <= message.at_ms < 10_000 and 0 <= message.delay_ms <= 20_000 for message in planned)


def test_a_plan_has_every_kind_of_delay_on_every_topic() -> None:
    planned = plan(LOAD)
    assert {(message.topic, message.absolute) for message in planned} == {
        ("a", True),
        ("a", False),
        ("b", True),
        ("b", False),
    }
    together = [message for message in planned if message.at_ms + message.delay_ms == 20_000]
    assert len(together) > 100
    assert sum(message.delay_ms == 0 for message in planned) > 100
    assert max(message.delay_ms for message in planned) > 19_000
