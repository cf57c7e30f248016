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


def unknown_field(request: Message) -> Refusal | None:
    """Return the refusal of a request with a field that this version does not know, in it or inside it.

    A newer client means something by it: stored unread, it would count once a newer version reads it. Then
    the request has lost it: to count fields would take some 0.6 us each, and there may be a million.
    """
    values = (
        value
        for field, value in request.ListFields()
        if field.message_type is not None and not field.message_type.GetOptions().map_entry  # of texts alone
    )
    messages = (one for value in values for one in ([value] if isinstance(value, Message) else value))
    if (within := next(filter(None, map(unknown_field, messages)), None)) is not None:
        return within
    size_bytes = request.ByteSize()
    request.DiscardUnknownFields()
    if request.ByteSize() != size_bytes:
        name = request.DESCRIPTOR.full_name
        return Refusal(
            Reason.FIELD_UNKNOWN, f"{name} has a field that this version of the node does not know"
        )
    return None
