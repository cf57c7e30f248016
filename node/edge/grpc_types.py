"""gRPC's generic types by shorter names, its metadata, and requests parsed from bytes."""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from tarry.proto.reasons import Reason
from tarry.replication.state_machine.refusal import Refusal

CallContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
ServiceHandler: TypeAlias = "grpc.GenericRpcHandler[Any, Any]"


def metadata_value(metadata: Any, key: str) -> Any:
    """Return the value of a key in a call's metadata (pairs, or None), None where it is not there."""
    return dict(metadata or ()).get(key)


M = TypeVar("M", bound=Message)


def parse(kind: type[M], raw: bytes) -> M | Refusal:
    """Return the message that the bytes are."""
    try:
        return kind.FromString(raw)
    except DecodeError:
        return Refusal(Reason.RECORD_INVALID, f"the request is not a {kind.DESCRIPTOR.full_name}")
