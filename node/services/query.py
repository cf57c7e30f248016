"""QueryService: what waits, what became of a message, and cancels by what messages have in common."""

from __future__ import annotations

from typing import Final

import grpc

from tarry.node.assembly import Core
from tarry.node.edge.auth import Authorizer
from tarry.node.edge.grpc_types import MethodHandler, ServiceHandler
from tarry.node.edge.leader_calls import LeaderCalls
from tarry.node.services.cancel_matching import CancelCalls
from tarry.node.services.forecast import ForecastCalls
from tarry.node.services.history import HistoryCalls
from tarry.node.services.key_calls import KeyCalls
from tarry.node.services.life import LifeCalls
from tarry.node.services.listing import ListCalls

SERVICE: Final = "tarry.v1.QueryService"


class QueryService:
    """Answers queries; each part has some of the calls."""

    def __init__(self, core: Core, authorizer: Authorizer, calls: LeaderCalls) -> None:
        self._methods: dict[str, MethodHandler] = {
            **CancelCalls(core, authorizer, calls).methods(SERVICE),
            **ForecastCalls(core, authorizer, calls).methods(SERVICE),
            **HistoryCalls(core, authorizer).methods(),
            **KeyCalls(core, authorizer, calls).methods(SERVICE),
            **LifeCalls(core, authorizer, calls).methods(SERVICE),
            **ListCalls(core, authorizer, calls).methods(SERVICE),
        }

    def handlers(self) -> ServiceHandler:
        """Return the service's handlers for a grpc.aio server."""
        return grpc.method_handlers_generic_handler(SERVICE, self._methods)
