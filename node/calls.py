"""gRPC's generic types by shorter names, and its metadata."""

from __future__ import annotations

from typing import Any, TypeAlias

import grpc

CallContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
ServiceHandler: TypeAlias = "grpc.GenericRpcHandler[Any, Any]"


def metadata_value(metadata: Any, key: str) -> Any:
    """Return the value of a key in a call's metadata (pairs, or None), None where it is not there."""
    return dict(metadata or ()).get(key)
