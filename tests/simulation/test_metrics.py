"""What the metrics of whole nodes count is what the rows of their ledgers say."""

from __future__ import annotations

import asyncio
from collections import Counter

from tarry.proto.ledger.schema import Kind
from tests.simulation.model_consumer import ModelConsumer
from tests.simulation.model_producer import ModelProducer
from tests.simulation.whole_scenario import scenario, soon
from tests.simulation.whole_world import WholeWorld

OF_TOPICS = (Kind.SCHEDULED, Kind.RELEASED, Kind.CANCELLED)
OF_GROUPS = (Kind.ACKED, Kind.RETRIED, Kind.DEAD)
FIELDS = {Kind.ACKED: "acknowledged"}


def of_groups(world: WholeWorld, kind: Kind) -> Counter[str]:
    """Return what all leaders have counted of each group."""
    counts = Counter[str]()
    for traffic in world.traffic:
        field = FIELDS.get(kind, kind)
        counts.update({f"{topic}/{group}": getattr(of, field) for (topic, group), of in traffic.groups})
    return +counts


def rows(world: WholeWorld, kind: Kind) -> Counter[str]:
    """Return how many messages the rows tell of, by topic or `topic/group`."""
    return +Counter({place: len(ids) for (place, of), ids in world.rows.messages.items() if of is kind})


def test_a_leader_counts_each_row_once() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", soon(world, 100, 500))
        labels = await producer.schedule("b", [due_ms + 5_000 for due_ms in soon(world, 40, 500)])
        await producer.cancel_all(labels[:15])

    world = scenario(play)
    for kind in OF_TOPICS:
        assert +world.counted_of(kind) == {
            place: count for place, count in rows(world, kind).items() if "/" not in place
        }, kind
    assert world.counted_of(Kind.CANCELLED)["b"] == 15
    assert of_groups(world, Kind.ACKED) == rows(world, Kind.ACKED)
    assert of_groups(world, Kind.ACKED)["a/g1"] == 100


def test_retries_and_the_dead_are_counted_for_their_group_and_no_topic() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        nacking = asyncio.ensure_future(ModelConsumer(world, "nacks", "a", "g1", nacks=1.0).run())
        await producer.schedule("a", soon(world, 100, 500))
        await asyncio.sleep(2)
        nacking.cancel()

    world = scenario(play)
    assert world.counted_of(Kind.RELEASED)["a"] == 100
    retried = of_groups(world, Kind.RETRIED)["a/g1"]
    assert retried >= len(world.rows.messages["a/g1", Kind.RETRIED]) > 0
    assert of_groups(world, Kind.DEAD) == rows(world, Kind.DEAD)
    assert of_groups(world, Kind.ACKED) == rows(world, Kind.ACKED)


def test_a_new_leader_counts_on_and_nothing_is_counted_by_two() -> None:
    async def play(world: WholeWorld, producer: ModelProducer) -> None:
        await producer.schedule("a", soon(world, 200, 2_000))
        await asyncio.sleep(1)
        leader = next(node for node in world.whole if node.core.leadership.serves())
        leader.crash()
        await asyncio.sleep(1)
        leader.start(world.members)

    world = scenario(play)  # which demands that nothing is counted twice
    counts = [dict(traffic.topics)["a"].released for traffic in world.traffic if "a" in traffic.topics]
    assert sum(count > 0 for count in counts) == 2
    assert 150 < sum(counts) <= 200
