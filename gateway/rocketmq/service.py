"""The protocol's methods: which operation serves each, within the limits, and what an error is answered with.

Methods that are not in the tables are answered with gRPC's UNIMPLEMENTED, as RocketMQ's proxy answers them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.message import Message

from tarry.client.errors import TarryError
from tarry.gateway.rocketmq import consumer_calls, producer_calls, telemetry, transactions
from tarry.gateway.rocketmq.call import Call, Context, Gateway, Unread, call_of, write_parts
from tarry.gateway.rocketmq.codes import Refusal, status, status_of_error
from tarry.gateway.rocketmq.messages import types_of
from tarry.gateway.rocketmq.names import group_of
from tarry.gateway.rocketmq.protocol import service_pb2 as service
from tarry.gateway.rocketmq.protocol.definition_pb2 import Code, Status
from tarry.gateway.rocketmq.requests import BYTES_MAX, request_of

log = logging.getLogger(__name__)

SERVICE: Final = "apache.rocketmq.v2.MessagingService"
Operation: TypeAlias = Callable[[Call, Any], Awaitable[Message]]


async def query_route(call: Call, request: service.QueryRouteRequest) -> service.QueryRouteResponse:
    """Tell where a topic is. Topics are made by their first message, so each has a route."""
    types = types_of(call.topic_of(request.topic), call.gateway.config)
    queues = call.gateway.routes.queues(request.topic, request.endpoints, types)
    return service.QueryRouteResponse(status=status(), message_queues=queues)


async def query_assignment(
    call: Call, request: service.QueryAssignmentRequest
) -> service.QueryAssignmentResponse:
    """Tell a push consumer what to poll."""
    config = call.gateway.config
    types, group = types_of(call.topic_of(request.topic), config), group_of(request.group)
    fifo = group in config.fifo_groups
    assignments = call.gateway.routes.assignments(request.topic, request.endpoints, types, fifo)
    return service.QueryAssignmentResponse(status=status(), assignments=assignments)


async def heartbeat(call: Call, request: service.HeartbeatRequest) -> service.HeartbeatResponse:
    """Note that a client is there; that its settings came to another gateway is no matter."""
    del call, request
    return service.HeartbeatResponse(status=status())


async def notify_client_termination(
    call: Call, request: service.NotifyClientTerminationRequest
) -> service.NotifyClientTerminationResponse:
    """Note that a client ends: what it has in hand is renewed no more."""
    del request
    call.gateway.presence.leave(call.caller)
    return service.NotifyClientTerminationResponse(status=status())


UNARY: Final[Mapping[str, tuple[Operation, type[Message], type[Message]]]] = {
    "QueryRoute": (query_route, service.QueryRouteRequest, service.QueryRouteResponse),
    "QueryAssignment": (query_assignment, service.QueryAssignmentRequest, service.QueryAssignmentResponse),
    "Heartbeat": (heartbeat, service.HeartbeatRequest, service.HeartbeatResponse),
    "SendMessage": (producer_calls.send, service.SendMessageRequest, service.SendMessageResponse),
    "RecallMessage": (producer_calls.recall, service.RecallMessageRequest, service.RecallMessageResponse),
    "EndTransaction": (transactions.end, service.EndTransactionRequest, service.EndTransactionResponse),
    "AckMessage": (consumer_calls.acknowledge, service.AckMessageRequest, service.AckMessageResponse),
    "ChangeInvisibleDuration": (
        consumer_calls.change_invisible_duration,
        service.ChangeInvisibleDurationRequest,
        service.ChangeInvisibleDurationResponse,
    ),
    "ForwardMessageToDeadLetterQueue": (
        consumer_calls.forward_to_dead_letters,
        service.ForwardMessageToDeadLetterQueueRequest,
        service.ForwardMessageToDeadLetterQueueResponse,
    ),
    "NotifyClientTermination": (
        notify_client_termination,
        service.NotifyClientTerminationRequest,
        service.NotifyClientTerminationResponse,
    ),
}
"""Method -> operation, request, answer. Each answer has a field ``status``."""


FORWARD_PAUSE_S: Final = 1.0
"""Before a dead letter is refused: Java's client asks again at once, whatever the answer, and for ever."""


