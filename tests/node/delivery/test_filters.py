"""A group that filters by properties: it has what matches, and the rest counts as passed over."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest

from tarry.node.delivery import batch
from tarry.node.delivery.consumer import Consumer
from tarry.node.delivery.selection import Selection
from tarry.node.filters.property_filter import PropertyFilter
from tarry.proto.reasons import Reason
from tarry.proto.tarry_message_pb2 import Record
from tests.node.group_in_process import GROUP, SETTINGS, TOPIC, Group
from tests.node.group_play import labels, pass_ms, play, poll

EU = "region = 'eu'"


def schedule(group: Group, *regions: str, key: str = "", tags: tuple[str, ...] = ()) -> list[str]:
    return [group.schedule(key, 0, tags, properties={"region": region}) for region in regions]


def consumer(text: str, name: str = "other", *, polls: bool = False) -> Consumer:
    wanted = PropertyFilter(text) if text else None
    return Consumer(name, TOPIC, GROUP, 1_000, 5, frozenset(), wanted, polls=polls)


def done(group: Group) -> list[str]:
    return sorted(label for label, places in group.places().items() if places == ["done"])


def test_what_does_not_match_is_passed_over_without_a_delivery_or_credit() -> None:
    async def steps(group: Group) -> None:
        scheduled = schedule(group, "us", "eu", "us", "eu", "us")
        missing = group.schedule("", 0)
        group.join("a", credit=3, by_properties=EU)
        await pass_ms(group, 10)
        assert labels(group) == [scheduled[1], scheduled[3]]
        stream = group.hands["a"].consumer
        assert stream is not None
        assert stream.credit == 1
        await group.commit()
        assert done(group) == sorted([scheduled[0], scheduled[2], scheduled[4], missing])

    play(steps)


def test_with_tags_both_count() -> None:
    async def steps(group: Group) -> None:
        schedule(group, "us", tags=("red",))
        (wanted,) = schedule(group, "eu", tags=("red",))
        schedule(group, "eu", tags=("blue",))
        schedule(group, "eu", tags=("blue", "green"))
        group.join("a", tags=["red"], by_properties=EU)
        await pass_ms(group, 10)
        assert labels(group) == [wanted]

    play(steps)


def test_a_message_of_a_key_that_is_passed_over_lets_the_next_go() -> None:
    async def steps(group: Group) -> None:
        group.check_order = lambda given: (
            None
        )  # what is passed over is not waited for until that is committed
        first, _, second = schedule(group, "eu", "us", "eu", key="k")
        group.join("a", by_properties=EU)
        await pass_ms(group, 10)
        assert labels(group) == [first]
        group.settle_first("a", 1, nack=False)
        await group.settle()
        for _ in range(3):
            await group.commit()
            await pass_ms(group, 10)
        assert labels(group) == [first, second]

    play(steps)


def test_a_retry_comes_again() -> None:
    async def steps(group: Group) -> None:
        _, wanted = schedule(group, "us", "eu")
        group.join("a", by_properties=EU)
        await pass_ms(group, 10)
        group.settle_first("a", 1, nack=True, delay_ms=5)
        await group.settle()
        for _ in range(3):
            await group.commit()
            await pass_ms(group, 50)
        assert labels(group) == [wanted, wanted]
        assert [one.attempt for one in group.given] == [1, 2]

    play(steps)


def test_calls_have_what_matches() -> None:
    async def steps(group: Group) -> None:
        scheduled = schedule(group, "us", "eu", "us", "eu")
        await pass_ms(group, 60)
        poll(group, "a", 1_000, credit=1, by_properties=EU)
        poll(group, "b", 1_000, credit=5, by_properties=EU)
        assert labels(group) == [scheduled[1], scheduled[3]]

    play(steps)


def test_what_a_consumer_gives_back_goes_to_the_next_and_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[Record] = []
    answers = Selection._answers

    def count(self: Selection, by_properties: PropertyFilter, messages: Iterable[Record]) -> list[bool]:
        listed = list(messages)
        asked.extend(listed)
        return answers(self, by_properties, listed)

    monkeypatch.setattr(Selection, "_answers", count)

    async def steps(group: Group) -> None:
        wanted = schedule(group, *["eu"] * 4)
        group.join("a", by_properties=EU)
        await pass_ms(group, 10)
        group.leave("a", clean=True)
        group.join("b", by_properties=EU)
        await pass_ms(group, 10)
        assert labels(group) == wanted * 2
        assert len(asked) == 4

    play(steps)


def test_another_filter_asks_anew() -> None:
    async def steps(group: Group) -> None:
        eu, us = schedule(group, "eu", "us")
        group.join("a", credit=1, by_properties="region IS NOT NULL")
        await pass_ms(group, 10)
        assert labels(group) == [eu]
        group.leave("a", clean=True)
        group.join("b", by_properties="region = 'us'")
        await pass_ms(group, 10)
        assert labels(group) == [eu, us]

    play(steps)


@pytest.mark.parametrize("other", ["", "region = 'us'", "region  = 'eu'"])
def test_consumers_of_a_group_have_the_same_filter(other: str) -> None:
    async def steps(group: Group) -> None:
        group.join("a", by_properties=EU)
        assert group.group.differs(consumer(EU)) is None
        refusal = group.group.differs(consumer(other))
        assert refusal is not None
        assert refusal.reason is Reason.FILTER_DIFFERS
        assert EU in refusal.text
        assert group.group.differs(consumer(other, "a")) is None  # it replaces the one

    play(steps)


def test_calls_of_a_group_have_the_same_filter_for_a_lease() -> None:
    async def steps(group: Group) -> None:
        poll(group, "a", 1_000, by_properties=EU)
        assert group.group.differs(consumer(EU, polls=True)) is None
        refusal = group.group.differs(consumer("region = 'us'", polls=True))
        assert refusal is not None
        assert refusal.reason is Reason.FILTER_DIFFERS
        await pass_ms(group, SETTINGS.lease_ms + 1)
        assert group.group.differs(consumer("region = 'us'", polls=True)) is None

    play(steps)


def test_records_that_are_not_cached_are_asked_once_they_are_read() -> None:
    async def steps(group: Group) -> None:
        group.disk.cold = True
        _, wanted = schedule(group, "us", "eu")
        group.join("a", by_properties=EU)
        await pass_ms(group, 60)
        await pass_ms(group, 60)
        assert labels(group) == [wanted]
        assert group.disk.read_ahead == [2]

    play(steps)


def test_the_next_leader_asks_again_and_nothing_that_matches_is_lost() -> None:
    async def steps(group: Group) -> None:
        scheduled = schedule(group, "us", "eu", "us", "eu")
        group.join("a", by_properties=EU)
        await pass_ms(group, 10)
        assert labels(group) == [scheduled[1], scheduled[3]]
        await group.fail_over(0, group.cursors())
        group.hands.clear()
        group.join("b", by_properties=EU)
        for _ in range(4):
            await pass_ms(group, SETTINGS.lease_ms)
            await group.commit()
        assert labels(group)[2:4] == [scheduled[1], scheduled[3]]

    play(steps)


def test_a_filter_that_matches_nothing_passes_over_more_than_one_turn_takes() -> None:
    async def steps(group: Group) -> None:
        many = " OR ".join(["region = 'x'"] * 100)
        for _ in range(30):
            schedule(group, *["us"] * 20)
        (last,) = schedule(group, "x")
        group.join("a", by_properties=many)
        for _ in range(20):
            await pass_ms(group, 10)
            await group.commit()
        assert labels(group) == [last]
        assert len(done(group)) == 600

    play(steps)


@pytest.mark.parametrize("credit", [1, 3])
def test_a_consumer_with_little_credit_is_not_asked_for_one_by_one(
    monkeypatch: pytest.MonkeyPatch, credit: int
) -> None:
    built = []
    build = batch.build

    def count(*given: Any) -> batch.DeliveryBatch:
        made = build(*given)
        built.append(len(made.units))
        return made

    monkeypatch.setattr(batch, "build", count)

    async def steps(group: Group) -> None:
        for _ in range(30):
            schedule(group, *["us"] * 20)
        wanted = schedule(group, *["eu"] * 50)
        group.join("a", credit=credit, by_properties=EU)
        for _ in range(5):
            await pass_ms(group, 10)
            await group.commit()
        assert labels(group) == wanted[:credit]
        assert len(built) < 15
        assert len(done(group)) == 600
        group.add_credit("a", 100)
        for _ in range(5):
            await pass_ms(group, 10)
        assert labels(group) == wanted

    play(steps)


def test_offsets_of_the_filter_are_forgotten_below_the_floor() -> None:
    async def steps(group: Group) -> None:
        schedule(group, *["eu"] * 5)
        group.join("a", by_properties=EU)
        await pass_ms(group, 10)
        group.settle_first("a", 5, nack=False)
        await group.settle()
        await group.commit()
        schedule(group, "eu")
        group.add_credit("a", 5)
        await pass_ms(group, 10)
        kept = group.group._selection._matched[group.queue]
        assert np.array(kept.to_array()).tolist() == [5]

    play(steps)
