"""gRPC's limits on connections, and health and reflection as services like the node's own."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import Any, Final

from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1._async import HealthServicer
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from grpc_reflection.v1alpha._async import ReflectionServicer

from tarry.node.config import Connections
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.call_admission import Admit
from tarry.node.edge.grpc_types import ServiceHandler

KEEPALIVE_MS: Final = 60_000
"""A client that vanished without a word is noticed after so long, its streams ended."""

HEALTH_CHECK: Final = "/grpc.health.v1.Health/Check"


def options(bounds: Connections) -> list[tuple[str, int]]:
    """Return options of the server.

    No maximum age: it would break consumers' streams for nothing, for a connection that is used costs no more
    the older it is.
    """
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return [
        ("grpc.max_allowed_incoming_connections", min(bounds.connections_max, files // 2)),
        ("grpc.server_handshake_timeout_ms", bounds.handshake_ms),
        ("grpc.max_connection_idle_ms", bounds.idle_ms),
        ("grpc.max_concurrent_streams", bounds.connection_calls_max),
        ("grpc.keepalive_time_ms", KEEPALIVE_MS),
        # that have come and nobody has looked at; beyond 1,000 gRPC would drop some of anybody's at random
        ("grpc.server.max_pending_requests", bounds.calls_max),
        ("grpc.server.max_pending_requests_hard_limit", bounds.calls_max),
    ]


def health_and_reflection(health: HealthServicer, services: Sequence[str]) -> list[ServiceHandler]:
    """Return the handlers of health and reflection, which know only how to add themselves to a server."""
    handlers: Any = _Handlers()
    health_pb2_grpc.add_HealthServicer_to_server(health, handlers)
    shown = ReflectionServicer((*services, reflection.SERVICE_NAME))
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(shown, handlers)
    return list(handlers.added)


def admits_health(authorizer: Authorizer) -> Admit:
    """Return who may call: anybody asks whether the node serves, the rest is for who has a token."""
    return lambda path, metadata: None if path == HEALTH_CHECK else authorizer.unknown(metadata)


class _Handlers:
    def __init__(self) -> None:
        self.added: list[ServiceHandler] = []

    def add_generic_rpc_handlers(self, handlers: Sequence[ServiceHandler]) -> None:
        self.added += handlers

    def add_registered_method_handlers(self, *_: object) -> None:
        """Do nothing: registered so, they would go past the entrance."""