def handlers(gateway: Gateway) -> grpc.GenericRpcHandler[Any, Any]:
    """Return the handlers of all methods.

    For gRPC each method's request is a stream, of one: it reads no more of that than a handler asks for, and
    a handler takes a slot and checks credentials first. To clients there is no difference.
    """
    methods = {name: _unary(gateway, *told) for name, told in UNARY.items()}
    methods["ReceiveMessage"] = grpc.stream_stream_rpc_method_handler(
        _polls(gateway),
        response_serializer=service.ReceiveMessageResponse.SerializeToString,
    )
    methods["Telemetry"] = grpc.stream_stream_rpc_method_handler(
        _talks(gateway),
        response_serializer=service.TelemetryCommand.SerializeToString,
    )
    return grpc.method_handlers_generic_handler(SERVICE, methods)


def _unary(
    gateway: Gateway, operation: Operation, request_type: type[Message], answer_type: type[Message]
) -> grpc.RpcMethodHandler[Any, Any]:
    make: Callable[..., Message] = answer_type
    bytes_max = None if operation is producer_calls.send else BYTES_MAX

    async def serve(_: object, context: Context) -> Message:
        call = None
        try:
            call = call_of(context, gateway)
            with gateway.admission.calls.taken():
                return await operation(call, await request_of(call, context, request_type, bytes_max))
        except (Refusal, TarryError, TimeoutError) as error:
            refused = status_of_error(error)
        except Exception:  # noqa: BLE001 - no defect is to have a status of gRPC, with a text of ours
            refused = _defect(operation.__name__)
        if call is not None and operation is consumer_calls.forward_to_dead_letters:
            with contextlib.suppress(Refusal), gateway.admission.pauses.taken():
                await asyncio.sleep(min(FORWARD_PAUSE_S, call.budget_s))
        return make(status=refused)

    return grpc.stream_unary_rpc_method_handler(serve, response_serializer=answer_type.SerializeToString)


def _defect(operation: str) -> Status:
    """Write an error of the program into the log; return what its client is told: nothing of it."""
    log.exception("a call of %s has failed", operation)
    return status(Code.INTERNAL_SERVER_ERROR, "the gateway has failed, its log says how")


def _polls(gateway: Gateway) -> Callable[..., Awaitable[None]]:
    async def serve(_: object, context: Context) -> None:
        try:
            call = call_of(context, gateway)
            with gateway.admission.polls.taken():
                request = await request_of(call, context, service.ReceiveMessageRequest, BYTES_MAX)
                await consumer_calls.receive(call, request, context.write)
        except (Refusal, TarryError, TimeoutError) as error:
            await _refuse(gateway, context, service.ReceiveMessageResponse(status=status_of_error(error)))
        except Unread:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the answer was not read")
        except Exception:  # noqa: BLE001 - the same
            await _refuse(gateway, context, service.ReceiveMessageResponse(status=_defect("receive")))

    return serve


async def _refuse(gateway: Gateway, context: Context, answer: Message) -> None:
    """Write a refusal, for which a caller that reads nothing does not hold its call."""
    try:
        await write_parts(context.write, [answer], gateway.config.limits.call_ms / 1_000)
    except Unread:
        await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the answer was not read")


def _talks(gateway: Gateway) -> Callable[..., Awaitable[None]]:
    async def serve(_: object, context: Context) -> None:
        await context.send_initial_metadata(())
        try:
            call = call_of(context, gateway)
            with gateway.admission.streams.taken():
                await telemetry.talk(call, context)
        except Refusal as refusal:
            await _refuse(gateway, context, service.TelemetryCommand(status=status_of_error(refusal)))
        except Unread:
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "the answer was not read")
        except Exception:  # noqa: BLE001 - the same
            await _refuse(gateway, context, service.TelemetryCommand(status=_defect("telemetry")))

    return serve
