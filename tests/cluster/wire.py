"""The API as any gRPC client sees it, without ours in between: calls, and what a refusal says."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tarry.proto import (
    tarry_consumer_pb2_grpc,
    tarry_operator_pb2_grpc,
    tarry_producer_pb2_grpc,
)

TIMEOUT_S = 10.0
RETRIES = {  # gRPC's own, for a leadership that moves while a machine is busy
    "methodConfig": [
        {
            # not of what would be done twice
            "name": [{"service": "tarry.v1.OperatorService"}, {"service": "tarry.v1.ConsumerService"}],
            "retryPolicy": {
                "maxAttempts": 5,
                "initialBackoff": "0.2s",
                "maxBackoff": "1s",
                "backoffMultiplier": 2,
                "retryableStatusCodes": ["UNAVAILABLE"],
            },
        }
    ]
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """A status with the reason and facts of its ErrorInfo."""

    code: grpc.StatusCode
    reason: str
    facts: Mapping[str, str]
    text: str


class Wire:
    """Stubs to one node."""

    def __init__(self, channel: grpc.Channel) -> None:
        # the stubs of generated services have no annotations
        self.producer: Any = tarry_producer_pb2_grpc.ProducerServiceStub(channel)
        self.consumer: Any = tarry_consumer_pb2_grpc.ConsumerServiceStub(channel)
        self.operator: Any = tarry_operator_pb2_grpc.OperatorServiceStub(channel)


@contextmanager
def wire(address: str) -> Iterator[Wire]:
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.max_send_message_length", -1),
        ("grpc.service_config", json.dumps(RETRIES)),
    ]
    with grpc.insecure_channel(address, options) as channel:
        yield Wire(channel)


def refusal(error: grpc.RpcError) -> Refusal:
    """Return what a failed call says; a status without our ErrorInfo has the reason ''."""
    call = cast("grpc.Call", error)
    status = rpc_status.from_call(call)
    for detail in status.details if status else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            assert info.domain == "tarry"
            return Refusal(call.code(), info.reason, dict(info.metadata), call.details())
    return Refusal(call.code(), "", {}, call.details())
