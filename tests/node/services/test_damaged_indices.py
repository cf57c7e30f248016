"""Calls that meet a damaged index of an hour are refused for a moment, and have it mended."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tarry.node.edge.auth import Authorizer
from tarry.node.edge.leader_calls import LeaderCalls, Local, parsed
from tarry.node.services.cancel_matching import CancelCalls
from tarry.node.services.key_calls import KeyCalls
from tarry.node.services.life import LifeCalls
from tarry.node.services.listing import ListCalls
from tarry.proto import tarry_producer_pb2 as producer_pb
from tarry.proto import tarry_query_pb2 as pb
from tarry.proto.message_id import MessageId
from tarry.proto.reasons import Reason
from tarry.replication.loop_holds import Holds
from tarry.replication.state_machine.refusal import Refusal
from tarry.wheel.state import HOUR_MS
from tests.node.decay import lose_index
from tests.node.keys.test_find_by_key import QUIET, complete, schedule
from tests.node.lone_leader import Leader, leader
from tests.simulation.edge import Context

CALLS = ("GetLife", "FindByKey", "ListMessages", "CancelMatching", "Get")


def call(lead: Leader, name: str, message: str) -> tuple[Any, Local]:
    """A request that needs the hour of a message, and what answers it."""
    given: tuple[Any, Any, LeaderCalls] = (lead.node._core, Authorizer({}), lead.edge._calls)
    wanted = pb.MessageFilter(topic="t", keys=["k"])
    match name:
        case "GetLife":
            return pb.GetLifeRequest(id=message), parsed(pb.GetLifeRequest, LifeCalls(*given)._get)
        case "FindByKey":
            request = pb.FindByKeyRequest(topic="t", key="k")
            return request, parsed(pb.FindByKeyRequest, KeyCalls(*given)._find)
        case "ListMessages":
            listed = pb.ListMessagesRequest(filter=wanted)
            return listed, parsed(pb.ListMessagesRequest, ListCalls(*given)._list)
        case "CancelMatching":
            cancelled = pb.CancelMatchingRequest(filter=wanted)
            return cancelled, parsed(pb.CancelMatchingRequest, CancelCalls(*given)._cancel)
    return producer_pb.GetRequest(id=message), parsed(producer_pb.GetRequest, lead.edge._producer._get)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_that_cannot_read_an_hour_s_index_reports_it_and_is_to_be_tried_again(
    tmp_path: Path, name: str
) -> None:
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        due_ms = lead.node.time.now_ms() + 5 * HOUR_MS
        await schedule(lead, [["z"]], due_ms - 3 * HOUR_MS)  # the node itself reads the first hour
        for _ in range(3):  # more than the far log keeps
            message, *_ = await schedule(lead, [["k"]] * 3_000, due_ms)
    hour = MessageId.parse(message).hour
    lose_index(lead.machine, hour)
    async with leader(tmp_path, Holds(), dispatch=QUIET) as lead:
        await complete(lead)
        lead.node._core.damage.indices.left.clear()
        request, local = call(lead, name, message)
        context: Any = Context()
        answer = await lead.edge._calls.answer(name, request.SerializeToString(), context, local)
        assert isinstance(answer, Refusal), answer
        assert (answer.reason, answer.retry_ms) == (Reason.MESSAGE_DAMAGED, 1_000)
        assert lead.node._core.damage.indices.left == {hour}
