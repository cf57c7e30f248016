"""Calls about schedules whose answers are lost: nothing is done twice, and what cannot be known is said."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tarry.client.aio import Client, Interval, connect
from tarry.client.errors import NotFound, OutcomeUnknown, RevisionDiffers
from tarry.proto import tarry_recurring_pb2 as pb
from tarry.proto.tarry_recurring_pb2_grpc import (
    RecurringServiceServicer,
    add_RecurringServiceServicer_to_server,
)
from tests.client.stand_in import ClusterStandIn, break_off, refuse


class Schedules(RecurringServiceServicer):
    """One schedule at most, as a leader keeps it; answers may be lost after the work is done."""

    def __init__(self) -> None:
        self.kept: pb.Recurring | None = None
        self.lose = 0
        """Answers to be lost."""
        self.requests: list[Any] = []

    async def PutRecurring(self, request: pb.PutRecurringRequest, context: Any) -> pb.RecurringResponse:  # noqa: N802
        self.requests.append(request)
        revision = 0 if self.kept is None else self.kept.revision
        if request.HasField("if_revision") and request.if_revision != revision:
            facts = {"revision": str(revision)}
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "RECURRING_CHANGED", facts)
        if self.kept is None or self.kept.spec != request.spec:
            self.kept = pb.Recurring(name=request.name, spec=request.spec, revision=revision + 1)
        await self._lose(context)
        return pb.RecurringResponse(recurring=self.kept)

    async def GetRecurring(self, request: pb.GetRecurringRequest, context: Any) -> pb.RecurringResponse:  # noqa: N802
        return pb.RecurringResponse(recurring=await self._there(context))

    async def TriggerRecurring(  # noqa: N802
        self, request: pb.TriggerRecurringRequest, context: Any
    ) -> pb.TriggerRecurringResponse:
        self.requests.append(request)
        kept = await self._there(context)
        if request.HasField("if_triggered") and request.if_triggered != kept.triggered:
            await refuse(context, grpc.StatusCode.FAILED_PRECONDITION, "RECURRING_CHANGED")
        kept.triggered += 1
        await self._lose(context)
        return pb.TriggerRecurringResponse(id=f"m{kept.triggered}", due_ms=7, triggered=kept.triggered)

    async def DeleteRecurring(  # noqa: N802
        self, request: pb.DeleteRecurringRequest, context: Any
    ) -> pb.DeleteRecurringResponse:
        self.requests.append(request)
        await self._there(context)
        self.kept = None
        await self._lose(context)
        return pb.DeleteRecurringResponse()

    async def _there(self, context: Any) -> pb.Recurring:
        if self.kept is None:
            await refuse(context, grpc.StatusCode.NOT_FOUND, "RECURRING_UNKNOWN")
        assert self.kept is not None
        return self.kept

    async def _lose(self, context: Any) -> None:
        if self.lose:
            self.lose -= 1
            await break_off(context)


@pytest.fixture
def schedules() -> Schedules:
    return Schedules()


@pytest.fixture
async def client(schedules: Schedules) -> AsyncIterator[Client]:
    cluster = ClusterStandIn()
    cluster.more_services.append(lambda _, server: add_RecurringServiceServicer_to_server(schedules, server))
    await cluster.start(1)
    async with connect(cluster.addresses, pace_ms=1) as connected:
        yield connected
    await cluster.stop()


async def test_a_put_whose_answer_is_lost_finds_that_it_is_so_already(
    client: Client, schedules: Schedules
) -> None:
    schedules.lose = 2
    made = await client.recurring().put("s", "t", b"x", timing=Interval(1_000))
    assert (made.revision, len(schedules.requests)) == (1, 3)


async def test_a_put_with_a_revision_whose_answer_is_lost_says_that_nobody_knows(
    client: Client, schedules: Schedules
) -> None:
    schedules.lose = 1
    with pytest.raises(OutcomeUnknown) as unknown:
        await client.recurring().put("s", "t", timing=Interval(1_000), if_revision=0)
    assert unknown.value.reason == "RECURRING_CHANGED"
    with pytest.raises(RevisionDiffers) as differs:
        await client.recurring().put("s", "t", timing=Interval(2_000), if_revision=0)
    assert differs.value.revision == 1


async def test_a_trigger_whose_answer_is_lost_fires_once(client: Client, schedules: Schedules) -> None:
    recurring = client.recurring()
    await recurring.put("s", "t", timing=Interval(1_000))
    schedules.lose = 1
    with pytest.raises(OutcomeUnknown):
        await recurring.trigger("s")
    assert (await recurring.get("s")).triggered == 1
    made = await recurring.trigger("s")
    assert (made.id, made.triggered) == ("m2", 2)


async def test_of_two_who_trigger_with_one_number_one_does(client: Client) -> None:
    recurring = client.recurring()
    await recurring.put("s", "t", timing=Interval(1_000))
    done = await asyncio.gather(
        *(recurring.trigger("s", if_triggered=0) for _ in range(2)), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in done) == ["RevisionDiffers", "Triggered"]


async def test_a_delete_whose_answer_is_lost_says_that_nobody_knows(
    client: Client, schedules: Schedules
) -> None:
    recurring = client.recurring()
    await recurring.put("s", "t", timing=Interval(1_000))
    schedules.lose = 1
    with pytest.raises(OutcomeUnknown) as unknown:
        await recurring.delete("s")
    assert unknown.value.reason == "RECURRING_UNKNOWN"
    with pytest.raises(NotFound):
        await recurring.delete("s")
