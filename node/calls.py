"""Names for gRPC's generic types, as used all over the edge."""

from typing import Any, TypeAlias

import grpc

CallContext: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
MethodHandler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
ServiceHandler: TypeAlias = "grpc.GenericRpcHandler[Any, Any]"
